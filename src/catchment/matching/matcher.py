"""Matcher: which of many subscriptions match a notification. It is the only matcher; everything that matches uses it.

New subscriptions go to a short list of *pending* ones. When the list is full it becomes a segment with an index of its
own, and segments of similar size are merged. Every change makes a new snapshot, which replaces the old one as a whole.
A reader takes the snapshot once and never waits for a writer. Writers wait for each other.
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
from catchment.matching import encode, saved_index
from catchment.matching.columns import Encoded, encoded_arrow
from catchment.matching.ids import Id, Ids, id_bytes, sorted_ids
from catchment.matching.matches import Matches, joined
from catchment.matching.nearness import near_misses
from catchment.matching.packing import AnyFilter, packable
from catchment.matching.segment import ALIVE, Segment
from catchment.matching.stats import Stats, stats_of
from catchment.model.conjunction import Conjunction, Matchable
from catchment.model.explanation import Explanation, explain
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.model.values import Value, checked

if TYPE_CHECKING:
    import pyarrow as pa

Array = np.ndarray[Any, Any]

# So many subscriptions may be pending. To build the smallest index takes about as long as evaluating this many filters
# for some hundred notifications.
PENDING_MAX: Final = 64
# For a single notification up to so many pending filters are evaluated in Python. If there are more, they are indexed;
# for a batch they always are.
PENDING_EVALUATED_MAX: Final = 32
# More segments of similar size than this are merged.
LIKE_SEGMENTS_MAX: Final = 2
# A segment is merged with those after it if it is at most so many times as large as they are together.
MERGED_RATIO: Final = 2
# The same for `prepare`, which may take its time: one segment is walked faster than several.
PREPARED_RATIO: Final = 32
# A writer itself merges up to so many subscriptions, in some 10 ms. More are merged in a thread of their own.
MERGED_INLINE_MAX: Final = 4_096
# A segment is rebuilt when a larger share of its subscriptions than this is removed.
DEAD_SHARE_MAX: Final = 0.5
NEAREST_MAX: Final = 10


@dataclass(slots=True)
class Pending:
    """A subscription that no index holds yet."""

    id: Id
    filter: AnyFilter
    group: int
    died: int = ALIVE


@dataclass(slots=True)
class Snapshot:
    """What a reader sees: the segments, and the first `pending_count` pending subscriptions. Snapshots share the list
    of pending ones; writers only append to it."""

    version: int
    segments: tuple[Segment, ...]
    pending: list[Pending]
    pending_count: int
    indexed: Segment | None = field(default=None)  # a segment of the pending ones, once somebody needed it

    @property
    def living_pending(self) -> list[Pending]:
        return [pending for pending in self.pending[: self.pending_count] if pending.died > self.version]

    def all_segments(self) -> tuple[Segment, ...]:
        """The segments, and a segment of the pending subscriptions, which is made on first use."""
        if self.indexed is None and (pending := self.living_pending):
            self.indexed = _segment_of(pending)
        return self.segments if self.indexed is None else (*self.segments, self.indexed)


def _segment_of(pending: Sequence[Pending]) -> Segment:
    groups = np.fromiter((subscription.group for subscription in pending), np.int64, len(pending))
    ids, filters = [subscription.id for subscription in pending], [subscription.filter for subscription in pending]
    return Segment.of(ids, filters, groups)


class Matcher:
    """`m.add("alice/1", Filter("price > 100")); m.match({"price": 101.25})` gives `["alice/1"]`."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._snapshot = Snapshot(0, (), [], 0)
        self._pending_places: dict[Id, int] = {}
        self._groups: list[Id] = []
        self._group_ids = Ids.of([])  # of `_groups`, as they were when somebody last asked
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

    def add(self, id: Id, filter: AnyFilter | str, group: Id | None = None) -> None:
        """Adds a subscription; BadIdError if the id is taken. `match_groups` reports its group."""
        parsed = Filter(filter) if isinstance(filter, str) else filter
        packable(parsed)  # refuses what is no filter
        with self._lock:
            if self._find(id) is not None:
                raise BadIdError(f"the id {shown(id)} is taken: remove it first")
            now = self._snapshot
            self._pending_places[id] = len(now.pending)
            now.pending.append(Pending(id, parsed, self._group_number(group)))
            self._count += 1
            self._swap(now.segments, len(now.pending))

    def add_many(
        self,
        ids: Sequence[Id] | pa.Table,
        filters: Sequence[AnyFilter | str] | None = None,
        groups: Sequence[Id | None] | None = None,
    ) -> None:
        """Adds many subscriptions at once: ids and filters, or an Arrow table with the columns id, filter (text) and,
        if need be, group. It adds all or none: an error leaves the matcher as it was."""
        if encode.is_arrow(ids):
            ids, filters, groups = _subscription_columns(ids)
        if filters is None or len(ids) != len(filters) or (groups is not None and len(groups) != len(ids)):
            raise InputError("ids, filters and groups must have the same length")
        if not len(ids):
            return
        parsed = _parsed_filters(filters)
        with self._lock:
            numbers = [-1] * len(ids) if groups is None else list(map(self._group_number, groups))
            segment = Segment.of(ids, parsed, np.asarray(numbers, np.int64))
            self._refuse_taken(segment)
            self._count += len(ids)
            self._settle(segment)

    def remove(self, id: Id) -> None:
        """Removes a subscription; BadIdError if none has the id."""
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
                if segment.count > MERGED_INLINE_MAX:
                    self._merge_aside([segment])
                else:
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
        """Makes a segment of the pending subscriptions, adds the fresh one, and merges segments if too many are of
        similar size."""
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
        """Merges in a thread of its own. While such a merge runs, no other begins: the next settling tries again."""
        if self._merging is None or not self._merging.is_alive():
            self._merging = Thread(target=self._merge, args=(segments, [segment.living for segment in segments]))
            self._merging.start()

    def _merge(self, segments: Sequence[Segment], living: Sequence[Array]) -> None:
        """Merges the given subscriptions of some segments, without the lock, and then swaps in the merged segment."""
        merged = Segment.merged_of(segments, living)
        with self._lock:
            now = self._snapshot
            if any(segment not in now.segments for segment in segments):
                return  # a segment was rebuilt meanwhile: the next settling tries again
            # Subscriptions that were removed while the merge ran are removed from the merged segment too.
            for segment, numbers in zip(segments, living, strict=True):
                if len(segment.died):
                    for number in numbers[segment.died[numbers] != ALIVE].tolist():
                        merged.remove(merged.ids.find(id_bytes(segment.ids[number])), int(segment.died[number]))
            first = now.segments.index(segments[0])
            fresh = (merged,) if merged.count else ()
            kept = (*now.segments[:first], *fresh, *now.segments[first + len(segments) :])
            self._snapshot = Snapshot(now.version + 1, kept, now.pending, now.pending_count)

    def prepare(self, by_group: bool = False) -> None:
        """Does now what the next match would have to do first, and merges segments where that is worth the time.
        Results stay the same. It may run in another thread than the one that changes and matches."""
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
            living = [segment.living for segment in merged]
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
        parts = [Segment.merged([part]) if part is segment else part for part in now.segments]
        kept = tuple(part for part in parts if part.count)
        self._snapshot = Snapshot(now.version + 1, kept, now.pending, now.pending_count)

    # --- matching ---

    def match(self, notification: Matchable) -> list[Id]:
        """The ids of the subscriptions that match, sorted."""
        now = self._snapshot
        evaluated = now.pending_count <= PENDING_EVALUATED_MAX and now.indexed is None
        segments = now.segments if evaluated else now.all_segments()
        if len(segments) == 1 and not now.pending_count:
            packed, row = encode.packed_single(notification, segments[0].names_envelope)
            return segments[0].match_single(packed, row, now.version)
        packed, row = encode.packed_single(notification, True)
        if not segments and row is notification:
            encode.check(row, 0)  # no kernel looks at it
        lists = [segment.match_single(packed, row, now.version) for segment in segments]
        if evaluated and now.pending_count:
            lists.append(sorted_ids(pending.id for pending in now.living_pending if pending.filter.matches(row)))
        return lists[0] if len(lists) == 1 else sorted_ids(chain.from_iterable(lists))

    def match_batch(self, notifications: Sequence[Matchable] | pa.Table | pa.RecordBatch | Encoded) -> Matches:
        """The matches of many notifications. These are a list; or an Arrow table or batch, with a column for each
        attribute or maps from names to values; or an `Encoded` made from such columns before."""
        now = self._snapshot
        segments = now.all_segments()
        bases = list(accumulate((segment.count for segment in segments), initial=0))
        results = []
        for entries, attributes in _batches(notifications, segments):
            parts = [segment.match(entries, now.version, attributes) for segment in segments]
            results.append(joined(parts, bases[:-1]) if parts else _nothing(len(entries.starts) - 1))
        return Matches(*_stacked(results), [segment.ids for segment in segments])

    def match_groups(self, notifications: Sequence[Matchable] | Matchable | pa.Table | pa.RecordBatch | Encoded) -> Any:
        """The groups with a match, sorted: a list for a single notification, Matches for many."""
        if isinstance(notifications, Mapping):
            _, numbers = self._groups_matched([notifications])
            return sorted_ids(self._groups[number] for number in numbers.tolist())
        (offsets, numbers), ids = self._groups_matched(notifications), self._group_ids
        if len(ids) < len(self._groups):
            ids = self._group_ids = Ids.of(self._groups)
        return Matches(offsets, numbers, [ids])

    def _groups_matched(self, notifications: Any) -> tuple[Array, Array]:
        now = self._snapshot
        results = []
        segments = now.all_segments()
        for entries, attributes in _batches(notifications, segments):
            parts = [segment.match_groups(entries, now.version, attributes) for segment in segments]
            groups = joined(parts, [0] * len(parts)) if parts else _nothing(len(entries.starts) - 1)
            results.append(_distinct(*groups) if len(parts) > 1 else groups)
        return _stacked(results)

    # --- looking closer ---

    def explain(self, notification: Matchable, id: Id) -> Explanation:
        """Why the subscription matches the notification or does not, clause by clause."""
        given = self.filter_of(id)
        filter = Filter.of(*given.constraints) if isinstance(given, Conjunction) else given
        return explain(filter, _mapping(notification))

    def nearest(self, notification: Matchable, limit: int = NEAREST_MAX) -> list[tuple[Id, Explanation]]:
        """Near misses: subscriptions that fail to match by exactly one clause, sorted by id, each explained."""
        now = self._snapshot
        values = _mapping(notification)
        entries = encode.entries_of_mappings([notification])
        ids = [id for segment in now.all_segments() for id in near_misses(segment, entries, now.version, limit)]
        return [(id, self.explain(values, id)) for id in sorted_ids(ids)[:limit] if id in self]

    def filter_of(self, id: Id) -> AnyFilter:
        """The filter of a subscription; BadIdError if none has the id."""
        place = self._find(id)
        if place is None:
            raise BadIdError(f"no subscription has the id {shown(id)}")
        if isinstance(place, Pending):
            return place.filter
        segment, number = place
        return segment.residues.get(number) or segment.filter_of(number)

    def stats(self) -> Stats:
        now = self._snapshot
        return stats_of(now.segments, now.living_pending, self._count)

    # --- saving ---

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the index as a directory of flat files: the whole index or nothing."""
        with self._lock:
            now = self._snapshot
            segments = [segment for segment in now.all_segments() if len(segment.living)]
            if not segments:
                segment = _segment_of([])
            elif len(segments) == 1 and not segments[0].dead:
                segment = segments[0]
            else:
                segment = Segment.merged(segments)
            saved_index.save(path, segment, self._groups)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Matcher:
        """Opens a saved index. It is memory-mapped: processes that open the same index share its pages. Later changes
        stay in memory. BadIndexError if the index is corrupt, truncated or of another version."""
        matcher = cls()
        segment, groups = saved_index.load(path)
        matcher._groups, matcher._group_numbers = groups, {group: i for i, group in enumerate(groups)}
        matcher._count = segment.count
        matcher._snapshot = Snapshot(0, (segment,) if segment.count else (), [], 0)
        return matcher


def _mergeable(segments: Sequence[Segment], ratio: int = MERGED_RATIO, kept: int = LIKE_SEGMENTS_MAX) -> int | None:
    """The first of the segments to be merged, or None. These are the last segments, as long as each is at most `ratio`
    times as large as those after it together, if they are more than `kept`."""
    total, first = 0, len(segments)
    while first and segments[first - 1].count <= ratio * total + (0 if total else segments[first - 1].count):
        total += segments[first - 1].count
        first -= 1
    return first if len(segments) - first > kept else None


def _mapping(notification: Matchable) -> Mapping[str, Value]:
    """The values of a notification by name. Values of other libraries, such as numpy's, are converted."""
    if isinstance(notification, Notification):
        return notification.matched
    return {name: checked(value) for name, value in notification.items()}


def _parsed_filters(filters: Sequence[AnyFilter | str]) -> list[AnyFilter]:
    """The filters with all texts parsed; equal texts are parsed once."""
    by_text: dict[str, Filter] = {}
    parsed: list[AnyFilter] = []
    for i, given in enumerate(filters):
        if isinstance(given, str):
            try:
                parsed.append(by_text[given] if given in by_text else by_text.setdefault(given, Filter(given)))
            except InputError as problem:
                raise BadFilterError(f"filter {i}: {problem}") from None
        else:
            parsed.append(given)
    return parsed


def _subscription_columns(table: Any) -> tuple[list[Id], list[str], list[Id | None] | None]:
    names = table.schema.names
    if not {"id", "filter"} <= set(names):
        raise InputError(f"a table of subscriptions needs the columns id and filter, found {', '.join(names)}")
    groups = table.column("group").to_pylist() if "group" in names else None
    return table.column("id").to_pylist(), table.column("filter").to_pylist(), groups


def _batches(notifications: Any, segments: Sequence[Segment]) -> list[tuple[Any, Any]]:
    """The entries of each batch, with a function that gives a notification of the batch as a mapping."""
    if isinstance(notifications, Encoded):
        return [(notifications.entries, notifications.row)]
    if encode.is_arrow(notifications):
        batches = map(encoded_arrow, encode.arrow_batches(notifications))
        return [(batch.entries, batch.row) for batch in batches]
    rows = list(notifications)
    with_envelope = any(segment.names_envelope for segment in segments)
    return [(encode.entries_of_mappings(rows, with_envelope), lambda i: _mapping(rows[i]))]


def _nothing(rows: int) -> tuple[Array, Array]:
    return np.zeros(rows + 1, np.int64), np.zeros(0, np.int32)


def _stacked(results: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    """The results of several batches as the result of one, batch after batch."""
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
