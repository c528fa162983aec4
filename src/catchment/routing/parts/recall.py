"""A matcher that recalls what it found for a content, for as long as its filters stay the same.

Publishers repeat themselves: a sensor sends the same few values, a simulated one the same notification a million
times. What matches depends on the attributes alone, unless a filter names a field of the envelope, so the last contents
are kept with what was found for them. Where contents do not repeat that is idle work, and it rests for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final, Generic, TypeVar

from catchment.matching import Matcher, Matches
from catchment.matching.ids import Id
from catchment.matching.matcher import PENDING_MAX
from catchment.model.cesql import Cesql
from catchment.model.filter import Filter
from catchment.model.notification import Notification

V = TypeVar("V")

# Contents that are recalled, and how long one may be: some megabytes.
CONTENTS_MAX: Final = 4_096
CONTENT_BYTES_MAX: Final = 1_024
# What is found for one, at most; longer answers cost more to use than to find.
FOUND_MAX: Final = 256
# What was made of lists of ids is kept up to so many ids in all: some megabytes.
USED_IDS_MAX: Final = 65_536
# So many contents that were not known show whether others repeat: one for each WORTH_ONE_IN; else so many times as
# many notifications pass before the next try.
TRIAL: Final = 4_096
WORTH_ONE_IN: Final = 8
REST_TRIALS: Final = 16
# A batch costs a matcher as much to begin with as so many notifications, each by itself.
ONE_BY_ONE_MAX: Final = 8
WARMING_FILTERS: Final = 3 * PENDING_MAX + 1


class RecallingMatcher(Generic[V]):
    """`use` makes of the ids that match, or of their groups, what is wanted of them; it must not change unless
    filters do."""

    def __init__(self, use: Callable[[Sequence[Id]], V], *, by_group: bool = False) -> None:
        self._matcher = Matcher()
        self._use = use
        self._by_group = by_group
        self._known: dict[bytes, V] = {}
        self._by_ids: dict[tuple[Id, ...], V] = {}
        self._by_ids_size = 0
        # The same by the numbers of groups, as they come from the matcher.
        self._by_numbers: dict[bytes, V] = {}
        self._naming_envelope: set[Id] = set()
        self._missed = self._recalled = self._resting = 0

    def __len__(self) -> int:
        return len(self._matcher)

    def add(self, id: Id, filter: Filter | Cesql, group: Id | None = None) -> None:
        self._matcher.add(id, filter, group)
        self._forget()
        if _names_envelope(filter):
            self._naming_envelope.add(id)

    def remove(self, id: Id) -> None:
        self._matcher.remove(id)
        self._forget()
        self._naming_envelope.discard(id)

    def _forget(self) -> None:
        self._known.clear()
        self._by_ids.clear()
        self._by_numbers.clear()
        self._by_ids_size = 0

    def prepare(self) -> None:
        """For when there is time: see `RoutingCore.prepare`."""
        self._matcher.prepare(self._by_group)

    def found(self, batch: Sequence[Notification]) -> list[V]:
        """For each notification what is to be made of its matches."""
        if not len(self._matcher):
            return [self._used(())] * len(batch)
        if self._naming_envelope or self._resting > 0:
            self._resting -= len(batch)
            return self._matched(batch)
        known = self._known
        if len(batch) == 1:
            recalled = [known.get(batch[0].content)]
        else:
            recalled = [known.get(one.content) for one in batch]
        if None in recalled:
            return self._completed(batch, recalled)
        self._recalled += len(batch)
        return recalled  # type: ignore[return-value]

    def _completed(self, batch: Sequence[Notification], recalled: Sequence[V | None]) -> list[V]:
        new = [one for one, found in zip(batch, recalled, strict=True) if found is None]
        self._recalled += len(batch) - len(new)
        self._missed += len(new)
        if self._missed >= TRIAL:
            is_worth = self._recalled * WORTH_ONE_IN >= self._missed
            self._resting = 0 if is_worth else TRIAL * REST_TRIALS
            self._missed = self._recalled = 0
        matched = iter(self._matched(new, keep=True))
        return [next(matched) if found is None else found for found in recalled]

    def _matched(self, batch: Sequence[Notification], keep: bool = False) -> list[V]:
        if self._by_group and len(batch) > 1 and not keep:
            return self._matched_groups(self._matcher.match_groups(list(batch)))
        results: list[V] = []
        for notification, ids in zip(batch, self._ids(batch), strict=True):
            results.append(self._used(tuple(ids)))
            if keep and len(ids) <= FOUND_MAX and len(notification.content) <= CONTENT_BYTES_MAX:
                if len(self._known) >= CONTENTS_MAX:
                    self._known.clear()
                self._known[notification.content] = results[-1]
        return results

    def _matched_groups(self, found: Matches) -> list[V]:
        """Without a list of ids for each notification: groups keep their numbers."""
        results: list[V] = []
        numbers, size = found.ids.tobytes(), found.ids.itemsize
        for i, (start, end) in enumerate(pairwise((found.offsets * size).tolist())):
            key = numbers[start:end]
            used = self._by_numbers.get(key)
            if used is None:
                used = self._used(tuple(found[i]))
                if len(self._by_numbers) < CONTENTS_MAX and len(key) <= FOUND_MAX * size:
                    self._by_numbers[key] = used
            results.append(used)
        return results

    def _used(self, ids: tuple[Id, ...]) -> V:
        """What is made of the same ids is the same: contents differ more than those who want them."""
        used = self._by_ids.get(ids)
        if used is None:
            used = self._use(ids)
            size = len(ids) + 1
            if self._by_ids_size + size > USED_IDS_MAX:
                self._by_ids.clear()
                self._by_ids_size = 0
            if size <= USED_IDS_MAX:
                self._by_ids[ids] = used
                self._by_ids_size += size
        return used

    def _ids(self, batch: Sequence[Notification]) -> Sequence[Sequence[Id]]:
        if self._by_group:
            one = len(batch) == 1
            return [self._matcher.match_groups(batch[0])] if one else self._matcher.match_groups(list(batch))
        if len(batch) <= ONE_BY_ONE_MAX:
            return [self._matcher.match(one) for one in batch]
        return self._matcher.match_batch(batch)


_WARMING: Final = (
    "warm = 'up' and level > 3",
    "warm >* 'u' or warm *< 'p' or warm * 'x' or warm glob 'u?*'",
    "warm in ('up', 'down') and not level in (1, 2.5) and not exists(cold)",
    "time > 2026-01-01T00:00:00Z and is = true and $seq > 0",
)


def warm() -> None:
    """Loads what matching has compiled, each kernel some milliseconds: now, not with the first that subscribes or
    publishes."""
    filters = [Filter(text) for text in _WARMING]
    time = datetime(2026, 6, 1, tzinfo=UTC)
    levels = (4.5, *range(ONE_BY_ONE_MAX + 1))
    one, *others = [Notification({"warm": "up", "level": level, "time": time, "is": True}) for level in levels]
    for by_group in (False, True):
        matcher: RecallingMatcher[Sequence[Id]] = RecallingMatcher(list, by_group=by_group)
        # As many as make segments, some of them merged, and leave a few that have no index yet.
        for id in range(WARMING_FILTERS):
            matcher.add(id, filters[id % len(filters)], group=id % 2 if by_group else None)
        for gone in (0, WARMING_FILTERS - 1):
            matcher.found([one])
            matcher.found(others)
            matcher.remove(gone)


def _names_envelope(filter: Filter | Cesql) -> bool:
    # CESQL has no way to write such a name.
    return isinstance(filter, Filter) and any(name.startswith("$") for name in filter.names)
