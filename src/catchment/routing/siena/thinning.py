"""Thinning: a broker watches part of a pattern for a neighbor, and holds back what cannot be part of a sequence yet.

*Upstream* is nearer to the publishers, *downstream* nearer to the subscriber. Suppose that the monitor downstream waits
for f · g · h, and that f · g is delegated to this broker. This broker must not send only the sequences that a monitor
for f · g would find. For the monitor downstream ignores every f while it waits for h, and begins again after h: so its
next f may be any f, and this broker cannot know which. So this broker finds no sequences. It *thins*: for each *key* (a
combination of values of the attributes in `by`) it holds back the notifications that may be part of a sequence, and
sends all that it holds when some sequence of its part is complete. So the monitor downstream sees, late but in order,
everything that could matter to it.

State, for each key: the notifications that are *held*, and the *open chains*. A chain is the beginning of a sequence.
A notification that matches the first filter opens a chain. A notification that matches filter n + 1 extends every chain
of length n whose last notification was published before it, as a monitor that began with that chain would do. So
whatever the monitor downstream has received of this part is one of the chains. A notification that extends no chain and
opens none cannot matter: it is neither held nor sent. When a chain is complete, everything held for the key is sent and
no longer held. The other chains stay open: the monitor downstream may be in any of them.

Chains of one length differ only in when their first and their last notification were published. So the thinner does not
keep each chain. It keeps for each length when the last notification of a chain was published, at the earliest and at
the latest, and when the first one was published, at the latest. This can err only to one side: the thinner may send
what cannot matter.

within    A chain that began longer ago than `within` is not extended. Held notifications are dropped when a
          notification for the first filter was published later than all of them by more than `within`: every wait that
          they could be part of is over. It would be wrong to drop only some of them: the monitor downstream may ignore
          an f because an earlier f has begun its wait; without the earlier one, it would begin with that f. It would
          also be wrong to drop them because of a notification for another filter: a late f may still be held by a
          broker further upstream, and come later.
ongoing   A thinner may begin when monitors downstream already have the first notifications of this part. It cannot know
          for which keys. So it takes chains of every length as open, for each key.
limits    When more than HELD_MAX notifications or HELD_BYTES_MAX bytes are held, those of the key that has just grown
          are sent, as if a chain were complete. When there are more than KEYS_MAX keys, or they take more than
          KEYS_BYTES_MAX bytes, keys that are too old for `within` are forgotten; if more than half of that is left,
          everything held is sent, and from then on every notification is sent at once: chains are forgotten, and
          somebody might be waiting in one of them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from catchment.model.monitor import MONITOR_KEYS_MAX, Key, key_bytes, key_of
from catchment.model.notification import Notification, memory_bytes
from catchment.model.pattern import Pattern
from catchment.routing.siena.messages import Held

# Notifications that one thinner holds, over all keys.
HELD_MAX: Final = 100_000
# What they take in memory, with payloads. The monitor downstream may keep less: it gives up its oldest.
HELD_BYTES_MAX: Final = 32 * 1_048_576
# As many keys as the monitor downstream may wait for.
KEYS_MAX: Final = MONITOR_KEYS_MAX
# What the keys take in memory: a value of `by` may be a long text.
KEYS_BYTES_MAX: Final = 64 * 1_048_576

# Before and after every time of publication.
_ALWAYS: Final = datetime.min.replace(tzinfo=UTC)
_NEVER: Final = datetime.max.replace(tzinfo=UTC)


class _Chains:
    """The open chains of one length: the latest first publication, the earliest and the latest last publication."""

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
    """What is known about one key. `chains[i]` are the open chains of length i + 1, None if there are none. `newest` is
    the latest time at which a held notification was published."""

    __slots__ = ("chains", "held", "newest")

    def __init__(self, chains: list[_Chains | None]) -> None:
        self.held: dict[Notification, Held] = {}
        self.chains = chains
        self.newest = _ALWAYS


class Thinner:
    """The caller gives it every notification that matches some filter of the pattern; it returns what to send now."""

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self._keys: dict[Key, _Kept] = {}
        self._keys_bytes = 0
        self._held_count = 0
        self._held_bytes = 0
        self._is_ongoing = False
        self._sends_all = False

    def __len__(self) -> int:
        """How many keys have held notifications or open chains."""
        return len(self._keys)

    # --- chains ---

    def on_notification(self, arrival: Held) -> list[Held]:
        """Takes a notification, with the places of the filters that it matches. Returns what is to be sent now."""
        published, key = arrival.notification.time, key_of(self.pattern, arrival.notification)
        if published is None or key is None:
            return []
        if self._sends_all:
            return [arrival]
        kept = self._keys.get(key) or _Kept(self._chains_at_first())
        # Only a notification for the first filter shows that the waits before it are over.
        if 0 in arrival.steps:
            self._drop_old(kept, published)
        counts, is_complete = self._counted(kept, published, arrival.steps)
        if not counts:
            return []
        # Held first, also if it completes a chain: then it is sent in order with the others.
        self._hold(kept, arrival, published)
        if key not in self._keys:
            self._keys[key] = kept
            self._keys_bytes += key_bytes(key)
        is_full = self._held_count > HELD_MAX or self._held_bytes > HELD_BYTES_MAX
        sent = self._released(kept) if is_complete or is_full else []
        if not kept.held and not self._is_ongoing and not any(kept.chains):
            self._forgotten(key)
        return sent + self._past_limit(published)

    def _chains_at_first(self) -> list[_Chains | None]:
        """The chains of a new key. For an ongoing thinner, chains that any notification extends."""
        lengths = range(len(self.pattern.filters) - 1)
        return [_Chains(_NEVER, _ALWAYS) if self._is_ongoing else None for _ in lengths]

    def _counted(self, kept: _Kept, published: datetime, steps: tuple[int, ...]) -> tuple[bool, bool]:
        """Whether a notification opens or extends a chain, and whether it completes one. Changes the chains."""
        counts = is_complete = False
        # The last step first: a notification must not extend a chain that it has just opened or extended itself.
        for step in sorted(steps, reverse=True):
            first = published if step == 0 else self._extended(kept, step, published)
            if first is not None:
                counts = True
                if step == len(kept.chains):
                    is_complete = True
                else:
                    # Now there is a chain of length step + 1 that ends with this notification.
                    kept.chains[step] = _Chains(first, published).join(kept.chains[step])
        return counts, is_complete

    def _extended(self, kept: _Kept, step: int, published: datetime) -> datetime | None:
        """When the chains that a notification extends began, at the latest; None if it extends none. The chains that it
        extends are removed from those of their old length."""
        chains, within = kept.chains[step - 1], self.pattern.within
        if chains is None or chains.last_earliest >= published:
            return None
        # An ongoing thinner has chains that began at _NEVER: nobody knows when, so they count as begun just now.
        first = min(chains.first_latest, published)
        if within is not None and published - first > within:
            return None
        if chains.last_latest < published:
            # It extends all chains of this length.
            kept.chains[step - 1] = None
        else:
            # Chains whose last notification was not published before it stay: all of them ended at `published` or
            # later.
            chains.last_earliest = published
        return first

    # --- held notifications ---

    def _hold(self, kept: _Kept, arrival: Held, published: datetime) -> None:
        if arrival.notification not in kept.held:
            self._held_count += 1
            self._held_bytes += memory_bytes(arrival.notification)
        keep(kept.held, arrival)
        kept.newest = max(kept.newest, published)

    def _drop_old(self, kept: _Kept, published: datetime) -> None:
        """Drops what is held for a key, if all of it is too old for a notification published now. All or nothing: see
        `within` above."""
        if self._is_old(kept, published):
            self._clear(kept)

    def _is_old(self, kept: _Kept, published: datetime) -> bool:
        within = self.pattern.within
        return within is not None and published - kept.newest > within

    def _released(self, kept: _Kept) -> list[Held]:
        """Takes out all that is held for a key, to send it."""
        released = in_order(kept.held)
        self._clear(kept)
        return released

    def _clear(self, kept: _Kept) -> None:
        self._held_count -= len(kept.held)
        self._held_bytes -= sum(map(memory_bytes, kept.held))
        kept.held.clear()

    def _forgotten(self, key: Key) -> _Kept:
        self._keys_bytes -= key_bytes(key)
        return self._keys.pop(key)

    def _past_limit(self, published: datetime) -> list[Held]:
        """What is to be sent because there are too many keys."""
        if len(self._keys) <= KEYS_MAX and self._keys_bytes <= KEYS_BYTES_MAX:
            return []
        for key in [key for key, kept in self._keys.items() if self._is_old(kept, published)]:
            self._drop_old(self._forgotten(key), published)
        # Half, not all: otherwise nearly every notification could bring us here, to look at all keys again.
        if len(self._keys) <= KEYS_MAX // 2 and self._keys_bytes <= KEYS_BYTES_MAX // 2:
            return []
        self._sends_all, released = True, self.held()
        self._keys.clear()
        self._keys_bytes = self._held_count = self._held_bytes = 0
        return released

    # --- for the core ---

    def held(self) -> list[Held]:
        """All that is held, by time of publication."""
        return in_order(
            {notification: held for kept in self._keys.values() for notification, held in kept.held.items()}
        )

    def go_on(self) -> None:
        """A neighbor has joined that may already have the first notifications of sequences: from now on the thinner is
        ongoing."""
        self._is_ongoing = True
        for kept in self._keys.values():
            kept.chains = [_Chains(_NEVER, _ALWAYS).join(chains) for chains in kept.chains]

    def is_inside(self, first: int, last: int) -> bool:
        """Whether there may be an open chain that has a notification for the filter at `first` and none for the filter
        at `last`."""
        if self._is_ongoing or self._sends_all:
            return True
        # chains[first] to chains[last - 1] are those of length first + 1 to last.
        return any(any(kept.chains[first:last]) for kept in self._keys.values())


def keep(held: dict[Notification, Held], arrival: Held) -> None:
    """Adds a notification to those that are held. If it is held already, because it has come for other filters of the
    pattern, alone or in another part, the two become one."""
    before = held.get(arrival.notification)
    if before is not None:
        steps = tuple(sorted({*before.steps, *arrival.steps}))
        arrival = Held(arrival.notification, min(arrival.arrived, before.arrived), steps)
    held[arrival.notification] = arrival


def in_order(held: dict[Notification, Held]) -> list[Held]:
    """Held notifications by time of publication. Each has one: a thinner holds nothing without."""
    return sorted(held.values(), key=lambda arrival: arrival.notification.time or _ALWAYS)
