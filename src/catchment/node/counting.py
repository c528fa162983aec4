"""What a node counts: which messages of a link, and which notifications that nobody wanted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from catchment.routing.messages import (
    Action,
    Beat,
    Deliver,
    DeliverSequence,
    Forward,
    Keep,
    LinkMessage,
    Parting,
    Routed,
)

# The actions which show that somebody wants a notification.
_WANTED: Final = (Forward, Deliver, DeliverSequence, Keep)


def is_counted(message: LinkMessage) -> bool:
    """Whether a message counts when the ends of a link are compared: beats come and go in a network at rest too."""
    return not isinstance(message, Beat | Parting)


def unwanted(batch: Sequence[Routed], actions: Sequence[Action]) -> int:
    """How many notifications of a batch this broker did nothing with. A message to a neighbor does not count."""
    if len(batch) == 1:
        return 0 if any(isinstance(action, _WANTED) for action in actions) else 1
    # By `id`: the actions have the objects of the batch. `DeliverSequence` needs no branch: a core that watches
    # patterns emits `Keep` for each notification that a pattern wants.
    wanted: set[int] = set()
    for action in actions:
        if isinstance(action, Forward):
            wanted.update([id(routed.notification) for routed in action.batch])
        elif isinstance(action, Deliver | Keep):
            wanted.add(id(action.notification))
    return sum(id(routed.notification) not in wanted for routed in batch)
