"""Comparing: which subscriptions of one subscriber are duplicates of another one, or covered by it.

Only filters of the same subscriber are compared, so there is no join of everything with everything. A filter that
covers another matches a sample of it (`model/samples.py`). That rules out nearly all pairs of filters which are no
conjunctions: the normal form of one takes many times as long as to parse it. Such a filter with many constraints is
only compared by its text. The result is a note in the catalogue, and changes nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby, islice
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from catchment.matching import Matcher
from catchment.model.expression import leaves
from catchment.model.filter import Filter
from catchment.model.samples import sample_of
from catchment.model.values import Value
from catchment.pipeline.compile.catalogue import (
    CATALOGUE,
    CATCHMENT,
    COLUMNS_WITHOUT_NOTE,
    DUPLICATE,
    REDUNDANT,
    UNCHECKED,
    loaded_filter,
)
from catchment.pipeline.index import LIVE
from catchment.routing.poset import Poset

# One task builds the poset of one subscriber. Filters past this number are matched as usual, and not compared.
SUBSCRIBER_FILTERS_MAX: Final = 10_000
# A filter that is no conjunction is compared if it has at most so many constraints: then its normal form, which few of
# them need, takes about a millisecond.
COMPARED_CONSTRAINTS_MAX: Final = 8
# Up to so many filters are compared pair by pair: building a poset of them takes longer.
PAIRWISE_MAX: Final = 16

# What a subscription is to another one, and the id of that one.
Note = tuple[str | None, str | None]
_NO_NOTE: Final[Note] = (None, None)


class ComparedRow(NamedTuple):
    """The columns of a subscription that are needed to compare it."""

    id: str
    filter: str
    dialect: str
    conjunction: bytes | None
    status: str


def with_notes(subscriptions: DataFrame) -> DataFrame:
    """Rows of `CATALOGUE`, each with its note. All rows of a subscriber come to one task, sorted, so that the task
    holds one subscriber at a time."""
    columns = subscriptions.select(*COLUMNS_WITHOUT_NOTE)
    grouped = columns.repartition("subscriber").sortWithinPartitions("subscriber", "id")
    return grouped.mapInArrow(_noted_batches, CATALOGUE)


def _noted_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in whole_subscribers(batches):
        notes, others = zip(*_notes(batch), strict=True)
        added = [pa.array(notes, pa.string()), pa.array(others, pa.string())]
        yield pa.RecordBatch.from_arrays([*batch.columns, *added], CATALOGUE.names)


def whole_subscribers(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches that end where a subscriber ends. The rows are sorted by subscriber."""
    # Rows of the last subscriber so far, whose further rows may be in the next batch.
    pending: list[pa.RecordBatch] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        subscribers = batch.column("subscriber")
        last = subscribers[-1]
        start = pc.index(subscribers, last).as_py()
        if start or (pending and pending[-1].column("subscriber")[-1] != last):
            yield _joined([*pending, batch.slice(0, start)])
            pending = []
        pending.append(batch.slice(start))
    if pending:
        yield _joined(pending)


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    columns = [pa.concat_arrays(columns) for columns in zip(*(batch.columns for batch in batches), strict=True)]
    return pa.RecordBatch.from_arrays(columns, batches[0].schema.names)


def _notes(batch: pa.RecordBatch) -> list[Note]:
    subscribers = batch.column("subscriber").to_pylist()
    rows = list(map(ComparedRow, *(batch.column(name).to_pylist() for name in ComparedRow._fields)))
    notes: list[Note] = []
    for _, group in groupby(range(len(rows)), key=subscribers.__getitem__):
        rows_of_subscriber = [rows[i] for i in group]
        notes += notes_of_subscriber(rows_of_subscriber) if len(rows_of_subscriber) > 1 else [_NO_NOTE]
    return notes


def notes_of_subscriber(rows: Sequence[ComparedRow]) -> list[Note]:
    """The notes of the subscriptions of one subscriber, which are sorted by id. The first of several equal ones is not
    a duplicate; the others are duplicates of it."""
    first_ids: dict[tuple[str, str], str] = {}
    compared: list[ComparedRow] = []
    notes: dict[str, Note] = {}
    for row in rows:
        if row.status != LIVE:
            continue
        key = (row.dialect, row.filter)
        if key in first_ids:
            notes[row.id] = DUPLICATE, first_ids[key]
        elif row.dialect == CATCHMENT:
            if len(compared) < SUBSCRIBER_FILTERS_MAX and _is_comparable(row):
                compared.append(row)
            else:
                notes[row.id] = UNCHECKED, None
        first_ids.setdefault(key, row.id)
    if len(compared) > 1:
        notes |= _notes_on_covering(compared)
    return [notes.get(row.id, _NO_NOTE) for row in rows]


# --- covering -----------------------------------------------------------------------------------


def _is_comparable(row: ComparedRow) -> bool:
    filter = _filter_of(row)
    if filter.conjunction is not None:
        return True
    return len(list(islice(leaves(filter.expression), COMPARED_CONSTRAINTS_MAX + 1))) <= COMPARED_CONSTRAINTS_MAX


def _notes_on_covering(rows: Sequence[ComparedRow]) -> dict[str, Note]:
    """The notes of the ids whose filters another filter covers, with the least id of those that cover it
    immediately."""
    compared = list(map(_Compared, rows))
    if len(rows) <= PAIRWISE_MAX:
        immediate = _immediate(_above_by_pairs(compared))
    elif all(each.is_conjunction for each in compared):
        immediate = _immediate_by_poset(rows)
    else:
        immediate = _immediate(_above_by_samples(compared))
    return {id: (REDUNDANT, min(covering)) for id, covering in immediate.items() if covering}


def _immediate_by_poset(rows: Sequence[ComparedRow]) -> dict[str, list[str]]:
    """For each id the ids whose filters cover its own, with no other filter between. Of filters that mean the same, the
    first covers the others. A poset takes normal forms, so a conjunction without one is left out."""
    filters = {row.id: filter for row in rows if (filter := _filter_of(row)).is_normal}
    ids: dict[Filter, str] = {}
    for id, filter in filters.items():
        ids.setdefault(filter, id)
    poset = Poset(ids)
    immediate = {ids[filter]: [ids[above] for above in poset.predecessors(filter)] for filter in ids if filter in poset}
    return immediate | {id: [ids[filter]] for id, filter in filters.items() if ids[filter] != id}


def _above_by_pairs(compared: Sequence[_Compared]) -> dict[str, list[str]]:
    """For each id the ids whose filters cover its own, by comparing each pair."""
    return {below.id: [each.id for each in compared if each is not below and each.covers(below)] for below in compared}


def _above_by_samples(compared: Sequence[_Compared]) -> dict[str, list[str]]:
    """The same: one matcher finds for the samples of all filters which other filters match them."""
    matcher = Matcher()
    matcher.add_many(range(len(compared)), [each.filter for each in compared])
    sampled = [each for each in compared if each.sample is not None]
    matches = matcher.match_batch([each.sample or {} for each in sampled])
    above: dict[str, list[str]] = {each.id: [] for each in compared}
    for below, numbers in zip(sampled, matches, strict=True):
        others = [compared[int(number)] for number in numbers if compared[int(number)] is not below]
        above[below.id] = [each.id for each in others if each.filter.covers(below.filter)]
    return above


def _immediate(above: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Of the ids that cover an id, those with no other between. Of filters that mean the same, the first covers the
    others."""
    covering = {id: [other for other in ids if id not in above[other] or other < id] for id, ids in above.items()}
    return {
        id: [above for above in ids if not any(above in covering[between] for between in ids)]
        for id, ids in covering.items()
    }


class _Compared:
    """A filter for comparison. It keeps what rules out most pairs cheaply, so that few normal forms are needed: of a
    conjunction names and equalities, of another filter a sample."""

    def __init__(self, row: ComparedRow) -> None:
        self.id = row.id
        self.filter = _filter_of(row)
        conjunction = self.filter.conjunction
        self.is_conjunction = conjunction is not None
        constraints = () if conjunction is None else conjunction.constraints
        self._names = {constraint.name for constraint in constraints}
        self._equals = {constraint.name: constraint.value for constraint in constraints if constraint.operator == "="}

    def covers(self, other: _Compared) -> bool:
        return self._may_cover(other) and self.filter.covers(other.filter)

    @cached_property
    def sample(self) -> dict[str, Value] | None:
        return sample_of(self.filter.canonical)

    def _may_cover(self, other: _Compared) -> bool:
        """False only if it cannot cover. A conjunction that covers another has no name that the other lacks, and where
        both demand a value, the same value."""
        if not (self.is_conjunction and other.is_conjunction):
            return other.sample is None or self.filter.matches(other.sample)
        return self._names <= other._names and all(
            other._equals.get(name, value) == value for name, value in self._equals.items()
        )


def _filter_of(row: ComparedRow) -> Filter:
    filter = loaded_filter(row.filter, row.conjunction, row.dialect)
    assert isinstance(filter, Filter)
    return filter
