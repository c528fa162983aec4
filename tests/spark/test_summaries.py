"""Summaries as tables: they agree with the structure, and never leave out a filter that matches."""

from collections import Counter

import pytest

from catchment.model.filter import Filter
from catchment.sim.benchmark_data import filters, notifications

pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark

from catchment.pipeline.compile.jobs import compile_subscriptions  # noqa: E402

SCHEMA = "id string, subscriber string, filter string, broker string"
OTHERS = [
    ("o1", "x", "true", "b1"),
    ("o2", "x", "t > 2026-01-01T00:00:00Z and f = true", "b2"),
    ("o3", "x", "not exists(q)", "b2"),
]


@pytest.fixture(scope="module")
def compiled(spark, tmp_path_factory):
    texts = [str(filter) for workload in ("W2", "W3") for filter in filters(workload, 200)]
    rows = [(f"s{i}", "c", text, "b1" if i % 2 else None) for i, text in enumerate(texts)]
    return compile_subscriptions(spark.createDataFrame(rows + OTHERS, SCHEMA), tmp_path_factory.mktemp("s") / "index")


def holds(row, value):
    """Whether a row of a summary holds a value."""
    match row.kind, value:
        case "string", str():
            return Filter.of(("v", row.operator, row.operand)).matches({"v": value})
        case "number", int() | float() if not isinstance(value, bool):
            return (row.low is None or row.low <= value) and (row.high is None or value <= row.high)
    return False


def matched(rows, notification, names):
    """Algorithm 1 of the summaries text, over the rows of a broker."""
    satisfied = [row for row in rows if row.attribute in notification and holds(row, notification[row.attribute])]
    collected = {(id, row.attribute) for row in satisfied for id in row.ids}
    counters = Counter(id for id, _ in collected)
    unconditional = {id for row in rows if row.kind == "everything" for id in row.ids}
    return unconditional | {id for id, count in counters.items() if count == len(names[id])}


def test_rows_never_leave_out_a_match(spark, compiled):
    texts = {row.number: row.filter for row in spark.read.parquet(compiled.filters).collect()}
    rows = spark.read.parquet(compiled.summaries).collect()
    reduced = spark.read.parquet(compiled.reduced).collect()
    names = {number: Filter(text).names for number, text in texts.items()}
    for notification in [*notifications("W2", 10), *notifications("W3", 10)]:
        for broker in (None, "b1"):
            held = {row.filter for row in reduced if row.broker == broker}
            matching = {number for number in held if Filter(texts[number]).matches(notification)}
            assert matching <= matched([row for row in rows if row.broker == broker], notification, names) <= held


def test_kinds_and_bounds(spark, compiled):
    of_broker = spark.read.parquet(compiled.summaries).where("broker = 'b2'").collect()
    rows = {(row.attribute, row.kind): row for row in of_broker}
    assert rows["f", "bool"].low == rows["f", "bool"].high == 1.0
    assert rows["f", "bool"].operator == "="
    assert rows["t", "time"].low_time is not None
    assert rows["t", "time"].high_time is None
    assert len(rows[None, "everything"].ids) == 1


def test_counts(spark, compiled):
    rows = spark.read.parquet(compiled.summaries).collect()
    counts = compiled.counts
    assert counts["summary_rows"] == len(rows)
    size = sum(row.value_bytes + len(row.ids) * counts["summary_id_bytes"] for row in rows)
    assert counts["summary_bytes"] == size
