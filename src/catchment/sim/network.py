"""Links between simulated brokers: what they cost, how they fail, what they carry.

A link has a delay and may lose, double and reorder what it carries. Over that runs one of two transports:

stream    what the seam promises (`routing/core.py`): in order, each once. What the link loses is sent again after a
          round trip, so loss shows as delay and as bytes; when the link fails, all that is under way is gone, and
          both ends are told.
datagram  the link as it is, for systems that state again what may be lost.

A link is usable while neither it is cut nor one of its brokers is down. Each time it becomes usable is a new
*incarnation*: nothing sent in one arrives in another.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, Literal

from catchment.errors import InputError
from catchment.model.notification import Notification
from catchment.routing.messages import Message, Routed, Time

Payload = Message | tuple[Routed, ...]
Transport = Literal["stream", "datagram"]

MILLISECOND: Final = 1_000
# Resending gives up to chance at some time: past so many losses in a row the next try arrives.
RESENDS_MAX: Final = 16
# A frame's length and kind; a value's type and length.
_FRAME_BYTES, _VALUE_BYTES = 6, 2


@dataclass(frozen=True, slots=True)
class Quality:
    """How links behave. Shares are probabilities for each thing sent; a delay is `delay_us` times the link's cost."""

    delay_us: Time = MILLISECOND
    jitter_us: Time = 0
    loss_share: float = 0.0
    duplicate_share: float = 0.0
    reorder_share: float = 0.0
    transport: Transport = "stream"

    def __post_init__(self) -> None:
        shares = (self.loss_share, self.duplicate_share, self.reorder_share)
        if not all(0 <= one < 1 for one in shares) or self.delay_us < 1 or self.jitter_us < 0:
            raise InputError(
                "a link's shares are from 0 to less than 1, its delay at least 1 µs, its jitter not negative"
            )


@dataclass(slots=True)
class LinkState:
    """One link of a running simulation."""

    one: str
    other: str
    cost: int
    is_cut: bool = False
    is_usable: bool = False
    incarnation: int = 0
    # For each direction, by sender, when the last thing sent so far arrives.
    last_arrival: dict[str, Time] = field(default_factory=dict)

    def end(self, broker: str) -> str:
        return self.other if broker == self.one else self.one


@dataclass(slots=True)
class Traffic:
    """What the links carried, by sender, receiver and kind of message."""

    messages: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    bytes: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    # Over all links, messages times the cost of their link: the measure of the SIENA text.
    cost: Counter[str] = field(default_factory=Counter)

    def count(self, sender: str, receiver: str, kind: str, size: int, cost: int) -> None:
        key = (sender, receiver, kind)
        self.messages[key] += 1
        self.bytes[key] += size
        self.cost[kind] += cost

    def total(self, *kinds: str) -> int:
        """Messages of some kinds, or of all."""
        return sum(count for (_, _, kind), count in self.messages.items() if not kinds or kind in kinds)


def arrivals(quality: Quality, link: LinkState, sender: str, now: Time, rng: random.Random) -> tuple[list[Time], int]:
    """When something sent now arrives (not at all, once or several times), and how often it was put on the link."""
    delay = quality.delay_us * link.cost
    if quality.jitter_us:
        delay += rng.randrange(quality.jitter_us + 1)
    if quality.transport == "datagram":
        return _datagram_arrivals(quality, now + delay, delay, rng)
    sent = 1
    while quality.loss_share and sent < RESENDS_MAX and rng.random() < quality.loss_share:
        sent += 1
    if quality.duplicate_share and rng.random() < quality.duplicate_share:
        sent += 1  # the receiver knows it already
    arrival = now + delay + (sent - 1) * 2 * delay if quality.loss_share else now + delay
    arrival = max(arrival, link.last_arrival.get(sender, 0))
    link.last_arrival[sender] = arrival
    return [arrival], sent


def _datagram_arrivals(quality: Quality, arrival: Time, delay: Time, rng: random.Random) -> tuple[list[Time], int]:
    if quality.loss_share and rng.random() < quality.loss_share:
        return [], 1
    found = [arrival]
    if quality.reorder_share and rng.random() < quality.reorder_share:
        found[0] += rng.randrange(3 * delay) + 1
    if quality.duplicate_share and rng.random() < quality.duplicate_share:
        found.append(arrival + rng.randrange(delay) + 1)
    return found, len(found)


def kind_of(payload: Payload) -> str:
    return "notifications" if isinstance(payload, tuple) else type(payload).__name__


def size_of(payload: Payload) -> int:
    """About as many bytes as the wire takes."""
    if isinstance(payload, tuple):
        return _FRAME_BYTES + sum(_notification_bytes(one.notification) for one in payload)
    size = _FRAME_BYTES
    for name in payload.__struct_fields__:
        value = getattr(payload, name)
        parts = value if isinstance(value, tuple) else (value,)
        size += sum(_VALUE_BYTES + len(str(part).encode()) for part in parts)
    return size


def _notification_bytes(notification: Notification) -> int:
    values = notification.matched
    return len(notification.payload) + sum(
        2 * _VALUE_BYTES + len(name) + (len(value.encode()) if isinstance(value, str) else 8)
        for name, value in values.items()
    )
