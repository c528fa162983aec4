"""What durable clients want at a moment, as far as anybody can know: which subscriptions a record must name, and which
it may name.

A change of a subscription (made, edited, cancelled) is *certain* at a storage once the client was told that it has
taken effect, unless the storage was missing then. Between the request and that moment a record may go by the old filter
or by the new one. A storage that was missing, that is new, or that has lost its disk is certain again when the whole
network has settled.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from catchment.model.notification import Notification
from catchment.routing.messages import Time, Wanted
from catchment.sim.conformance.checkers import matches


@dataclass(slots=True)
class Change:
    """A change that a client has asked for; `wanted` is None for a cancellation."""

    requested_at: Time
    wanted: Wanted | None
    # By storage: since when it is certain there.
    certain_since: dict[str, Time] = field(default_factory=dict)
    is_effective: bool = False


class Wants:
    """The changes of all subscriptions, by identity and id."""

    def __init__(self) -> None:
        self._changes: dict[tuple[str, str], list[Change]] = {}

    def requested(self, identity: str, id: str, wanted: Wanted | None, now: Time) -> None:
        self._changes.setdefault((identity, id), []).append(Change(now, wanted))

    def last(self, identity: str, id: str) -> Change:
        return self._changes[identity, id][-1]

    def pending(self, identity: str) -> dict[str, Wanted | None]:
        """By id: the last changes of an identity that have not taken effect."""
        lasts = {id: changes[-1] for (each, id), changes in self._changes.items() if each == identity}
        return {id: change.wanted for id, change in lasts.items() if not change.is_effective}

    def took_effect(self, identity: str, id: str, storages: set[str], now: Time) -> None:
        """The last change is known at these storages."""
        change = self.last(identity, id)
        change.is_effective = True
        for storage in storages:
            change.certain_since.setdefault(storage, now)

    def settled(self, storages: set[str], now: Time) -> None:
        """The whole network has settled: all that has taken effect is known at all storages."""
        for changes in self._changes.values():
            if changes[-1].is_effective:
                for storage in storages:
                    changes[-1].certain_since.setdefault(storage, now)

    def forgotten_at(self, storage: str) -> None:
        """A storage knows nothing any more: its disk is gone."""
        for changes in self._changes.values():
            for change in changes:
                change.certain_since.pop(storage, None)

    # --- asking ---

    def named(
        self, notification: Notification, storage: str, at: Time
    ) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
        """The subscriptions (identity and id) that a record made at a storage at this time must name, and may name."""
        must: set[tuple[str, str]] = set()
        may: set[tuple[str, str]] = set()
        for key, changes in self._changes.items():
            matching = [
                wanted is not None and matches(wanted, notification) for wanted in _options(changes, storage, at)
            ]
            if any(matching):
                may.add(key)
            if matching and all(matching):
                must.add(key)
        return must, may


def _options(changes: list[Change], storage: str, at: Time) -> list[Wanted | None]:
    """What may be wanted at a moment: the last change that was certain by then, and those that came after it."""
    options: list[Wanted | None] = []
    for change in reversed(changes):
        if change.requested_at > at:
            continue
        options.append(change.wanted)
        since = change.certain_since.get(storage)
        # At the very moment it may be either.
        if since is not None and since < at:
            return options
    return [*options, None]
