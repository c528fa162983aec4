"""Summaries under change: rows are those of a new summary, undo is exact, what travels arrives, nothing is missed."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment.model.constraint import constraint
from catchment.model.filter import Filter
from catchment.routing.summary import received as received_module
from catchment.routing.summary.aacs import Aacs
from catchment.routing.summary.ids import Schema
from catchment.routing.summary.maintained import MaintainedAacs, MaintainedSacs
from catchment.routing.summary.merged import MergedSummary
from catchment.routing.summary.messages import Summarized, SummaryChange
from catchment.routing.summary.received import ReceivedSummary
from catchment.routing.summary.rows import EVERYTHING, Brokers, Pair, PatternRow, RangeRow, demands_of
from catchment.routing.summary.sacs import Pattern, Sacs
from catchment.routing.summary.stream import Incoming, Outgoing
from catchment.routing.summary.summary import Summary
from catchment.wire.frames import LINK_FRAME_BYTES_MAX, Decoder, frame
from tests import oracle
from tests.strategies import constraints, expressions, near

ranges = st.tuples(st.integers(0, 30), st.integers(1, 8)).map(lambda drawn: (drawn[0], drawn[0] + drawn[1]))
literals = st.sampled_from(("=", "prefix", "suffix", "substring"))
patterns = st.builds(Pattern, literals, st.text("ab", max_size=3)) | st.builds(
    Pattern, st.sampled_from(("glob", "= nocase", "prefix nocase")), st.text("ab*", min_size=1, max_size=3)
)


def toggled(demands: Iterable[Any]) -> Iterable[tuple[Any, bool]]:
    """Each demand that comes again goes instead."""
    there: set[Any] = set()
    for demand in demands:
        there.symmetric_difference_update([demand])
        yield demand, demand in there


@given(st.lists(ranges, max_size=25))
def test_maintained_ranges_are_the_joined_rows(demands):
    rows: dict[Any, Any] = {}
    maintained = MaintainedAacs(lambda demand, before, after: rows.update({demand: after}))
    for demand, is_there in toggled(demands):
        (maintained.add if is_there else maintained.remove)(demand)
        there = {demand: row for demand, row in rows.items() if row is not None}
        joined = Aacs.joined((demand, (demand,)) for demand in there)
        assert [(row.low, row.high) for row in joined.rows] == list(maintained)
        assert there == {demand: (row.low, row.high) for row in joined.rows for demand in row.ids}
        assert all(maintained.row_of(demand) == row for demand, row in there.items())


@given(st.lists(patterns, max_size=20))
def test_maintained_patterns_are_the_rows_of_a_new_summary(demands):
    rows: dict[Any, Any] = {}
    maintained = MaintainedSacs(lambda demand, before, after: rows.update({demand: after}))
    for demand, is_there in toggled(demands):
        (maintained.add if is_there else maintained.remove)(demand)
        there = {demand: row for demand, row in rows.items() if row is not None}
        anew = Sacs.of((demand, (demand,)) for demand in there)
        assert set(maintained) == set(anew.rows)
        assert there == {demand: pattern for pattern, ids in anew.rows.items() for demand in ids}


@given(st.lists(patterns, max_size=12), patterns)
def test_rows_are_found_by_trying_each(some, wanted):
    """The index against every pattern of the rows, and against matching letter by letter."""
    sacs = Sacs.of((i, (pattern,)) for i, pattern in enumerate(some))
    assert set(sacs.index.covering(wanted)) == {row for row in sacs.rows if row.covers(wanted)}
    assert set(sacs.index.matching(wanted.operand)) == {row for row in sacs.rows if row.matches(wanted.operand)}


# --- pairs --------------------------------------------------------------------------------------

demands = st.one_of(
    st.builds(lambda kind, range: RangeRow("x", kind, *range), st.sampled_from(("number", "time")), ranges),
    st.builds(PatternRow, st.sampled_from("st"), patterns),
    st.just(EVERYTHING),
)
pairs = st.lists(st.tuples(demands, st.integers(0, 4)), max_size=20)


def expected_pairs(asked: Iterable[Pair]) -> set[Pair]:
    """By building each attribute anew."""
    by_attribute: dict[Any, list[Any]] = {}
    made: set[Pair] = set()
    for demand, code in asked:
        key = (demand.name, getattr(demand, "kind", "string" if isinstance(demand, PatternRow) else ""))
        by_attribute.setdefault(key, []).append((demand, code))
    for (name, kind), some in by_attribute.items():
        if kind == "string":
            rows = Sacs.of((code, (demand.pattern,)) for demand, code in some).rows
            made |= {(PatternRow(name, pattern), code) for pattern, codes in rows.items() for code in codes}
        elif kind:
            joined = Aacs.joined((code, ((demand.low, demand.high),)) for demand, code in some)
            made |= {(RangeRow(name, kind, row.low, row.high), code) for row in joined.rows for code in row.ids}
        else:
            made |= set(some)
    return made


def actual_pairs(merged: MergedSummary) -> set[Pair]:
    return {(row, code) for row, codes in merged.rows() for code in codes}


@given(st.lists(pairs, max_size=5), st.data())
def test_taking_out_undoes_putting_in(sources, data):
    """Several sources come and go whole, as neighbors do; one of them may name a pair that another names too."""
    merged = MergedSummary()
    inside: dict[int, list[Pair]] = {}
    told: set[Pair] = set()
    for _ in range(8):
        if not sources:
            break
        i = data.draw(st.integers(0, len(sources) - 1))
        source = list(dict.fromkeys(sources[i]))
        if i in inside:
            merged.remove(inside.pop(i))
        else:
            merged.add(source)
            inside[i] = source
        assert actual_pairs(merged) == expected_pairs(pair for some in inside.values() for pair in some)
        assert len(merged) == len(actual_pairs(merged))
        if data.draw(st.booleans()):
            change = merged.flush()
            assert not told & set(change.new)
            assert told >= set(change.gone)
            told = (told - set(change.gone)) | set(change.new)
            assert told == actual_pairs(merged)
    for some in inside.values():
        merged.remove(some)
    assert (len(merged), actual_pairs(merged)) == (0, set())


# --- what travels -------------------------------------------------------------------------------

_plain = st.lists(
    st.one_of(
        st.builds(constraint, st.sampled_from("stu"), literals, st.text("ab", min_size=1, max_size=3)),
        st.builds(constraint, st.sampled_from("xyz"), st.sampled_from(("=", "<", ">=")), st.integers(-2, 3)),
    ),
    max_size=4,
)
_values = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys("stu", st.text("ab", max_size=3)),
        **dict.fromkeys("xyz", st.integers(-3, 4) | st.sampled_from((0.5, 1.0))),
    },
)


class Sender:
    """A broker with subscriptions, and a link to another process."""

    def __init__(self) -> None:
        self.brokers = Brokers()
        self.brokers.number("elsewhere")
        self.merged, self.outgoing = MergedSummary(), Outgoing(self.brokers)
        self.names: dict[int, frozenset[str]] = {}
        self.held: dict[int, Filter] = {}

    def toggle(self, number: int, filter: Filter) -> None:
        code = self.brokers.code(f"b{number % 3}", number)
        names, its_demands = demands_of(filter)
        if number in self.held:
            self.merged.remove((demand, code) for demand in demands_of(self.held.pop(number))[1])
        else:
            self.held[number], self.names[code] = filter, names
            self.merged.add((demand, code) for demand in its_demands)

    def said(self, as_whole: bool) -> list[Any]:
        merged_brokers = {"b0", *(f"b{number % 3}" for number in self.held)}
        if as_whole:
            return list(self.outgoing.whole(self.merged, merged_brokers, self.names.__getitem__))
        change = self.outgoing.change(self.merged.flush(), merged_brokers, self.names.__getitem__)
        return [change]


@given(st.lists(st.tuples(st.integers(0, 6), _plain, st.booleans()), max_size=10), st.lists(_values, max_size=4))
@settings(max_examples=60)
def test_a_receiver_with_another_schema_has_the_same_rows(steps, notifications):
    """Names come in another order, brokers have other numbers, and the wire is in between."""
    sender, brokers = Sender(), Brokers()
    brokers.number("b2")
    incoming = Incoming("b0", brokers, lambda name: True)
    decoder: Decoder[Any] = Decoder(Summarized | SummaryChange, LINK_FRAME_BYTES_MAX)
    is_first = True
    for number, drawn, as_whole in steps:
        filter = Filter.of(*drawn)
        if filter.is_empty:
            continue
        sender.toggle(number, filter)
        for message in sender.said(as_whole or is_first):
            (arrived,) = decoder.feed(frame(message, LINK_FRAME_BYTES_MAX))
            assert arrived == message
            before = set(incoming.summary.pairs())
            change = incoming.hear(arrived)
            assert (before - set(change.gone)) | set(change.new) == set(incoming.summary.pairs())
        is_first = False
        sent = {(row, sender.brokers.owner(code), code & 0xFFFF) for row, code in actual_pairs(sender.merged)}
        got = {(row, brokers.owner(code), code & 0xFFFF) for row, code in incoming.summary.pairs()}
        assert got == sent
    for values in notifications:
        wanted = {number for number, filter in sender.held.items() if oracle.matches(filter, values)}
        matched = {code & 0xFFFF for code in incoming.summary.match(values)}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(received_module, "COUNTED_MAX", -1)
            assert matched == {code & 0xFFFF for code in incoming.summary.match(values)}
        assert wanted <= matched
        # Algorithm 1 on a summary that is built anew finds the same.
        anew = Summary.of(0, sender.held, Schema(), is_joined=True)
        assert matched == {id.number for id in anew.matches(values)}


@given(st.data())
@settings(max_examples=60)
def test_counting_and_summing_find_the_same(data):
    """Whatever filters people write: nothing is missed, and the two ways of step 2 agree."""
    drawn = data.draw(st.lists(expressions(constraints, 4), min_size=1, max_size=4))
    filters = {i: Filter.of_expression(expression) for i, expression in enumerate(drawn)}
    summary = ReceivedSummary()
    merged = MergedSummary()
    names = {}
    for number, filter in filters.items():
        if not filter.is_empty:
            names[number], its_demands = demands_of(filter)
            merged.add((demand, number) for demand in its_demands)
    summary.change(merged.flush(), names)
    for expression in drawn:
        values = data.draw(near(expression))
        by_sets = summary.match(values)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(received_module, "COUNTED_MAX", -1)
            assert summary.match(values) == by_sets
        assert {number for number, filter in filters.items() if oracle.matches(filter, values)} <= by_sets
