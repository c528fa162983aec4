"""Hostile messages: texts of up to 10 kB that once took seconds, and a walk that gives each to a broker.

Each text is small to send and was, or could be, large to handle: products of alternatives, automata of globs, lists
that are compared each with each, expressions that double. `walk` sends each as a client would, over the wire's decoder,
and measures every *turn* of the broker: what its loop does without a break. A test counts the steps of each turn
(`model/budget.py`), and `./dev bench hostile` measures the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from catchment.errors import CatchmentError
from catchment.model.advertisement import Advertisement
from catchment.model.cesql import Cesql
from catchment.model.filter import Filter
from catchment.model.pattern import Pattern
from catchment.node import Node
from catchment.routing.core import RoutingCore
from catchment.routing.messages import (
    Advertise,
    Cancel,
    Client,
    ClientSaid,
    Deliver,
    DeliverSequence,
    Gap,
    Refuse,
    SetTimer,
    Subscribe,
    Unadvertise,
    Unsubscribe,
    Wanted,
)
from catchment.wire.frames import Decoder, frame
from catchment.wire.messages import Request

CHARACTERS_MAX: Final = 10_000


def filled(part: Callable[[int], str], joined: str, characters: int = CHARACTERS_MAX) -> str:
    """As many parts as fit into so many characters."""
    parts: list[str] = []
    size = 0
    while (size := size + len(part(len(parts))) + len(joined)) <= characters:
        parts.append(part(len(parts)))
    return joined.join(parts)


def _alternatives(operator: str, text: str, characters: int) -> str:
    listed = filled(lambda i: f's {operator} "{text}{i}"', " or ", characters - 2)
    return f"({listed})"


def _not_globs(step: int) -> str:
    listed = " and ".join(f'not s glob "*{i}?a{step}*b"' for i in range(8))
    return f"[{listed}]"


FILTERS: Final = {
    "pairs": " and ".join(f"(a{i} > 0 or b{i} < 0)" for i in range(7)),
    "many pairs": filled(lambda i: f"(a{i} > 0 or b{i} < 0)", " and "),
    "globs or not globs": " and ".join(f'(s glob "*a{i}?*b" or not t glob "c*?{i}*d")' for i in range(12)),
    "not globs": " and ".join(f'not s glob "*{i}?a*b"' for i in range(20)),
    "many not globs": filled(lambda i: f'not s glob "*a?{i}b*c*"', " and "),
    "long globs": " and ".join('s glob "{}"'.format("*a?b" * 150 + str(i)) for i in range(8)),
    "globs of many names": filled(lambda i: f'a{i} glob "*a?b*c{i}?d*"', " and "),
    "suffixes": _alternatives("suffix", "t", 9_000),
    "substrings of both cases": _alternatives("contains nocase", "T", 9_000),
    "lists and not lists": f"{_alternatives('suffix', 't', 3_000)} and {_alternatives('contains', 'u', 3_000)} and not "
    f"{_alternatives('contains', 'v', 1_500)} and not {_alternatives('prefix', 'w', 1_500)}",
    "ranges": filled(lambda i: f"(x > {2 * i} and x < {2 * i + 1})", " or "),
    "boxes": filled(lambda i: f"(a > {i} and a < {i + 50} and b > {7 * i % 100} and b < {7 * i % 100 + 30})", " or "),
    "absences": filled(lambda i: f"(not exists(a{i}) or a{i} = 1)", " and "),
    "differences": filled(lambda i: f's != "t{i}"', " and "),
}
ADVERTISEMENTS: Final = {
    "names": filled(lambda i: f"a{i} > 0", ", "),
    "bounds of one name": filled(lambda i: f"a > {i}", ", "),
    "values of one name": filled(lambda i: f"a = {3 * i}", ", "),
    "globs": filled(lambda i: f's glob "*a{i}?b*"', ", "),
    "substrings": filled(lambda i: f's contains "a{i}"', ", "),
}
PATTERNS: Final = {
    "pairs": " -> ".join(["[{}]".format(FILTERS["pairs"])] * 60),
    "not globs": " -> ".join(map(_not_globs, range(40))),
}
EXPRESSIONS: Final = {
    "likes": " XOR ".join(f"s LIKE '%a{i}_b%'" for i in range(14)),
    "many likes": filled(lambda i: f"s LIKE '%a{i}_b%'", " XOR "),
    "likes of many names": filled(lambda i: f"s{i} LIKE '%a{i}_b%'", " XOR "),
    "choices": filled(lambda i: f"(a{i} = 1 OR b{i} LIKE 'x%{i}')", " AND "),
    "equalities": filled(lambda i: f"(a{i % 8} = {i})", " XOR "),
    "comparisons": filled(lambda i: f"(a > {i} AND b < {i})", " OR "),
}
CLIENT: Final = Client("hostile")


class Turn(NamedTuple):
    """What a broker did without a break, and what that came to in the caller's measure."""

    message: str
    cost: float


class _Outlet:
    """Of a client that reads everything and minds nothing."""

    def deliver(self, delivery: Deliver) -> None:
        pass

    def deliver_sequence(self, delivery: DeliverSequence) -> None:
        pass

    def tell_lost(self, identity: str, count: int) -> None:
        pass

    def tell_gap(self, gap: Gap) -> None:
        pass

    def confirm(self, confirm: Any) -> None:
        pass

    def take_effect(self, effect: Any) -> None:
        pass

    def tell_lost_log(self, lost: Any) -> None:
        pass

    def answer(self, number: int, refusals: Any) -> None:
        assert all(isinstance(refusal, Refuse) for refusal in refusals)

    def is_behind(self) -> bool:
        return False

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass

    def end(self, reason: str) -> None:
        pass


def _wanted(wanted: Wanted) -> list[ClientSaid]:
    return [
        Subscribe(CLIENT.name, "1", wanted),
        Unsubscribe(CLIENT.name, wanted),
        Subscribe(CLIENT.name, "2", wanted),
        Cancel(CLIENT.name, "2"),
    ]


def _offered(offer: Advertisement) -> list[ClientSaid]:
    return [Advertise(CLIENT.name, offer), Unadvertise(CLIENT.name, offer)]


def requests(only: str = "") -> Iterator[tuple[str, list[ClientSaid]]]:
    """Each hostile text, in all requests that it fits into, with a name. With `only`, those whose name begins so."""
    kinds: list[tuple[str, dict[str, str], Callable[[str], list[ClientSaid]]]] = [
        ("filter", FILTERS, lambda text: _wanted(Filter(text))),
        ("CESQL", EXPRESSIONS, lambda text: _wanted(Cesql(text))),
        ("pattern", PATTERNS, lambda text: _wanted(Pattern(text))),
        ("advertisement", ADVERTISEMENTS, lambda text: _offered(Advertisement(text))),
    ]
    for kind, texts, asked in kinds:
        for name, text in texts.items():
            if f"{kind}: {name}".startswith(only):
                yield f"{kind}: {name}", asked(text)


def walk(core: RoutingCore[Any], others: int, measure: Callable[[], float], only: str = "") -> Iterator[Turn]:
    """Gives each request to a broker that has so many other subscriptions of the same client, and measures each
    turn."""
    timers: list[SetTimer] = []
    node = Node("broker", core, lambda: 0, timers.append)
    node.client_up(CLIENT, CLIENT.name, {}, _Outlet())
    for number in range(others):
        other = Filter(f's contains "t{number}" and x > {number} and x < {number + 10}')
        node.requested(CLIENT, 1, Subscribe(CLIENT.name, f"other {number}", other))
    for name, asked in requests(only):
        for request in asked:
            sent = frame(Request(1, request))
            before = measure()
            _receive(node, sent)
            yield Turn(f"{name}, {type(request).__name__}", measure() - before)
            while timers:
                timers.clear()
                before = measure()
                node.timer_fired("@node/turn")
                yield Turn(f"{name}, {type(request).__name__}, next slice", measure() - before)


def _receive(node: Node, sent: bytes) -> None:
    try:
        (message,) = Decoder[Request](Request).feed(sent)
        node.requested(CLIENT, message.number, message.body)
    except CatchmentError:
        pass  # what is refused may cost no more than what is accepted
