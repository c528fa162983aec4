"""Spans on their way: what is for clients here, and what goes on to which neighbor.

A span names the brokers that its shares are for. A broker on the way sends one copy to each neighbor that leads to some
of them, with the notifications that those need, and keeps nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from catchment.routing.durable.messages import DIRECTED_HOPS_MAX, Share, Span
from catchment.routing.messages import Action, Neighbor, Send

_Shares = tuple[str, tuple[Share, ...]]


def divided(span: Span, here: str, hop: Callable[[str], Neighbor | None]) -> tuple[Sequence[Share], list[Action]]:
    """The shares of the broker `here`, and the copies that go on. Shares of brokers without a path are dropped."""
    own: list[Share] = []
    onward: dict[Neighbor, list[_Shares]] = {}
    for broker, shares in span.shares:
        if broker == here:
            own += shares
        elif span.hops < DIRECTED_HOPS_MAX and (neighbor := hop(broker)) is not None:
            onward.setdefault(neighbor, []).append((broker, shares))
    return own, [Send(neighbor, _part(span, onward[neighbor])) for neighbor in sorted(onward)]


def _part(span: Span, shares: list[_Shares]) -> Span:
    """A copy of a span with some of its shares."""
    if len(shares) == len(span.shares):
        return replace(span, hops=span.hops + 1)
    used = sorted({place for _, some in shares for share in some for place, _ in share.entries})
    if used and used[-1] >= len(span.entries):
        used = [place for place in used if place < len(span.entries)]
    places = {place: new for new, place in enumerate(used)}
    moved = tuple((broker, tuple(_moved(share, places) for share in some)) for broker, some in shares)
    return replace(span, entries=tuple(span.entries[place] for place in used), shares=moved, hops=span.hops + 1)


def _moved(share: Share, places: dict[int, int]) -> Share:
    # An entry that is not there keeps a place that is not there: the receiver ignores the share.
    return replace(share, entries=tuple((places.get(place, len(places)), ids) for place, ids in share.entries))
