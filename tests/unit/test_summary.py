"""Summaries: the text's example, ids, rows under a bound, merging."""

from datetime import UTC, datetime

import pytest

from catchment.errors import LimitError
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.model.values import float_key
from catchment.routing.summary import ids
from catchment.routing.summary.aacs import NUMBER, Aacs
from catchment.routing.summary.ids import Schema, SubscriptionId, id_sizes
from catchment.routing.summary.sacs import EVERY, Pattern, Sacs, patterns_of
from catchment.routing.summary.sizes import TextParameters, aacs_bytes, matching_steps, sacs_bytes
from catchment.routing.summary.summary import Summary

# Figures 2 and 3 of the text.
S1 = Filter("exchange glob 'N*SE' and symbol = 'OTE' and price < 8.70 and price > 8.30")
S2 = Filter("symbol >* 'OT' and price = 8.20 and volume > 130000 and low < 8.05")
FIGURE_2 = Notification(
    {
        "exchange": "NYSE",
        "symbol": "OTE",
        "when": datetime(2003, 7, 1, 9, 5, 25, tzinfo=UTC),
        "price": 8.40,
        "volume": 132700,
        "high": 8.80,
        "low": 8.22,
    }
)


@pytest.fixture
def summary():
    return Summary.of(1, {1: S1, 2: S2}, Schema())


def numbers(ids):
    return [id.number for id in ids]


# --- the text ------------------------------------------------------------------------------------


def test_figure_4_aacs_of_price(summary):
    low, high = summary.arithmetic["price", NUMBER].rows
    assert low.is_equality
    assert (low.low, numbers(low.ids)) == (float_key(8.20), [2])
    assert (high.low, high.high, numbers(high.ids)) == (float_key(8.30) + 1, float_key(8.70), [1])


def test_figure_5_sacs_of_symbol(summary):
    rows = summary.strings["symbol"].rows
    assert {pattern: sorted(numbers(ids)) for pattern, ids in rows.items()} == {Pattern("prefix", "OT"): [1, 2]}


def test_figure_6_id():
    sizes = id_sizes(brokers=4, subscriptions=8, attributes=7)
    # Attributes 3, 5 and 6, counted from 1, right to left.
    id = SubscriptionId(2, 1, 0b0110100)
    assert (sizes.broker, sizes.number, sizes.attributes) == (2, 3, 7)
    assert f"{id.bits(sizes):012b}" == "10" + "001" + "0110100"
    assert id.count == 3
    assert sizes.bytes == 2


def test_id_sizes_of_the_text():
    assert (id_sizes(1000, 1_000_000, 10).broker, id_sizes(1000, 1_000_000, 10).number) == (10, 20)


def test_example_1(summary):
    lists = {name: numbers(sorted(summary.satisfied(name, value))) for name, value in FIGURE_2.matched.items()}
    assert {name: satisfied for name, satisfied in lists.items() if satisfied} == {
        "exchange": [1],
        "symbol": [1, 2],
        "price": [1],
        "volume": [2],
    }
    # c3 counts attributes: S1 has two constraints on price and three attributes, S2 has four.
    assert [id.count for id in sorted(summary.satisfied("symbol", "OTE"))] == [3, 4]
    assert numbers(summary.matches(FIGURE_2)) == [1]


def test_sizes_as_the_text_counts(summary):
    # price: one sub-range and one equality; volume and low: a sub-range each; four arithmetic ids, three string ids.
    arithmetic = (2 + 1) * 8 + 2 * 8 + 2 * 8 + 4 * 2
    assert summary.size_bytes(id_bytes=2) == arithmetic + len("N*SE") + len("OT") + 3 * 2


def test_sizes_have_every_id_and_take_the_bytes_of_table_2(summary):
    everything = Summary.of(1, {1: S1, 2: S2, 3: Filter("true")}, Schema())
    assert everything.size_bytes(id_bytes=2) == summary.size_bytes(id_bytes=2) + 2
    # Five ends of ranges and one equality less by 4 bytes each.
    assert summary.size_bytes(2, number_bytes=4) == summary.size_bytes(2) - 4 * (2 + 1 + 2 + 2)


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5, 0.75, 0.9])
@pytest.mark.parametrize("subscriptions", [10, 100, 1000])
def test_equations_1_and_2_with_table_2(share, subscriptions):
    expected = 64 + (38 * (1 - share) + 20) * subscriptions
    assert TextParameters().summary_bytes(subscriptions, share) == pytest.approx(expected)
    assert TextParameters().broadcast_bytes(subscriptions) == 50 * subscriptions


def test_equations_by_hand():
    assert aacs_bytes(ranges=2, equalities=3, ids=5, value_bytes=4, id_bytes=4) == 48
    assert sacs_bytes(rows=3, ids=7, string_bytes=10, id_bytes=4) == 58
    steps = matching_steps(
        arithmetic_attributes=2, string_attributes=3, ranges=2, equalities=4, rows=5, arithmetic_ids=6, string_ids=7
    )
    assert steps == 2 * max(2 * 6, 4 + 6) + 3 * (5 + 7)


def test_joined_rows_have_each_constraint_once():
    """Cut rows repeat ids; the text's do not: L_a is the number of constraints."""
    asked = [(i, ((10 * i, 10 * i + 100),)) for i in range(50)]
    cut, joined = Aacs.of(asked), Aacs.joined(asked)
    assert sum(len(row.ids) for row in cut.rows) > 400
    assert [(row.low, row.high, len(row.ids)) for row in joined.rows] == [(0, 590, 50)]
    assert not joined.is_exact
    assert Aacs.joined([("a", ((0, 5),)), ("b", ((5, 9),)), ("c", ((0, 5),))]).is_exact


def test_an_included_constraint_only_adds_its_id():
    assert Aacs.joined([("range", ((3, 9),)), ("equality", ((5, 6),)), ("outside", ((1, 2),))]).rows == (
        (1, 2, frozenset({"outside"})),
        (3, 9, frozenset({"range", "equality"})),
    )


# --- rows ----------------------------------------------------------------------------------------


def test_overlapping_ranges_are_cut():
    summary = Aacs.of([("a", ((0, 10),)), ("b", ((5, 20),)), ("c", ((7, 8),))])
    assert [(row.low, row.high, "".join(sorted(row.ids))) for row in summary.rows] == [
        (0, 5, "a"), (5, 7, "ab"), (7, 8, "abc"), (8, 10, "ab"), (10, 20, "b"),
    ]  # fmt: skip
    assert summary.is_exact
    assert summary.match(7) == {"a", "b", "c"}
    assert summary.match(20) == frozenset()


def test_ends_round_outward_past_the_bound():
    asked = [(i, ((10 * i, 10 * i + 1),)) for i in range(100)]
    summary = Aacs.of(asked, rows_max=10)
    assert len(summary.rows) <= 10
    assert not summary.is_exact
    assert all(i in summary.match(10 * i) for i in range(100))


def test_more_general_pattern_takes_the_place():
    asked = [("a", [Pattern("=", "microsoft")]), ("b", [Pattern("=", "micronet")]), ("c", [Pattern("glob", "m*t")])]
    summary = Sacs.of(asked)
    assert summary.rows == {Pattern("glob", "m*t"): frozenset("abc")}
    assert not summary.is_exact


def test_patterns_shorten_past_the_bound():
    asked = [(i, [Pattern("=", f"word{i:03}")]) for i in range(100)] + [("s", [Pattern("suffix", "x")])]
    summary = Sacs.of(asked, rows_max=20)
    assert len(summary.rows) <= 20
    assert all(i in summary.match(f"word{i:03}") for i in range(100))
    assert "s" in summary.match("x")


@pytest.mark.parametrize(
    ("text", "wanted", "exact"),
    [
        ("s = 'a'", {Pattern("=", "a")}, True),
        ("s in ('a', 'b')", {Pattern("=", "a"), Pattern("=", "b")}, True),
        ("s >* 'ab'", {Pattern("prefix", "ab")}, True),
        ("s *< 'ab'", {Pattern("suffix", "ab")}, True),
        ("s * 'ab' and s * 'c'", {Pattern("substring", "ab")}, False),
        ("s > 'ab' and s < 'ac'", {Pattern("prefix", "a")}, False),
        ("string s any", {EVERY}, True),
        ("s != 'a'", {EVERY}, False),
    ],
)
def test_patterns_of_sets(text, wanted, exact):
    patterns, is_exact = patterns_of(Filter(text).boxes[0].sets["s"].strings)
    assert set(patterns) == wanted
    assert is_exact is exact


# --- summaries -----------------------------------------------------------------------------------


def test_merged_summary_matches_for_both():
    schema = Schema()
    first, second = Summary.of(1, {1: S1}, schema), Summary.of(2, {1: S2}, schema)
    merged = first.merged(second)
    assert [(id.broker, id.number) for id in merged.matches(FIGURE_2)] == [(1, 1)]
    matching = Notification({"symbol": "OTE", "price": 8.20, "volume": 131000, "low": 8.0, "exchange": "NSE"})
    assert [(id.broker, id.number) for id in merged.matches(matching)] == [(2, 1)]


def test_summaries_of_two_processes_merge():
    """Their schemas list attributes in another order, and both number their broker 1."""
    first, second = Summary.of(1, {1: S1}, Schema(["volume", "price"])), Summary.of(1, {1: S2}, Schema(["low"]))
    merged = first.merged(second.remapped(first.schema, {1: 2}))
    assert [(id.broker, id.number) for id in merged.matches(FIGURE_2)] == [(1, 1)]
    matching = Notification({"symbol": "OTE", "price": 8.20, "volume": 131000, "low": 8.0, "exchange": "NSE"})
    assert [(id.broker, id.number) for id in merged.matches(matching)] == [(2, 1)]
    (theirs,) = [id for id in merged.satisfied("volume", 131000) if id.broker == 2]
    assert first.schema.names_of(theirs.attributes) == {"symbol", "price", "volume", "low"}


def test_what_names_no_attribute_matches_everything():
    summary = Summary.of(1, {1: Filter("true"), 2: Filter("not exists(x)"), 3: Filter("x = 1 or y = 2")}, Schema())
    assert numbers(summary.matches({})) == [1, 2, 3]
    assert not summary.is_exact


def test_schema_is_bounded(monkeypatch):
    monkeypatch.setattr(ids, "SCHEMA_ATTRIBUTES_MAX", 2)
    with pytest.raises(LimitError, match="SCHEMA_ATTRIBUTES_MAX"):
        Schema("abc")
