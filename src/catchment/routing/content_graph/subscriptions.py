"""What the subscriptions of a broker's clients need of each namespace, and who may subscribe to what.

A subscription enters every namespace that its filters overlap. In each of them a filter is wanted once, however many
subscriptions have it: only the first and the last of them concern the rendezvous point.

Before anything else it is checked (F3 §6.1) that the identity may subscribe to the namespace, that the filter means
something there, and that a static graph has such a topic. The text leaves open whether the rendezvous point is asked or
a trusted preprocessor vouches for subscribers. Here the subscriber's own broker is that preprocessor: all brokers have
the same settings, and brokers trust each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from catchment.errors import InputError, shown
from catchment.model.filter import Filter
from catchment.routing.content_graph.places import Place
from catchment.routing.content_graph.preprocessors.base import Relation
from catchment.routing.content_graph.preprocessors.reading import ReadKind
from catchment.routing.content_graph.settings import Namespaces
from catchment.routing.messages import Action, Cancel, CancelMany, Client, ClientRequest, Subscribe, Unsubscribe, Wanted
from catchment.routing.parts.clients import ClientSide
from catchment.routing.parts.wanted import filters_for

# A filter of a subscription: its number at the client side, itself, and its places.
_Held = list[tuple[int, Filter, tuple[Place, ...]]]


@dataclass(slots=True)
class Changed:
    """What has changed in a namespace: filters that nobody here wants any longer, and new ones."""

    place: Place
    withdrawn: dict[Filter, None] = field(default_factory=dict)
    wanted: dict[Filter, None] = field(default_factory=dict)


class Subscriptions:
    """The subscriptions of a broker's clients, by namespace."""

    def __init__(self, clients: ClientSide, namespaces: Namespaces, places: Mapping[str, Place]) -> None:
        self._clients = clients
        self._namespaces = namespaces
        self._places = places
        # By identity and id.
        self._held: dict[str, dict[str, _Held]] = {}

    def request(self, message: ClientRequest, source: Client) -> tuple[list[Action], list[Changed]]:
        """Does what a client asks for. Returns the deliveries that follow from it, and what has changed. CatchmentError
        if it cannot be done."""
        if isinstance(message, Subscribe):
            self._check(message.identity, message.wanted)
        due = self._clients.request(message, source)
        held = self._held.setdefault(message.identity, {})
        match message:
            case Subscribe():
                held[message.id] = self._filters(message.identity, message.id, message.wanted)
                return due, self._changed([], [held[message.id]])
            case Cancel():
                return due, self._changed([held.pop(message.id, [])], [])
            case CancelMany():
                return due, self._changed([held.pop(id) for id in message.ids if id in held], [])
            case Unsubscribe():
                kept = self._clients.wants_of(message.identity)
                return due, self._changed([held.pop(id) for id in list(held) if id not in kept], [])
            case _:
                return due, []

    def client_down(self, client: Client) -> list[Changed]:
        """Forgets the identities of a client that is gone."""
        gone = [self._held.pop(identity, {}) for identity in self._clients.client_down(client)]
        return self._changed([held for some in gone for held in some.values()], [])

    def _check(self, identity: str, wanted: Wanted) -> None:
        """InputError if an identity may not have a subscription."""
        for filter in filters_for(wanted):
            for place in self._places_of(filter):
                namespace = place.namespace
                if namespace.subscribers is not None and identity not in namespace.subscribers:
                    raise InputError(f"{shown(identity)} may not subscribe to the namespace {shown(namespace.name)}")
                if namespace.kind is not None:
                    namespace.kind.check(filter)
                if namespace.topics is not None and not _is_topic(filter, namespace.topics, namespace.kind):
                    what = f"{shown(str(filter))} is no topic of the namespace {shown(namespace.name)}"
                    raise InputError(f"{what}, whose graph is static: subscribe to one of its topics")

    def _filters(self, identity: str, id: str, wanted: Wanted) -> _Held:
        pairs = zip(self._clients.numbers_of(identity, id), filters_for(wanted), strict=True)
        return [(number, filter, self._places_of(filter)) for number, filter in pairs if not filter.is_empty]

    def _places_of(self, filter: Filter) -> tuple[Place, ...]:
        return tuple(self._places[namespace.name] for namespace in self._namespaces.overlapping(filter))

    def _changed(self, gone: Iterable[_Held], new: Iterable[_Held]) -> list[Changed]:
        changes: dict[str, Changed] = {}
        for held in gone:
            for number, filter, places in held:
                for place in places:
                    if place.edge.unwant(filter, number):
                        changes.setdefault(place.namespace.name, Changed(place)).withdrawn[filter] = None
        for held in new:
            for number, filter, places in held:
                # What is routed by another filter than was asked for may match more: its content is compared.
                is_doubtful = self._clients.asked(number) is not filter
                for place in places:
                    if place.edge.want(filter, number, is_doubtful):
                        changes.setdefault(place.namespace.name, Changed(place)).wanted[filter] = None
        return [changes[name] for name in sorted(changes)]


def _is_topic(filter: Filter, topics: Iterable[Filter], kind: ReadKind[Any, Any] | None) -> bool:
    read = None if kind is None else kind.read(filter)
    if kind is not None and read is not None:
        # Filters that differ may be the same subscription.
        return any(kind.relation(kind.read(topic), read) is Relation.SAME for topic in topics)
    return any(topic.covers(filter) and filter.covers(topic) for topic in topics)
