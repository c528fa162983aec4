"""A matcher that recalls its answers: for a content that it has matched before, it gives the same answer again.

Publishers repeat themselves: a sensor sends the same few values, a simulated publisher sends the same notification a
million times. Which filters match depends only on the *content* (the encoded attributes), unless a filter names a field
of the envelope. So the matcher keeps the last contents with their answers, until a filter is added or removed.

Where contents do not repeat, keeping them is wasted work. So recalling is on *trial*: the matcher counts how many
contents it knew and how many it did not. If too few were repeats, recalling *rests*: for a while every notification is
matched and nothing is kept. Then the next trial begins.
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

# How many contents are kept, and how long one may be: some megabytes.
CONTENTS_MAX: Final = 4_096
CONTENT_BYTES_MAX: Final = 1_024
# A content that more ids match is not kept: a long answer costs more to use than to find.
CONTENT_IDS_MAX: Final = 256
# Answers by ids are kept as long as these have so many ids in all: some megabytes.
USED_IDS_MAX: Final = 65_536
# After TRIAL unknown contents, recalling pauses for REST_TRIALS x TRIAL notifications unless one in WORTH_ONE_IN was a
# repeat.
TRIAL: Final = 4_096
WORTH_ONE_IN: Final = 8
REST_TRIALS: Final = 16
# Up to so many notifications are faster matched one by one: the start of a batch costs as much as so many calls.
ONE_BY_ONE_MAX: Final = 8
# Enough filters that `warm` runs every kernel: several full segments, and one filter more.
WARMING_FILTERS: Final = 3 * PENDING_MAX + 1


class RecallingMatcher(Generic[V]):
    """`use` makes an *answer* from the ids that match a notification, or with `by_group` from the groups of these ids.
    The same ids must give the same answer until a filter is added or removed."""

    def __init__(self, use: Callable[[Sequence[Id]], V], *, by_group: bool = False) -> None:
        self._matcher = Matcher()
        self._use = use
        self._by_group = by_group
        # Answers three times: by content, by ids (or groups) that match, and by the numbers of groups as the matcher
        # returns them for a batch.
        self._known: dict[bytes, V] = {}
        self._by_ids: dict[tuple[Id, ...], V] = {}
        # The ids in all keys of `_by_ids`, and one more for each key.
        self._by_ids_size = 0
        self._by_numbers: dict[bytes, V] = {}
        # Filters that name a field of the envelope. While there is one, contents do not decide, and are not recalled.
        self._naming_envelope: set[Id] = set()
        # The trial: unknown and known contents so far. The rest: how many notifications it still lasts.
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
        # All answers may be wrong after one filter has changed.
        self._known.clear()
        self._by_ids.clear()
        self._by_numbers.clear()
        self._by_ids_size = 0

    def prepare(self) -> None:
        """Does now what the next match would have to do first. A host calls it when it has time
        (`RoutingCore.matchers`)."""
        self._matcher.prepare(self._by_group)

    def answers(self, batch: Sequence[Notification]) -> list[V]:
        """The answer for each notification of a batch."""
        if not len(self._matcher):
            return [self._used(())] * len(batch)
        if self._naming_envelope or self._resting > 0:
            # Below 0 is the same as 0: no rest.
            self._resting -= len(batch)
            return self._matched(batch)
        known = self._known
        if len(batch) == 1:
            recalled = [known.get(batch[0].content)]
        else:
            recalled = [known.get(notification.content) for notification in batch]
        if None in recalled:
            return self._completed(batch, recalled)
        self._recalled += len(batch)
        return recalled  # type: ignore[return-value]

    def _completed(self, batch: Sequence[Notification], recalled: Sequence[V | None]) -> list[V]:
        """The answers for a batch of which some contents are not known: those are matched, and kept from now on."""
        unknown = [notification for notification, answer in zip(batch, recalled, strict=True) if answer is None]
        self._recalled += len(batch) - len(unknown)
        self._missed += len(unknown)
        if self._missed >= TRIAL:
            # The end of the trial: recalling goes on, or rests.
            is_worth = self._recalled * WORTH_ONE_IN >= self._missed
            self._resting = 0 if is_worth else TRIAL * REST_TRIALS
            self._missed = self._recalled = 0
        # Fills the gaps in order.
        matched = iter(self._matched(unknown, keep=True))
        return [next(matched) if answer is None else answer for answer in recalled]

    def _matched(self, batch: Sequence[Notification], keep: bool = False) -> list[V]:
        """The answers for a batch, by matching. With `keep`, contents are kept with their answers."""
        if self._by_group and len(batch) > 1 and not keep:
            return self._matched_groups(self._matcher.match_groups(list(batch)))
        answers: list[V] = []
        for notification, ids in zip(batch, self._ids(batch), strict=True):
            answers.append(self._used(tuple(ids)))
            if keep and len(ids) <= CONTENT_IDS_MAX and len(notification.content) <= CONTENT_BYTES_MAX:
                # When it is full, forget everything: contents that repeat are soon back, and nothing must be kept in
                # order of use.
                if len(self._known) >= CONTENTS_MAX:
                    self._known.clear()
                self._known[notification.content] = answers[-1]
        return answers

    def _matched_groups(self, matches: Matches) -> list[V]:
        """The answers for a batch by group. The key is the bytes of the group numbers, so no list of groups is made for
        a notification whose groups were met before. Groups keep their numbers while filters stay the same."""
        answers: list[V] = []
        numbers, size = matches.ids.tobytes(), matches.ids.itemsize
        for i, (start, end) in enumerate(pairwise((matches.offsets * size).tolist())):
            key = numbers[start:end]
            answer = self._by_numbers.get(key)
            if answer is None:
                answer = self._used(tuple(matches[i]))
                if len(self._by_numbers) < CONTENTS_MAX and len(key) <= CONTENT_IDS_MAX * size:
                    self._by_numbers[key] = answer
            answers.append(answer)
        return answers

    def _used(self, ids: tuple[Id, ...]) -> V:
        """The answer for these ids. It is kept: many different contents match the same ids."""
        answer = self._by_ids.get(ids)
        if answer is None:
            answer = self._use(ids)
            size = len(ids) + 1
            if self._by_ids_size + size > USED_IDS_MAX:
                self._by_ids.clear()
                self._by_ids_size = 0
            if size <= USED_IDS_MAX:
                self._by_ids[ids] = answer
                self._by_ids_size += size
        return answer

    def _ids(self, batch: Sequence[Notification]) -> Sequence[Sequence[Id]]:
        """For each notification the ids that match it, or their groups."""
        if self._by_group:
            is_single = len(batch) == 1
            return [self._matcher.match_groups(batch[0])] if is_single else self._matcher.match_groups(list(batch))
        if len(batch) <= ONE_BY_ONE_MAX:
            return [self._matcher.match(notification) for notification in batch]
        return self._matcher.match_batch(batch)


_WARMING: Final = (
    "warm = 'up' and level > 3",
    "warm >* 'u' or warm *< 'p' or warm * 'x' or warm glob 'u?*'",
    "warm in ('up', 'down') and not level in (1, 2.5) and not exists(cold)",
    "time > 2026-01-01T00:00:00Z and is = true and $seq > 0",
)


def warm() -> None:
    """Loads the compiled kernels of the matcher now. Each takes some milliseconds, which the first client that
    subscribes or publishes would wait for."""
    filters = [Filter(text) for text in _WARMING]
    time = datetime(2026, 6, 1, tzinfo=UTC)
    levels = (4.5, *range(ONE_BY_ONE_MAX + 1))
    first, *batch = [Notification({"warm": "up", "level": level, "time": time, "is": True}) for level in levels]
    for by_group in (False, True):
        matcher: RecallingMatcher[Sequence[Id]] = RecallingMatcher(list, by_group=by_group)
        # Enough filters for several segments, some of them merged, with a few left that have no index yet.
        for id in range(WARMING_FILTERS):
            matcher.add(id, filters[id % len(filters)], group=id % 2 if by_group else None)
        for gone in (0, WARMING_FILTERS - 1):
            matcher.answers([first])
            matcher.answers(batch)
            matcher.remove(gone)


def _names_envelope(filter: Filter | Cesql) -> bool:
    # A CESQL expression has no way to write a name that begins with "$".
    return isinstance(filter, Filter) and any(name.startswith("$") for name in filter.names)
