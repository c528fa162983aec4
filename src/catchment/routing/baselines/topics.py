"""Topics, and brokers that multicast by them: what both kinds of single-identifier multicast share (F3 §2.4.2).

A *topic* is the filter of a subscription, as it is written. It has a number, computed from its text: so all brokers
give the same topic the same number, and nobody hands numbers out. (If two texts have the same number, they are one
topic: their subscribers get each other's copies, and their broker leaves out what they do not want.)

The broker that a notification is published at, its *source*, finds the topics that match. From there on a header has
numbers alone. A router looks up who wants the topics of that number and copies the notification to the neighbors that
lead there in the shortest-path tree of the source. It accepts a notification only from the neighbor that is before it
in that tree, as multicast routers do: so nothing goes round, also while brokers disagree about the tree.
"""

from __future__ import annotations

from abc import ABC
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from catchment.matching.ids import Id
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.routing.baselines.informed import HOPS_MAX, InformedCore
from catchment.routing.baselines.messages import SubscriptionKey
from catchment.routing.messages import Header, Neighbor, Wanted
from catchment.routing.parts.recall import RecallingMatcher
from catchment.routing.parts.wanted import filters_for


def topic_of(filter: Filter) -> int:
    """The number of a topic: 62 bits, the range of what brokers number."""
    return int.from_bytes(blake2b(str(filter).encode(), digest_size=8).digest(), "big") >> 2


class Topics:
    """The topics of all subscriptions, with the brokers whose clients want them. `own` is our broker: the matcher has
    only topics that another broker wants, because our own clients need no copies over links."""

    def __init__(self, own: str) -> None:
        self.matcher: RecallingMatcher[tuple[int, ...]] = RecallingMatcher(self._topics)
        self._own = own
        # By text: how many subscriptions of each broker have this topic.
        self._brokers: dict[str, Counter[str]] = {}
        # The texts of each topic: one, unless two have the same number.
        self._texts: dict[int, set[str]] = {}
        # By text, its number in the matcher; and the topic of each such number.
        self._numbers: dict[str, int] = {}
        self._topic_by_number: dict[int, int] = {}
        self._next_number = 0

    def change(self, origin: str, gone: Iterable[Wanted], new: Iterable[Wanted]) -> None:
        # What is new first: a topic that stays is not taken out of the matcher and entered again.
        for wanted in new:
            for filter in filters_for(wanted):
                self._add(origin, filter)
        for wanted in gone:
            for filter in filters_for(wanted):
                self._remove(origin, filter)

    def _add(self, origin: str, filter: Filter) -> None:
        text = str(filter)
        self._brokers.setdefault(text, Counter())[origin] += 1
        self._texts.setdefault(topic_of(filter), set()).add(text)
        if origin != self._own and text not in self._numbers:
            self._numbers[text] = self._next_number
            self._topic_by_number[self._next_number] = topic_of(filter)
            self.matcher.add(self._next_number, filter)
            self._next_number += 1

    def _remove(self, origin: str, filter: Filter) -> None:
        text, topic = str(filter), topic_of(filter)
        brokers = self._brokers[text]
        brokers[origin] -= 1
        if brokers[origin]:
            return
        del brokers[origin]
        if text in self._numbers and not brokers.keys() - {self._own}:
            number = self._numbers.pop(text)
            self.matcher.remove(number)
            del self._topic_by_number[number]
        if not brokers:
            del self._brokers[text]
            self._texts[topic].discard(text)
            if not self._texts[topic]:
                del self._texts[topic]

    def _topics(self, numbers: Sequence[Id]) -> tuple[int, ...]:
        return tuple(sorted({self._topic_by_number[int(number)] for number in numbers}))

    def of(self, batch: Sequence[Notification]) -> list[tuple[int, ...]]:
        """For each notification, the topics that match it and that another broker wants, sorted."""
        return self.matcher.answers(batch)

    def brokers_of(self, topic: int) -> set[str]:
        """The brokers whose clients want a topic."""
        return {broker for text in self._texts.get(topic, ()) for broker in self._brokers[text]}

    def is_wanted_elsewhere(self, topic: int) -> bool:
        return any(text in self._numbers for text in self._texts.get(topic, ()))

    # --- looking in ---

    def numbers(self) -> list[int]:
        """The numbers of all topics."""
        return sorted(self._texts)

    def texts_of(self, topic: int) -> list[str]:
        return sorted(self._texts.get(topic, ()))

    def brokers_by_text(self) -> dict[str, set[str]]:
        """For each topic, by its text, the brokers whose clients want it."""
        return {text: set(brokers) for text, brokers in self._brokers.items()}


class TopicCore(InformedCore, ABC):
    """A broker that multicasts by topics."""

    def __init__(self, name: str) -> None:
        self.topics = Topics(name)
        # The neighbors that a notification of an origin goes to, by its topics; until a link or subscription changes.
        self._ways: dict[tuple[str, tuple[int, ...]], tuple[Neighbor, ...]] = {}
        self._ways_version = -1
        super().__init__(name)

    def _on_subscriptions(
        self, origin: str, gone: Mapping[SubscriptionKey, Wanted], new: Mapping[SubscriptionKey, Wanted]
    ) -> None:
        self.topics.change(origin, gone.values(), new.values())
        self._ways.clear()

    # --- ways ---

    def way(self, origin: str, topics: tuple[int, ...]) -> tuple[Neighbor, ...]:
        """The neighbors that lead, in the tree of an origin, to brokers that want any of some topics."""
        if self._ways_version != self.links.version:
            self._ways.clear()
            self._ways_version = self.links.version
        way = self._ways.get((origin, topics))
        if way is None:
            hops = self.links.hops_from(origin)
            brokers = {broker for topic in topics for broker in self.topics.brokers_of(topic)}
            names = sorted({hops[broker] for broker in brokers if broker in hops})
            way = self._ways[origin, topics] = tuple(map(Neighbor, names))
        return way

    def _is_on_its_way(self, header: Header, origin: str, source: Neighbor) -> bool:
        """Whether a notification came from the neighbor that is before us in the tree of its origin."""
        return header.hops <= HOPS_MAX and self.links.tree(origin).get(self.name) == source.name

    def _is_wanted_here(self, topics: Iterable[int]) -> bool:
        return any(self.name in self.topics.brokers_of(topic) for topic in topics)

    # --- looking in ---

    def matchers(self) -> Sequence[RecallingMatcher[Any]]:
        return self.clients.matcher, self.topics.matcher
