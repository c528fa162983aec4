"""Cores wired to each other without a host: every message and copy on a link is kept for a test to look at."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from catchment import Filter, Notification
from catchment.model.values import Value
from catchment.routing.messages import (
    HOST,
    BrokerMessage,
    Cancel,
    Client,
    ClientUp,
    Deliver,
    Forward,
    LinkDown,
    LinkUp,
    Neighbor,
    Refuse,
    Routed,
    Send,
    SetTimer,
    Subscribe,
    TimerFired,
)


@dataclass
class Wired:
    """`make` makes the core of a broker. Links carry everything in order and at once; `now` moves only when told."""

    make: Callable[[str], Any]
    links: Iterable[tuple[str, str]]
    now: int = 1
    cores: dict[str, Any] = field(default_factory=dict)
    # What crossed links: the two ends, and a message or a copy with whether it was relayed.
    said: list[tuple[str, str, Any]] = field(default_factory=list)
    copies: list[tuple[str, str, Any, bool]] = field(default_factory=list)
    delivered: list[tuple[str, Notification]] = field(default_factory=list)
    refused: list[Refuse] = field(default_factory=list)
    timers: dict[tuple[str, str], SetTimer] = field(default_factory=dict)
    _seqs: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._waiting: deque[tuple[str, str, Any]] = deque()
        self._up: set[frozenset[str]] = set()
        for broker in sorted({end for link in self.links for end in link}):
            self.cores[broker] = self.make(broker)
        for first, second in self.links:
            self.link_up(first, second)

    # --- what happens ---

    def link_up(self, first: str, second: str) -> None:
        self._up.add(frozenset((first, second)))
        for here, there in ((first, second), (second, first)):
            self._perform(here, self.cores[here].on_message(LinkUp(), Neighbor(there), self.now))
        self.run()

    def link_down(self, first: str, second: str) -> None:
        self._up.remove(frozenset((first, second)))
        for here, there in ((first, second), (second, first)):
            self._perform(here, self.cores[here].on_message(LinkDown(), Neighbor(there), self.now))
        self.run()

    def subscribe(self, broker: str, id: str, text: str) -> None:
        """The client named as its broker subscribes there."""
        client = Client(broker)
        self._perform(broker, self.cores[broker].on_message(ClientUp(broker), client, self.now))
        self._perform(broker, self.cores[broker].on_message(Subscribe(broker, id, Filter(text)), client, self.now))
        self.run()

    def cancel(self, broker: str, id: str) -> None:
        self._perform(broker, self.cores[broker].on_message(Cancel(broker, id), Client(broker), self.now))
        self.run()

    def publish(self, broker: str, attributes: Mapping[str, Value]) -> Notification:
        seq = self._seqs[broker] = self._seqs.get(broker, 0) + 1
        notification = Notification(dict(attributes), source=f"p{broker}", seq=seq)
        actions = self.cores[broker].on_notifications([Routed(notification)], Client(f"p{broker}"), self.now)
        self._perform(broker, actions)
        self.run()
        return notification

    def hears(self, broker: str, neighbor: str, message: BrokerMessage) -> None:
        """As if the neighbor had said it."""
        self._perform(broker, self.cores[broker].on_message(message, Neighbor(neighbor), self.now))
        self.run()

    def gets(self, broker: str, neighbor: str, batch: Iterable[Routed]) -> None:
        self._perform(broker, self.cores[broker].on_notifications(list(batch), Neighbor(neighbor), self.now))
        self.run()

    def let_timers_fire(self) -> None:
        """In order of time, until none is left."""
        self.fire_timers_until(None)

    def fire_timers_until(self, time: int | None) -> None:
        while self.timers:
            (broker, name), timer = min(self.timers.items(), key=lambda item: (item[1].at, item[0]))
            if time is not None and timer.at > time:
                return
            del self.timers[broker, name]
            self.now = max(self.now, timer.at)
            self._perform(broker, self.cores[broker].on_message(TimerFired(name), HOST, self.now))
            self.run()

    # --- actions ---

    def run(self) -> None:
        while self._waiting:
            here, there, what = self._waiting.popleft()
            if frozenset((here, there)) not in self._up:
                continue
            if isinstance(what, Forward):
                self.copies += [(here, there, routed, what.is_relayed) for routed in what.batch]
                actions = self.cores[there].on_notifications(what.batch, Neighbor(here), self.now)
            else:
                self.said.append((here, there, what))
                actions = self.cores[there].on_message(what, Neighbor(here), self.now)
            self._perform(there, actions)

    def _perform(self, broker: str, actions: Iterable[Any]) -> None:
        for action in actions:
            match action:
                case Send(neighbor, message):
                    self._waiting.append((broker, neighbor.name, message))
                case Forward(neighbor):
                    self._waiting.append((broker, neighbor.name, action))
                case Deliver():
                    self.delivered.append((broker, action.notification))
                case SetTimer():
                    self.timers[broker, action.name] = action
                case Refuse():
                    self.refused.append(action)
                case _:
                    pass
