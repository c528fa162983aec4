"""Subscriptions understood: what workers run on rows to parse, normalize and compare them.

`PARSED` has one row for each row given: the subscription with its canonical filter, or the reason why it is none.
`noted` then says, subscriber by subscriber, which are duplicates of another or covered by it. Only filters of one
subscriber are compared, so nothing is ever joined with everything.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import groupby
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import LongType, StringType, StructField, StructType

from catchment.errors import CatchmentError, InputError, shown
from catchment.matching.ids import id_bytes
from catchment.model.cesql import Cesql
from catchment.model.constraint import Constraint
from catchment.model.filter import Conjunction, Filter
from catchment.pipeline.schema import SUBSCRIPTIONS
from catchment.pipeline.wide import FILE, ROW
from catchment.routing.poset import Poset

# The poset of one subscriber is built by one task; those past it are matched like any other, and not compared.
SUBSCRIBER_FILTERS_MAX: Final = 10_000
# Equal texts come in crowds: so many are parsed once.
_TEXTS_KEPT_MAX: Final = 65_536

LIVE, CONTRADICTORY, EXPIRED = "live", "contradictory", "expired"
DUPLICATE, REDUNDANT, UNCHECKED = "duplicate", "redundant", "unchecked"
DIALECTS: Final = ("catchment", "cesql")

# `filter` is canonical text; `conjunction` the same as JSON where it is a single one, which loads ten times faster.
# `note` says what the subscription is to `other`, an id of the same subscriber.
CATALOGUE: Final = StructType(
    [
        *SUBSCRIPTIONS.fields,
        StructField("conjunction", StringType()),
        StructField("status", StringType()),
        StructField("note", StringType()),
        StructField("other", StringType()),
    ]
)
PARSED: Final = StructType(
    [
        *SUBSCRIPTIONS.fields,
        StructField("conjunction", StringType()),
        StructField("status", StringType()),
        StructField("reason", StringType()),
        StructField("text", StringType()),
        StructField(FILE, StringType()),
        StructField(ROW, LongType()),
    ]
)
Row = dict[str, Any]


# --- one subscription ---------------------------------------------------------------------------


@lru_cache(maxsize=_TEXTS_KEPT_MAX)
def _understood(text: str, dialect: str) -> tuple[str, str | None, str]:
    """The canonical text of a filter, its conjunction as JSON if it is one, and its status."""
    if dialect == "cesql":
        expression = Cesql(text)
        return str(expression), None, CONTRADICTORY if expression.filter.is_empty else LIVE
    found = Filter(text)
    if found.is_empty:
        return str(found), None, CONTRADICTORY
    alternatives = found.alternatives
    plain = [one.to_json() for one in alternatives[0].constraints] if len(alternatives) == 1 else None
    return str(found), None if plain is None else json.dumps(plain, ensure_ascii=False), LIVE


def loaded(text: str, conjunction: str | None, dialect: str) -> Filter | Conjunction | Cesql:
    """The filter of a row of the catalogue, for a Matcher."""
    if conjunction is not None:
        return Conjunction(tuple(map(Constraint.from_json, json.loads(conjunction))))
    return Cesql(text) if dialect == "cesql" else Filter(text)


def _parsed_row(row: Row) -> Row:
    dialect = row["dialect"] or DIALECTS[0]
    try:
        for name in ("id", "subscriber", "filter"):
            if not row[name]:
                raise InputError(f"a subscription has a text {name}, found none")
        if dialect not in DIALECTS:
            raise InputError(f"unknown dialect {shown(dialect)}: use one of {', '.join(DIALECTS)}")
        id_bytes(row["id"])
        id_bytes(row["subscriber"])
        text, conjunction, status = _understood(row["filter"], dialect)
    except (CatchmentError, RecursionError) as problem:
        reason = str(problem) or "nesting too deep"
        return {**row, "reason": reason, "text": row["filter"], "conjunction": None, "status": None}
    understood = {"filter": text, "conjunction": conjunction, "status": status, "dialect": dialect}
    return {**row, **understood, "reason": None, "text": None}


def _parsed_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield _batch([_parsed_row(row) for row in batch.to_pylist()], PARSED)


def _batch(rows: list[Row], schema: StructType) -> pa.RecordBatch:
    arrays = [pa.array([row.get(one.name) for row in rows], _arrow_type(one)) for one in schema.fields]
    return pa.RecordBatch.from_arrays(arrays, schema.names)


def _arrow_type(field: StructField) -> pa.DataType:
    match field.dataType.typeName():
        case "timestamp":
            return pa.timestamp("us", "UTC")
        case "long" | "bigint":
            return pa.int64()
        case _:
            return pa.string()


def parsed(given: DataFrame, now: Column) -> DataFrame:
    """Rows of `PARSED`: given the columns of `SUBSCRIPTIONS`, `$file` and `$row`. Of rows with one id the first
    is taken: by file and row where they have them."""
    found = given.mapInArrow(_parsed_batches, PARSED)
    order = Window.partitionBy("id").orderBy(F.col("reason").isNotNull(), FILE, ROW, "filter", "subscriber")
    place = F.row_number().over(order)
    taken = F.concat(F.lit("the id "), F.col("id"), F.lit(" stands twice"))
    reason = F.when(F.col("reason").isNull() & (F.col("$place") > 1), taken).otherwise(F.col("reason"))
    text = F.when(reason.isNotNull(), F.coalesce("text", "filter"))
    expired = (F.col("status") == LIVE) & (F.col("expires") <= now)
    columns = {"reason": reason, "text": text, "status": F.when(expired, EXPIRED).otherwise(F.col("status"))}
    return found.withColumn("$place", place).withColumns(columns).drop("$place")


# --- the subscriptions of one subscriber --------------------------------------------------------


def noted(catalogue: DataFrame) -> DataFrame:
    """Rows of `CATALOGUE`, each with its note; a subscriber's rows meet in one task, sorted, so that a task holds one
    subscriber at a time."""
    grouped = catalogue.select(*_without_notes()).repartition("subscriber").sortWithinPartitions("subscriber", "id")
    return grouped.mapInArrow(_noted_batches, CATALOGUE)


def _without_notes() -> list[str]:
    return [name for name in CATALOGUE.names if name not in ("note", "other")]


def _noted_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = (row for batch in batches for row in batch.to_pylist())
    waiting: list[Row] = []
    for _, group in groupby(rows, key=lambda row: row["subscriber"]):
        waiting += _noted_group(list(group))
        if len(waiting) >= SUBSCRIBER_FILTERS_MAX:
            yield _batch(waiting, CATALOGUE)
            waiting = []
    if waiting:
        yield _batch(waiting, CATALOGUE)


def _noted_group(rows: list[Row]) -> list[Row]:
    """The subscriptions of one subscriber, by id, with notes. The first of equal ones is none's duplicate."""
    first: dict[tuple[str, str], str] = {}
    compared: dict[str, str] = {}
    for row in rows:
        row["note"] = row["other"] = None
        if row["status"] != LIVE:
            continue
        key = (row["dialect"], row["filter"])
        if key in first:
            row["note"], row["other"] = DUPLICATE, first[key]
        elif row["dialect"] == DIALECTS[0] and len(compared) < SUBSCRIBER_FILTERS_MAX:
            compared[row["filter"]] = row["id"]
        elif row["dialect"] == DIALECTS[0]:
            row["note"] = UNCHECKED
        first.setdefault(key, row["id"])
    covering = _coverings(compared) if len(compared) > 1 else {}
    for row in rows:
        if row["id"] in covering:
            row["note"], row["other"] = REDUNDANT, covering[row["id"]]
    return rows


def _coverings(ids: dict[str, str]) -> dict[str, str]:
    """For each id whose filter another one covers, the id of such another."""
    filters = {Filter(text): id for text, id in ids.items()}
    poset = Poset(filters)
    above = {one: poset.predecessors(one) for one in filters if one in poset}
    return {filters[one]: min(filters[found] for found in others) for one, others in above.items() if others}
