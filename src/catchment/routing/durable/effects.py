"""When a durable subscription takes effect: it is known at all storages that can be reached (rule 9).

The broker that a client has asked floods the subscription. Each storage says `Knows` once it has stored its copy. When
all storages that can be reached now have said so, and at least one has, the client is told (`TakeEffect`), with the
names of those that cannot be reached: what is published at those is not kept for the client until they hear of it. The
same holds for edits and cancellations.

An answer may be lost with a path. So the broker asks again (`Ask`) while somebody has not answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from catchment.routing.durable.messages import Ask, TakeEffect
from catchment.routing.messages import Client
from catchment.routing.stored import DurableRow

EFFECT_TIMER: Final = "effect"
# Questions without an answer, after which a network counts as quiet although the broker goes on asking.
ASKED_BUSY_MAX: Final = 6


@dataclass(slots=True)
class Waiting:
    """A change that a client waits for, and the storages that know it."""

    client: Client
    row: DurableRow
    knowers: set[str] = field(default_factory=set)


class Effects:
    """The changes that clients of the broker `name` wait for, by identity and id. A later change of the same
    subscription replaces an earlier one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting: dict[tuple[str, str], Waiting] = {}
        # Those whose state has changed since `effective` looked at them.
        self._changed: dict[tuple[str, str], None] = {}
        self.has_timer = False
        # How often storages were asked since a client asked for something.
        self.asked = 0

    @property
    def is_idle(self) -> bool:
        """Whether a network counts as quiet although this broker goes on asking."""
        return self.asked >= ASKED_BUSY_MAX

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def wait(self, client: Client, row: DurableRow) -> None:
        self.asked = 0
        self._waiting[row.identity, row.id] = Waiting(client, row)
        self._changed[row.identity, row.id] = None

    def client_down(self, client: Client) -> None:
        for key in [key for key, waiting in self._waiting.items() if waiting.client == client]:
            del self._waiting[key]

    def known(self, storage: str, identity: str, id: str, version: int) -> None:
        """A storage has stored this version."""
        waiting = self._waiting.get((identity, id))
        if waiting is not None and version >= waiting.row.version:
            waiting.knowers.add(storage)
            self._changed[identity, id] = None

    def effective(self, storages: Mapping[str, str], reached: frozenset[str]) -> list[TakeEffect]:
        """The changes that have taken effect since the last call. They are waited for no longer."""
        complete: list[TakeEffect] = []
        # Only those that somebody has answered: many may wait at once.
        changed, self._changed = self._changed, {}
        for key in changed:
            if (waiting := self._waiting.get(key)) is None:
                continue
            missing = tuple(name for name in sorted(storages) if name not in waiting.knowers)
            # At least one must have it: what nobody has stored is gone with this broker.
            if waiting.knowers and not any(name in reached for name in missing):
                del self._waiting[key]
                complete.append(TakeEffect(waiting.client, *key, missing))
        return complete

    def rerouted(self) -> None:
        """Who can be reached has changed: a storage that was waited for may be gone."""
        self._changed = dict.fromkeys(self._waiting)

    def questions(self, storages: Mapping[str, str], reached: frozenset[str]) -> list[Ask]:
        """Asks the storages that can be reached and have not answered."""
        return [
            Ask(name, self._name, waiting.row.identity, waiting.row.id, waiting.row.version)
            for waiting in self._waiting.values()
            for name in sorted(storages)
            if name in reached and name not in waiting.knowers and name != self._name
        ]
