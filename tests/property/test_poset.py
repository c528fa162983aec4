"""The poset against a slow, obvious one: all pairs compared, the transitive reduction by definition."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import product
from typing import Generic

from hypothesis import example, given
from hypothesis import strategies as st

from catchment.model.advertisement import Advertisement
from catchment.model.constraint import Constraint, constraint
from catchment.model.domain import Values
from catchment.model.expression import Or
from catchment.model.filter import Filter
from catchment.model.strings import UNDECIDED
from catchment.routing.poset import Case, K, Poset
from catchment.routing.poset.codes import member, spans
from catchment.routing.poset.grams import had_by, needed_by
from tests import strategies


@cache
def covers(wider: K, narrower: K) -> bool:
    return wider.covers(narrower)


class SlowPoset(Generic[K]):
    """Filters in order of insertion; relations by looking at all pairs and all that could be between."""

    def __init__(self) -> None:
        self.members: list[K] = []

    def same(self, filter: K) -> K | None:
        return next((member for member in self.members if covers(member, filter) and covers(filter, member)), None)

    def insert(self, filter: K) -> None:
        if self.same(filter) is None:
            self.members.append(filter)

    def remove(self, filter: K) -> None:
        self.members.remove(filter)

    def covering(self, filter: K) -> list[K]:
        return [member for member in self.members if covers(member, filter)]

    def covered(self, filter: K) -> list[K]:
        return [member for member in self.members if covers(filter, member)]

    def predecessors(self, filter: K) -> list[K]:
        """Those above it with nothing in between."""
        above = [wider for wider in self.covering(filter) if wider != filter]
        return [wider for wider in above if not any(other != wider and covers(wider, other) for other in above)]

    def successors(self, filter: K) -> list[K]:
        """Those below it with nothing in between."""
        below = [narrower for narrower in self.covered(filter) if narrower != filter]
        return [
            narrower for narrower in below if not any(other != narrower and covers(other, narrower) for other in below)
        ]

    @property
    def roots(self) -> list[K]:
        return [member for member in self.members if not self.predecessors(member)]


def assert_same(poset: Poset[K], slow: SlowPoset[K]) -> None:
    assert list(poset) == slow.members
    assert len(poset) == len(slow.members)
    assert list(poset.roots) == slow.roots
    for filter in slow.members:
        assert list(poset.predecessors(filter)) == slow.predecessors(filter)
        assert list(poset.successors(filter)) == slow.successors(filter)


def insert_both(poset: Poset[K], slow: SlowPoset[K], filter: K) -> None:
    known = slow.same(filter)
    placement = poset.insert(filter)
    slow.insert(filter)
    node = filter if known is None else known
    assert placement.filter == node
    assert list(placement.predecessors) == slow.predecessors(node)
    assert list(placement.successors) == slow.successors(node)
    if known is not None:
        assert placement.case is Case.EXISTING
    else:
        assert placement.case is (Case.BELOW if slow.predecessors(node) else Case.ROOT)


def snapshot(poset: Poset[K]) -> dict[K, tuple[tuple[K, ...], tuple[K, ...]]]:
    return {filter: (poset.predecessors(filter), poset.successors(filter)) for filter in poset}


def grown(filters: Iterable[K], draw: st.DataObject) -> tuple[Poset[K], SlowPoset[K]]:
    """Inserts all, and now and then takes one out again."""
    poset: Poset[K] = Poset()
    slow: SlowPoset[K] = SlowPoset()
    for filter in filters:
        insert_both(poset, slow, filter)
        if slow.members and draw.draw(st.integers(0, 3)) == 0:
            gone = draw.draw(st.sampled_from(slow.members))
            poset.remove(gone)
            slow.remove(gone)
            assert gone not in poset
        assert_same(poset, slow)
    return poset, slow


def assert_is_right(filters: list[K], data: st.DataObject) -> None:
    inserted, asked = filters[:-1], filters[-1]
    poset, slow = grown(inserted, data)
    assert list(poset.covering(asked)) == slow.covering(asked)
    assert list(poset.covered(asked)) == slow.covered(asked)
    assert (asked in poset) is (slow.same(asked) is not None)
    before = snapshot(poset)
    if asked not in poset:
        poset.insert(asked)
        poset.remove(asked)
    assert snapshot(poset) == before, "remove undoes insert"


def lists_of(filters: st.SearchStrategy[K], most: int = 10) -> st.SearchStrategy[list[K]]:
    return st.lists(filters, min_size=2, max_size=most)


# --- what the filters are -----------------------------------------------------------------------

string_parts = st.lists(strategies.small_string_constraints("s"), min_size=1, max_size=2)
scalar_parts = st.lists(strategies.small_scalar_constraints(st.sampled_from(("x", "y"))), max_size=2)
conjunctions = st.tuples(string_parts, scalar_parts).map(lambda parts: Filter.of(*parts[0], *parts[1]))
unions = st.lists(strategies.small_pair_filters | conjunctions, min_size=1, max_size=2).map(
    lambda parts: Filter.of_boxes(box for part in parts for box in part.boxes)
)
# Strings that agree in more bytes than a position has, or differ in their last characters only.
near_strings = st.sampled_from(
    ("", "\0", "a", "a\0", "a\0\0", "abcdefg", "abcdefg\0", "abcdefgh", "abcdefgi", "abcdefé", "b", "\U0010ffff")
)
edge_conjunctions = st.lists(
    st.builds(constraint, st.just("s"), st.sampled_from(("=", "<", "<=", ">", ">=", "prefix", "suffix")), near_strings)
    | st.builds(constraint, st.just("x"), st.sampled_from(("=", "<", "<=", ">", ">=")), strategies.numbers)
    | st.builds(
        constraint, st.just("x"), st.sampled_from(("<=", ">")), strategies.numbers, st.sampled_from(("int", "float"))
    ),
    min_size=1,
    max_size=2,
).map(lambda constraints: Filter.of(*constraints))
# More names than there are columns and bits; those drawn share a column, and the last has no bit of its own.
NAMES = [f"n{i}" for i in range(80)]
DRAWN_NAMES = (NAMES[0], NAMES[8], NAMES[72])
few_names = st.sampled_from(DRAWN_NAMES)
crowded = (
    st.lists(
        st.builds(constraint, few_names, st.sampled_from(("=", "<", ">")), st.integers(0, 1))
        | st.builds(constraint, few_names, st.just("prefix"), st.sampled_from(("", "a")))
        | st.builds(constraint, few_names, st.just("any")),
        min_size=1,
        max_size=3,
    )
    .map(lambda constraints: Filter.of(*constraints))
    .filter(lambda filter: not filter.is_empty)
)
# One filter for each set of names: covering is inclusion, and a filter may have many immediate predecessors.
lattice = st.frozensets(st.integers(0, 11), max_size=11).map(
    lambda names: Filter.of(*((f"n{i}", "=", 1) for i in names))
)
small_advertisements = st.lists(
    strategies.small_pair_constraints().filter(lambda constraint: constraint.operator != "absent")
    | strategies.small_string_constraints("s")
    | st.builds(constraint, st.just("$seq"), st.sampled_from(("<", ">")), st.integers(0, 2)),
    min_size=1,
    max_size=3,
).map(lambda constraints: Advertisement.of(*constraints))


# --- the poset ----------------------------------------------------------------------------------


@given(lists_of(strategies.small_scalar_filters), st.data())
def test_filters_on_one_attribute_of_any_type(filters, data) -> None:
    assert_is_right(filters, data)


@given(lists_of(strategies.small_string_filters, 8), st.data())
def test_filters_with_every_string_operator(filters, data) -> None:
    assert_is_right(filters, data)


@given(lists_of(unions), st.data())
def test_filters_with_alternatives_on_several_attributes(filters, data) -> None:
    assert_is_right(filters, data)


@given(lists_of(edge_conjunctions, 14), st.data())
def test_filters_that_differ_by_little(filters, data) -> None:
    assert_is_right(filters, data)


@given(lists_of(strategies.routed_filters, 6), st.data())
def test_filters_of_every_kind(filters, data) -> None:
    assert_is_right(filters, data)


@given(lists_of(small_advertisements), st.data())
def test_advertisements(advertisements, data) -> None:
    assert_is_right(advertisements, data)


@given(lists_of(strategies.advertisements, 6), st.data())
def test_advertisements_of_every_kind(advertisements, data) -> None:
    assert_is_right(advertisements, data)


@given(lists_of(lattice, 30), st.data())
def test_filters_with_many_predecessors(filters, data) -> None:
    singles = [Filter.of((f"n{i}", "=", 1)) for i in range(12)]
    bottom = Filter.of(*((f"n{i}", "=", 1) for i in range(12)))
    poset, slow = Poset[Filter](), SlowPoset[Filter]()
    for filter in [*singles, bottom, *filters]:
        insert_both(poset, slow, filter)
    for filter in data.draw(st.lists(st.sampled_from(slow.members), unique=True)):
        poset.remove(filter)
        slow.remove(filter)
    assert_same(poset, slow)


@given(lists_of(crowded, 12), st.data())
def test_more_names_than_columns(filters, data) -> None:
    poset, slow = Poset[Filter](), SlowPoset[Filter]()
    for name in NAMES:
        poset.insert(Filter.of((name, "=", -1)))
    for name in DRAWN_NAMES:  # the others are related to nothing that is drawn
        slow.insert(Filter.of((name, "=", -1)))
    for filter in filters[:-1]:
        insert_both(poset, slow, filter)
    for filter in data.draw(st.lists(st.sampled_from(slow.members), unique=True)):
        poset.remove(filter)
        slow.remove(filter)
    for filter in slow.members:
        assert list(poset.predecessors(filter)) == slow.predecessors(filter)
        assert list(poset.successors(filter)) == slow.successors(filter)
    assert list(poset.covering(filters[-1])) == slow.covering(filters[-1])
    assert list(poset.covered(filters[-1])) == slow.covered(filters[-1])


# --- positions ----------------------------------------------------------------------------------


def sets_of(constraints: st.SearchStrategy[Constraint]) -> st.SearchStrategy[Values]:
    single = constraints.map(lambda constraint: constraint.satisfied_by)
    pairs = st.tuples(single, single)
    return single | pairs.map(lambda pair: pair[0] | pair[1]) | pairs.map(lambda pair: pair[0] & pair[1])


near_constraints = st.builds(
    constraint, st.just("s"), st.sampled_from(("=", "<", "<=", ">", ">=", "prefix")), near_strings
)
value_sets = (
    sets_of(strategies.constraints) | sets_of(strategies.small_string_constraints()) | sets_of(near_constraints)
)


@given(value_sets, value_sets)
def test_a_superset_has_the_wider_span(first: Values, second: Values) -> None:
    wider, narrower = dict(spans(first | second)), dict(spans(first))
    for kind, span in narrower.items():
        assert wider[kind].low <= span.tight_low or span.is_anywhere
        assert wider[kind].high >= span.tight_high or span.is_anywhere


@given(value_sets, value_sets)
def test_a_solid_span_around_a_plain_one_is_a_superset(first: Values, second: Values) -> None:
    for kind, span in spans(first):
        for other_kind, other in spans(second):
            if kind is other_kind and len(spans(second)) == 1 and not second.absent:
                within = span.low <= other.tight_low and other.tight_high <= span.high
                if span.is_solid and other.is_plain:
                    assert second.is_subset(first) is within


@given(value_sets)
def test_a_member_is_in_its_set(values: Values) -> None:
    value = member(values)
    assert value == UNDECIDED or value in values or not values


grammed = strategies.small_string_filters | strategies.cased_filters | strategies.routed_filters


@given(grammed, grammed)
def test_grams_rule_out_no_filter_that_covers(wider, narrower):
    """Two filters at random seldom cover one another; a filter and what it has in common with another always do."""
    for covered in (narrower, wider & narrower):
        if wider.routed.covers(covered.routed) and covered.routed.boxes:
            needs, has = needed_by(wider.routed.boxes), had_by(covered.routed.boxes[0])
            assert needs & ~has == 0


texts = st.text(st.sampled_from("abAB?*É"), min_size=1, max_size=6)


@st.composite
def globs_and_texts(draw) -> tuple[str, str, bool]:
    """A text, and a glob that matches it: some of its characters become `?`, some runs of them `*`."""
    text = draw(texts)
    parts = []
    for character in text:
        escaped = "\\" + character if character in "*?" else character
        parts.append(draw(st.sampled_from((escaped, escaped, escaped, "?", "*", "*" + escaped))))
    ignores_case = draw(st.booleans())
    return "".join(parts), text.swapcase() if ignores_case and draw(st.booleans()) else text, ignores_case


@given(globs_and_texts(), texts, st.sampled_from(("glob", "contains", "suffix")))
@example(("a*b", "aXb", False), "c", "glob")
@example(("a?b", "aXb", False), "c", "glob")
@example(("É", "é", True), "c", "glob")
def test_grams_of_a_glob_are_in_every_text_that_it_matches(drawn, other, operator):
    pattern, text, ignores_case = drawn
    glob = constraint("s", "glob nocase" if ignores_case else "glob", pattern)
    wider, equal = Filter.of(glob), Filter.of(("s", "=", text))
    assert wider.matches({"s": text})
    assert needed_by(wider.routed.boxes) & ~had_by(equal.boxes[0]) == 0
    # With one more alternative, only grams that both need are needed: of texts, of other values, of other names.
    for alternative in (("s", operator, other), ("s", "=", 5), ("s", "absent"), ("t", "suffix", other)):
        either = Filter.of_expression(Or((glob, constraint(*alternative)))).routed
        for narrower in (equal, Filter.of(alternative)):
            if narrower.is_normal and either.covers(narrower):
                assert needed_by(either.boxes) & ~had_by(narrower.boxes[0]) == 0


def test_grams_of_a_glob_rule_out_most_others():
    """Otherwise the tests above would test nothing."""
    filters = [Filter(f's glob "*{a}{b}?{c}*"') for a, b, c in product("abcde", repeat=3)]
    passing = [
        sum(needed_by(wider.boxes) & ~had_by(narrower.boxes[0]) == 0 for wider in filters) for narrower in filters
    ]
    assert max(passing) < len(filters) / 8
