"""What a node keeps for each client and link, and what it counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from catchment.node.outlets import ClientOutlet, LinkOutlet


@dataclass(slots=True)
class ClientState:
    """What a node keeps for a client that is connected."""

    outlet: ClientOutlet
    # Whether the core knows of the client: not while it waits for the end of a client of the same name (`jobs.py`).
    is_known: bool = False
    # By identity: deliveries that the node has dropped and has not told the client about yet.
    lost: Counter[str] = field(default_factory=Counter)
    delivered: int = 0
    published: int = 0


@dataclass(slots=True)
class LinkState:
    """What a node keeps for a link that is up."""

    outlet: LinkOutlet
    cost: int
    # Notifications.
    received: int = 0
    forwarded: int = 0
    # Messages, with and without notifications, since the link came up. When nothing is under way, what one end has
    # sent is what the other end has heard.
    sent: int = 0
    heard: int = 0
    # Notifications, and messages of the routing system that carry some: both ends count alike.
    carried_out: int = 0
    carried_in: int = 0


@dataclass(slots=True)
class Totals:
    """Counts since the start of the node."""

    published: int = 0
    received: int = 0
    forwarded: int = 0
    delivered: int = 0
    lost: int = 0
    refused: int = 0
    # Notifications that a neighbor sent, and that this broker neither delivered nor forwarded nor kept.
    unwanted: int = 0
    # Notifications that have crossed more than HOPS_MOST links: there is a loop.
    looped: int = 0
    # Gaps that clients were told, each time one began or changed.
    gaps: int = 0
    # Notifications that a neighbor sent with a number that cannot be honest (`numbers.py`): they are dropped.
    absurd: int = 0
