"""The content graph equals the oracle's: edges, depths, and what brokers propagate, of any filters."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment.matching.bulk import pack_filter
from catchment.model import filter as filter_module
from catchment.model.constraint import constraint
from catchment.model.filter import Filter
from catchment.pipeline.graph import covers, forest, parts
from catchment.pipeline.graph.forest import graph_of_rows
from catchment.pipeline.graph.parts import CODED, coded
from catchment.sim.benchmark_data import filters as workload_filters
from tests import oracle
from tests.strategies import (
    SMALL_PAIR_DOMAIN,
    filters_of,
    routed_filters,
    small_pair_filters,
    small_scalar_filters,
    small_string_filters,
    small_texts,
)

PAIRS = list(oracle.assignments(SMALL_PAIR_DOMAIN))
# Conjunctions that have a shape, nearly all of them: what the fast way is for.
_shaped = st.lists(
    st.one_of(
        st.builds(
            constraint, st.sampled_from("st"), st.sampled_from(("=", "prefix", "suffix", "substring")), small_texts
        ),
        st.builds(constraint, st.sampled_from("xy"), st.sampled_from(("=", "<", "<=", ">", ">=")), st.integers(-2, 3)),
        st.builds(constraint, st.sampled_from("stxyb"), st.just("any")),
        st.builds(constraint, st.just("b"), st.just("="), st.booleans()),
    ),
    max_size=4,
).map(lambda constraints: Filter.of(*constraints))


def rows_of(found, brokers):
    packed = [pack_filter(Filter.of_expression(filter.canonical)) for filter in found]
    columns = [list(map(str, found)), ["catchment"] * len(found), packed, brokers]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(column, type) for column, type in zip(columns, CODED.types, strict=False)], CODED.names[:4]
    )
    return pa.Table.from_batches(list(coded([batch])))


def check(filters, brokers):
    """Compares by the texts of filters: numbers are the pipeline's own."""
    held = [(filter, broker) for filter, broker in zip(filters, brokers, strict=True) if not filter.is_empty]
    if not held:
        return
    part, edges, graph = graph_of_rows(rows_of(*map(list, zip(*held, strict=True))))
    texts = part.table["filter"].to_pylist()
    assert sorted(texts) == sorted({str(one) for one, _ in held})
    # Of equal filters one with a shape stands for the others: the oracle takes the first.
    is_hard = part.arrays["is_hard"][part.group_of] != 0
    order = sorted(range(len(texts)), key=lambda number: (is_hard[number], number))
    wanted_edges, wanted_depths, stands = oracle.content_graph([Filter(texts[number]) for number in order])
    place = {number: i for i, number in enumerate(order)}
    pairs = {(a, b) for b in range(len(texts)) for a in edges.values[edges.starts[b] : edges.starts[b + 1]].tolist()}
    assert {(place[a], place[b]) for a, b in pairs} == wanted_edges
    assert [place[number] for number in graph.representative[order].tolist()] == [stands[i] for i in range(len(order))]
    assert graph.depth[order].tolist() == [wanted_depths[stands[i]] for i in range(len(order))]
    place_of_text = {texts[number]: i for i, number in enumerate(order)}
    distinct = sorted({(place_of_text[str(one)], broker or "") for one, broker in held})
    needed = oracle.reduced([Filter(texts[order[i]]) for i, _ in distinct], [broker for _, broker in distinct])
    kept = part.arrays["pairs"][graph.is_reduced_to]
    assert {(part.brokers[broker] or "", place[one]) for one, broker, _ in kept.tolist()} == {
        (broker, distinct[i][0]) for broker, i in needed
    }


def some(strategy, most):
    return st.lists(st.tuples(strategy, st.sampled_from((None, "b1", "b2"))), min_size=1, max_size=most)


@given(some(_shaped, 25))
@settings(max_examples=150)
def test_shaped_filters(held):
    check(*zip(*held, strict=True))


@given(some(small_pair_filters | small_scalar_filters | _shaped, 12))
def test_small_filters(held):
    check(*zip(*held, strict=True))


@given(some(small_string_filters | _shaped, 8))
@settings(max_examples=50)
def test_strings(held):
    check(*zip(*held, strict=True))


@given(some(routed_filters | filters_of(st.builds(constraint, st.just("x"), st.just("any")), 2), 6))
@settings(max_examples=50)
def test_any_filters(held):
    check(*zip(*held, strict=True))


@given(st.lists(small_pair_filters, min_size=2, max_size=8))
@settings(max_examples=50)
def test_edges_between_filters_without_a_normal_form_are_true(found):
    """Such a filter counts as a wider one where it is covered, and covers nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filter_module, "NORMAL_STEPS_MAX", 0)
        parts.boxes_of.cache_clear()
        parts.coded_filter.cache_clear()
        held = [Filter(str(filter)) for filter in found if not filter.is_empty]
        if not held:
            return
        part, edges, _ = graph_of_rows(rows_of(held, [None] * len(held)))
    parts.boxes_of.cache_clear()
    parts.coded_filter.cache_clear()
    texts = part.table["filter"].to_pylist()
    for b, text in enumerate(texts):
        for a in edges.values[edges.starts[b] : edges.starts[b + 1]].tolist():
            assert oracle.covers(Filter(texts[a]), Filter(text), PAIRS)


@given(some(_shaped, 12))
@settings(max_examples=30)
def test_without_junk_everything_is_asked(held):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forest, "free_junk", lambda used: None)
        check(*zip(*held, strict=True))


@pytest.mark.parametrize("workload", ["W1", "W2", "W3"])
def test_workloads(workload):
    filters = workload_filters(workload, 250)
    check(filters, [None if i % 3 else f"b{i % 2}" for i in range(len(filters))])


def test_groups_large_enough_for_trees():
    filters = [Filter.of(("x", ">=", i), ("x", "<=", i + i % 7), ("y", ">", i % 5)) for i in range(120)]
    check(filters, [None] * len(filters))


def test_pairs_are_bounded(monkeypatch):
    monkeypatch.setattr(covers, "GROUP_PAIRS_MAX", 2)
    texts = ("s >* 'a'", "s = 'ab'", "s = 'ac'", "s = 'ad'")
    with pytest.raises(covers.TooManyPairs, match="GROUP_PAIRS_MAX"):
        graph_of_rows(rows_of(list(map(Filter, texts)), [None] * 4))
