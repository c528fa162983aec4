"""Links between simulated brokers: what they cost, how they fail, what they carry.

A link has a delay and may lose, double and reorder what it carries. Over that runs one of two transports:

stream    what the seam promises (`routing/core.py`): in order, each once. What the link loses is sent again after a
          round trip, so loss shows as delay and as bytes. When the link fails, all that is under way is gone, and both
          ends are told.
datagram  the link as it is, for systems that say again what may be lost.

A link is usable while it is not cut and both its brokers are up. Each time it becomes usable a new *incarnation* of it
begins: nothing that is sent in one arrives in another.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from catchment.errors import InputError
from catchment.routing.messages import Neighbor, Time

Transport = Literal["stream", "datagram"]

MILLISECOND: Final = 1_000
# After so many losses in a row the next try arrives: else a run of bad luck would have no end.
RESENDS_MAX: Final = 16
# The kind of what carries notifications; other kinds are the names of messages.
NOTIFICATIONS: Final = "notifications"


@dataclass(frozen=True, slots=True)
class Quality:
    """How links behave. Shares are probabilities for each thing sent; a delay is `delay_us` times the link's cost."""

    delay_us: Time = MILLISECOND
    jitter_us: Time = 0
    loss_share: float = 0.0
    duplicate_share: float = 0.0
    reorder_share: float = 0.0
    transport: Transport = "stream"
    # Whether it has a delay and nothing else. It is asked for everything that is sent, so it is computed once.
    is_flawless: bool = field(init=False)

    def __post_init__(self) -> None:
        shares = (self.loss_share, self.duplicate_share, self.reorder_share)
        object.__setattr__(self, "is_flawless", not self.jitter_us and not any(shares))
        if not all(0 <= share < 1 for share in shares) or self.delay_us < 1 or self.jitter_us < 0:
            raise InputError(
                "a link's shares are from 0 to less than 1, its delay at least 1 µs, its jitter not negative"
            )


@dataclass(slots=True, eq=False)
class LinkState:
    """A link of a running simulation, between the brokers `first` and `second`."""

    first: str
    second: str
    cost: int
    is_cut: bool = False
    is_usable: bool = False
    incarnation: int = 0

    def end(self, broker: str) -> str:
        return self.second if broker == self.first else self.first


@dataclass(slots=True, eq=False)
class Carried:
    """What went one way over a link, of one kind of message. `notifications` is how many there were in the messages;
    `logical` is how many of them were sent by a broker that handled them, not one that only relayed them."""

    messages: int = 0
    bytes: int = 0
    notifications: int = 0
    logical: int = 0


@dataclass(slots=True, eq=False)
class Direction:
    """One way over a link: when the last thing sent so far arrives, and what was carried, by kind of message."""

    link: LinkState
    sender: Neighbor
    receiver: str
    last_arrival: Time = 0
    carried: dict[str, Carried] = field(default_factory=dict)

    def count(self, kind: str, size: int, times: int) -> Carried:
        """Something of so many bytes was put on the link so often."""
        carried = self.carried.get(kind)
        if carried is None:
            carried = self.carried[kind] = Carried()
        carried.messages += times
        carried.bytes += times * size
        return carried


class Traffic:
    """What the links carried, by sender, receiver and kind of message."""

    def __init__(self, directions: Iterable[Direction]) -> None:
        self._directions = tuple(directions)

    def __iter__(self) -> Iterator[tuple[Direction, str, Carried]]:
        for direction in self._directions:
            for kind, carried in sorted(direction.carried.items()):
                yield direction, kind, carried

    def total(self, *kinds: str) -> int:
        """Messages of some kinds, or of all."""
        return sum(carried.messages for _, kind, carried in self if not kinds or kind in kinds)

    def reset(self) -> None:
        """As if nothing had been carried yet."""
        for direction in self._directions:
            direction.carried.clear()


def arrivals(quality: Quality, direction: Direction, now: Time, rng: random.Random) -> tuple[Sequence[Time], int]:
    """When something sent now arrives (not at all, once or several times), and how often it was put on the link."""
    delay, sent = quality.delay_us * direction.link.cost, 1
    arrival = now + delay
    if not quality.is_flawless:
        if quality.jitter_us:
            delay += rng.randrange(quality.jitter_us + 1)
        if quality.transport == "datagram":
            return _datagram_arrivals(quality, now + delay, delay, rng)
        while quality.loss_share and sent < RESENDS_MAX and rng.random() < quality.loss_share:
            sent += 1
        arrival = now + delay + (sent - 1) * 2 * delay
        if quality.duplicate_share and rng.random() < quality.duplicate_share:
            sent += 1  # the receiver knows it already
    # A stream keeps its order: nothing arrives before what was sent earlier.
    arrival = max(arrival, direction.last_arrival)
    direction.last_arrival = arrival
    return (arrival,), sent


def _datagram_arrivals(quality: Quality, arrival: Time, delay: Time, rng: random.Random) -> tuple[list[Time], int]:
    if quality.loss_share and rng.random() < quality.loss_share:
        return [], 1
    times = [arrival]
    if quality.reorder_share and rng.random() < quality.reorder_share:
        times[0] += rng.randrange(3 * delay) + 1
    if quality.duplicate_share and rng.random() < quality.duplicate_share:
        times.append(arrival + rng.randrange(delay) + 1)
    return times, len(times)
