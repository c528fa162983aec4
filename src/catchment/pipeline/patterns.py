"""Patterns on Spark: sequences of notifications in archives and streams, found by the model's own Monitor.

**Match order** is publication order: by `$time`, then by `$source`, `$seq`, `$id` and at last by the JSON of the
notification; absent values come last. The result is what a Monitor for each pattern returns when it is fed in that
order, in whatever order the rows come:

- A batch is fed whole. Spark sorts the rows of each key, and a task goes through them with one Monitor in memory.
- A stream is fed as its watermark advances. A row waits in state until the watermark passes its time: whatever comes
  later was published later. A row that was published no later than a row already fed is late, and Spark drops it, as
  if it had not been published.

In both cases the Matcher picks the rows that match some step of a pattern. Only those are shuffled, by pattern and key.
Rows without `$time` cannot be in a sequence, and are left out.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as st
from pyspark.sql.pandas.types import to_arrow_schema

from catchment.errors import InputError, UnavailableError
from catchment.matching import Matcher
from catchment.model.notification import ENVELOPE_TYPES
from catchment.model.pattern import PATTERN_FILTERS_MAX, Pattern
from catchment.model.values import INT_MAX, INT_MIN, MICROSECOND, Value, time_key, value_to_json
from catchment.pipeline.monitors import (
    NO_KEY,
    SEQUENCES,
    PatternProcessor,
    feed,
    monitor_of,
    sequence_row,
    step_bits,
)
from catchment.pipeline.rows import (
    ORDER,
    TIME,
    Columns,
    json_lines,
    matched_rows,
    publication_order,
    values_of,
    with_safe_names,
)
from catchment.pipeline.schema import SPARK_TYPES, attributes_of

# How late a notification of a stream may be by default. Each sequence appears that much later.
LATE_MAX: Final = timedelta(minutes=10)
# Rows to shuffle that are made at a time: one notification may match many patterns.
STEPS_MAX: Final = 10_000

DETECTED: Final = st.StructType(
    [
        st.StructField("pattern", st.StringType()),
        st.StructField("key", st.StringType()),
        st.StructField("notifications", st.ArrayType(st.StringType())),
        st.StructField("first", st.TimestampType()),
        st.StructField("last", st.TimestampType()),
    ]
)
# A notification that matches steps of a pattern. `at` is its time in microseconds, which no time zone can change.
_STEPS: Final = st.StructType(
    [
        st.StructField("pattern", st.StringType()),
        st.StructField("key", st.StringType()),
        *(st.StructField(name, SPARK_TYPES[ENVELOPE_TYPES[name]]) for name in ORDER),
        st.StructField("at", st.LongType()),
        st.StructField("steps", st.LongType()),
        st.StructField("notification", st.StringType()),
    ]
)
_STEPS_ARROW: Final = to_arrow_schema(_STEPS, timezone="UTC")
_SEQUENCES_ARROW: Final = to_arrow_schema(SEQUENCES)
_ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"

Patterns = Mapping[str, Pattern]
# A row, the number of a pattern, and the steps of the pattern that the row matches, as bits.
StepMatch = tuple[int, int, int]


def detect(notifications: DataFrame, patterns: Mapping[str, Pattern | str], late: timedelta = LATE_MAX) -> DataFrame:
    """Rows of DETECTED: the sequences that complete a pattern, by the id of the pattern; in a batch or a stream.

    `key` is a JSON object of the attributes that `by` names, with equal numbers written alike. `notifications` are
    JSON, in the order of the sequence. `late` is for streams: how far the watermark stays behind the latest time."""
    parsed = {id: Pattern(given) if isinstance(given, str) else given for id, given in patterns.items()}
    if not parsed:
        raise InputError("there is no pattern to detect")
    columns = attributes_of(notifications.schema)
    if not any(column.name == TIME for column in columns):
        raise InputError("a pattern orders notifications by $time, and there is no such column")
    is_stream = notifications.isStreaming
    rows, renamed = with_safe_names(notifications, columns)
    steps = rows.mapInArrow(partial(_step_batches, parsed, renamed, is_stream), _STEPS)
    sequences = _from_stream(steps, parsed, late) if is_stream else _from_batch(steps, parsed)
    times = [F.timestamp_micros(f"{name}_at").alias(name) for name in ("first", "last")]
    return sequences.select("pattern", "key", "notifications", *times)


# --- rows that match some step ------------------------------------------------------------------


def _step_batches(
    patterns: Patterns, columns: Columns, ticks: bool, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """For mapInArrow: rows of _STEPS. With `ticks` one more row for each batch, with the latest time of the batch and
    no key, so that the watermark advances with all notifications and not only with those that match."""
    matcher = _matcher_of(patterns)
    for batch in batches:
        times = values_of(batch, TIME, columns)
        matches = [match for match in _step_matches(matcher, batch, columns) if times[match[0]] is not None]
        for start in range(0, len(matches), STEPS_MAX):
            rows = _step_rows(patterns, columns, batch, matches[start : start + STEPS_MAX])
            yield pa.RecordBatch.from_pylist(rows, _STEPS_ARROW)
        latest = max((time for time in times if time is not None), default=None)
        if ticks and latest is not None:
            yield pa.RecordBatch.from_pylist([{"pattern": "", "key": NO_KEY, TIME: latest}], _STEPS_ARROW)


def _matcher_of(patterns: Patterns) -> Matcher:
    """A matcher of the steps of all patterns. The id of a step is made of the numbers of pattern and step."""
    matcher = Matcher()
    filters = [
        (number * PATTERN_FILTERS_MAX + step, filter)
        for number, pattern in enumerate(patterns.values())
        for step, filter in enumerate(pattern.filters)
    ]
    matcher.add_many([id for id, _ in filters], [filter for _, filter in filters])
    return matcher


def _step_matches(matcher: Matcher, batch: pa.RecordBatch, columns: Columns) -> Iterator[StepMatch]:
    for row, ids in matched_rows(matcher, batch, columns):
        steps_by_pattern: dict[int, list[int]] = {}
        for id in ids:
            number, step = divmod(int(id), PATTERN_FILTERS_MAX)
            steps_by_pattern.setdefault(number, []).append(step)
        yield from ((row, number, step_bits(steps)) for number, steps in steps_by_pattern.items())


def _step_rows(
    patterns: Patterns, columns: Columns, batch: pa.RecordBatch, matches: list[StepMatch]
) -> list[dict[str, Any]]:
    """A row of _STEPS for each match whose notification has the attributes that `by` names."""
    place_of_row = {row: place for place, row in enumerate(dict.fromkeys(row for row, _, _ in matches))}
    part = batch.take(pa.array(list(place_of_row), pa.int64()))
    common = _common_cells(part, columns)
    names = {name for pattern in patterns.values() for name in pattern.by}
    values = {name: values_of(part, name, columns) for name in names}
    ids, bys = list(patterns), [pattern.by for pattern in patterns.values()]
    rows = []
    for row, number, bits in matches:
        place = place_of_row[row]
        key = _key({name: values[name][place] for name in bys[number]})
        if key is not None:
            rows.append(common[place] | {"pattern": ids[number], "key": key, "steps": bits})
    return rows


def _common_cells(part: pa.RecordBatch, columns: Columns) -> list[dict[str, Any]]:
    """For each notification the cells of its rows that are the same for every pattern."""
    order = zip(*(values_of(part, name, columns) for name in ORDER), strict=True)
    return [
        {**dict(zip(ORDER, values, strict=True)), "at": time_key(values[0]), "notification": text}
        for values, text in zip(order, json_lines(part, columns), strict=True)
    ]


def _key(values: dict[str, Value | None]) -> str | None:
    """The key as JSON; None if a value is absent. Keys that a Monitor takes for equal have the same text."""
    present = {name: value_to_json(_as_int(value)) for name, value in values.items() if value is not None}
    return json.dumps(present) if len(present) == len(values) else None


def _as_int(value: Value) -> Value:
    """The equal int, if there is one: a Monitor takes 2 and 2.0 for one key."""
    is_int = isinstance(value, float) and value.is_integer() and INT_MIN <= int(value) <= INT_MAX
    return int(value) if is_int else value  # type: ignore[arg-type]


# --- in a batch ---------------------------------------------------------------------------------


def _from_batch(steps: DataFrame, patterns: Patterns) -> DataFrame:
    keyed = steps.repartition("pattern", "key")
    ordered = keyed.sortWithinPartitions("pattern", "key", *publication_order(steps.columns), "notification")
    return ordered.mapInArrow(partial(_sequence_batches, patterns), SEQUENCES)


def _sequence_batches(patterns: Patterns, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For mapInArrow: rows of SEQUENCES. The rows of a key stand together, in order, so a task needs one Monitor at a
    time, however many rows there are."""
    monitor, key = None, None
    for batch in batches:
        sequences = []
        for row in batch.select(["pattern", "key", "at", "steps", "notification"]).to_pylist():
            if monitor is None or key != (row["pattern"], row["key"]):
                key = (row["pattern"], row["key"])
                monitor = monitor_of(patterns[row["pattern"]])
            completed = feed(monitor, row["notification"], row["at"], row["steps"])
            sequences += [sequence_row(*key, sequence) for sequence in completed]
        yield pa.RecordBatch.from_pylist(sequences, _SEQUENCES_ARROW)


# --- in a stream --------------------------------------------------------------------------------


def _from_stream(steps: DataFrame, patterns: Patterns, late: timedelta) -> DataFrame:
    if importlib.util.find_spec("google") is None or importlib.util.find_spec("google.protobuf") is None:
        raise UnavailableError("patterns over streams need protobuf, which Spark does not bring: pip install protobuf")
    # transformWithState needs this state store.
    steps.sparkSession.conf.set(_PROVIDER, _ROCKSDB)
    watched = steps.withWatermark(f"`{TIME}`", f"{late // MICROSECOND} microseconds")
    return watched.groupBy("pattern", "key").transformWithState(
        PatternProcessor(patterns), outputStructType=SEQUENCES, outputMode="Append", timeMode="EventTime"
    )
