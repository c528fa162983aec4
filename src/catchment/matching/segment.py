"""A segment: some subscriptions with an index that never changes. A matcher holds a few, the newest last.

Removal marks a subscription with the version of the matcher that removed it; a reader of an older version still
sees it. Segments are merged as they gather, and what died is left out then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final

import msgspec
import numpy as np

from catchment.errors import BadFilterError, shown
from catchment.matching import index
from catchment.matching.encode import checked_size, packed, refusal
from catchment.matching.ids import Id, Ids
from catchment.matching.index import Source
from catchment.matching.kernels import ids as kids
from catchment.matching.kernels import match as km
from catchment.matching.kernels import single
from catchment.matching.kernels.tables import A_NAME, CONTROL_PLACES, Entries, Living, Scratch, Tables
from catchment.matching.rooms import Packed, PackedLiving, Room, taken
from catchment.model.cesql import Cesql
from catchment.model.conjunction import Conjunction
from catchment.model.constraint import Constraint, Kind
from catchment.model.filter import Filter
from catchment.model.values import Value

Array = np.ndarray[Any, Any]
I32, I64 = np.int32, np.int64
Matched = Filter | Conjunction | Cesql
# Of one notification: what a residue of CESQL is evaluated over.
Attributes = Callable[[int], Mapping[str, Value]]

ALIVE: Final = 2**63 - 1
# Filters taken in at once: bounds the memory that their msgpack takes while an index is built.
INGESTED_FILTERS_MAX: Final = 131_072
_OUTPUT_MIN: Final = 1_024
_NUMBERS, _IDS, _GROUPS = 0, 1, 2
_NONE8: Final = np.zeros(0, np.uint8)
_NONE32: Final = np.zeros(0, I32)
_NONE64: Final = np.zeros(0, I64)
_match_batch: Callable[..., int] = km.match_batch
_match_one: Callable[..., int] = single.match_one


class Segment:
    """Subscriptions by number, in the order of the index's rows."""

    def __init__(self, tables: Tables, source: Source, ids: Ids, group_of: Array, residues: dict[int, Cesql]) -> None:
        self.tables, self.source, self.ids = tables, source, ids
        self.group_of, self.residues = group_of, residues
        self.died, self.dead = _NONE64, 0
        self.constraint_index: Segment | None = None
        self._rooms: list[Room] = []
        self._tables = Packed(tables)
        self._living: list[PackedLiving | None] = [None, None, None]  # for numbers, ids, groups
        self._matches_expected = 4.0

    # --- making ---

    @classmethod
    def of(cls, ids: Sequence[Id], filters: Sequence[Matched], groups: Array) -> Segment:
        parts = [
            _ingested(filters[first : first + INGESTED_FILTERS_MAX])
            for first in range(0, max(1, len(filters)), INGESTED_FILTERS_MAX)
        ]
        source = parts[0] if len(parts) == 1 else index.merged(parts)
        residues = {i: one for i, one in enumerate(filters) if isinstance(one, Cesql)}
        return cls.built(source, Ids.of(ids), groups, residues)

    @classmethod
    def merged(cls, segments: Sequence[Segment]) -> Segment:
        """The living of several segments."""
        return cls.merged_of(segments, [segment.living for segment in segments])

    @classmethod
    def merged_of(cls, segments: Sequence[Segment], living: Sequence[Array]) -> Segment:
        """Those of several segments that were living when somebody looked."""
        sources = [
            segment.source if len(numbers) == segment.count else index.chosen(segment.source, numbers)
            for segment, numbers in zip(segments, living, strict=True)
        ]
        ids = Ids.gathered([(segment.ids, numbers) for segment, numbers in zip(segments, living, strict=True)])
        groups = np.concatenate([segment.groups[numbers] for segment, numbers in zip(segments, living, strict=True)])
        residues: dict[int, Cesql] = {}
        base = 0
        for segment, numbers in zip(segments, living, strict=True):
            if segment.residues:
                place = {number: i for i, number in enumerate(numbers.tolist())}
                residues |= {base + place[n]: one for n, one in segment.residues.items() if n in place}
            base += len(numbers)
        found = cls.built(index.merged(sources) if len(sources) > 1 else sources[0], ids, groups, residues)
        if any(segment.ids.has_places for segment in segments):
            found.ids.places  # noqa: B018 -- made here, not while a reader waits
        return found

    @classmethod
    def built(cls, source: Source, ids: Ids, groups: Array, residues: dict[int, Cesql]) -> Segment:
        source = index.deduplicated(source)
        tables, numbered = index.built(source)
        starts, conjunctions = np.zeros(source.size + 1, I64), np.empty(len(source.conjunctions), I32)
        kids.gather_lists(source.conjunctions, source.filter_starts, numbered, conjunctions, starts)
        source = source._replace(conjunctions=conjunctions, filter_starts=starts)
        if residues:
            number_of = np.argsort(numbered)
            residues = {int(number_of[place]): one for place, one in residues.items()}
        group_of = groups[numbered].astype(I32) if (groups >= 0).any() else _NONE32
        return cls(tables, source, Ids.gathered([(ids, numbered)]), group_of, residues)

    # --- who is there ---

    @property
    def count(self) -> int:
        return self.source.size

    @property
    def groups(self) -> Array:
        """By number, its group, or -1."""
        return self.group_of if len(self.group_of) else np.full(self.count, -1, I32)

    @property
    def living(self) -> Array:
        """The numbers of those not removed."""
        return np.flatnonzero(self.died == ALIVE) if len(self.died) else np.arange(self.count)

    def find(self, wanted: bytes) -> int:
        """The number of a living subscription by the bytes of its id, or -1."""
        number = self.ids.find(wanted)
        return -1 if number >= 0 and len(self.died) and self.died[number] != ALIVE else number

    def living_among(self, ids: Ids) -> Array:
        """The numbers of living subscriptions whose id is one of these."""
        numbers = np.empty(len(ids), I64)
        kids.find_ids(ids.blob, ids.starts, self.ids.blob, self.ids.starts, self.ids.slots, numbers)
        numbers = numbers[numbers >= 0]
        return numbers[self.died[numbers] == ALIVE] if len(self.died) else numbers

    def remove(self, number: int, version: int) -> None:
        if not len(self.died):
            self.died = np.full(self.count, ALIVE, I64)
        self.died[number] = version
        self.dead += 1

    @property
    def bytes_used(self) -> int:
        arrays = (*self.tables, *self.source[1:], self.group_of, self.died)
        return sum(array.nbytes for array in arrays) + self.ids.bytes_used

    # --- filters ---

    def constraint(self, number: int) -> Constraint:
        text = self.source.blob[self.source.starts[number] : self.source.starts[number + 1]].tobytes()
        name, operator, value, kind = msgspec.msgpack.decode(text)
        operand = tuple(map(_utc, value)) if isinstance(value, list) else _utc(value)
        return Constraint(name, operator, operand, Kind(kind))

    def conjunction(self, number: int) -> Conjunction:
        starts = self.source.conjunction_starts
        return Conjunction(tuple(map(self.constraint, self.source.members[starts[number] : starts[number + 1]])))

    def conjunctions_of(self, number: int) -> list[Conjunction]:
        """The alternatives of a subscription's filter."""
        starts = self.source.filter_starts
        return [self.conjunction(one) for one in self.source.conjunctions[starts[number] : starts[number + 1]]]

    # --- matching ---

    def match(self, entries: Entries, version: int, attributes: Attributes) -> tuple[Array, Array]:
        """Offsets and numbers of those that match each notification; `attributes` gives a notification to CESQL."""
        offsets, numbers = self._walk(entries, version, 0)
        return self._without_residues(offsets, numbers, attributes) if self.residues else (offsets, numbers)

    def match_one(self, packed: bytes, row: Mapping[str, Value], version: int) -> list[Id]:
        """The ids of those that match the one notification, sorted; `packed` is its row as msgpack."""
        try:  # as `taken` does, and the handles as `_living_for`: here a call costs a twentieth of it all
            room = self._rooms.pop()
        except IndexError:
            room = self._room()
        living = self._living[_IDS]
        if living is None or living.died is not self.died:
            living = self._living_for(_IDS)
        count = _match_one(self._tables.handles, living.handles, room.handles, packed, version)
        if count >= 0 and not self.residues:
            found: list[Id] = self.ids.ready[room.sorted[:count]].tolist()
        else:
            found = self._match_one_slowly(count, living, room, packed, row, version)
        self._rooms.append(room)
        return found

    def _match_one_slowly(
        self, count: int, living: Packed, room: Room, packed: bytes, row: Mapping[str, Value], version: int
    ) -> list[Id]:
        """Where it did not fit, an id was never listed before, or an expression is to be evaluated."""
        while count == single.NO_ROOM:
            room.grow(checked_size(row), len(packed))
            count = _match_one(self._tables.handles, living.handles, room.handles, packed, version)
        if count == single.REFUSED:
            raise refusal(row, 0)
        numbers = room.one.out[: room.one.offsets[1]].copy()
        if self.residues:
            _, numbers = self._without_residues(room.one.offsets, numbers, lambda _: row)
        return self.ids.sorted(numbers)

    def match_groups(self, entries: Entries, version: int, attributes: Attributes) -> tuple[Array, Array]:
        """Offsets and groups that have a match; stops at each notification when all are found."""
        if not len(self.group_of):
            return np.zeros(len(entries.starts), I64), _NONE32
        if not self.residues and self._has_groups_only:
            return self._walk(entries, version, int(self._groups_present))
        offsets, numbers = self.match(entries, version, attributes)
        row = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        pairs = np.unique(np.stack((row, self.group_of[numbers]))[:, self.group_of[numbers] >= 0], axis=1)
        return np.searchsorted(pairs[0], np.arange(len(offsets))), pairs[1].astype(I32)

    @cached_property
    def names_envelope(self) -> bool:
        """Whether a filter names a field of the envelope: else a notification's attributes are all that it is
        matched by."""
        names = self.tables.attributes[:-1, A_NAME]
        return bool((self.tables.blob[names] == ord("$")).any())

    @cached_property
    def _has_groups_only(self) -> bool:
        return bool((self.group_of >= 0).all())

    @cached_property
    def _groups_present(self) -> int:
        return len(np.unique(self.group_of))

    @cached_property
    def _row_group(self) -> Array:
        """The group of all subscriptions of a row; -1 where they differ or a filter has other rows too."""
        runs = self.tables.row_runs
        found = np.full(len(runs) - 1, -1, I32)
        filled = np.flatnonzero(np.diff(runs) > 0)
        if len(filled):
            low = np.minimum.reduceat(self.group_of[: runs[-1]], runs[filled])
            high = np.maximum.reduceat(self.group_of[: runs[-1]], runs[filled])
            found[filled] = np.where(low == high, low, -1)
        if len(self.tables.row_shared):
            found[np.diff(self.tables.row_shared) > 0] = -1
        return found

    def _walk(self, entries: Entries, version: int, groups: int) -> tuple[Array, Array]:
        rows = len(entries.starts) - 1
        offsets = np.zeros(rows + 1, I64)
        out = np.empty(max(_OUTPUT_MIN, int(rows * self._matches_expected * 1.2)), I32)
        living, room = self._living_for(_GROUPS if groups else _NUMBERS), taken(self._rooms, self._room)
        fixed: tuple[Any, ...] = (self._tables.handles, living.handles, room.handles, *entries, version, groups)
        first = _match_batch(*fixed, 0, rows, out, offsets)
        while first < rows:
            grown = np.empty(2 * len(out), I32)
            grown[: offsets[first]] = out[: offsets[first]]
            out = grown
            first = _match_batch(*fixed, first, rows, out, offsets)
        self._rooms.append(room)
        if not groups and rows:
            self._matches_expected = max(0.9 * self._matches_expected, offsets[-1] / rows)
        return offsets, out[: offsets[-1]]

    def prepare(self, by_group: bool) -> None:
        """Makes what the first match would; the order of many ids takes it some milliseconds."""
        if by_group and len(self.group_of):
            self._living_for(_GROUPS)
        elif not by_group:
            self._living_for(_NUMBERS)
            self._living_for(_IDS)
        if not self._rooms:
            self._rooms.append(self._room())

    def _living_for(self, what: int) -> PackedLiving:
        """The handles of who the numbers stand for, in a walk for numbers, ids or groups."""
        died, found = self.died, self._living[what]
        if found is None or found.died is not died:
            group_of, row_group = (self.group_of, self._row_group) if what == _GROUPS else (_NONE32, _NONE32)
            place, made = (self.ids.places, self.ids.made) if what == _IDS else (_NONE32, _NONE8)
            found = self._living[what] = PackedLiving(Living(died, group_of, row_group, place, made))
        return found

    def _room(self) -> Room:
        tables = self.tables
        dimensions = len(tables.sections)
        scratch = Scratch(
            rank=np.full(dimensions, -1, I32),
            entry_of=np.zeros(dimensions, I64),
            present=np.empty(dimensions + 1, I64),
            stack=np.empty(len(tables.node_low) + 1, I32),
            shared_stamp=np.zeros(self.count - int(tables.row_runs[-1]), I64),
            pattern_stamp=np.zeros(len(tables.literal_places), I64),
            group_stamp=np.zeros(int(self.group_of.max(initial=-1)) + 1, I64),
            control=np.zeros(CONTROL_PLACES, I64),
        )
        return Room(scratch)

    def _without_residues(self, offsets: Array, numbers: Array, attributes: Attributes) -> tuple[Array, Array]:
        """Leaves out CESQL subscriptions whose expression does not match, though its filter does."""
        kept = np.ones(len(numbers), bool)
        suspects = np.flatnonzero(np.isin(numbers, list(self.residues)))
        rows = np.searchsorted(offsets, suspects, side="right") - 1
        for place, row in zip(suspects.tolist(), rows.tolist(), strict=True):
            kept[place] = self.residues[int(numbers[place])].matches(attributes(row))
        ends = np.zeros(len(kept) + 1, I64)
        np.cumsum(kept, out=ends[1:])
        return ends[offsets], numbers[kept]


def _ingested(filters: Sequence[Matched]) -> Source:
    return index.ingested(packed([alternatives_of(one) for one in filters]), len(filters))


def alternatives_of(found: object) -> tuple[Conjunction, ...]:
    """What is indexed of a filter, a single conjunction, or a CESQL expression."""
    if type(found) is Conjunction:
        return (found,)
    if isinstance(found, Filter):
        return found.conjunctions
    if isinstance(found, Cesql):
        return found.filter.conjunctions
    raise BadFilterError(f"{shown(found)} is no filter: use Filter, Conjunction or Cesql")


def _utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value
