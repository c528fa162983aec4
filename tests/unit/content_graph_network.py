"""A few cores of content graphs joined by hand: each message can be looked at, kept back or lost."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.routing.content_graph.core import ContentGraphCore
from catchment.routing.content_graph.places import Place
from catchment.routing.messages import (
    HOST,
    Action,
    BrokerMessage,
    Cancel,
    Client,
    ClientUp,
    Deliver,
    Forward,
    Interface,
    LinkDown,
    LinkUp,
    Missed,
    Neighbor,
    Refuse,
    Routed,
    Send,
    SetTimer,
    Subscribe,
    TimerFired,
)
from catchment.routing.systems import system_named

SECOND = 1_000_000
# Links, and two filters of which the first covers the second.
LINE = "AB BC"
LEAGUE, TEAM = "league = 'AL'", "league = 'AL' and team = 'Boston'"
# On its way: sender, receiver, and a message or a batch.
Parcel = tuple[str, str, BrokerMessage | tuple[Routed, ...]]


class Brokers:
    """Brokers by name, and links between them. The first broker is the rendezvous point."""

    def __init__(self, links: str, **settings: Any) -> None:
        self.pairs = [tuple(pair) for pair in links.split()]
        self.names = sorted({name for pair in self.pairs for name in pair})
        self.settings = {"rendezvous": self.names[0], **settings}
        self.now = 1_000
        self.cores: dict[str, ContentGraphCore] = {}
        self.queue: deque[Parcel] = deque()
        self.said: list[Parcel] = []
        self.delivered: list[tuple[str, Any, tuple[str, ...]]] = []
        self.missed: list[tuple[str, int]] = []
        self.refused: list[tuple[str, str, str]] = []
        self.timers: dict[tuple[str, str], int] = {}
        # What is lost on its way.
        self.loses: Callable[[Parcel], bool] = lambda parcel: False
        for name in self.names:
            self.start(name)
        for first, second in self.pairs:
            self.link(first, second)
        self.run()

    def start(self, name: str) -> None:
        self.cores[name] = system_named("content graph").core(name, self.settings)  # type: ignore[assignment]

    def place(self, name: str, namespace: str = "default") -> Place:
        return self.cores[name].places[namespace]

    # --- what happens ---

    def link(self, first: str, second: str) -> None:
        self.tell(first, LinkUp(), Neighbor(second))
        self.tell(second, LinkUp(), Neighbor(first))

    def unlink(self, first: str, second: str) -> None:
        self.queue = deque(parcel for parcel in self.queue if {parcel[0], parcel[1]} != {first, second})
        for here, there in ((first, second), (second, first)):
            self.tell(here, LinkDown(), Neighbor(there))

    def restart(self, name: str) -> None:
        """The broker loses its memory."""
        others = [other for pair in self.pairs if name in pair for other in pair if other != name]
        for other in others:
            self.queue = deque(parcel for parcel in self.queue if name not in parcel[:2])
            self.tell(other, LinkDown(), Neighbor(name))
        self.start(name)
        for other in others:
            self.link(name, other)

    def tell(self, name: str, message: Any, source: Interface) -> None:
        self.now += 1
        self._perform(name, self.cores[name].on_message(message, source, self.now))

    def subscribe(self, name: str, identity: str, filter: str, id: str = "s") -> None:
        if identity not in self.cores[name].clients:
            self.tell(name, ClientUp(identity), Client(identity))
        self.tell(name, Subscribe(identity, id, Filter(filter)), Client(identity))
        self.run()

    def cancel(self, name: str, identity: str, id: str = "s") -> None:
        self.tell(name, Cancel(identity, id), Client(identity))
        self.run()

    def publish(self, name: str, source: str = "p", seq: int = 0, **attributes: Any) -> None:
        self.now += 1
        notification = Notification(attributes, source=source, seq=seq) if seq else Notification(attributes)
        batch = [Routed(notification)]
        self._perform(name, self.cores[name].on_notifications(batch, Client(source), self.now))

    def wait(self, name: str, timer: str, seconds: float = 0.0) -> None:
        """Time passes, and a timer fires."""
        self.now = max(self.now + round(seconds * SECOND), self.timers.pop((name, timer)))
        self.tell(name, TimerFired(timer), HOST)
        self.run()

    def run(self) -> None:
        """All that is under way arrives."""
        while self.queue:
            parcel = self.queue.popleft()
            if not self.loses(parcel):
                self.arrive(parcel)

    def arrive(self, parcel: Parcel) -> None:
        sender, receiver, what = parcel
        self.now += 1
        core: Any = self.cores[receiver]
        if isinstance(what, tuple):
            self._perform(receiver, core.on_notifications(what, Neighbor(sender), self.now))
        else:
            self._perform(receiver, core.on_message(what, Neighbor(sender), self.now))

    def _perform(self, name: str, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Send():
                    self._put((name, action.interface.name, action.message))
                case Forward():
                    self._put((name, action.interface.name, action.batch))
                case Deliver():
                    content = dict(action.notification)
                    self.delivered.append((action.identity, content, action.subscriptions))
                case Missed():
                    self.missed.append((action.identity, action.count))
                case SetTimer():
                    self.timers[name, action.name] = action.at
                case Refuse():
                    self.refused.append((name, str(action.source), str(action.error)))

    def _put(self, parcel: Parcel) -> None:
        self.said.append(parcel)
        self.queue.append(parcel)

    def count(self, kind: type[BrokerMessage]) -> int:
        return sum(isinstance(what, kind) for _, _, what in self.said)

    def heard(self) -> list[Any]:
        """What clients got since they were asked last: the value of `n` in each delivery."""
        got = [content.get("n") for _, content, _ in self.delivered]
        self.delivered.clear()
        return got


def nodes(brokers: Brokers, name: str) -> dict[str, int]:
    """The nodes of a broker's clients, by filter."""
    return {str(filter): node for filter, node in brokers.place(name).edge.nodes.items()}


def node_of(brokers: Brokers, filter: str) -> int:
    rendezvous = brokers.place("A").rendezvous
    assert rendezvous is not None
    node = rendezvous.preprocessor.find(Filter(filter))
    assert node is not None
    return node
