"""Patterns on Spark: sequences over archives and streams, found by the model's own Monitor.

**Match order** is publication order: by `$time`, ties by `$source`, `$seq`, `$id` and at last by the JSON of
the notification, the absent last. The result is what a Monitor for each pattern returns when it is fed in
that order, whatever order rows come in:

- A batch is fed whole. Spark sorts each key's rows, and a task runs through them with one wait in memory.
- A stream is fed as its watermark advances: a row waits in state until the watermark passes its time, so
  all that can still come was published later. A row published no later than what was fed already is late,
  and Spark drops it, as if it had not been published. Spark gives the rows of a micro-batch in no order, so
  the handler sorts what it releases.

In both, the Matcher picks the rows that match some step; only those are shuffled, by pattern and key. Rows
without `$time` are in no sequence and are left out.
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
from pyspark.sql import functions as sf
from pyspark.sql import types as st
from pyspark.sql.pandas.types import to_arrow_schema

from catchment.errors import InputError, UnavailableError
from catchment.matching import Matcher
from catchment.model.notification import ENVELOPE_TYPES
from catchment.model.pattern import PATTERN_FILTERS_MAX, Pattern
from catchment.model.values import INT_MAX, INT_MIN, MICROSECOND, Value, time_key, value_to_json
from catchment.pipeline.monitors import FOUND, NO_KEY, PatternProcessor, fed, found_row, monitor_of, step_bits
from catchment.pipeline.rows import ORDER, TIME, Columns, json_lines, matched_rows, plain, publication_order, values_of
from catchment.pipeline.schema import SPARK_TYPES, attributes_of

# How late a notification of a stream may be unless told otherwise; a match is held back as long.
LATE_MAX: Final = timedelta(minutes=10)
# One notification may match many patterns: rows to shuffle are made so many at a time.
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
# A notification that matches steps of a pattern. `at` is its time in microseconds: exact in every zone.
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
_FOUND_ARROW: Final = to_arrow_schema(FOUND)
_ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"

Patterns = Mapping[str, Pattern]
# Row, number of the pattern, and the steps that it matches.
Hit = tuple[int, int, int]


def detect(notifications: DataFrame, patterns: Mapping[str, Pattern | str], late: timedelta = LATE_MAX) -> DataFrame:
    """DETECTED: the sequences that complete a pattern, by its id; of a batch or a stream.

    `key` is a JSON object of the attributes named by `by`, equal numbers written alike; `notifications` are
    JSON in the order of the sequence. `late` is for streams: how far the watermark stays behind."""
    parsed = {id: Pattern(one) if isinstance(one, str) else one for id, one in patterns.items()}
    if not parsed:
        raise InputError("there is no pattern to detect")
    columns = attributes_of(notifications.schema)
    if not any(one.name == TIME for one in columns):
        raise InputError("a pattern orders notifications by $time, and there is no such column")
    streaming = notifications.isStreaming
    rows, renamed = plain(notifications, columns)
    steps = rows.mapInArrow(partial(_stepped, parsed, renamed, streaming), _STEPS)
    found = _from_stream(steps, parsed, late) if streaming else _from_batch(steps, parsed)
    times = [sf.timestamp_micros(f"{name}_at").alias(name) for name in ("first", "last")]
    return found.select("pattern", "key", "notifications", *times)


# --- what matches some step ---------------------------------------------------------------------


def _stepped(
    patterns: Patterns, columns: Columns, ticking: bool, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Rows of _STEPS; when `ticking` one more for each batch, with its last time and no key, so that the
    watermark advances with all that is published and not only with what matches."""
    matcher = _matcher_of(patterns)
    for batch in batches:
        times = values_of(batch, TIME, columns)
        hits = [hit for hit in _hits(matcher, batch, columns) if times[hit[0]] is not None]
        for start in range(0, len(hits), STEPS_MAX):
            rows = _step_rows(patterns, columns, batch, hits[start : start + STEPS_MAX])
            yield pa.RecordBatch.from_pylist(rows, _STEPS_ARROW)
        last = max((time for time in times if time is not None), default=None)
        if ticking and last is not None:
            yield pa.RecordBatch.from_pylist([{"pattern": "", "key": NO_KEY, TIME: last}], _STEPS_ARROW)


def _matcher_of(patterns: Patterns) -> Matcher:
    """A subscription for each step: its number, raised by that of the pattern."""
    matcher = Matcher()
    filters = [
        (number * PATTERN_FILTERS_MAX + step, filter)
        for number, pattern in enumerate(patterns.values())
        for step, filter in enumerate(pattern.filters)
    ]
    matcher.add_many([id for id, _ in filters], [filter for _, filter in filters])
    return matcher


def _hits(matcher: Matcher, batch: pa.RecordBatch, columns: Columns) -> Iterator[Hit]:
    for row, ids in matched_rows(matcher, batch, columns):
        steps: dict[int, list[int]] = {}
        for id in ids:
            number, step = divmod(int(id), PATTERN_FILTERS_MAX)
            steps.setdefault(number, []).append(step)
        yield from ((row, number, step_bits(found)) for number, found in steps.items())


def _step_rows(patterns: Patterns, columns: Columns, batch: pa.RecordBatch, hits: list[Hit]) -> list[dict[str, Any]]:
    """One for each hit that has the key of its pattern."""
    chosen = {row: place for place, row in enumerate(dict.fromkeys(row for row, _, _ in hits))}
    part = batch.take(pa.array(list(chosen), pa.int64()))
    shared = _shared(part, columns)
    names = {name for pattern in patterns.values() for name in pattern.by}
    values = {name: values_of(part, name, columns) for name in names}
    ids, bys = list(patterns), [pattern.by for pattern in patterns.values()]
    rows = []
    for row, number, bits in hits:
        place = chosen[row]
        key = _key({name: values[name][place] for name in bys[number]})
        if key is not None:
            rows.append(shared[place] | {"pattern": ids[number], "key": key, "steps": bits})
    return rows


def _shared(part: pa.RecordBatch, columns: Columns) -> list[dict[str, Any]]:
    """What rows of a notification have in common, whichever pattern they are for."""
    order = zip(*(values_of(part, name, columns) for name in ORDER), strict=True)
    return [
        {**dict(zip(ORDER, values, strict=True)), "at": time_key(values[0]), "notification": text}
        for values, text in zip(order, json_lines(part, columns), strict=True)
    ]


def _key(values: dict[str, Value | None]) -> str | None:
    """The same text for the same key of a Monitor, which takes equal numbers for one; None where one is absent."""
    found = {name: value_to_json(_one_number(value)) for name, value in values.items() if value is not None}
    return json.dumps(found) if len(found) == len(values) else None


def _one_number(value: Value) -> Value:
    is_int = isinstance(value, float) and value.is_integer() and INT_MIN <= int(value) <= INT_MAX
    return int(value) if is_int else value  # type: ignore[arg-type]


# --- in a batch ---------------------------------------------------------------------------------


def _from_batch(steps: DataFrame, patterns: Patterns) -> DataFrame:
    keyed = steps.repartition("pattern", "key")
    ordered = keyed.sortWithinPartitions("pattern", "key", *publication_order(steps.columns), "notification")
    return ordered.mapInArrow(partial(_monitored, patterns), FOUND)


def _monitored(patterns: Patterns, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of a key follow each other, in order: one Monitor at a time, whatever the number of rows."""
    monitor, key = None, None
    for batch in batches:
        found = []
        for row in batch.select(["pattern", "key", "at", "steps", "notification"]).to_pylist():
            if monitor is None or key != (row["pattern"], row["key"]):
                key = (row["pattern"], row["key"])
                monitor = monitor_of(patterns[row["pattern"]])
            completed = fed(monitor, row["notification"], row["at"], row["steps"])
            found += [found_row(*key, one) for one in completed]
        yield pa.RecordBatch.from_pylist(found, _FOUND_ARROW)


# --- in a stream --------------------------------------------------------------------------------


def _from_stream(steps: DataFrame, patterns: Patterns, late: timedelta) -> DataFrame:
    if importlib.util.find_spec("google") is None or importlib.util.find_spec("google.protobuf") is None:
        raise UnavailableError("patterns over streams need protobuf, which Spark does not bring: pip install protobuf")
    # Nothing else can hold the state of transformWithState.
    steps.sparkSession.conf.set(_PROVIDER, _ROCKSDB)
    watched = steps.withWatermark(f"`{TIME}`", f"{late // MICROSECOND} microseconds")
    return watched.groupBy("pattern", "key").transformWithState(
        PatternProcessor(patterns), outputStructType=FOUND, outputMode="Append", timeMode="EventTime"
    )
