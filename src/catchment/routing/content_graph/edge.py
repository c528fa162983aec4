"""The edge of a namespace: what a broker's own clients want of it, under which nodes, and what is due to them.

A filter of a client's subscription has a number at the client side (`ClientSide.numbers_of`). The rendezvous point
gives each distinct filter a node. When a notification comes with nodes, those interested are found from the nodes
alone: content is not matched. Labels name only the lowest nodes; who wants a node above gets the notification too.
Numbers of CESQL expressions, and of filters that are routed by a wider one, are *doubtful*: these are compared with the
content.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from catchment.model.cesql import Cesql
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.routing.content_graph.forwarders.base import RECALLED_MAX
from catchment.routing.content_graph.loss import LossDetector
from catchment.routing.content_graph.router import Router
from catchment.routing.messages import Action, Time
from catchment.routing.parts.clients import ClientSide, Interested


class _Concerned(NamedTuple):
    """Who is concerned by a notification with certain nodes."""

    numbers: tuple[int, ...]
    doubtful: tuple[int, ...]
    # Those that `numbers` stand for.
    interested: tuple[Interested, ...]


class Edge:
    """The broker's clients in one namespace. `channel` names the way on which its notifications come; namespaces with
    the same rendezvous point share it."""

    def __init__(self, clients: ClientSide, router: Router, channel: str = "") -> None:
        self._clients = clients
        self.router = router
        self._channel = channel
        # By filter: the numbers at the client side, and whether each is doubtful.
        self._numbers: dict[Filter, dict[int, bool]] = {}
        # The nodes that the rendezvous point has given, and the filters of each.
        self.nodes: dict[Filter, int] = {}
        self._filters: dict[int, set[Filter]] = {}
        # The nodes that filters had before the way to the rendezvous point was lost: if they get the same again, what
        # was lost meanwhile is found by its numbers.
        self._parked: dict[Filter, int] = {}
        self.detector = LossDetector(self._mine_above)
        # Of our last whole statement (`NodesWanted`): what answers an earlier one is out of date.
        self.stated: tuple[int, int] = (0, 0)
        self.seq = 0
        self._concerned: dict[tuple[int, ...], _Concerned] = {}
        self._generation = -1

    @property
    def filters(self) -> list[Filter]:
        """All that our clients want here."""
        return list(self._numbers)

    # --- what clients want ---

    def want(self, filter: Filter, number: int, is_doubtful: bool) -> bool:
        """Returns whether the filter is new here."""
        self._concerned.clear()
        numbers = self._numbers.setdefault(filter, {})
        numbers[number] = is_doubtful
        return len(numbers) == 1

    def unwant(self, filter: Filter, number: int) -> bool:
        """Returns whether nobody wants the filter any longer."""
        self._concerned.clear()
        numbers = self._numbers[filter]
        numbers.pop(number, None)
        if numbers:
            return False
        del self._numbers[filter]
        self._release(filter)
        self._unpark(filter)
        return True

    # --- nodes ---

    def give(self, filter: Filter, node: int, now: Time) -> None:
        """The rendezvous point gives a filter a node."""
        if filter not in self._numbers or self.nodes.get(filter) == node:
            return
        self._concerned.clear()
        before = self.nodes.get(filter)
        self.nodes[filter] = node
        filters = self._filters.setdefault(node, set())
        filters.add(filter)
        if len(filters) == 1:
            self.router.subscribe_here(node, now)
        # After the new node: so there is no moment at which the filter has none.
        if before is not None:
            self._take_off(filter, before)
        self._unpark(filter)

    def _release(self, filter: Filter) -> None:
        node = self.nodes.pop(filter, None)
        if node is not None:
            self._take_off(filter, node)

    def _take_off(self, filter: Filter, node: int) -> None:
        self._filters[node].discard(filter)
        if not self._filters[node]:
            del self._filters[node]
            self.router.unsubscribe_here(node)
            self._forget(node)

    def _forget(self, node: int) -> None:
        """Numbers are followed as long as a filter has the node, or had it before the way was lost."""
        if node not in self._filters and node not in self._parked.values():
            self.detector.released(node)

    def _unpark(self, filter: Filter) -> None:
        node = self._parked.pop(filter, None)
        if node is not None:
            self._forget(node)

    def deprive(self, nodes: Iterable[int]) -> None:
        """The rendezvous point does not have these nodes: it will give others."""
        self._concerned.clear()
        for node in nodes:
            for filter in self._filters.pop(node, ()):
                del self.nodes[filter]
            self._forget(node)

    def lose_all(self) -> None:
        """There is no way to the rendezvous point: no nodes."""
        self._parked.update(self.nodes)
        for filter in list(self.nodes):
            self._release(filter)

    def _mine_above(self, node: int) -> set[int] | None:
        """The nodes that our clients want, at or above a node; None if this broker does not know the graph."""
        copy = self.router.copy
        if copy is None or node not in copy.graph:
            return None
        return {each for each in copy.graph.at_or_above([node]) if each in self._filters}

    # --- deliveries ---

    def due(self, notification: Notification, nodes: tuple[int, ...], now: Time) -> list[Action]:
        """The deliveries of a notification that is marked with these nodes."""
        concerned = self._concerned_by(nodes)
        if not concerned.doubtful:
            return self._clients.due_to(concerned.interested, notification, now, self._channel)
        matched = [number for number in concerned.doubtful if self._matches(number, notification)]
        interested = self._clients.interested(sorted((*concerned.numbers, *matched)))
        return self._clients.due_to(interested, notification, now, self._channel)

    def _matches(self, number: int, notification: Notification) -> bool:
        asked = self._clients.asked(number)
        return asked.matches(notification.matched if isinstance(asked, Cesql) else notification)

    def missed(self, given_up: Mapping[int, int]) -> list[Action]:
        """Tells the clients how many notifications are lost for good: by node, how many of its numbers."""
        counts: dict[int, int] = {}
        for node, count in given_up.items():
            wanting = [filter for each in self.detector.wanting(node) for filter in self._filters.get(each, ())]
            for number in {number for filter in wanting for number in self._numbers[filter]}:
                counts[number] = counts.get(number, 0) + count
        return self._clients.missed(counts)

    def _concerned_by(self, nodes: tuple[int, ...]) -> _Concerned:
        # Kept until something changes: the work for a notification does not grow with the number of subscriptions.
        generation = self.router.table.forwarder.generation
        if generation != self._generation or len(self._concerned) >= RECALLED_MAX:
            self._concerned.clear()
            self._generation = generation
        concerned = self._concerned.get(nodes)
        if concerned is None:
            concerned = self._concerned[nodes] = self._find_concerned(nodes)
        return concerned

    def _find_concerned(self, nodes: tuple[int, ...]) -> _Concerned:
        wanted = self.router.table.wanted_here(nodes)
        filters = [filter for node in wanted for filter in self._filters.get(node, ())]
        pairs = [pair for filter in filters for pair in self._numbers[filter].items()]
        numbers = tuple(sorted(number for number, is_doubtful in pairs if not is_doubtful))
        doubtful = tuple(sorted(number for number, is_doubtful in pairs if is_doubtful))
        return _Concerned(numbers, doubtful, self._clients.interested(numbers))
