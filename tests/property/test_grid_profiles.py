"""What a broker of a grid counts and matches, against the literal profile graph of Figure 4."""

from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment import Filter, Notification
from catchment.routing.grid.core import GridCore, GridMessage
from catchment.routing.grid.messages import Context, Counted, Gateway, Gateways, GridSettings, Profile, ProfileChange
from catchment.routing.messages import Client, Forward, LinkUp, Neighbor, Routed
from tests.profile_graph import ANY, ProfileGraph

ATTRIBUTES = ("first", "second", "third")
UNITS = ("1", "2", "3")
OMEGA_1, OMEGA_2, OMEGA_3 = ("a", "b", "c"), ("a", "b", ANY), ("a", ANY, "d")


def filter_of(profile: tuple[str, ...]) -> Filter:
    parts = [
        f"{name} any" if value == ANY else f"{name} = '{value}'"
        for name, value in zip(ATTRIBUTES, profile, strict=True)
    ]
    return Filter(" and ".join(parts))


class Broker:
    """Broker 0, in one cluster with the units 1, 2 and 3."""

    def __init__(self) -> None:
        self.core = GridCore("0", GridSettings("c"))
        self.numbers: Counter[str] = Counter()
        for unit in UNITS:
            ends = ("0", unit)
            self.hear(unit, LinkUp())
            self.hear(unit, Context(("c", unit)))
            self.hear(unit, Gateways(("c", unit), unit, 1, (Gateway(ends, 0, 1, ("c", "0")),)))
            self.hear(unit, Profile(("c", unit), unit, 0, ()))

    def hear(self, unit: str, message: LinkUp | GridMessage) -> None:
        self.core.on_message(message, Neighbor(unit), 1)

    def change(self, unit: str, profile: tuple[str, ...], by: int, is_repeated: bool = False) -> None:
        """A change with the next number; or the last change once more, over another link."""
        self.numbers[unit] += not is_repeated
        number = self.numbers[unit]
        counted = (Counted("", filter_of(profile), abs(by)),)
        minus, plus = ((), counted) if by > 0 else (counted, ())
        source = UNITS[(UNITS.index(unit) + 1) % 3] if is_repeated else unit
        self.hear(source, ProfileChange(("c", unit), unit, number, number - 1, minus, plus))

    def counts(self, profile: tuple[str, ...]) -> dict[str, int]:
        counted = {unit: self.core.profiles.of(("c", unit)).get(("", filter_of(profile)), 0) for unit in UNITS}
        return {unit: count for unit, count in counted.items() if count}

    def destinations(self, values: tuple[str, ...]) -> set[str]:
        notification = Notification(dict(zip(ATTRIBUTES, values, strict=True)))
        actions = self.core.on_notifications([Routed(notification)], Client("p"), 1)
        return {str(action.interface) for action in actions if isinstance(action, Forward)}


def test_8_figure_4():
    graph, broker = ProfileGraph(3), Broker()

    def change(id: str, unit: str, profile: tuple[str, ...], by: int) -> None:
        is_repeated = id in graph.changes
        graph.change(id, unit, profile, by)
        broker.change(unit, profile, by, is_repeated)

    change("1", "1", OMEGA_1, 1)
    change("2", "1", OMEGA_1, 1)
    change("3", "2", OMEGA_2, 1)
    change("4", "3", OMEGA_3, 1)
    assert graph.units["a",] == {"1": 2, "2": 1, "3": 1}
    assert graph.units["a", "b"] == {"1": 2, "2": 1}
    assert graph.units["a", ANY] == {"3": 1}
    assert broker.counts(OMEGA_1) == {"1": 2}
    for values, units in ((("a", "b", "c"), {"1", "2"}), (("a", "b", "d"), {"2", "3"}), (("a", "x", "d"), {"3"})):
        assert graph.destinations(values) == broker.destinations(values) == units
    change("5", "1", OMEGA_1, -1)
    assert graph.units[OMEGA_1] == broker.counts(OMEGA_1) == {"1": 1}
    # The same change once more: it is counted once.
    change("5", "1", OMEGA_1, -1)
    assert graph.units[OMEGA_1] == broker.counts(OMEGA_1) == {"1": 1}
    change("6", "1", OMEGA_1, -1)
    assert OMEGA_1 not in graph.units
    assert broker.counts(OMEGA_1) == {}
    assert graph.destinations(("a", "b", "c")) == broker.destinations(("a", "b", "c")) == {"2"}


values = st.sampled_from("ab")
profiles = st.tuples(*(st.sampled_from(("a", "b", ANY)) for _ in ATTRIBUTES))
# A unit, a profile, whether it comes or goes, and whether the change comes a second time.
steps = st.lists(st.tuples(st.sampled_from(UNITS), profiles, st.booleans(), st.booleans()), max_size=20)


@given(steps)
def test_counts_and_destinations_are_those_of_the_profile_graph(changes):
    graph, broker = ProfileGraph(3), Broker()
    for number, (unit, profile, is_more, comes_twice) in enumerate(changes):
        if not is_more and not broker.counts(profile).get(unit):
            continue
        by = 1 if is_more else -1
        for is_repeated in (False, True)[: 1 + comes_twice]:
            graph.change(str(number), unit, profile, by)
            broker.change(unit, profile, by, is_repeated)
        assert broker.counts(profile) == graph.units.get(profile, {})
    for some in product("ab", repeat=3):
        assert broker.destinations(some) == graph.destinations(some)
    assert {profile for profile in graph.units if len(profile) == 3} == {
        profile for profile in product("ab*", repeat=3) if broker.counts(profile)
    }


@pytest.mark.parametrize("profile", [OMEGA_1, OMEGA_2, OMEGA_3])
def test_what_is_gone_leaves_nothing(profile: tuple[str, ...]):
    broker = Broker()
    broker.change("1", profile, 3)
    broker.change("1", profile, -3)
    assert broker.core.leftovers() == []
    assert broker.core.inspect().tables == ()
