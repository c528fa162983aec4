"""How expressions are reached: constraints of which one is true wherever the filter is.

An expression filter is not multiplied out. For an OR all its parts are looked at, for an AND only the part that a
notification is least likely to meet. The constraints at the end of these paths become rows of the index, each alone.
When one of them matches, the whole expression is evaluated, once for each notification.

How likely a constraint is to hold is guessed from its operator, from the length of its literal, and from how many
filters have it: what many people ask about is what happens often.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from catchment.matching.kernels import ingest as ki
from catchment.matching.kernels import nodes as kn
from catchment.matching.source import Source

Array = np.ndarray[Any, Any]
I32, I64 = np.int32, np.int64

# Shares of notifications for which a constraint of a single filter holds: an equality, an order, what nearly always
# holds.
_EQUAL, _ORDERED, _NEARLY_ALWAYS = 1e-3, 0.4, 0.99
# The same for a piece of text, by its length; a longer one is as rare as the last.
_BY_LENGTH: Final = np.array([1.0, 0.3, 0.05, 1e-2, 3e-3, 1e-3, 5e-4, 2e-4, 1e-4])
# A constraint that a thousand filters have holds some three hundred times as often.
_POPULARITY: Final = 0.8
# However popular, it is better to look at than what holds nearly always.
_POPULAR_MAX: Final = 0.3


class Expressions(NamedTuple):
    """The children of nodes, the best to try first; for each filter that is an expression the constraints that lead to
    it."""

    children: Array
    access_starts: Array
    access: Array

    def with_access(self, source: Source) -> Source:
        """The source with a conjunction of one constraint for each that leads to an expression."""
        if not len(self.access):
            return source
        used, place = np.unique(self.access, return_inverse=True)
        first = len(source.conjunction_starts) - 1
        members = np.concatenate((source.members, used)).astype(I32)
        ends = source.conjunction_starts[-1] + np.arange(1, len(used) + 1)
        starts = np.concatenate((source.conjunction_starts, ends)).astype(I64)
        sizes = np.where(source.roots >= 0, np.diff(self.access_starts), np.diff(source.filter_starts))
        filter_starts = np.zeros(source.size + 1, I64)
        np.cumsum(sizes, out=filter_starts[1:])
        is_access = np.repeat(source.roots >= 0, sizes)
        conjunctions = np.empty(int(filter_starts[-1]), I32)
        conjunctions[is_access] = first + place
        conjunctions[~is_access] = source.conjunctions
        return source._replace(
            members=members, conjunction_starts=starts, conjunctions=conjunctions, filter_starts=filter_starts
        )


def expressions_of(source: Source, parsed: Array) -> Expressions:
    nodes = (source.node_kind, source.node_starts)
    children = source.node_children.copy()
    cost = np.zeros(len(source.node_kind))
    kn.node_costs(*nodes, children, _constraint_costs(source, parsed), cost)
    kn.order_children(*nodes, children, cost)
    stamp, stack = np.zeros(len(parsed), I64), np.empty(len(children) + 1, I32)
    fixed = (source.roots, *nodes, children, cost, stamp, stack)
    count = kn.list_access(*fixed, False, np.empty(0, I64), np.empty(0, I32))
    stamp[:] = 0
    starts, access = np.zeros(source.size + 1, I64), np.empty(count, I32)
    kn.list_access(*fixed, True, starts, access)
    return Expressions(children, starts, access)


def _constraint_costs(source: Source, parsed: Array) -> Array:
    operator, length = parsed[:, ki.C_OPERATOR], parsed[:, ki.C_COUNT]
    by_length = _BY_LENGTH[np.minimum(length, len(_BY_LENGTH) - 1)]
    share = np.select(
        [
            operator == ki.EQ,
            operator == ki.IN,
            (operator == ki.PREFIX) | (operator == ki.SUFFIX) | (operator == ki.SUBSTRING) | (operator == ki.GLOB),
            (operator >= ki.LT) & (operator <= ki.GE),
        ],
        [_EQUAL, np.minimum(_EQUAL * length, _ORDERED), by_length, _ORDERED],
        _NEARLY_ALWAYS,
    )
    # In how many filters or expressions it occurs.
    is_leaf = np.repeat(source.node_kind == kn.LEAF, np.diff(source.node_starts))
    leaves = np.flatnonzero(source.node_kind == kn.LEAF)
    parents = np.bincount(source.node_children[~is_leaf], minlength=len(source.node_kind))[leaves]
    occurring = np.bincount(source.node_children[is_leaf], weights=parents, minlength=len(parsed))
    popular = np.minimum(share * np.maximum(occurring, 1.0) ** _POPULARITY, _POPULAR_MAX)
    costs: Array = np.where(share < _POPULAR_MAX, popular, share)
    return costs
