"""Mistakes planted in filter propagation with one tree for all publishers: the suite must find each."""

from typing import Any

import pytest

from catchment.routing.messages import Neighbor
from catchment.routing.parts.distance_vectors import RouteChange
from catchment.routing.propagation.core import PropagationCore
from catchment.routing.propagation.tree import TreeFilters
from catchment.routing.propagation.trees import OneTree
from tests.conformance.planted import Plant, assert_found

SEEDS = range(12)


def notifications_go_back(patch: pytest.MonkeyPatch) -> None:
    sorted_out = PropagationCore._sorted_out

    def echoing(self: Any, root: str, tree: Any, batch: Any, source: Any, outgoing: Any) -> Any:
        return sorted_out(self, root, tree, batch, Neighbor("@"), outgoing)

    patch.setattr(PropagationCore, "_sorted_out", echoing)


def a_neighbor_is_told_its_own_filter(patch: pytest.MonkeyPatch) -> None:
    parts = TreeFilters.parts
    patch.setattr(TreeFilters, "parts", lambda self, without: parts(self, Neighbor("@")))


def notifications_only_go_down(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OneTree, "downstream", lambda self, tree: self._vectors.children(tree))


def notifications_only_come_from_above(patch: pytest.MonkeyPatch) -> None:
    def parent(self: Any, tree: str) -> tuple[Neighbor, ...]:
        above = self._vectors.parent(tree)
        return () if above is None else (above,)

    patch.setattr(OneTree, "upstream", parent)


def the_first_root_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OneTree, "follow", lambda self, change: False)


def a_root_that_is_gone_stays(patch: pytest.MonkeyPatch) -> None:
    follow = OneTree.follow

    def faithful(self: Any, change: RouteChange) -> bool:
        return follow(self, change) if self._vectors.is_reached(self.own) else False

    patch.setattr(OneTree, "follow", faithful)


def the_named_root_is_overlooked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OneTree, "_chosen", lambda self: self._vectors.reached[0])


def filters_in_the_tree_before_are_not_withdrawn(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PropagationCore, "_leave_trees", lambda self: [])


def the_filter_of_the_parent_before_is_kept(patch: pytest.MonkeyPatch) -> None:
    follow_parent = PropagationCore._follow_parent

    def keeping(self: Any, root: str) -> Any:
        self._filters[root].parent = self.vectors.parent(root)
        return follow_parent(self, root)

    patch.setattr(PropagationCore, "_follow_parent", keeping)


def a_filter_of_one_neighbor_is_told_to_no_other(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PropagationCore, "_widen_or_say", lambda self, root, upstream, now: [])


MUTANTS: list[tuple[str, Plant]] = [
    ("propagation in one tree", notifications_go_back),
    ("propagation in one tree", a_neighbor_is_told_its_own_filter),
    ("propagation in one tree", notifications_only_go_down),
    ("propagation in one tree", notifications_only_come_from_above),
    ("propagation in one tree", the_first_root_stays),
    ("propagation in one tree", a_root_that_is_gone_stays),
    ("propagation in one tree with timeouts", the_named_root_is_overlooked),
    ("propagation in one tree", filters_in_the_tree_before_are_not_withdrawn),
    ("propagation in one tree", the_filter_of_the_parent_before_is_kept),
    ("propagation in one tree", a_filter_of_one_neighbor_is_told_to_no_other),
]


@pytest.mark.parametrize(("entry", "plant"), MUTANTS, ids=lambda given: getattr(given, "__name__", given))
def test_is_found(entry: str, plant: Plant, monkeypatch: pytest.MonkeyPatch):
    assert_found(plant, entry, SEEDS, monkeypatch)
