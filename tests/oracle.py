"""The slow, obvious truth that everything fast is compared with.

Nothing here uses the sets, automata or normal forms of the model: a constraint is decided by looking at
one value, an expression by three-valued logic on one notification, and a relation between filters by
trying every notification of a small domain.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import product
from typing import Any

from catchment.model.advertisement import Advertisement
from catchment.model.constraint import Constraint, Kind
from catchment.model.filter import Filter
from catchment.model.language import And, Expression, Not, Or
from catchment.model.notification import Notification
from catchment.model.pattern import Pattern
from catchment.model.values import Value

Truth = bool | None  # None: unknown
Values = Mapping[str, Value]

_KINDS: dict[type, tuple[Kind, ...]] = {
    str: (Kind.STRING, Kind.ANY),
    bool: (Kind.BOOL, Kind.ANY),
    int: (Kind.INT, Kind.NUMBER, Kind.ANY),
    float: (Kind.FLOAT, Kind.NUMBER, Kind.ANY),
    datetime: (Kind.TIME, Kind.ANY),
}


# --- one constraint, one value ------------------------------------------------------------------


def glob_matches(pattern: str, text: str) -> bool:
    """By the definition, trying every split."""
    if not pattern:
        return not text
    head, rest = pattern[0], pattern[1:]
    if head == "*":
        return any(glob_matches(rest, text[i:]) for i in range(len(text) + 1))
    if head == "\\":
        return bool(text) and text[0] == rest[0] and glob_matches(rest[1:], text[1:])
    return bool(text) and head in ("?", text[0]) and glob_matches(rest, text[1:])


def without_case(text: str) -> str:
    """Unicode's simple case folding, character by character: the common folding where that is one character, else the
    lower-case letter where that is one, else the character itself."""
    return "".join(next(form for form in (each.casefold(), each.lower(), each) if len(form) == 1) for each in text)


def compare(operator: str, value: Any, operand: Any) -> bool:
    """An operator on a value whose type fits; Python compares int and float exactly, str by code point."""
    if operator.startswith("not "):
        return not compare(operator[4:], value, operand)
    if operator.endswith(" nocase"):
        folded = [without_case(each) for each in operand] if isinstance(operand, tuple) else without_case(operand)
        return compare(operator.removesuffix(" nocase"), without_case(value), folded)
    table: dict[str, Callable[[], bool]] = {
        "=": lambda: value == operand,
        "!=": lambda: value != operand,
        "<": lambda: value < operand,
        "<=": lambda: value <= operand,
        ">": lambda: value > operand,
        ">=": lambda: value >= operand,
        "in": lambda: any(value == member for member in operand),
        "prefix": lambda: value.startswith(operand),
        "suffix": lambda: value.endswith(operand),
        "substring": lambda: operand in value,
        "glob": lambda: glob_matches(operand, value),
        # What Python and RE2 write alike is all that tests use.
        "matches": lambda: re.search(operand, value) is not None,
        "cidr": lambda: is_in_block(operand, value),
        "any": lambda: True,
    }
    return table[operator]()


def is_in_block(block: str, address: str) -> bool:
    """Addresses of IPv4, by their bits."""
    start, _, length = block.partition("/")
    parts = address.split(".")
    if len(parts) != 4 or not all(re.fullmatch("0|[1-9][0-9]{0,2}", part) and int(part) < 256 for part in parts):
        return False
    return bits(address)[: int(length or 32)] == bits(start)[: int(length or 32)]


def bits(address: str) -> str:
    return "".join(f"{int(part):08b}" for part in address.split("."))


def holds(constraint: Constraint, values: Values) -> Truth:
    value = values.get(constraint.name)
    if constraint.operator == "absent":
        return value is None
    if value is None or constraint.kind not in _KINDS[type(value)]:
        return None
    return compare(constraint.operator, value, constraint.value)


# --- expressions, filters, advertisements -------------------------------------------------------


def truth(expression: Expression, values: Values) -> Truth:
    match expression:
        case bool():
            return expression
        case Constraint():
            return holds(expression, values)
        case Not(inner):
            inner_truth = truth(inner, values)
            return None if inner_truth is None else not inner_truth
        case And(parts):
            truths = [truth(part, values) for part in parts]
            return False if False in truths else None if None in truths else True
        case Or(parts):
            truths = [truth(part, values) for part in parts]
            return True if True in truths else None if None in truths else False


def matches(filter: Filter, values: Values) -> bool:
    """Whether the expression that was written is true."""
    seen = values.matched if isinstance(values, Notification) else values
    return truth(filter.expression, seen) is True


def alternatives_match(filter: Filter, values: Values) -> bool:
    """By the alternatives of the normal form, constraint by constraint."""
    return any(
        all(holds(constraint, values) is True for constraint in alternative.constraints)
        for alternative in filter.alternatives
    )


def match_ids(filters: Mapping[str, Filter], values: Values) -> list[str]:
    """Brute force: which of many filters match."""
    return sorted(key for key, filter in filters.items() if matches(filter, values))


def advertises(constraints: Iterable[Constraint], values: Values) -> bool:
    """SIENA §3.5: every attribute satisfies some constraint; of the envelope only what is named is looked at."""
    listed = list(constraints)
    named = {one.name for one in listed}
    looked_at = {name: value for name, value in values.items() if not name.startswith("$") or name in named}
    return all(any(one.name == name and holds(one, values) is True for one in listed) for name in looked_at)


def text_of(expression: Expression) -> str:
    """An expression as the language writes it, with every parenthesis."""
    match expression:
        case bool():
            return "true" if expression else "false"
        case Constraint():
            return f"({expression})"
        case Not(inner):
            return f"not ({text_of(inner)})"
        case And(parts):
            return "(" + " and ".join(map(text_of, parts)) + ")"
        case Or(parts):
            return "(" + " or ".join(map(text_of, parts)) + ")"


# --- reference normal form ----------------------------------------------------------------------


def disjunctive(expression: Expression, positive: bool = True) -> list[list[tuple[Constraint, bool]]]:
    """Disjunctive normal form by the book: lists of (constraint, whether it must be true or false)."""
    match expression:
        case bool():
            return [[]] if expression is positive else []
        case Constraint():
            return [[(expression, positive)]]
        case Not(inner):
            return disjunctive(inner, not positive)
        case And(parts) | Or(parts):
            listed = [disjunctive(part, positive) for part in parts]
            if isinstance(expression, And) is positive:
                return [[one for conjunction in chosen for one in conjunction] for chosen in product(*listed)]
            return [conjunction for found in listed for conjunction in found]


def disjunctive_matches(form: list[list[tuple[Constraint, bool]]], values: Values) -> bool:
    return any(all(holds(one, values) is wanted for one, wanted in conjunction) for conjunction in form)


# --- relations by enumeration -------------------------------------------------------------------


def assignments(domain: Mapping[str, Sequence[Value | None]]) -> Iterator[Values]:
    """Every notification over small domains; None in a domain stands for absence."""
    names = list(domain)
    for chosen in product(*domain.values()):
        yield {name: value for name, value in zip(names, chosen, strict=True) if value is not None}


def covers(wider: Filter, narrower: Filter, tried: Iterable[Values]) -> bool:
    return all(matches(wider, values) for values in tried if matches(narrower, values))


def overlaps(first: Filter, second: Filter, tried: Iterable[Values]) -> bool:
    return any(matches(first, values) and matches(second, values) for values in tried)


def advertisement_covers(wider: Advertisement, narrower: Advertisement, tried: Iterable[Values]) -> bool:
    return all(advertises(wider.constraints, values) for values in tried if advertises(narrower.constraints, values))


def advertisement_overlaps(first: Advertisement, second: Filter, tried: Iterable[Values]) -> bool:
    return any(advertises(first.constraints, values) and matches(second, values) for values in tried)


# --- patterns -----------------------------------------------------------------------------------


def sequences(pattern: Pattern, arrivals: Sequence[Notification]) -> list[tuple[Notification, ...]]:
    """SIENA §3.4 by re-reading the whole stream for each key: the first that fits each place in turn."""
    found: list[tuple[int, tuple[Notification, ...]]] = []
    for key in dict.fromkeys(key_of(pattern, one) for one in arrivals):
        if key is not None:
            mine = [(i, one) for i, one in enumerate(arrivals) if key_of(pattern, one) == key]
            found += _sequences_of_key(pattern, mine)
    return [sequence for _, sequence in sorted(found, key=lambda one: one[0])]


def key_of(pattern: Pattern, notification: Notification) -> tuple[object, ...] | None:
    values = [notification.matched.get(name) for name in pattern.by]
    if any(value is None for value in values):
        return None
    return tuple((isinstance(value, bool), value) for value in values)


def _published(notification: Notification) -> datetime:
    assert notification.time is not None
    return notification.time


def _sequences_of_key(
    pattern: Pattern, mine: list[tuple[int, Notification]]
) -> list[tuple[int, tuple[Notification, ...]]]:
    found: list[tuple[int, tuple[Notification, ...]]] = []
    chosen: list[Notification] = []
    for i, one in mine:
        if not any(matches(step, one) for step in pattern.filters):
            continue
        if chosen and pattern.within is not None and _published(one) - _published(chosen[0]) > pattern.within:
            chosen = []
        if matches(pattern.filters[len(chosen)], one) and (not chosen or _published(one) > _published(chosen[-1])):
            chosen.append(one)
        if len(chosen) == len(pattern.filters):
            found.append((i, tuple(chosen)))
            chosen = []
    return found


def thinned(pattern: Pattern, arrivals: Sequence[Notification]) -> list[list[Notification]]:
    """What thinning sends of a stream in the order of publication: each chain kept whole, and looked at each time."""
    sent: list[list[Notification]] = []
    held: dict[tuple[object, ...], list[Notification]] = {}
    chains: dict[tuple[object, ...], list[list[Notification]]] = {}
    for one in arrivals:
        key = key_of(pattern, one)
        if key is None:
            continue
        mine, open_chains = held.setdefault(key, []), chains.setdefault(key, [])
        opens = matches(pattern.filters[0], one)
        if opens and mine and pattern.within is not None and _published(one) - _published(mine[-1]) > pattern.within:
            mine.clear()
        fitting = [chain for chain in open_chains if _extends(pattern, chain, one)]
        for chain in fitting:
            chain.append(one)
        if opens:
            open_chains.append([one])
        if fitting or opens:
            mine.append(one)
        if any(len(chain) == len(pattern.filters) for chain in fitting):
            sent.append(list(mine))
            mine.clear()
            chains[key] = [chain for chain in open_chains if len(chain) < len(pattern.filters)]
    return sent


def _extends(pattern: Pattern, chain: list[Notification], one: Notification) -> bool:
    in_time = pattern.within is None or _published(one) - _published(chain[0]) <= pattern.within
    return in_time and _published(one) > _published(chain[-1]) and matches(pattern.filters[len(chain)], one)


# --- the content graph ----------------------------------------------------------------------------


def content_graph(filters: Sequence[Filter]) -> tuple[set[tuple[int, int]], dict[int, int], dict[int, int]]:
    """Immediate edges, depths, and representatives by place: every filter compared with every other by `covers`, every
    edge that a longer way makes needless left out. Of filters that say the same the first stands for all; an edge leads
    only between such."""
    places = range(len(filters))
    above = {b: {a for a in places if a != b and filters[a].covers(filters[b])} for b in places}
    same = {b: {b} | {a for a in above[b] if b in above[a]} for b in places}
    stands = {b: min(same[b]) for b in places}
    nodes = set(stands.values())
    strict = {b: {a for a in above[b] & nodes if a not in same[b]} for b in nodes}
    edges = {(a, b) for b in nodes for a in strict[b] if not any(a in strict[c] for c in strict[b])}
    depths: dict[int, int] = {}
    for b in sorted(nodes, key=lambda one: len(strict[one])):
        depths[b] = max((depths[a] + 1 for a in strict[b]), default=0)
    return edges, depths, stands


def reduced(filters: Sequence[Filter], brokers: Sequence[str | None]) -> set[tuple[str | None, int]]:
    """What each broker must propagate: places of its filters that no other of its own covers, the first of equals."""
    found = set()
    for b, broker in enumerate(brokers):
        others = [a for a in range(len(filters)) if a != b and brokers[a] == broker and filters[a].covers(filters[b])]
        if not any(a < b or not filters[b].covers(filters[a]) for a in others):
            found.add((broker, b))
    return found
