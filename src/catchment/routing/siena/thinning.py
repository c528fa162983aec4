"""A pattern watched upstream for somebody who watches a longer one: what cannot be part of a sequence is not sent.

The monitor downstream waits for f · g · h, and f · g was delegated to here. It would not do to send the sequences that
a monitor for f · g finds: the one downstream, while it waits for h, ignores every f, and begins anew after it, so its
next f may be any. So this one finds no sequences. It *thins*: for each key (`by`) it holds back what may be part of
one, and sends all that it holds when something is complete, so that the monitor downstream sees, late but in order,
everything that could matter to it.

State, by key: what is held, and the *open chains*. A notification that matches the first filter opens a chain; one
that matches the next filter extends every chain that is so long and whose last was published before it, as a monitor
that began there would do. So whatever the monitor downstream has got of this part, it is one of the chains. One that
extends no chain and opens none matters to nobody: it is neither held nor sent. When a chain is complete, all that is
held is sent and forgotten, and the other chains stay open: the monitor downstream may be in any of them.

Chains of one length differ only in when their last and first notification were published; kept are the earliest and
the latest last and the latest first. That errs to one side: it may send what cannot matter.

within    A chain that began longer ago is not extended. What is held is dropped when a notification for the first
          filter was published so long after all of it: every wait that it could be in is over. Dropping some of it
          would be wrong: an f that was ignored because of an earlier one would be taken for the first. And so would
          dropping it for another filter: such an f may be held further upstream, and come later.
ongoing   A thinner that begins when the monitors downstream already have the first notifications of this part cannot
          know for which keys, and takes chains of every length for open, for each key.
limits    Past HELD_MAX the key in question is sent as if it were complete. Past KEYS_MAX, when those too old for
          `within` are gone, all is sent, and everything that comes from then on at once: chains that were forgotten
          might be waited for.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from catchment.model.filter import Pattern
from catchment.model.monitor import MONITOR_KEYS_MAX, Key, key_of
from catchment.model.notification import Notification
from catchment.routing.siena.messages import Held

# What one thinner holds, over all keys: some tens of megabytes.
HELD_MAX: Final = 100_000
# As many as the monitor downstream may have waits.
KEYS_MAX: Final = MONITOR_KEYS_MAX

_ALWAYS: Final = datetime.min.replace(tzinfo=UTC)
_NEVER: Final = datetime.max.replace(tzinfo=UTC)


class _Chains:
    """The open chains of one length."""

    __slots__ = ("first_latest", "last_earliest", "last_latest")

    def __init__(self, first: datetime, last: datetime) -> None:
        self.first_latest = first
        self.last_earliest = self.last_latest = last

    def join(self, other: _Chains | None) -> _Chains:
        if other is not None:
            self.first_latest = max(self.first_latest, other.first_latest)
            self.last_earliest = min(self.last_earliest, other.last_earliest)
            self.last_latest = max(self.last_latest, other.last_latest)
        return self


class _Kept:
    """What is known of one key; `chains[i]` are those of length i + 1."""

    __slots__ = ("chains", "held", "newest")

    def __init__(self, chains: list[_Chains | None]) -> None:
        self.held: dict[Notification, Held] = {}
        self.chains = chains
        self.newest = _ALWAYS


class Thinner:
    """Feed it every notification that matches some filter of the pattern; it says what is to be sent now."""

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self._keys: dict[Key, _Kept] = {}
        self._held_count = 0
        self._is_ongoing = False
        self._sends_all = False

    def __len__(self) -> int:
        """Keys that something is known of."""
        return len(self._keys)

    # --- what comes ---

    def on_notification(self, one: Held) -> list[Held]:
        published, key = one.notification.time, key_of(self.pattern, one.notification)
        if published is None or key is None:
            return []
        if self._sends_all:
            return [one]
        kept = self._keys.get(key) or _Kept(self._chains_at_first())
        if 0 in one.steps:
            self._drop_old(kept, published)
        counts, is_complete = self._counted(kept, published, one.steps)
        if not counts:
            return []
        self._hold(kept, one, published)
        self._keys[key] = kept
        sent = self._released(kept) if is_complete or self._held_count > HELD_MAX else []
        if not kept.held and not self._is_ongoing and not any(kept.chains):
            del self._keys[key]
        return sent + self._past_limit(published)

    def _chains_at_first(self) -> list[_Chains | None]:
        lengths = range(len(self.pattern.filters) - 1)
        return [_Chains(_NEVER, _ALWAYS) if self._is_ongoing else None for _ in lengths]

    def _counted(self, kept: _Kept, published: datetime, steps: tuple[int, ...]) -> tuple[bool, bool]:
        """Whether it opens or extends a chain, and whether it completes one."""
        counts = is_complete = False
        # The last first: it does not extend the chain that it opens.
        for step in sorted(steps, reverse=True):
            first = published if step == 0 else self._extended(kept, step, published)
            if first is not None:
                counts = True
                if step == len(kept.chains):
                    is_complete = True
                else:
                    kept.chains[step] = _Chains(first, published).join(kept.chains[step])
        return counts, is_complete

    def _extended(self, kept: _Kept, step: int, published: datetime) -> datetime | None:
        """The latest beginning of the chains that it extends; they are no longer of that length."""
        chains, within = kept.chains[step - 1], self.pattern.within
        if chains is None or chains.last_earliest >= published:
            return None
        first = min(chains.first_latest, published)
        if within is not None and published - first > within:
            return None
        if chains.last_latest < published:
            kept.chains[step - 1] = None
        else:
            chains.last_earliest = published
        return first

    # --- what is held ---

    def _hold(self, kept: _Kept, one: Held, published: datetime) -> None:
        self._held_count += one.notification not in kept.held
        keep(kept.held, one)
        kept.newest = max(kept.newest, published)

    def _drop_old(self, kept: _Kept, published: datetime) -> None:
        if self._is_old(kept, published):
            self._held_count -= len(kept.held)
            kept.held.clear()

    def _is_old(self, kept: _Kept, published: datetime) -> bool:
        within = self.pattern.within
        return within is not None and published - kept.newest > within

    def _released(self, kept: _Kept) -> list[Held]:
        found = in_order(kept.held)
        self._held_count -= len(found)
        kept.held.clear()
        return found

    def _past_limit(self, published: datetime) -> list[Held]:
        if len(self._keys) <= KEYS_MAX:
            return []
        for key in [key for key, kept in self._keys.items() if self._is_old(kept, published)]:
            self._drop_old(self._keys.pop(key), published)
        if len(self._keys) <= KEYS_MAX // 2:
            return []
        self._sends_all, found = True, self.held()
        self._keys.clear()
        return found

    # --- for who delegates ---

    def held(self) -> list[Held]:
        """All that is held, by time of publication."""
        return in_order({one: held for kept in self._keys.values() for one, held in kept.held.items()})

    def go_on(self) -> None:
        """Somebody has joined who may have the first notifications of sequences."""
        self._is_ongoing = True
        for kept in self._keys.values():
            kept.chains = [_Chains(_NEVER, _ALWAYS).join(one) for one in kept.chains]

    def is_inside(self, first: int, last: int) -> bool:
        """Whether there is an open chain with the first of these filters and without the last."""
        if self._is_ongoing or self._sends_all:
            return True
        return any(any(kept.chains[first:last]) for kept in self._keys.values())


def keep(some: dict[Notification, Held], one: Held) -> None:
    """Puts it to what is held. It may have come before, for other filters: with the notifications of another part, or
    by itself."""
    before = some.get(one.notification)
    if before is not None:
        one = Held(one.notification, min(one.arrived, before.arrived), tuple(sorted({*before.steps, *one.steps})))
    some[one.notification] = one


def in_order(some: dict[Notification, Held]) -> list[Held]:
    """By time of publication, which all have that are held."""
    return sorted(some.values(), key=lambda one: one.notification.time or _ALWAYS)
