"""The content graph's corners: equals that differ in text, kernels warmed, limits."""

import os

import pytest

from catchment.matching.kernels import graph as kernels_graph
from catchment.model import normal
from catchment.model.filter import Filter
from catchment.pipeline.graph import covers, forest, parts
from catchment.pipeline.graph.forest import graph_of_rows
from tests.property.test_graph import check, rows_of


def test_equals_that_differ_in_text_are_one_node(monkeypatch):
    monkeypatch.setattr(normal, "PRIME_BOXES_MAX", 1)
    written = (
        "x = 1 and y = 1 or x = 1 and y = 2 and z = 1 or x = 2 and y = 1",
        "x = 1 and y = 1 or x = 2 and y = 1 or x = 1 and y = 2 and z = 1 or y = 1 and x = 1 and z = 1",
        "x = 1 and y < 2 and y > 0 or x = 1 and z = 1 and y = 2 or x = 2 and y = 1 or x = 2 and y = 1.0",
    )
    others = ("x = 1 and y = 1", "y >= 1", "y >= 1 or q = 1")
    check(list(map(Filter, written + others)), [None, "b1", "b1", "b1", None, "b2"])


def test_hard_equal_of_a_shape_is_left_out(monkeypatch):
    """A union that says what one conjunction says, where `covers` alone sees it."""
    plain, union = Filter("x >= 0 and x <= 2"), Filter("x >= 0 and x <= 2 and y = 1 or x >= 0 and x <= 2 and z = 2")
    rows = rows_of([plain, union, Filter("x = 1")], [None, None, None])
    patched = {str(union): plain.boxes}
    real = parts.boxes_of
    for module in (covers, parts):
        monkeypatch.setattr(module, "boxes_of", lambda text, dialect: patched.get(text) or real(text, dialect))
    monkeypatch.setattr(parts, "Filter", lambda text: plain if text in patched else Filter(text))
    spans = rows.column("spans").to_pylist()
    ends = rows.column("ends").to_pylist()
    at = rows.column("filter").to_pylist()
    spans[at.index(str(union))], ends[at.index(str(union))] = spans[at.index(str(plain))], ends[at.index(str(plain))]
    import pyarrow as pa

    rows = rows.set_column(5, "spans", pa.array(spans, rows.schema.field("spans").type))
    rows = rows.set_column(6, "ends", pa.array(ends, rows.schema.field("ends").type))
    part, edges, graph = graph_of_rows(rows)
    texts = part.table["filter"].to_pylist()
    place = {text: i for i, text in enumerate(texts)}
    assert graph.representative[place[str(union)]] == place[str(plain)]
    pairs = {(a, b) for b in range(3) for a in edges.values[edges.starts[b] : edges.starts[b + 1]].tolist()}
    assert pairs == {(place[str(plain)], place["x = 1"])}
    assert int(graph.is_reduced_to.sum()) == 1


def test_asked_pairs_are_bounded(monkeypatch):
    monkeypatch.setattr(covers, "ASKED_PAIRS_MAX", 1)
    filters = [Filter("x != 1"), Filter("x != 2"), Filter("x in (3, 4)"), Filter("x = 5")]
    with pytest.raises(covers.TooManyPairs, match="ASKED_PAIRS_MAX"):
        graph_of_rows(rows_of(filters, [None] * 4))


def test_brokers_past_the_limit_are_not_told_apart(monkeypatch):
    monkeypatch.setattr(forest, "BROKERS_MAX", 1)
    _, _, graph = graph_of_rows(rows_of([Filter("x > 1"), Filter("x > 2")], ["a", "b"]))
    assert not graph.is_reduced_to.any()


def test_more_brokers_than_bits():
    check([Filter(f"x > {i % 5}") for i in range(150)], [f"b{i // 2:02}" for i in range(150)])


def test_more_predecessors_than_there_is_room_for(monkeypatch):
    monkeypatch.setattr(forest, "PREDECESSORS_FEW", 1)
    names = [f"a{i}" for i in range(12)]
    texts = [f"{name} = 'v'" for name in names]
    check(list(map(Filter, [*texts, " and ".join(texts)])), [None] * 13)


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
def test_warming_compiles_what_is_used():
    kernels_graph.warm()
    kernels = [kernel for kernel in vars(kernels_graph).values() if hasattr(kernel, "signatures")]
    before = [len(kernel.signatures) for kernel in kernels]
    graph_of_rows(
        rows_of([Filter("x > 1"), Filter("x > 2"), Filter("x in (3, 4)"), Filter("x != 9")], ["a", "b", "a", None])
    )
    assert [len(kernel.signatures) for kernel in kernels] == before
