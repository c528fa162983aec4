"""The content graph equals the oracle's: edges, depths, and what brokers propagate, of any filters."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment.matching.bulk import pack_filter
from catchment.model.constraint import constraint
from catchment.model.filter import Filter
from catchment.pipeline.graph import covers, forest
from catchment.pipeline.graph.forest import graph_of_rows
from catchment.pipeline.graph.parts import CODED, coded
from catchment.sim.benchmark_data import filters as workload_filters
from tests import oracle
from tests.strategies import (
    filters,
    filters_of,
    small_pair_filters,
    small_scalar_filters,
    small_string_filters,
    small_texts,
)

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


def rows_of(filters, brokers):
    columns = [list(map(str, filters)), ["catchment"] * len(filters), list(map(pack_filter, filters)), brokers]
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
    assert sorted(texts) == sorted({str(filter) for filter, _ in held})
    ordered = [Filter(text) for text in texts]
    wanted_edges, wanted_depths, stands = oracle.content_graph(ordered)
    pairs = {(a, b) for b in range(len(texts)) for a in edges.values[edges.starts[b] : edges.starts[b + 1]].tolist()}
    assert pairs == wanted_edges
    assert graph.representative.tolist() == [stands[b] for b in range(len(texts))]
    assert graph.depth.tolist() == [wanted_depths[stands[b]] for b in range(len(texts))]
    place = {text: i for i, text in enumerate(texts)}
    distinct = sorted({(place[str(filter)], broker or "") for filter, broker in held})
    needed = oracle.reduced([ordered[i] for i, _ in distinct], [broker for _, broker in distinct])
    kept = part.arrays["pairs"][graph.is_reduced_to]
    assert {(part.brokers[broker] or "", filter) for filter, broker, _ in kept.tolist()} == {
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


@given(some(filters | filters_of(st.builds(constraint, st.just("x"), st.just("any")), 2), 6))
@settings(max_examples=50)
def test_any_filters(held):
    check(*zip(*held, strict=True))


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
