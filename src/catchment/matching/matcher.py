"""Matcher: which of many subscriptions match a notification. The only matcher; everything that matches uses it.

Changes go to a short list of *pending* subscriptions; when it is full it becomes a segment with an index of its
own, and segments of like size are merged. Every change makes a new snapshot, which is swapped in whole: a reader
takes the snapshot once and never waits for a writer. Writers wait for each other.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from catchment.errors import BadFilterError, BadIdError, InputError, shown
from catchment.matching import encode, store
from catchment.matching.columns import Encoded, encoded_arrow
from catchment.matching.ids import Id, Ids, id_bytes, sorted_ids
from catchment.matching.matches import Matches, joined
from catchment.matching.nearness import near_misses
from catchment.matching.segment import ALIVE, Matched, Segment, alternatives_of
from catchment.matching.stats import Stats, stats_of
from catchment.model.conjunction import Conjunction, Matchable, box_of
from catchment.model.explanation import Explanation, explain
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.model.values import Value, checked

if TYPE_CHECKING:
    import pyarrow as pa

Array = np.ndarray[Any, Any]

# Subscriptions evaluated one by one before they get an index: building the smallest takes about as long as
# evaluating this many filters for some hundred notifications.
PENDING_MAX: Final = 64
# For one notification so many pending are evaluated in Python; for more, and for batches, they are indexed.
PENDING_EVALUATED_MAX: Final = 32
# As many segments of like size are kept before they are merged.
LIKE_SEGMENTS_MAX: Final = 2
# A segment may be so many times as large as those after it together to be merged with them.
MERGED_RATIO: Final = 2
# The same where there is time for it: one segment is walked faster than several.
PREPARED_RATIO: Final = 32
# A writer merges so many subscriptions itself, in some 50 ms; more are merged in a thread beside it.
MERGED_INLINE_MAX: Final = 16_384
# A segment is rebuilt when so large a share of it is dead.
DEAD_SHARE_MAX: Final = 0.5
NEAREST_MAX: Final = 10


@dataclass(slots=True)
class Pending:
    """A subscription that no index holds yet."""

    id: Id
    filter: Matched
    group: int
    died: int = ALIVE


@dataclass(slots=True)
class Snapshot:
    """What a reader sees: segments, and the first so many of the pending."""

    version: int
    segments: tuple[Segment, ...]
    pending: list[Pending]
    pending_count: int
    indexed: Segment | None = field(default=None)

    @property
    def living_pending(self) -> list[Pending]:
        return [one for one in self.pending[: self.pending_count] if one.died > self.version]

    def all_segments(self) -> tuple[Segment, ...]:
        """The segments, and one of the pending, made on first use."""
        if self.indexed is None and (pending := self.living_pending):
            self.indexed = _segment_of(pending)
        return self.segments if self.indexed is None else (*self.segments, self.indexed)


def _segment_of(pending: Sequence[Pending]) -> Segment:
    groups = np.fromiter((one.group for one in pending), np.int64, len(pending))
    return Segment.of([one.id for one in pending], [one.filter for one in pending], groups)


class Matcher:
    """`m.add("alice/1", Filter("price > 100")); m.match({"price": 101.25})` gives `["alice/1"]`."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._snapshot = Snapshot(0, (), [], 0)
        self._pending_places: dict[Id, int] = {}
        self._groups: list[Id] = []
        self._group_ids = Ids.of([])  # of the groups there were when somebody asked
        self._group_numbers: dict[Id, int] = {}
        self._count = 0
        self._merging: Thread | None = None

    def __len__(self) -> int:
        return self._count

    def __contains__(self, id: object) -> bool:
        try:
            return self._find(id) is not None  # type: ignore[arg-type]
        except BadIdError:
            return False

    # --- changes ---

    def add(self, id: Id, filter: Matched | str, group: Id | None = None) -> None:
        """A subscription; BadIdError if the id is taken. `group` is what match_groups reports."""
        found = Filter(filter) if isinstance(filter, str) else filter
        alternatives_of(found)
        with self._lock:
            if self._find(id) is not None:
                raise BadIdError(f"the id {shown(id)} is taken: remove it first")
            now = self._snapshot
            self._pending_places[id] = len(now.pending)
            now.pending.append(Pending(id, found, self._group_number(group)))
            self._count += 1
            self._swap(now.segments, len(now.pending))

    def add_many(
        self,
        ids: Sequence[Id] | pa.Table,
        filters: Sequence[Matched | str] | None = None,
        groups: Sequence[Id | None] | None = None,
    ) -> None:
        """Many at once: ids and filters, or an Arrow table of columns id, filter (text) and, if need be, group.
        All or none: an error leaves the matcher as it was."""
        if encode.is_arrow(ids):
            ids, filters, groups = _subscription_columns(ids)
        if filters is None or len(ids) != len(filters) or (groups is not None and len(groups) != len(ids)):
            raise InputError("ids, filters and groups must be as many")
        if not len(ids):
            return
        found = _parsed_filters(filters)
        with self._lock:
            numbers = [-1] * len(ids) if groups is None else [self._group_number(one) for one in groups]
            segment = Segment.of(ids, found, np.asarray(numbers, np.int64))
            self._refuse_taken(segment)
            self._count += len(ids)
            self._settle(segment)

    def remove(self, id: Id) -> None:
        """BadIdError if nobody has the id."""
        with self._lock:
            place = self._find(id)
            if place is None:
                raise BadIdError(f"no subscription has the id {shown(id)}")
            now = self._snapshot
            version = now.version + 1
            if isinstance(place, Pending):
                place.died = version
                del self._pending_places[id]
            else:
                segment, number = place
                segment.remove(number, version)
            self._count -= 1
            self._swap(now.segments, now.pending_count)
            if not isinstance(place, Pending) and segment.dead > DEAD_SHARE_MAX * segment.count:
                self._rebuild(segment)

    def _group_number(self, group: Id | None) -> int:
        if group is None:
            return -1
        if group not in self._group_numbers:
            id_bytes(group)
            self._groups.append(group)
            self._group_numbers[group] = len(self._groups) - 1
        return self._group_numbers[group]

    def _find(self, id: Id) -> Pending | tuple[Segment, int] | None:
        wanted = id_bytes(id)
        now = self._snapshot
        if (place := self._pending_places.get(id)) is not None:
            return now.pending[place]
        for segment in reversed(now.segments):
            if (number := segment.find(wanted)) >= 0:
                return segment, number
        return None

    def _refuse_taken(self, fresh: Segment) -> None:
        taken = [id for id in self._pending_places if fresh.find(id_bytes(id)) >= 0]
        for segment in self._snapshot.segments:
            taken += segment.ids.objects(segment.living_among(fresh.ids)).tolist()
        if taken:
            raise BadIdError(f"the id {shown(taken[0])} is taken: remove it first")

    def _swap(self, segments: tuple[Segment, ...], pending_count: int) -> None:
        now = self._snapshot
        self._snapshot = Snapshot(now.version + 1, segments, now.pending, pending_count)
        if pending_count >= PENDING_MAX:
            self._settle(None)

    def _settle(self, fresh: Segment | None) -> None:
        """Makes a segment of the pending, adds a fresh one, and merges where there are too many of like size."""
        now = self._snapshot
        living = now.living_pending
        segments = [*now.segments, *([_segment_of(living)] if living else []), *([fresh] if fresh else [])]
        while (first := _mergeable(segments)) is not None:
            if sum(segment.count for segment in segments[first:]) > MERGED_INLINE_MAX:
                self._merge_aside(segments[first:])
                break
            segments[first:] = [Segment.merged(segments[first:])]
        self._pending_places = {}
        self._snapshot = Snapshot(now.version + 1, tuple(segments), [], 0)

    def _merge_aside(self, segments: Sequence[Segment]) -> None:
        """Merges in a thread of its own, one at a time; the others wait for the next settling."""
        if self._merging is None or not self._merging.is_alive():
            self._merging = Thread(target=self._merge, args=(segments, [one.living for one in segments]))
            self._merging.start()

    def _merge(self, segments: Sequence[Segment], living: Sequence[Array]) -> None:
        merged = Segment.merged_of(segments, living)
        with self._lock:
            now = self._snapshot
            if any(one not in now.segments for one in segments):
                return  # one was rebuilt meanwhile: the next settling tries again
            for segment, numbers in zip(segments, living, strict=True):
                if len(segment.died):
                    for number in numbers[segment.died[numbers] != ALIVE].tolist():  # removed meanwhile
                        merged.remove(merged.ids.find(id_bytes(segment.ids[number])), int(segment.died[number]))
            first = now.segments.index(segments[0])
            kept = (*now.segments[:first], merged, *now.segments[first + len(segments) :])
            self._snapshot = Snapshot(now.version + 1, kept, now.pending, now.pending_count)

    def prepare(self, by_group: bool = False) -> None:
        """Does now what the next match would have to do first, and merges segments where that is worth the time.
        What matches stays the same. May be called in a thread beside the one that changes and matches."""
        self.settled()
        with self._lock:
            now = self._snapshot
            if now.pending_count:
                segments = now.all_segments()
                self._pending_places = {}
                self._snapshot = Snapshot(now.version + 1, segments, [], 0)
            segments = self._snapshot.segments
            first = _mergeable(segments, PREPARED_RATIO, 1)
            merged = segments[len(segments) if first is None else first :]
            living = [one.living for one in merged]
        if merged:
            self._merge(merged, living)
        for segment in self._snapshot.segments:
            segment.prepare(by_group)

    def settled(self) -> None:
        """Waits until no segments are being merged."""
        while (merging := self._merging) is not None and merging.is_alive():
            merging.join()

    def _rebuild(self, segment: Segment) -> None:
        now = self._snapshot
        parts = [Segment.merged([one]) if one is segment else one for one in now.segments]
        kept = tuple(one for one in parts if one.count)
        self._snapshot = Snapshot(now.version + 1, kept, now.pending, now.pending_count)

    # --- matching ---

    def match(self, notification: Matchable) -> list[Id]:
        """The ids of the subscriptions that match, sorted."""
        now = self._snapshot
        evaluated = now.pending_count <= PENDING_EVALUATED_MAX and now.indexed is None
        segments = now.segments if evaluated else now.all_segments()
        if len(segments) == 1 and not now.pending_count:
            packed, row = encode.packed_one(notification, segments[0].names_envelope)
            return segments[0].match_one(packed, row, now.version)
        packed, row = encode.packed_one(notification, True)
        if not segments and row is notification:
            encode.check(row, 0)  # no kernel looks at it
        found = [segment.match_one(packed, row, now.version) for segment in segments]
        if evaluated and now.pending_count:
            found.append(sorted_ids(one.id for one in now.living_pending if one.filter.matches(row)))
        return found[0] if len(found) == 1 else sorted_ids(chain.from_iterable(found))

    def match_batch(self, notifications: Sequence[Matchable] | pa.Table | pa.RecordBatch | Encoded) -> Matches:
        """The matches of many notifications: a list of them, or Arrow columns by attribute name, any that is a map
        holding attributes by theirs; or what was made of such columns before."""
        now = self._snapshot
        segments = now.all_segments()
        bases = list(accumulate((segment.count for segment in segments), initial=0))
        results = []
        for entries, attributes in _batches(notifications, segments):
            parts = [segment.match(entries, now.version, attributes) for segment in segments]
            results.append(joined(parts, bases[:-1]) if parts else _nothing(len(entries.starts) - 1))
        return Matches(*_stacked(results), [segment.ids for segment in segments])

    def match_groups(self, notifications: Sequence[Matchable] | Matchable | pa.Table | pa.RecordBatch | Encoded) -> Any:
        """The groups with a match, sorted: of one notification a list, of many Matches."""
        if isinstance(notifications, Mapping):
            _, numbers = self._groups_matched([notifications])
            return sorted_ids(self._groups[number] for number in numbers.tolist())
        found, ids = self._groups_matched(notifications), self._group_ids
        if len(ids) < len(self._groups):
            ids = self._group_ids = Ids.of(self._groups)
        return Matches(*found, [ids])

    def _groups_matched(self, notifications: Any) -> tuple[Array, Array]:
        now = self._snapshot
        results = []
        segments = now.all_segments()
        for entries, attributes in _batches(notifications, segments):
            parts = [segment.match_groups(entries, now.version, attributes) for segment in segments]
            found = joined(parts, [0] * len(parts)) if parts else _nothing(len(entries.starts) - 1)
            results.append(_distinct(*found) if len(parts) > 1 else found)
        return _stacked(results)

    # --- looking closer ---

    def explain(self, notification: Matchable, id: Id) -> Explanation:
        """Clause by clause, why the subscription matches the notification or does not."""
        found = self.filter_of(id)
        filter = Filter.of(*found.constraints) if isinstance(found, Conjunction) else found
        return explain(filter, _mapping(notification))

    def nearest(self, notification: Matchable, limit: int = NEAREST_MAX) -> list[tuple[Id, Explanation]]:
        """Near misses: subscriptions one clause short of matching, by id, each explained."""
        now = self._snapshot
        values = _mapping(notification)
        entries = encode.entries_of_mappings([notification])
        ids = [id for segment in now.all_segments() for id in near_misses(segment, entries, now.version, limit)]
        return [(id, self.explain(values, id)) for id in sorted_ids(ids)[:limit] if id in self]

    def filter_of(self, id: Id) -> Matched:
        """The filter of a subscription."""
        place = self._find(id)
        if place is None:
            raise BadIdError(f"no subscription has the id {shown(id)}")
        if isinstance(place, Pending):
            return place.filter
        segment, number = place
        return segment.residues.get(number) or Filter.of_boxes(
            box_of(one.constraints) for one in segment.conjunctions_of(number)
        )

    def stats(self) -> Stats:
        now = self._snapshot
        return stats_of(now.segments, now.living_pending, self._count)

    # --- keeping ---

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the index as a directory of flat files, whole or not at all."""
        with self._lock:
            now = self._snapshot
            segments = [segment for segment in now.all_segments() if len(segment.living)]
            if not segments:
                segment = _segment_of([])
            elif len(segments) == 1 and not segments[0].dead:
                segment = segments[0]
            else:
                segment = Segment.merged(segments)
            store.save(path, segment, self._groups)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Matcher:
        """A saved index, memory-mapped: processes that open the same one share its pages. Later changes stay in
        memory. BadIndexError if it is corrupt, truncated or of another version."""
        found = cls()
        segment, groups = store.load(path)
        found._groups, found._group_numbers = groups, {group: i for i, group in enumerate(groups)}
        found._count = segment.count
        found._snapshot = Snapshot(0, (segment,) if segment.count else (), [], 0)
        return found


def _mergeable(segments: Sequence[Segment], ratio: int = MERGED_RATIO, kept: int = LIKE_SEGMENTS_MAX) -> int | None:
    """From where on segments are to be merged: the last ones, as long as they are of like size, if more than `kept`."""
    total, first = 0, len(segments)
    while first and segments[first - 1].count <= ratio * total + (0 if total else segments[first - 1].count):
        total += segments[first - 1].count
        first -= 1
    return first if len(segments) - first > kept else None


def _mapping(notification: Matchable) -> Mapping[str, Value]:
    """Its values by name, those of other libraries (numpy's, say) made our own."""
    if isinstance(notification, Notification):
        return notification.matched
    return {name: checked(value) for name, value in notification.items()}


def _parsed_filters(filters: Sequence[Matched | str]) -> list[Matched]:
    """Filters with texts parsed, equal texts once."""
    parsed: dict[str, Filter] = {}
    found: list[Matched] = []
    for i, one in enumerate(filters):
        if isinstance(one, str):
            try:
                found.append(parsed[one] if one in parsed else parsed.setdefault(one, Filter(one)))
            except InputError as problem:
                raise BadFilterError(f"filter {i}: {problem}") from None
        else:
            found.append(one)
    return found


def _subscription_columns(table: Any) -> tuple[list[Id], list[str], list[Id | None] | None]:
    names = table.schema.names
    if not {"id", "filter"} <= set(names):
        raise InputError(f"a table of subscriptions has columns id and filter, found {', '.join(names)}")
    groups = table.column("group").to_pylist() if "group" in names else None
    return table.column("id").to_pylist(), table.column("filter").to_pylist(), groups


def _batches(notifications: Any, segments: Sequence[Segment]) -> list[tuple[Any, Any]]:
    """Entries of each batch for these, with what gives one of its notifications as a mapping."""
    if isinstance(notifications, Encoded):
        return [(notifications.entries, notifications.row)]
    if encode.is_arrow(notifications):
        return [(one.entries, one.row) for one in map(encoded_arrow, encode.arrow_batches(notifications))]
    rows = list(notifications)
    with_envelope = any(segment.names_envelope for segment in segments)
    return [(encode.entries_of_mappings(rows, with_envelope), lambda i: _mapping(rows[i]))]


def _nothing(rows: int) -> tuple[Array, Array]:
    return np.zeros(rows + 1, np.int64), np.zeros(0, np.int32)


def _stacked(results: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    """The results of batches, one below the other."""
    if len(results) == 1:
        return results[0]
    ends = [np.zeros(1, np.int64)]
    for offsets, _ in results:
        ends.append(offsets[1:] + ends[-1][-1])
    return np.concatenate(ends), np.concatenate([np.zeros(0, np.int32), *(numbers for _, numbers in results)])


def _distinct(offsets: Array, numbers: Array) -> tuple[Array, Array]:
    """Each number once for each notification."""
    row = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    pairs = np.unique(np.stack((row, numbers)), axis=1)
    return np.searchsorted(pairs[0], np.arange(len(offsets))), pairs[1].astype(np.int32)
