"""End-to-end detection and recovery of lost notifications (F3 §3.4.9): numbers for each node.

At the rendezvous point every notification adds one to the number of each lowest node that it belongs to, and carries
these numbers. A subscriber knows the numbers of its nodes and of all nodes below them (the text's prose says above, the
caption below; a notification is numbered at its lowest nodes, so the caption is right). If a number is missing, a
notification is lost: one that was filtered out has no number that the subscriber counts. A node that comes later starts
from 0, so its first number tells that nothing was before it.

`SentLog` is at the rendezvous point: numbers, and the last notifications. `LossDetector` is at a subscriber's broker:

arrival      If no number is missing, the notification is delivered. Otherwise the missing ones are asked for
             (`Recover`), and this and all later notifications are held: a recovered one that is delivered after a later
             one of its publisher would be dropped, to keep the publisher's order.
Numbers      also show that the last ones are lost, after which nothing came (`NumbersWanted` is sent from time to time,
             and `NodesGiven` has numbers when the way to the rendezvous point has changed).
Recovered    What has come is delivered with what was held, in the order of the rendezvous point. Namespaces that share
             a rendezvous point hold and release together, so the order of a publisher is kept across them.
too late     After HOLD, or with too much to hold, what is missing is given up, and the clients are told how much
             (`Missed`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from catchment.model.notification import Notification
from catchment.routing.content_graph.graph import ContentGraph
from catchment.routing.content_graph.messages import Again, NodeNumbers, Recover, Recovered
from catchment.routing.messages import SECOND

# Notifications that a rendezvous point keeps of a namespace, and their bytes: some seconds of a busy stream.
RECOVERY_LOG_MAX: Final = 10_000
RECOVERY_LOG_BYTES_MAX: Final = 16 * 1_048_576
# How long a broker waits for what is missing, and how many later notifications it holds meanwhile.
HOLD: Final = 1 * SECOND
RECOVERY_HELD_MAX: Final = 10_000
# Numbers asked for at once: no more than a rendezvous point may have.
MISSING_MAX: Final = RECOVERY_LOG_MAX
# Nodes of which something may be missing at a time.
MISSING_NODES_MAX: Final = 1_000
# Nodes whose numbers are kept in case they are still ours, which only the rendezvous point knows.
ORPHANS_MAX: Final = 10_000
# The first number of a header counts all notifications of the rendezvous point: the order in which they were sent.
ALL: Final = 0


class _Entry(NamedTuple):
    notification: Notification
    numbers: NodeNumbers


class SentLog:
    """What a rendezvous point has sent: the last number of each node, and the last notifications."""

    def __init__(self, graph: ContentGraph, order: Iterator[int]) -> None:
        self._graph = graph
        # Counts all notifications of all namespaces of this rendezvous point: the order in which they are sent.
        self._order = order
        self._numbers: dict[int, int] = {}
        self._entries: deque[_Entry] = deque()
        self._by_number: dict[tuple[int, int], _Entry] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def sent(self, notification: Notification, nodes: tuple[int, ...]) -> NodeNumbers:
        """Numbers a notification that belongs to these lowest nodes, and keeps it."""
        numbers = [(ALL, next(self._order))]
        for node in nodes:
            number = self._numbers[node] = self._numbers.get(node, 0) + 1
            numbers.append((node, number))
        entry = _Entry(notification, tuple(numbers))
        self._entries.append(entry)
        self._bytes += _size(notification)
        for pair in entry.numbers:
            self._by_number[pair] = entry
        while len(self._entries) > RECOVERY_LOG_MAX or self._bytes > RECOVERY_LOG_BYTES_MAX:
            self.forget()
        return entry.numbers

    def forget(self) -> None:
        """Forgets the oldest notification."""
        oldest = self._entries.popleft()
        self._bytes -= _size(oldest.notification)
        for pair in oldest.numbers:
            del self._by_number[pair]

    def removed(self, node: int) -> None:
        """A node is gone from the graph; its id never comes again."""
        self._numbers.pop(node, None)

    def numbers(self, nodes: Iterable[int]) -> NodeNumbers:
        """The numbers of these nodes and of all nodes below them, except those that have number 0."""
        here = {node for node in nodes if node in self._graph}
        below = here | self._graph.descendants(here)
        return tuple((node, self._numbers[node]) for node in sorted(below) if node in self._numbers)

    def recovered(self, message: Recover, nodes_for: Callable[[Notification], tuple[int, ...]]) -> Recovered:
        """What is still here of what somebody misses."""
        mine, entries = set(message.nodes), dict[int, _Entry]()
        lost: list[tuple[int, int]] = []
        foreign: list[int] = []
        for node, first, last in message.missing:
            if node not in self._graph or mine.isdisjoint(self._graph.at_or_above([node])):
                foreign.append(node)
                continue
            for number in range(max(first, 1), min(last, first + MISSING_MAX) + 1):
                entry = self._by_number.get((node, number))
                if entry is None:
                    lost.append((node, number))
                else:
                    entries[entry.numbers[0][1]] = entry
        again = []
        for _, entry in sorted(entries.items()):
            above = self._graph.at_or_above(nodes_for(entry.notification))
            again.append(Again(entry.notification, tuple(sorted(mine & above)), entry.numbers))
        return Recovered(message.namespace, message.origin, message.missing, tuple(again), tuple(lost), tuple(foreign))


@dataclass(slots=True, eq=False)
class Arrival:
    """A notification for a broker's own clients, as it came."""

    notification: Notification
    nodes: tuple[int, ...]
    numbers: NodeNumbers


@dataclass(slots=True)
class Decision:
    """What a detector decides: what is to be delivered now, how many numbers of each node are given up, and whether
    something is missing that is to be asked for."""

    arrivals: list[Arrival] = field(default_factory=list)
    given_up: dict[int, int] = field(default_factory=dict)
    missing: tuple[tuple[int, int, int], ...] = ()


class LossDetector:
    """The notifications of one namespace for the clients of one broker. `mine_above` says which nodes that these
    clients want are at or above a node; None if that is not known here."""

    def __init__(self, mine_above: Callable[[int], set[int] | None]) -> None:
        self._mine_above = mine_above
        # By node that our clients want: the nodes at or below it whose numbers are followed.
        self._below: dict[int, set[int]] = {}
        # The same the other way round.
        self._above: dict[int, set[int]] = {}
        # By node: the last number that came, or that is asked for.
        self._last: dict[int, int] = {}
        self._missing: dict[int, set[int]] = {}
        # Nodes whose numbers are kept though none of ours is known to be above them.
        self._orphans: dict[int, None] = {}
        self._held: list[Arrival] = []
        # Nodes that are not ours, by the word of the rendezvous point.
        self._foreign: set[int] = set()

    @property
    def is_waiting(self) -> bool:
        return bool(self._missing)

    @property
    def leftovers(self) -> int:
        return len(self._below) + len(self._held) + len(self._missing)

    # --- nodes ---

    def released(self, node: int) -> None:
        """Our clients no longer want a node."""
        self._foreign.clear()
        for each in self._below.pop(node, ()):
            self._above[each].discard(node)
            if not self._above[each]:
                del self._above[each]
                self._orphan(each)
        if not self._below:
            for each in list(self._orphans):
                self._unfollow(each)

    def _orphan(self, node: int) -> None:
        """The node that another was followed for is wanted no longer. Perhaps a node of ours is still above it."""
        mine = self._mine_above(node)
        for each in mine or ():
            self._follow(each, node)
        if mine is None:
            # Not known here. If a notification for it comes, it is ours; if not, nothing depends on its number.
            self._orphans[node] = None
            if len(self._orphans) > ORPHANS_MAX:
                self._unfollow(next(iter(self._orphans)))
        elif not mine:
            self._unfollow(node)

    def _unfollow(self, node: int) -> None:
        self._orphans.pop(node, None)
        self._last.pop(node, None)
        self._missing.pop(node, None)

    def wanting(self, node: int) -> set[int]:
        """The nodes that our clients want, at or above a node whose numbers are followed."""
        return self._above.get(node, set())

    def _follow(self, node: int, each: int) -> None:
        self._orphans.pop(each, None)
        self._below.setdefault(node, set()).add(each)
        self._above.setdefault(each, set()).add(node)

    def told(self, nodes: Iterable[int], numbers: NodeNumbers) -> Decision:
        """The numbers of nodes that our clients want, and of all nodes below them, as the rendezvous point says."""
        wanted = set(nodes)
        new = wanted - self._below.keys()
        for node in wanted:
            if node in new and node in self._orphans:
                self._unfollow(node)
            self._follow(node, node)
        for node, number in numbers:
            mine = self._mine_above(node)
            is_new = not new.isdisjoint(wanted if mine is None else mine) and new.issuperset(mine or ())
            if is_new and node in self._orphans:
                # Its number is from before we subscribed.
                self._unfollow(node)
            # Of a node that came after our subscription everything is ours; of any other, what comes from now on.
            self._last.setdefault(node, number if is_new else 0)
            for each in wanted if mine is None else mine:
                self._follow(each, node)
            self._foreign.discard(node)
            self._miss(node, number)
        for node in wanted:
            self._last.setdefault(node, 0)
        return self._asked()

    # --- notifications ---

    def arrived(self, arrival: Arrival) -> Decision:
        is_known = bool(arrival.numbers)
        for node, number in arrival.numbers[1:]:
            if node in self._foreign or not self._follows(node, number, arrival.nodes):
                is_known = False
                continue
            if number > self._last[node]:
                is_known = False
                # It may have been followed by a wrong guess, before this broker knew the graph.
                if number > self._last[node] + 1 and self._mine_above(node) == set():
                    self._unfollow(node)
                    continue
                self._miss(node, number - 1)
                self._last[node] = number
            elif number in self._missing.get(node, ()):
                is_known = False
                self._found(node, number)
        if is_known and len(arrival.numbers) > 1:
            # All its numbers have come before: a copy that took another way.
            return Decision()
        if not self._missing and not self._held:
            return Decision([arrival])
        self._held.append(arrival)
        if len(self._held) > RECOVERY_HELD_MAX:
            return self.give_up()
        return self._asked() if self._missing else self._released()

    def _follows(self, node: int, number: int, nodes: tuple[int, ...]) -> bool:
        """Whether the numbers of a node are followed; from now on, if it is new."""
        if node in self._last:
            return True
        mine = self._mine_above(node)
        if mine is None:
            # The header names nodes of ours, and perhaps others. The rendezvous point will say if the guess is wrong.
            mine = {each for each in nodes if each in self._below}
            is_sure = False
        else:
            is_sure = True
        if not mine:
            return False
        self._last[node] = 0 if is_sure or number <= MISSING_MAX else number - 1
        for each in mine:
            self._follow(each, node)
        return True

    def _miss(self, node: int, number: int) -> None:
        """All numbers of a node up to this one should have come."""
        last = self._last[node]
        if number > last and len(self._missing) >= MISSING_NODES_MAX and node not in self._missing:
            # So much is missing that it cannot be held; what a neighbor makes up is bounded too.
            self._last[node] = number
        elif number > last:
            first = max(last + 1, number - MISSING_MAX + 1)
            self._missing.setdefault(node, set()).update(range(first, number + 1))
            self._last[node] = number

    def _found(self, node: int, number: int) -> None:
        missing = self._missing.get(node, set())
        missing.discard(number)
        if not missing:
            self._missing.pop(node, None)

    def _asked(self) -> Decision:
        ranges = [(node, min(missing), max(missing)) for node, missing in sorted(self._missing.items())]
        return Decision(missing=tuple(ranges))

    def recovered(self, message: Recovered) -> Decision:
        """The rendezvous point has answered."""
        given_up: dict[int, int] = {}
        for again in message.again:
            if again.nodes and any(number in self._missing.get(node, ()) for node, number in again.numbers[1:]):
                self._held.append(Arrival(again.notification, again.nodes, again.numbers))
            for node, number in again.numbers[1:]:
                self._found(node, number)
        for node, number in message.lost:
            if number in self._missing.get(node, ()):
                given_up[node] = given_up.get(node, 0) + 1
                self._found(node, number)
        for node in message.foreign:
            self._foreign.add(node)
            self._unfollow(node)
        # What was asked for and neither found nor lost is not ours: it belonged to another node of ours no more.
        for node, first, last in message.missing:
            for number in range(first, min(last, first + MISSING_MAX) + 1):
                self._found(node, number)
        due = self._asked() if self._missing else self._released()
        due.given_up = given_up
        return due

    def give_up(self) -> Decision:
        """It has taken too long: what is missing is lost."""
        given_up = {node: len(missing) for node, missing in self._missing.items()}
        self._missing.clear()
        due = self._released()
        due.given_up = given_up
        return due

    def _released(self) -> Decision:
        """What was held."""
        return Decision(self.take_held())

    def hold(self, arrivals: Iterable[Arrival]) -> int:
        """Holds arrivals because another namespace of the same rendezvous point waits. Returns how many are held."""
        self._held += arrivals
        return len(self._held)

    def take_held(self) -> list[Arrival]:
        held, self._held = self._held, []
        return held


def order_of(arrival: Arrival) -> int:
    """The place of an arrival among all that its rendezvous point has sent."""
    return arrival.numbers[0][1] if arrival.numbers else 0


def _size(notification: Notification) -> int:
    return len(notification.content) + len(notification.payload)
