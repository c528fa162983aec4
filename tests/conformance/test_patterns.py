"""Patterns watched upstream give clients what patterns watched at their broker give them, with less traffic; and
mistakes planted in that are found."""

from typing import Any

import pytest

from catchment.model.monitor import HeldMonitor, Monitor
from catchment.routing.siena.delegating import DelegatingCore
from catchment.routing.siena.held_watching import HeldWatching
from catchment.routing.siena.thinning import Thinner
from tests.conformance.planted import Plant
from tests.twins import Twins, difference, violation

SEEDS = range(60)


@pytest.mark.parametrize("seed", SEEDS)
def test_clients_get_the_same(seed: int):
    assert difference(seed) is None


@pytest.mark.parametrize("seed", range(20))
def test_tables_are_ideal_in_a_hurry_and_with_faults(seed: int):
    assert violation(seed) is None


def test_with_less_traffic():
    sent = [0, 0]
    sequences = 0
    for seed in range(20):
        twins = Twins(seed)
        twins.run(80)
        for i, network in enumerate(twins.networks):
            sent[i] += network.traffic.total("notifications", "Part")
        got = twins.got(twins.networks[1]).values()
        sequences += sum(isinstance(delivered, tuple) for each in got for delivered in each)
    assert sequences > 100
    assert sent[1] < 0.95 * sent[0]


# --- planted mistakes ---------------------------------------------------------------------------


def chains_are_forgotten_with_what_is_sent(patch: pytest.MonkeyPatch) -> None:
    released = Thinner._released

    def forgetting(self: Any, kept: Any) -> Any:
        kept.chains = [None] * len(kept.chains)
        return released(self, kept)

    patch.setattr(Thinner, "_released", forgetting)


def only_the_chain_that_is_complete_is_sent(patch: pytest.MonkeyPatch) -> None:
    on_notification = Thinner.on_notification

    def first_and_last(self: Any, arrived: Any) -> Any:
        held = on_notification(self, arrived)
        return [*held[-2:-1], *held[-1:]]

    patch.setattr(Thinner, "on_notification", first_and_last)


def what_was_ignored_begins_a_sequence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HeldMonitor, "on_held", Monitor.on_notification)


def a_part_counts_by_itself_too(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HeldWatching, "hold_back", lambda self, pattern, steps: None)
    patch.setattr(DelegatingCore, "_is_wanted", lambda self, filter, neighbor: False)


def what_is_held_is_lost_with_a_withdrawal(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Thinner, "held", lambda self: [])


def nobody_has_the_first_already(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Thinner, "go_on", lambda self: None)


def who_joins_later_gets_what_is_older(patch: pytest.MonkeyPatch) -> None:
    fed = DelegatingCore._fed

    def always_there(self: Any, need: Any, held: Any, since: int, now: int) -> Any:
        need.monitors = dict.fromkeys(need.monitors, 0)
        return fed(self, need, held, 0, now)

    patch.setattr(DelegatingCore, "_fed", always_there)


def a_part_goes_to_one_delegator_only(patch: pytest.MonkeyPatch) -> None:
    sent = DelegatingCore._sent
    patch.setattr(DelegatingCore, "_sent", lambda self, need, held: sent(self, need, held)[:1])


def delegations_are_kept_when_a_link_goes_down(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DelegatingCore, "_unlink", lambda self, neighbor: [])


MUTANTS: list[Plant] = [
    chains_are_forgotten_with_what_is_sent,
    only_the_chain_that_is_complete_is_sent,
    what_was_ignored_begins_a_sequence,
    a_part_counts_by_itself_too,
    what_is_held_is_lost_with_a_withdrawal,
    nobody_has_the_first_already,
    who_joins_later_gets_what_is_older,
    a_part_goes_to_one_delegator_only,
]


def test_a_mistake_about_links_is_found(monkeypatch: pytest.MonkeyPatch):
    delegations_are_kept_when_a_link_goes_down(monkeypatch)
    assert any(violation(seed) is not None for seed in range(40))


@pytest.mark.parametrize("plant", MUTANTS, ids=[plant.__name__ for plant in MUTANTS])
def test_a_mistake_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch):
    plant(monkeypatch)
    assert any(difference(seed) is not None for seed in range(100)), f"{plant.__name__} was not found"
