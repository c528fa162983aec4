"""The seam between a routing core and the host that runs it.

A core is a pure state machine: a message in, a list of actions out. It has no sockets, no clock, no randomness and
never asks who runs it, so that what the simulator shows is evidence about the live broker.

What a host promises:

- It performs the actions in the order of the list.
- A link, while it is up, carries what is sent over it in order, each once. Where that cannot be kept, the link goes
  down (`LinkDown`) and comes up again (`LinkUp`), and both ends have forgotten what they said to each other.
- `now` never goes back.

What a core promises:

- The same messages in the same order give the same actions: sets are sorted before anything is emitted.
- It never raises for what a client or a neighbor says: a client is refused (`Refuse`), a neighbor that contradicts
  itself is refused too, and the host ends that link.
- After each message it is whole: there is no call in which it waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from catchment.routing.messages import Action, Interface, Message, Routed, Time


class RoutingCore(Protocol):
    def on_message(self, message: Message, source: Interface, now: Time) -> list[Action]: ...

    def on_notifications(self, batch: Sequence[Routed], source: Interface, now: Time) -> list[Action]:
        """All that one read brought: one call of the matcher for the batch."""
        ...

    def prepare(self) -> None:
        """Does what the next notifications would wait for, such as building an index of filters that have come since
        the last. A host calls it when it has nothing better to do, or never: no answer depends on it. It may run in
        a thread beside the other calls."""
        ...
