"""Mistakes that only a live host can make, planted in the broker processes (`hosts.py` does) or in the client."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from catchment.broker.connection import Connection
from catchment.client.client import Client
from catchment.model.filter import Filter
from catchment.node import Node
from catchment.routing.core import Table
from catchment.routing.messages import LinkDown, Neighbor
from catchment.routing.parts.remote import RemoteFilters
from catchment.routing.siena.general import GeneralCore


def frames_change_places() -> None:
    """All that is written in one turn of the loop, to a neighbor, goes in reverse."""
    flush = Connection._flush

    def reversing(self: Connection) -> None:
        if isinstance(self.who, Neighbor):
            self._waiting.reverse()
        flush(self)

    Connection._flush = reversing  # type: ignore[method-assign]


def a_write_is_lost() -> None:
    """One in twenty to a neighbor."""
    flush, numbers = Connection._flush, count(1)

    def losing(self: Connection) -> None:
        if isinstance(self.who, Neighbor) and self._waiting and next(numbers) % 20 == 0:
            self._waiting.clear()
        flush(self)

    Connection._flush = losing  # type: ignore[method-assign]


def a_write_is_done_twice() -> None:
    """One in ten to a neighbor, as after a send of which nobody knew whether it was done."""
    flush, numbers = Connection._flush, count(1)

    def repeating(self: Connection) -> None:
        if isinstance(self.who, Neighbor) and next(numbers) % 10 == 0:
            self._waiting *= 2
        flush(self)

    Connection._flush = repeating  # type: ignore[method-assign]


def the_core_is_not_told_that_a_link_is_down() -> None:
    tell = Node._tell

    def deaf(self: Node, message: Any, source: Any) -> Any:
        return [] if isinstance(message, LinkDown) else tell(self, message, source)

    Node._tell = deaf  # type: ignore[method-assign]


def a_link_that_is_made_again_is_not_told() -> None:
    """The core hears of the first connection of two brokers alone, and goes on as if it had held."""
    link_up, link_down, known = Node.link_up, Node.link_down, set[Neighbor]()

    def silent_up(self: Node, neighbor: Neighbor, cost: int, outlet: Any) -> None:
        if neighbor not in known:
            known.add(neighbor)
            link_up(self, neighbor, cost, outlet)
        else:
            self.links[neighbor].outlet = outlet
            self.links[neighbor].sent = self.links[neighbor].heard = 0

    def silent_down(self: Node, neighbor: Neighbor) -> None:
        if neighbor not in known:
            link_down(self, neighbor)

    Node.link_up, Node.link_down = silent_up, silent_down  # type: ignore[method-assign]


def clients_that_are_gone_are_kept() -> None:
    Node.client_down = lambda self, client: None  # type: ignore[method-assign]


def what_a_client_has_seen_is_not_heeded() -> None:
    client_up = Node.client_up

    def forgetting(self: Node, client: Any, identity: str, seen: Mapping[str, int], *rest: Any) -> None:
        client_up(self, client, identity, {}, *rest)

    Node.client_up = forgetting  # type: ignore[method-assign, assignment]


def filters_of_others_that_are_withdrawn_are_kept() -> None:
    """Deliveries are still right; only the tables tell."""

    change = GeneralCore._change

    def keeping(self: GeneralCore, origin: str, seq: int, gone: Sequence[Filter], new: Sequence[Filter]) -> None:
        change(self, origin, seq, (), [filter for filter in new if filter not in self.remote.of(origin)])

    GeneralCore._change = keeping  # type: ignore[method-assign]


def a_broker_tells_its_tables_wrongly() -> None:
    tables = RemoteFilters.tables

    def lying(self: RemoteFilters) -> list[Table]:
        return [Table(table.holder, table.filters + 1, table.bytes) for table in tables(self)]

    RemoteFilters.tables = lying  # type: ignore[method-assign]


BROKER_MUTANTS: dict[str, Callable[[], None]] = {
    plant.__name__: plant
    for plant in (
        frames_change_places,
        a_write_is_lost,
        a_write_is_done_twice,
        the_core_is_not_told_that_a_link_is_down,
        a_link_that_is_made_again_is_not_told,
        clients_that_are_gone_are_kept,
        what_a_client_has_seen_is_not_heeded,
        filters_of_others_that_are_withdrawn_are_kept,
        a_broker_tells_its_tables_wrongly,
    )
}


# --- in the client ------------------------------------------------------------------------------

# What is put in the place of which attribute of `Client`.
CLIENT_MUTANTS: dict[str, tuple[str, object]] = {
    "nothing_is_stated_again": ("_restate", lambda self, *given: None),
    "seen_is_not_brought_along": ("seen", property(lambda self: {})),
}
assert all(hasattr(Client, name) for name, _ in CLIENT_MUTANTS.values())
