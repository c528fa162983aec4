"""Requests in slices: a request that may be much work becomes several smaller ones for the core.

A slice ends after a fixed count of comparisons, cancellations or steps, never after a time. So a simulated run and a
live broker cut a request at the same places. What each part of a request means does not change:

Unsubscribe   Each subscription of the identity is compared with the filter. Then those that it covers are cancelled by
              their ids, some at a time.
Unadvertise   In the same way; each advertisement that is covered is withdrawn by itself.
Subscribe     The filters of a pattern are made ready, one by one: what brokers route them by is kept in each filter.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

from catchment.model.budget import steps_used
from catchment.model.pattern import Pattern
from catchment.node.jobs import SLICE_CANCELLED_MAX, SLICE_COMPARED_MAX, SLICE_STEPS_MAX
from catchment.routing.durable.messages import DurableRequest
from catchment.routing.messages import (
    CancelMany,
    ClientRequest,
    MapIdentity,
    Refuse,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)
from catchment.routing.parts.clients import ClientSide
from catchment.routing.parts.identities import Identity
from catchment.routing.parts.wanted import cancels

# Yields between two slices, and returns the refusals of the core.
Slices = Generator[None, None, list[Refuse]]
Ask = Callable[[ClientRequest], list[Refuse]]


def names_in(request: ClientRequest | DurableRequest) -> tuple[str, ...]:
    """The identities and clients that a request names."""
    return (request.identity, request.handler) if isinstance(request, MapIdentity) else (request.identity,)


def finished(slices: Slices) -> list[Refuse]:
    """Runs all slices now."""
    while True:
        try:
            next(slices)
        except StopIteration as end:
            refusals: list[Refuse] = end.value
            return refusals


def sliced(request: ClientRequest, clients: ClientSide, ask: Ask) -> Slices:
    """Asks the core for what a client requests."""
    match request:
        case Unsubscribe():
            return (yield from _unsubscribed(request, clients, ask))
        case Unadvertise():
            return (yield from _unadvertised(request, clients, ask))
        case Subscribe(wanted=Pattern() as pattern):
            yield from _prepared(pattern)
    return ask(request)


def ending_of(identity: Identity) -> Iterator[ClientRequest]:
    """Requests that leave little of what an identity wants and offers. Nothing, if there is little."""
    if len(identity.subscriptions) > SLICE_CANCELLED_MAX:
        ids = list(identity.subscriptions)
        for start in range(0, len(ids), SLICE_CANCELLED_MAX):
            yield CancelMany(identity.name, tuple(ids[start : start + SLICE_CANCELLED_MAX]), is_ending=True)
    if len(identity.advertisements) > SLICE_CANCELLED_MAX:
        for advertisement in list(identity.advertisements):
            yield Unadvertise(identity.name, advertisement)


class _Slice:
    """How much of a slice is used."""

    def __init__(self) -> None:
        self._compared = 0
        self._until = steps_used() + SLICE_STEPS_MAX

    def is_over(self) -> bool:
        """Counts one comparison. Whether it was the last of the slice."""
        self._compared += 1
        return self._compared >= SLICE_COMPARED_MAX or steps_used() > self._until


def _unsubscribed(request: Unsubscribe, clients: ClientSide, ask: Ask) -> Slices:
    if isinstance(request.wanted, Pattern):
        yield from _prepared(request.wanted)
    covered: list[str] = []
    part = _Slice()
    for id, wanted in list(clients.wants_of(request.identity).items()):
        if cancels(request.wanted, wanted):
            covered.append(id)
        if part.is_over():
            yield
            part = _Slice()
    # Only when all are known: otherwise, if a wide one went first, those behind it would be stated, all at once.
    refusals: list[Refuse] = []
    going = frozenset(covered)
    for start in range(0, len(covered), SLICE_CANCELLED_MAX):
        if start:
            yield
        ids = tuple(covered[start : start + SLICE_CANCELLED_MAX])
        refusals += ask(CancelMany(request.identity, ids, going=going))
    return refusals


def _unadvertised(request: Unadvertise, clients: ClientSide, ask: Ask) -> Slices:
    refusals: list[Refuse] = []
    part = _Slice()
    for offer in clients.advertisements_of(request.identity):
        if request.advertisement.covers(offer):
            refusals += ask(Unadvertise(request.identity, offer))
        if part.is_over():
            yield
            part = _Slice()
    return refusals


def _prepared(pattern: Pattern) -> Iterator[None]:
    part = _Slice()
    for filter in pattern.filters:
        # Each keeps its answer.
        _ = str(filter), hash(filter), hash(filter.routed)
        if part.is_over():
            yield
            part = _Slice()
