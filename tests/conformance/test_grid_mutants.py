"""Mistakes planted in the Grid Event Service: the suite must find each. What needs a rare network or a look at one
message is found by a test that makes it."""

from collections.abc import Callable
from typing import Any

import pytest

from catchment.routing.grid import believing, gateways
from catchment.routing.grid.core import GridCore
from catchment.routing.grid.gateways import GatewayStatements
from catchment.routing.grid.graph import ConnectivityGraph, Route
from catchment.routing.grid.profiles import Profiles, _counts
from catchment.routing.grid.units import Path, contains
from catchment.routing.messages import Neighbor
from tests.conformance.planted import Plant, assert_found
from tests.property import test_grid_profiles as profiles
from tests.unit import test_grid as brokers
from tests.unit import test_grid_figures as figures

SEEDS = range(6)


# --- of the list of DURABLE.md: 25 to 29, 32 ----------------------------------------------------


def a_change_is_counted_twice(patch: pytest.MonkeyPatch) -> None:
    """25: whoever hears a change again applies it again."""
    heard = Profiles.heard

    def forgetful(self: Any, message: Any, source: Neighbor, now: int) -> Any:
        key = self._gateways.level(message.unit), message.speaker
        said = self._said.get(key)
        if said is not None and said.seq == message.seq and hasattr(message, "plus"):
            self._apply(key, said, _counts(message.minus), _counts(message.plus))
        return heard(self, message, source, now)

    patch.setattr(Profiles, "heard", forgetful)


def a_connection_leaves_the_unit_around_it(patch: pytest.MonkeyPatch) -> None:
    """26"""
    patch.setattr(
        GatewayStatements, "may_cross", lambda self, unit, neighbor: not contains(unit, self.links[neighbor].path)
    )


def the_suspected_stay_in_paths(patch: pytest.MonkeyPatch) -> None:
    """27: what somebody has said is believed for as long as it is known."""
    patch.setattr(gateways, "believed", lambda vertex, own, said: set(said))


def one_end_is_enough_for_an_edge(patch: pytest.MonkeyPatch) -> None:
    """27: a link that the other end has taken back is still used."""

    def one_sided(vertex: Path, own: Any, trusted: Any) -> Any:
        found: dict[Any, dict[Any, int]] = {}
        for gateway in own:
            found.setdefault((vertex, gateway.to), {})[gateway.ends] = 1
        for said in trusted:
            for gateway in said.gateways:
                if not contains(gateway.to, vertex):
                    found.setdefault((said.unit, gateway.to), {})[gateway.ends] = 1
        return found

    patch.setattr(gateways, "edges", one_sided)


def the_cache_is_not_invalidated(patch: pytest.MonkeyPatch) -> None:
    """28"""
    patch.setattr(ConnectivityGraph, "_invalidate", lambda self, worse, level_min: setattr(self, "_is_complete", False))


def the_cache_is_wholly_invalidated(patch: pytest.MonkeyPatch) -> None:
    """28"""
    invalidate = ConnectivityGraph._invalidate

    def wholly(self: Any, worse: Any, level_min: int) -> None:
        invalidate(self, worse, level_min)
        self._routes.clear()

    patch.setattr(ConnectivityGraph, "_invalidate", wholly)


def lower_levels_are_not_stripped(patch: pytest.MonkeyPatch) -> None:
    """29"""
    patch.setattr(GridCore, "_over", lambda self, neighbor, seen: (*seen, self.gateways.links[neighbor].path))


def paths_use_downlinks(patch: pytest.MonkeyPatch) -> None:
    """32: L_D in a path, as if levels might fall."""

    def anywhere(self: Any, avoided: Any) -> dict[Path, Route]:
        routes: dict[Path, Route] = {}
        level = [Route((0,) * (self.levels + 1), ())]
        while level:
            further: list[Route] = []
            for route in level:
                here = route.nodes[-1] if route.nodes else self.vertex
                for other in sorted(self._neighbors.get(here, ())):
                    if other not in routes and other not in avoided and other != self.vertex:
                        routes[other] = Route((*route.costs[:-1], route.costs[-1] + 1), (*route.nodes, other))
                        further.append(routes[other])
            level = further
        return routes

    patch.setattr(ConnectivityGraph, "_paths", anywhere)


# --- ours ---------------------------------------------------------------------------------------


def statements_that_can_no_longer_arrive_are_believed(patch: pytest.MonkeyPatch) -> None:
    """A way that leads only through the unit itself carries none of its statements."""
    is_current = believing._Ways.is_current

    def credulous(self: Any, unit: Path, ends: Any) -> bool:
        return is_current(self, unit, ends) or any(set(self._stated.get(each, ())) - {unit} for each in ends)

    patch.setattr(believing._Ways, "is_current", credulous)


def profiles_of_the_unbelieved_are_summed(patch: pytest.MonkeyPatch) -> None:
    """A gatekeeper goes on to state what brokers that it cannot reach want."""

    def all_of_them(self: Any) -> None:
        for key, said in self._said.items():
            if key not in self._speakers.setdefault(said.unit, set()):
                self._speakers[said.unit].add(key)
                self._recount(said.unit, {filter for _, filter in said.counts})

    patch.setattr(Profiles, "_believe", all_of_them)


def the_first_broker_of_a_unit_looks_one_level_too_low(patch: pytest.MonkeyPatch) -> None:
    reach = GridCore._reach
    patch.setattr(
        GridCore, "_reach", lambda self, header: reach(self, header) - (0 < reach(self, header) <= self.levels)
    )


def every_broker_on_the_way_matches(patch: pytest.MonkeyPatch) -> None:
    """It delivers right, and more than N + 1 times somebody looked."""
    reach = GridCore._reach
    patch.setattr(GridCore, "_reach", lambda self, header: max(0, reach(self, header)))


def changes_go_before_what_they_change(patch: pytest.MonkeyPatch) -> None:
    """A new neighbor gets no whole profiles."""
    patch.setattr(Profiles, "wholes", lambda self, neighbor: [])


def gatekeepers_speak_of_their_own_links_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        GatewayStatements,
        "_gateways",
        lambda self, level: tuple(sorted(each for each in self._own_gateways() if each.level >= level)),
    )


BY_THE_SUITE: list[tuple[Plant, str]] = [
    (a_change_is_counted_twice, "grid"),
    (a_connection_leaves_the_unit_around_it, "grid"),
    (the_suspected_stay_in_paths, "grid"),
    (one_end_is_enough_for_an_edge, "grid"),
    (the_cache_is_not_invalidated, "grid"),
    (paths_use_downlinks, "grid of three levels"),
    (profiles_of_the_unbelieved_are_summed, "grid"),
    (the_first_broker_of_a_unit_looks_one_level_too_low, "grid of three levels"),
    (changes_go_before_what_they_change, "grid of one level"),
    (gatekeepers_speak_of_their_own_links_alone, "grid"),
]
BY_A_TEST: list[tuple[Plant, Callable[[], None]]] = [
    (a_change_is_counted_twice, profiles.test_8_figure_4),
    (a_connection_leaves_the_unit_around_it, figures.test_4_a_connection_is_rewritten_where_it_leaves_a_unit),
    (the_cache_is_not_invalidated, figures.test_6_the_link_from_c_to_b_is_cut),
    (the_cache_is_wholly_invalidated, figures.test_6_the_link_from_c_to_b_is_cut),
    (lower_levels_are_not_stripped, figures.test_the_first_broker_stamps_its_path_and_gateways_strip_what_is_below),
    (statements_that_can_no_longer_arrive_are_believed, brokers.test_what_can_no_longer_arrive_is_not_believed),
    (every_broker_on_the_way_matches, figures.test_12_from_a_to_b_there_are_four_matching_steps),
]


@pytest.mark.parametrize(("plant", "entry"), BY_THE_SUITE, ids=[plant.__name__ for plant, _ in BY_THE_SUITE])
def test_is_found(plant: Plant, entry: str, monkeypatch: pytest.MonkeyPatch):
    assert_found(plant, entry, SEEDS, monkeypatch)


@pytest.mark.parametrize(("plant", "test"), BY_A_TEST, ids=[plant.__name__ for plant, _ in BY_A_TEST])
def test_is_found_by_a_test(plant: Plant, test: Callable[[], None], monkeypatch: pytest.MonkeyPatch):
    test()
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        test()
