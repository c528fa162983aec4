"""A routing system joins the suite by two entries: one in the registry, one that tells its networks and its ideal. Then
it is simulated and run live as all others are, and mistakes in it are found."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from catchment.broker.config import Config
from catchment.errors import InputError
from catchment.routing.messages import Action, BrokerMessage, Forward, Header, Routed, Send, SetTimer
from catchment.routing.systems import SYSTEMS, added
from catchment.sim.conformance.entries import ENTRIES, TREES, Run, unchecked_systems
from catchment.sim.conformance.runs import outcome_of
from catchment.sim.simulation import Simulation
from catchment.sim.topology import line
from tests import toy_system
from tests.live import runs as live
from tests.live.hosts import Hosts
from tests.toy_system import ENTRY, SYSTEM, ToyCore


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(ENTRIES, "toy", ENTRY)
    with added(SYSTEM):
        yield


@pytest.mark.parametrize("network", TREES)
@pytest.mark.parametrize("seed", range(3))
def test_it_is_simulated(toy: None, network: str, seed: int):
    outcome = outcome_of(Run("toy", network, seed))
    assert outcome.violation is None, str(outcome)
    assert outcome.deliveries > 25


def test_it_runs_live(toy: None):
    with Hosts(modules=(toy_system.__name__,)) as hosts:
        outcome = live.outcome_of(Run("toy", "random tree", 3), hosts)
    assert outcome.violation is None, str(outcome)
    assert outcome.deliveries > 10


def test_it_is_configured_as_all_others(toy: None):
    core = Config(routing="toy", settings={"refresh_s": 2.0}).make_core()
    assert isinstance(core.inner, ToyCore)
    with pytest.raises(InputError, match=r"settings of toy: .*refresh_s"):
        Config(routing="toy")


def test_its_idle_timer_fires_and_does_not_keep_the_network_from_rest():
    simulation = Simulation(line(2), lambda name: ToyCore(name, 0.1))
    simulation.settle()
    assert simulation.is_quiescent
    said = simulation.traffic.total("Listeners")
    simulation.advance(250_000)
    simulation.settle()
    assert simulation.traffic.total("Listeners") == said + 4
    assert simulation.control_caused["idle"] == 4


def test_it_is_gone_afterwards():
    assert "toy" not in SYSTEMS
    assert "toy" not in ENTRIES


def test_a_system_without_an_entry_is_reported():
    assert unchecked_systems() == []
    with added(SYSTEM):
        assert unchecked_systems() == ["toy"]


# --- planted mistakes ---------------------------------------------------------------------------


def spoiled(patch: pytest.MonkeyPatch, spoil: Callable[[Action], Action]) -> None:
    """Each action of the core is replaced."""
    for name in ("on_message", "on_notifications"):
        answer = getattr(ToyCore, name)

        def spoiling(self: ToyCore, *given: Any, answer: Any = answer) -> list[Action]:
            return [spoil(action) for action in answer(self, *given)]

        patch.setattr(ToyCore, name, spoiling)


class Shouted(BrokerMessage, frozen=True):
    """What no system says."""

    count: int


def another_message(action: Action) -> Action:
    return Send(action.interface, Shouted(1)) if isinstance(action, Send) else action


def another_header(action: Action) -> Action:
    if not isinstance(action, Forward):
        return action
    return Forward(
        action.interface, tuple(Routed(each.notification, Header(each.header.hops)) for each in action.batch)
    )


def a_timer_that_is_not_idle(action: Action) -> Action:
    return SetTimer(action.name, action.at) if isinstance(action, SetTimer) else action


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (another_message, "Invalid value 'Shouted'"),
        (another_header, "Expected `array` of at least length 2, got 1"),
        (a_timer_that_is_not_idle, "OCCURRENCES_MAX"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_mistake_is_found(toy: None, spoil: Callable[[Action], Action], reason: str, monkeypatch: pytest.MonkeyPatch):
    spoiled(monkeypatch, spoil)
    outcomes = [outcome_of(Run("toy", "random tree", seed), shrink=False) for seed in range(1, 4)]
    assert any(reason in (outcome.violation or "") for outcome in outcomes)


def test_a_core_that_forgets_what_neighbors_say_is_found(toy: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ToyCore, "counts", property(lambda self: {}, lambda self, value: None), raising=False)
    assert outcome_of(Run("toy", "line", 1), shrink=False).violation is not None


def test_a_core_that_nothing_looks_at_is_found(toy: None):
    class Unknown(ToyCore):
        """As good, but of a class that the ideal does not know."""

    unknown = replace(SYSTEM, make=lambda name, settings: Unknown(name, settings.refresh_s))
    # Undone here: the fixture `monkeypatch` would put the toy back after the fixture `toy` has taken it out.
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SYSTEMS, "toy", unknown)
        outcome = outcome_of(Run("toy", "line", 1), shrink=False)
    assert "nothing checks the tables of 0, whose core is a Unknown" in str(outcome.violation)
