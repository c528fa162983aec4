"""Subscriptions understood: what workers run on rows to parse, normalize and compare them.

`PARSED` has one row for each row given: the subscription with its canonical filter, or the reason why it is none.
`noted` then says, subscriber by subscriber, which are duplicates of another or covered by it. Only filters of one
subscriber are compared, so nothing is ever joined with everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import groupby
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from catchment.errors import CatchmentError, InputError, shown
from catchment.matching.bulk import pack_filter, unpack_filter
from catchment.matching.ids import id_bytes
from catchment.model.cesql import Cesql
from catchment.model.filter import Filter, box_of
from catchment.pipeline.schema import SUBSCRIPTIONS
from catchment.pipeline.tables import FILE, ROW
from catchment.routing.poset import Poset

# The poset of one subscriber is built by one task; those past it are matched like any other, and not compared.
SUBSCRIBER_FILTERS_MAX: Final = 10_000
# Equal texts come in crowds: so many are parsed once.
_TEXTS_KEPT_MAX: Final = 65_536
# So few filters are compared two by two faster than a poset of them is built.
_FEW: Final = 16

LIVE, CONTRADICTORY, EXPIRED = "live", "contradictory", "expired"
DUPLICATE, REDUNDANT, UNCHECKED = "duplicate", "redundant", "unchecked"
DIALECTS: Final = ("catchment", "cesql")

# `filter` is canonical text; `conjunction` the same as the index takes it in, null for CESQL and what is not live.
# `note` says what the subscription is to `other`, an id of the same subscriber.
CATALOGUE: Final = StructType(
    [
        *SUBSCRIPTIONS.fields,
        StructField("conjunction", BinaryType()),
        StructField("status", StringType()),
        StructField("note", StringType()),
        StructField("other", StringType()),
    ]
)
PARSED: Final = StructType(
    [
        *SUBSCRIPTIONS.fields,
        StructField("conjunction", BinaryType()),
        StructField("status", StringType()),
        StructField("reason", StringType()),
        StructField("text", StringType()),
        StructField(FILE, StringType()),
        StructField(ROW, LongType()),
    ]
)


# --- one subscription ---------------------------------------------------------------------------


class Understood(NamedTuple):
    """What a row says: the columns that parsing changes."""

    filter: str | None
    dialect: str | None
    conjunction: bytes | None
    status: str | None
    reason: str | None


@lru_cache(maxsize=_TEXTS_KEPT_MAX)
def _understood(text: str, dialect: str) -> Understood:
    if dialect == DIALECTS[1]:
        expression = Cesql(text)
        status = CONTRADICTORY if expression.filter.is_empty else LIVE
        return Understood(str(expression), dialect, None, status, None)
    found = Filter(text)
    if found.is_empty:
        return Understood(str(found), dialect, None, CONTRADICTORY, None)
    return Understood(str(found), dialect, pack_filter(found), LIVE, None)


def loaded(text: str, conjunction: bytes | None, dialect: str) -> Filter | Cesql:
    """The filter of a row of the catalogue."""
    if conjunction is not None:
        return Filter.of_boxes(box_of(one.constraints) for one in unpack_filter(conjunction))
    return Cesql(text) if dialect == DIALECTS[1] else Filter(text)


def _parsed_row(id: str | None, subscriber: str | None, text: str | None, dialect: str | None) -> Understood:
    try:
        if not id or not subscriber or not text:
            lacking = next(name for name, one in zip(_NEEDED, (id, subscriber, text), strict=True) if not one)
            raise InputError(f"a subscription has a text {lacking}, found none")
        if dialect and dialect not in DIALECTS:
            raise InputError(f"unknown dialect {shown(dialect)}: use one of {', '.join(DIALECTS)}")
        id_bytes(id)
        id_bytes(subscriber)
        return _understood(text, dialect or DIALECTS[0])
    except (CatchmentError, RecursionError) as problem:
        return Understood(text, dialect, None, None, str(problem) or "nesting too deep")


_NEEDED: Final = ("id", "subscriber", "filter")


def _parsed_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows sorted by id: of those with one id the first that is a subscription is taken."""
    taken: str | None = None
    for batch in batches:
        ids, subscribers, texts, dialects = (batch.column(name).to_pylist() for name in (*_NEEDED, "dialect"))
        rows = list(map(_parsed_row, ids, subscribers, texts, dialects))
        for i, (id, row) in enumerate(zip(ids, rows, strict=True)):
            if row.reason is None:
                if id == taken:
                    rows[i] = Understood(texts[i], dialects[i], None, None, f"the id {id} stands twice")
                taken = id
        yield _parsed_batch(batch, rows)


def _parsed_batch(batch: pa.RecordBatch, rows: Sequence[Understood]) -> pa.RecordBatch:
    filters, dialects, conjunction, statuses, reasons = zip(*rows, strict=True) if rows else ((),) * 5
    reason = pa.array(reasons, pa.string())
    changed = {
        "filter": pa.array(filters, pa.string()),
        "dialect": pa.array(dialects, pa.string()),
        "conjunction": pa.array(conjunction, pa.binary()),
        "status": pa.array(statuses, pa.string()),
        "reason": reason,
        "text": pc.if_else(reason.is_valid(), batch.column("filter"), None),
    }
    arrays = [changed[name] if name in changed else batch.column(name) for name in PARSED.names]
    return pa.RecordBatch.from_arrays(arrays, PARSED.names)


def parsed(given: DataFrame, now: Column) -> DataFrame:
    """Rows of `PARSED`: given the columns of `SUBSCRIPTIONS`, `$file` and `$row`. Of rows with one id the first
    is taken: by file and row where they have them."""
    # Rows of one id meet in one task, and all cores get to work however few files there are.
    sorted_rows = given.repartition("id").sortWithinPartitions("id", FILE, ROW, "filter", "subscriber")
    found = sorted_rows.mapInArrow(_parsed_batches, PARSED)
    expired = (F.col("status") == LIVE) & (F.col("expires") <= now)
    return found.withColumn("status", F.when(expired, EXPIRED).otherwise(F.col("status")))


# --- the subscriptions of one subscriber --------------------------------------------------------


def noted(catalogue: DataFrame) -> DataFrame:
    """Rows of `CATALOGUE`, each with its note; a subscriber's rows meet in one task, sorted, so that a task holds one
    subscriber at a time."""
    grouped = catalogue.select(*_without_notes()).repartition("subscriber").sortWithinPartitions("subscriber", "id")
    return grouped.mapInArrow(_noted_batches, CATALOGUE)


def _without_notes() -> list[str]:
    return [name for name in CATALOGUE.names if name not in ("note", "other")]


def _noted_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in _whole_subscribers(batches):
        notes = _notes(batch)
        columns = [pa.array(one, pa.string()) for one in zip(*notes, strict=True)]
        yield pa.RecordBatch.from_arrays([*batch.columns, *columns], CATALOGUE.names)


def _whole_subscribers(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows, with all of a subscriber in one batch."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        subscribers = batch.column("subscriber")
        last = subscribers[-1]
        start = pc.index(subscribers, last).as_py()
        if start or (waiting and waiting[-1].column("subscriber")[-1] != last):
            yield _joined([*waiting, batch.slice(0, start)])
            waiting = []
        waiting.append(batch.slice(start))
    if waiting:
        yield _joined(waiting)


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    columns = [pa.concat_arrays(columns) for columns in zip(*(one.columns for one in batches), strict=True)]
    return pa.RecordBatch.from_arrays(columns, batches[0].schema.names)


Note = tuple[str | None, str | None]
_NO_NOTE: Final[Note] = (None, None)


class Noted(NamedTuple):
    """What the subscriptions of one subscriber are compared by."""

    id: str
    filter: str
    dialect: str
    conjunction: bytes | None
    status: str


def _notes(batch: pa.RecordBatch) -> list[Note]:
    subscribers = batch.column("subscriber").to_pylist()
    rows = list(map(Noted, *(batch.column(name).to_pylist() for name in Noted._fields)))
    found: list[Note] = []
    for _, group in groupby(range(len(rows)), key=subscribers.__getitem__):
        mine = [rows[i] for i in group]
        found += group_notes(mine) if len(mine) > 1 else [_NO_NOTE]
    return found


def group_notes(rows: Sequence[Noted]) -> list[Note]:
    """What the subscriptions of one subscriber, by id, are to each other. The first of equal ones is none's
    duplicate."""
    first: dict[tuple[str, str], str] = {}
    compared: dict[str, Noted] = {}
    notes: dict[str, Note] = {}
    for row in rows:
        if row.status != LIVE:
            continue
        key = (row.dialect, row.filter)
        if key in first:
            notes[row.id] = DUPLICATE, first[key]
        elif row.dialect == DIALECTS[0] and len(compared) < SUBSCRIBER_FILTERS_MAX:
            compared[row.id] = row
        elif row.dialect == DIALECTS[0]:
            notes[row.id] = UNCHECKED, None
        first.setdefault(key, row.id)
    if len(compared) > 1:
        coverings = _coverings(list(compared.values()))
        notes |= {id: (REDUNDANT, other) for id, other in coverings.items()}
    return [notes.get(row.id, _NO_NOTE) for row in rows]


def _coverings(rows: Sequence[Noted]) -> dict[str, str]:
    """For each id whose filter another one covers, the least id of those that do so most closely."""
    above = _above(list(map(_Compared, rows))) if len(rows) <= _FEW else _above_in_poset(rows)
    return {id: min(others) for id, others in above.items() if others}


def _above_in_poset(rows: Sequence[Noted]) -> dict[str, list[str]]:
    """For each id those whose filters cover its own, with none between."""
    ids = {_filter_of(row): row.id for row in rows}
    poset = Poset(ids)
    return {ids[one]: [ids[other] for other in poset.predecessors(one)] for one in ids if one in poset}


def _above(compared: Sequence[_Compared]) -> dict[str, list[str]]:
    """The same, two by two."""
    wider = {one.id: [other.id for other in compared if other is not one and other.covers(one)] for one in compared}
    return {
        id: [other for other in others if not any(other in wider[between] for between in others)]
        for id, others in wider.items()
    }


class _Compared:
    """A filter, and what tells at once of most others that it does not cover them."""

    def __init__(self, row: Noted) -> None:
        self.id, self._row = row.id, row
        assert row.conjunction is not None
        alternatives = unpack_filter(row.conjunction)
        self._is_single = len(alternatives) == 1
        self._names = {one.name for one in alternatives[0].constraints}
        self._equals = {one.name: one.value for one in alternatives[0].constraints if one.operator == "="}

    @cached_property
    def _filter(self) -> Filter:
        return _filter_of(self._row)

    def covers(self, other: _Compared) -> bool:
        return self._may_cover(other) and self._filter.covers(other._filter)

    def _may_cover(self, other: _Compared) -> bool:
        if not (self._is_single and other._is_single):
            return True
        return self._names <= other._names and all(
            other._equals.get(name, value) == value for name, value in self._equals.items()
        )


def _filter_of(row: Noted) -> Filter:
    found = loaded(row.filter, row.conjunction, row.dialect)
    assert isinstance(found, Filter)
    return found
