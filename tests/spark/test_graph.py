"""The content graph on Spark: the tables of an index agree with the poset, in one part and in several."""

from collections import defaultdict

import pytest

from catchment.errors import BadIndexError
from catchment.model.filter import Filter
from catchment.routing.poset import Poset
from catchment.sim.benchmark_data import filters

pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark

from catchment.pipeline.compile import jobs  # noqa: E402
from catchment.pipeline.compile.jobs import change_subscriptions, compile_subscriptions  # noqa: E402
from catchment.pipeline.graph import build  # noqa: E402
from catchment.pipeline.graph.build import parts_for, write_graph  # noqa: E402
from catchment.pipeline.graph.covers import TooManyPairs  # noqa: E402
from catchment.pipeline.graph.parts import CODED  # noqa: E402

SCHEMA = "id string, subscriber string, filter string, broker string, dialect string"
OTHERS = [
    ("o1", "x", "x > 1 or s = 'a'", "b0", None),
    ("o2", "x", "x in (2, 3)", "b0", None),
    ("o3", "x", "x > 1", None, None),
    ("o4", "x", "n0 = 5 and not exists(q)", None, None),
    ("o5", "x", "s LIKE 'a%'", "b1", "cesql"),
    ("o6", "x", "s >* 'a'", "b1", None),
    ("o7", "x", "true", "b2", None),
]


def subscriptions(spark):
    texts = [str(filter) for workload in ("W1", "W2", "W3") for filter in filters(workload, 300)]
    rows = [(f"s{i}", f"c{i % 7}", text, f"b{i % 3}", None) for i, text in enumerate(texts)]
    return spark.createDataFrame(rows + OTHERS, SCHEMA)


def tables(spark, index):
    """The filters by number, and the edges, as Python objects."""
    by_number = {row.number: row for row in spark.read.parquet(index.filters).collect()}
    edges = {(row.predecessor, row.successor) for row in spark.read.parquet(index.edges).collect()}
    return by_number, edges


@pytest.fixture(scope="module")
def compiled(spark, tmp_path_factory):
    return compile_subscriptions(subscriptions(spark), tmp_path_factory.mktemp("graph") / "index")


def test_edges_are_those_of_the_poset(spark, compiled):
    by_number, edges = tables(spark, compiled)
    texts = {number: row.filter for number, row in by_number.items() if row.dialect == "catchment"}
    poset = Poset([Filter(text) for text in texts.values()])
    expected = {(str(above), text) for text in texts.values() for above in poset.predecessors(Filter(text))}
    assert {(texts[a], texts[b]) for a, b in edges if a in texts and b in texts} == expected
    roots = {str(filter) for filter in poset.roots}
    assert {row.filter for row in by_number.values() if row.is_root and row.dialect == "catchment"} == roots


def test_cesql_is_below_what_covers_it(spark, compiled):
    by_number, edges = tables(spark, compiled)
    (number,) = [number for number, row in by_number.items() if row.dialect == "cesql"]
    assert {by_number[a].filter for a, b in edges if b == number} == {'s >* "a"'}
    assert not any(a == number for a, _ in edges)


def test_columns_fit_the_edges(spark, compiled):
    by_number, edges = tables(spark, compiled)
    above, below = defaultdict(set), defaultdict(set)
    for a, b in edges:
        above[b].add(a)
        below[a].add(b)
    for number, row in by_number.items():
        assert (row.in_degree, row.out_degree) == (len(above[number]), len(below[number]))
        assert row.is_root is (not above[number])
        assert row.depth == max((by_number[a].depth + 1 for a in above[number]), default=0)
        assert row.same_as is None
        assert row.dialect == "cesql" or set(row.signature) == Filter(row.filter).names
    assert sorted(by_number) == list(range(len(by_number)))
    assert sum(row.subscriptions for row in by_number.values()) == compiled.counts["live"]
    counts = compiled.counts
    assert counts["edges"] == len(edges)
    assert counts["filters"] == len(by_number)
    assert counts["roots"] == sum(row.is_root for row in by_number.values())
    assert counts["depth"] == max(row.depth for row in by_number.values())


def test_reduced_to_the_roots_of_each_broker(spark, compiled):
    by_number, edges = tables(spark, compiled)
    below = defaultdict(set)
    for a, b in edges:
        below[a].add(b)
    held = defaultdict(set)
    number_of = {(row.dialect, row.filter): number for number, row in by_number.items()}
    for row in spark.read.parquet(compiled.subscriptions).collect():
        held[row.broker].add(number_of[row.dialect, row.filter])
    expected = set()
    for broker, numbers in held.items():
        covered: set[int] = set()
        unvisited = list(numbers)
        while unvisited:
            new = below[unvisited.pop()] - covered
            covered |= new
            unvisited += new
        expected |= {(broker, number) for number in numbers - covered}
    assert {(row.broker, row.filter) for row in spark.read.parquet(compiled.reduced).collect()} == expected
    assert compiled.counts["reduced"] == len(expected)
    assert compiled.counts["held"] == sum(map(len, held.values()))


@pytest.mark.parametrize(
    ("filters", "cores", "parts"),
    [(0, 2, 1), (25_000, 2, 1), (25_001, 2, 2), (1_000_000, 2, 2), (1_000_001, 2, 4), (3_442_689, 2, 8)],
)
def test_no_core_waits_for_the_last_part(filters, cores, parts):
    assert parts_for(filters, cores) == parts


def test_parts_give_the_same_graph(spark, compiled, tmp_path, monkeypatch):
    live = spark.read.parquet(compiled.subscriptions)
    monkeypatch.setattr(build, "SMALL_FILTERS", 400)
    assert parts_for(compiled.counts["filters"], 2) == 2
    counts = write_graph(live, tmp_path, compiled.counts["filters"])
    assert counts == {name: compiled.counts[name] for name in ("edges", "roots", "depth", "held", "reduced")}
    texts = {row.number: row.filter for row in spark.read.parquet(str(tmp_path / "filters")).collect()}
    edges = {(texts[a], texts[b]) for a, b in spark.read.parquet(str(tmp_path / "edges")).collect()}
    by_number, expected = tables(spark, compiled)
    assert edges == {(by_number[a].filter, by_number[b].filter) for a, b in expected}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["edges", "filters", "reduced"]


def test_too_many_pairs_leave_no_graph(spark, tmp_path, monkeypatch):
    reported: list[str] = []
    rows = spark.createDataFrame(OTHERS, SCHEMA)
    monkeypatch.setattr(jobs, "write_graph", lambda *_: "GROUP_PAIRS_MAX")
    index = compile_subscriptions(rows, tmp_path / "index", report=reported.append)
    assert index.counts["graph_skipped"] == 1
    assert "no content graph: GROUP_PAIRS_MAX was passed" in reported
    with pytest.raises(BadIndexError, match="no content graph"):
        _ = index.edges


def _past_a_limit(rows):
    raise TooManyPairs("GROUP_PAIRS_MAX")


def test_a_task_answers_with_the_limit_that_it_passed(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "graph_of_rows", _past_a_limit)
    assert build.all_steps(tmp_path, CODED.empty_table()) == {"exceeded": "GROUP_PAIRS_MAX"}


def test_a_change_builds_the_graph_again(spark, tmp_path):
    rows = spark.createDataFrame(OTHERS, SCHEMA)
    index = compile_subscriptions(rows, tmp_path / "index", graph=False)
    assert not index.has_graph
    removed = spark.createDataFrame([("o7",)], "id string")
    changed = change_subscriptions(index, removed=removed)
    by_number, _ = tables(spark, changed)
    assert len(by_number) == len(OTHERS) - 1
    assert "true" not in {row.filter for row in by_number.values()}


def test_nothing_to_order(spark, tmp_path):
    index = compile_subscriptions(spark.createDataFrame([], SCHEMA), tmp_path / "index")
    assert (index.counts["edges"], index.counts["roots"], index.counts["reduced"]) == (0, 0, 0)
    assert tables(spark, index) == ({}, set())
