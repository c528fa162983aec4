"""The three scenarios of F3's Study 2: topics, how they are drawn and related. Pure functions of a seed."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import combinations, product
from typing import Any

from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.routing.content_graph.graph import ContentGraph
from catchment.routing.content_graph.preprocessors.searches import Pair, Range

TEAMS = 100
EXITS = 60
ATTRIBUTES, VALUES = 6, 4
WILDCARD, PRESENT = 0.3, 0.7

# A node, an interface, and for a node that is new its parents and children among those that came before.
Arrival = tuple[int, int, tuple[tuple[int, ...], tuple[int, ...]] | None]


class Scenario(ABC):
    """Topics are numbered: a node of the graph has the number of its topic."""

    name: str

    @property
    @abstractmethod
    def topics(self) -> Sequence[Any]: ...

    @abstractmethod
    def draw_topic(self, rng: random.Random) -> Any: ...

    @abstractmethod
    def draw_document(self, rng: random.Random) -> Any: ...

    @abstractmethod
    def matches(self, topic: Any, document: Any) -> bool: ...

    @abstractmethod
    def wider(self, topic: Any) -> Iterable[Any]:
        """All topics that are wider."""

    @abstractmethod
    def narrower(self, topic: Any) -> Iterable[Any]:
        """All topics that are narrower."""

    @abstractmethod
    def matching(self, document: Any) -> Iterable[Any]:
        """All topics that a document belongs to."""

    @abstractmethod
    def filter(self, topic: Any) -> Filter:
        """The topic for the matcher, which knows attributes."""

    @abstractmethod
    def notification(self, document: Any) -> Notification: ...

    @cached_property
    def numbers(self) -> dict[Any, int]:
        return {topic: number for number, topic in enumerate(self.topics)}

    def documents(self, count: int, seed: int) -> list[Any]:
        rng = random.Random(f"{seed} {self.name} notifications")
        return [self.draw_document(rng) for _ in range(count)]

    def nodes(self, document: Any, graph: ContentGraph) -> tuple[int, ...]:
        """What the edge does: the lowest nodes of a graph that a document belongs to."""
        numbers, children = self.numbers, graph.children
        found = {number for topic in self.matching(document) if (number := numbers[topic]) in children}
        return tuple(sorted(node for node in found if children[node].isdisjoint(found)))


def arrivals(scenario: Scenario, count: int, interfaces: int, seed: int) -> list[Arrival]:
    """Subscriptions, in the order in which they reach the router."""
    rng = random.Random(f"{seed} {scenario.name} subscriptions")
    graph, numbers = ContentGraph(), scenario.numbers
    some: list[Arrival] = []
    for _ in range(count):
        topic = scenario.draw_topic(rng)
        node, place = numbers[topic], None
        if node not in graph:
            above = {number for each in scenario.wider(topic) if (number := numbers[each]) in graph}
            below = {number for each in scenario.narrower(topic) if (number := numbers[each]) in graph}
            place = tuple(sorted(graph.lowest(above))), tuple(sorted(graph.highest(below)))
            graph.insert(node, *place)
        some.append((node, rng.randrange(interfaces), place))
    return some


class Baseball(Scenario):
    """A topic is a set of teams: none for all games, one for its games, two for the games between them."""

    name = "baseball"

    @cached_property
    def topics(self) -> Sequence[Any]:
        teams = range(TEAMS)
        return [(), *((team,) for team in teams), *combinations(teams, 2)]

    def draw_topic(self, rng: random.Random) -> Any:
        kind = rng.random()
        if kind < 0.4:
            return (rng.randrange(TEAMS),)
        return self.draw_document(rng) if kind < 0.9 else ()

    def draw_document(self, rng: random.Random) -> Any:
        first, second = rng.sample(range(TEAMS), 2)
        return (first, second) if first < second else (second, first)

    def matches(self, topic: Any, document: Any) -> bool:
        return all(team in document for team in topic)

    def wider(self, topic: Any) -> Iterable[Any]:
        return [] if not topic else [()] if len(topic) == 1 else [(), (topic[0],), (topic[1],)]

    def narrower(self, topic: Any) -> Iterable[Any]:
        if not topic:
            return self.topics[1:]
        others = (team for team in range(TEAMS) if team not in topic)
        return [(min(topic[0], team), max(topic[0], team)) for team in others] if len(topic) == 1 else []

    def matching(self, document: Any) -> Iterable[Any]:
        return [*self.wider(document), document]

    def filter(self, topic: Any) -> Filter:
        match topic:
            case ():
                return Filter("first any")
            case (team,):
                return Filter(f"first = {team} or second = {team}")
            case _:
                return Filter.of(("first", "=", topic[0]), ("second", "=", topic[1]))

    def notification(self, document: Any) -> Notification:
        return Notification({"first": document[0], "second": document[1]})


class Traffic(Scenario):
    """A topic and a document are stretches between two exits, both included."""

    name = "traffic"

    @cached_property
    def topics(self) -> Sequence[Any]:
        return [Range(low, high) for low in range(EXITS) for high in range(low, EXITS)]

    def draw_topic(self, rng: random.Random) -> Any:
        first, second = rng.randrange(EXITS), rng.randrange(EXITS)
        return Range(min(first, second), max(first, second))

    def draw_document(self, rng: random.Random) -> Any:
        return self.draw_topic(rng)

    def matches(self, topic: Any, document: Any) -> bool:
        return bool(topic[0] <= document[1] and topic[1] >= document[0])

    def wider(self, topic: Any) -> Iterable[Any]:
        low, high = topic
        return [Range(a, b) for a in range(low + 1) for b in range(high, EXITS) if (a, b) != (low, high)]

    def narrower(self, topic: Any) -> Iterable[Any]:
        low, high = topic
        return [Range(a, b) for a in range(low, high + 1) for b in range(a, high + 1) if (a, b) != (low, high)]

    def matching(self, document: Any) -> Iterable[Any]:
        low, high = document
        return [Range(a, b) for a in range(high + 1) for b in range(max(a, low), EXITS)]

    def filter(self, topic: Any) -> Filter:
        return Filter.of(("low", "<=", topic.high), ("high", ">=", topic.low))

    def notification(self, document: Any) -> Notification:
        return Notification({"low": document.low, "high": document.high})


class AttributeValue(Scenario):
    """A topic is a tuple of values, None for a wildcard; a document too, None for an attribute that it lacks."""

    name = "attribute-value"

    @cached_property
    def topics(self) -> Sequence[Any]:
        return list(product((None, *range(VALUES)), repeat=ATTRIBUTES))

    def draw_topic(self, rng: random.Random) -> Any:
        return tuple(None if rng.random() < WILDCARD else rng.randrange(VALUES) for _ in range(ATTRIBUTES))

    def draw_document(self, rng: random.Random) -> Any:
        return tuple(rng.randrange(VALUES) if rng.random() < PRESENT else None for _ in range(ATTRIBUTES))

    def matches(self, topic: Any, document: Any) -> bool:
        return all(wanted is None or wanted == value for wanted, value in zip(topic, document, strict=True))

    def wider(self, topic: Any) -> Iterable[Any]:
        return [each for each in self.matching(topic) if each != topic]

    def narrower(self, topic: Any) -> Iterable[Any]:
        choices = [(None, *range(VALUES)) if value is None else (value,) for value in topic]
        return [each for each in product(*choices) if each != topic]

    def matching(self, document: Any) -> Iterable[Any]:
        return product(*((None,) if value is None else (None, value) for value in document))

    def filter(self, topic: Any) -> Filter:
        pairs: list[Pair] = [(f"a{i}", "=", value) for i, value in enumerate(topic) if value is not None]
        return Filter.of(*pairs)

    def notification(self, document: Any) -> Notification:
        return Notification({f"a{i}": value for i, value in enumerate(document) if value is not None})


SCENARIOS: tuple[Scenario, ...] = (Baseball(), Traffic(), AttributeValue())
