"""Attribute-value subscriptions, and documents in JSON and XML (F3 §3.5.3, Figure 3-4), with RSS (§3.5.4).

A subscription is a set of pairs: all of them must be in the document. So the one with fewer pairs is wider. As a filter
it is a conjunction of equalities: `team = 'Boston' and category = 'Baseball'`. As a text it is a document itself, a
template: `{"team": "Boston"}`, or `<game><team>Boston</team></game>`. A name has one value in a subscription, because a
filter for two values of one attribute matches nothing; in a document it may have several.

The document of a notification is its payload, with its attributes. In JSON a name is the path to a value, joined with
points; each value of a list is a value of that name. In XML a name is the path from below the root; an XML attribute is
one more step of the path. A text that is a number is a pair as a number too, because XML has no types. What is no
document, or past the bounds, counts for its attributes alone.

XML is read without a document type: so it has no entities that grow, and loads nothing from elsewhere.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final
from xml.parsers import expat

import msgspec

from catchment.errors import CatchmentError, InputError, shown
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.model.values import INT_MAX, INT_MIN
from catchment.routing.content_graph.preprocessors.base import Relation
from catchment.routing.content_graph.preprocessors.reading import MakeSearch, ReadKind, constraints_of
from catchment.routing.content_graph.preprocessors.searches import (
    HashSearch,
    Pair,
    PairIndexSearch,
    PairMatcherSearch,
    Pairs,
    SortedLevelsSearch,
)

# A longer payload is not read: the broker of the publisher would be busy with it.
DOCUMENT_BYTES_MAX: Final = 262_144
# Pairs that are read from one document, and how deep it is.
DOCUMENT_PAIRS_MAX: Final = 10_000
DOCUMENT_DEPTH_MAX: Final = 64


class AttributeValueKind(ReadKind[Pairs, Pairs]):
    """Pairs that must all be there. A derived class says what documents are written in."""

    is_canonical = True

    @abstractmethod
    def pairs_of(self, text: bytes) -> Iterator[tuple[str, object]]:
        """The names and values in a document. InputError if it is none."""

    def parse(self, text: str) -> Pairs:
        pairs = frozenset(_pairs(self.pairs_of(text.encode()), is_template=True))
        names = Counter(name for name, _, _ in pairs)
        for name, count in names.items():
            if count > 1:
                raise InputError(f"the template has {count} values of {shown(name)}: a subscription has one of a name")
        return pairs

    def relation(self, first: Pairs, second: Pairs) -> Relation:
        if first == second:
            return Relation.SAME
        if first < second:
            return Relation.WIDER
        return Relation.NARROWER if first > second else Relation.APART

    def matches(self, subscription: Pairs, notification: Pairs) -> bool:
        return subscription <= notification

    def read(self, filter: Filter) -> Pairs | None:
        constraints = constraints_of(filter)
        if constraints is None or any(each.operator != "=" for each in constraints):
            return None
        # Two values of one name do not occur: such a filter matches nothing, and its canonical form is `false`.
        return frozenset(pair for each in constraints if (pair := _pair(each.name, each.value)) is not None)

    def written(self, subscription: Pairs) -> Filter:
        return Filter.of(*((name, "=", value) for name, _, value in sorted(subscription, key=str)))

    def document(self, notification: Notification) -> Pairs:
        own = {pair for name, value in notification.matched.items() if (pair := _pair(name, value)) is not None}
        if not notification.payload or len(notification.payload) > DOCUMENT_BYTES_MAX:
            return frozenset(own)
        try:
            return frozenset(own | set(_pairs(self.pairs_of(notification.payload))))
        except CatchmentError:
            return frozenset(own)

    def searches(self) -> Mapping[str, MakeSearch[Pairs, Pairs]]:
        return {
            "index": lambda graph: PairIndexSearch(),
            "sorted levels": lambda graph: SortedLevelsSearch(),
            "matcher": lambda graph: PairMatcherSearch(),
            "hash": lambda graph: HashSearch(),
        }


class JsonKind(AttributeValueKind):
    """Documents in JSON."""

    def pairs_of(self, text: bytes) -> Iterator[tuple[str, object]]:
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as problem:
            raise InputError(f"no JSON: {problem}") from None
        if not isinstance(value, dict):
            raise InputError(f"a document in JSON is an object with names, not {shown(str(value))}")
        return _flat("", value, 0)


class XmlKind(AttributeValueKind):
    """Documents in XML. With `element` the document is the first element of that name: `item` in RSS."""

    def __init__(self, element: str = "") -> None:
        self._element = element

    def pairs_of(self, text: bytes) -> Iterator[tuple[str, object]]:
        reader = _XmlReader(self._element)
        try:
            reader.parser.Parse(text, True)
        except expat.ExpatError as problem:
            raise InputError(f"no XML: {problem}") from None
        if self._element and not reader.has_begun:
            raise InputError(f"the XML has no element {shown(self._element)}")
        return iter(reader.pairs)


class RssKind(XmlKind):
    """News in RSS, with the topics of an item in `category` (§3.5.4)."""

    def __init__(self) -> None:
        super().__init__("item")


# --- documents ----------------------------------------------------------------------------------


def _flat(name: str, value: Any, depth: int) -> Iterator[tuple[str, object]]:
    if depth > DOCUMENT_DEPTH_MAX:
        raise InputError(f"a document is at most {DOCUMENT_DEPTH_MAX} deep")
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(f"{name}.{key}" if name else key, inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _flat(name, inner, depth + 1)
    else:
        yield name, value


class _XmlReader:
    """Collects the pairs of an XML document."""

    def __init__(self, element: str) -> None:
        self.pairs: list[tuple[str, object]] = []
        self.has_begun = False
        self._element = element
        # The names from below the root of the document to here, and the texts so far; None outside it.
        self._path: list[str] | None = None
        self._texts: list[str] = []
        self._depth = 0
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.StartDoctypeDeclHandler = self._refuse

    def _refuse(self, *_: object) -> None:
        raise InputError("XML with a document type is not read: it may expand without end")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > DOCUMENT_DEPTH_MAX:
            raise InputError(f"a document is at most {DOCUMENT_DEPTH_MAX} deep")
        if self._path is not None:
            self._path.append(name)
        elif not self.has_begun and self._element in ("", name):
            self._path, self.has_begun = [], True
        else:
            return
        self._texts.append("")
        for key, value in attributes.items():
            self._found(".".join((*self._path, key)), value)

    def _text(self, text: str) -> None:
        if self._path is not None:
            self._texts[-1] += text

    def _end(self, name: str) -> None:
        self._depth -= 1
        if self._path is None:
            return
        text = self._texts.pop().strip()
        if text and self._path:
            self._found(".".join(self._path), text)
        if self._path:
            self._path.pop()
        else:
            self._path = None

    def _found(self, name: str, text: str) -> None:
        self.pairs.append((name, text))
        number = _number(text)
        if number is not None:
            self.pairs.append((name, number))


def _number(text: str) -> int | float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _pairs(found: Iterator[tuple[str, object]], is_template: bool = False) -> Iterator[Pair]:
    """The pairs of a document. A template in XML has texts alone: what looks like a number is one."""
    texts: dict[str, list[Pair]] = {}
    for count, (name, value) in enumerate(found):
        if count >= DOCUMENT_PAIRS_MAX:
            raise InputError(f"a document has at most {DOCUMENT_PAIRS_MAX:,} values")
        pair = _pair(name, value)
        if pair is None:
            continue
        if is_template:
            texts.setdefault(name, []).append(pair)
        else:
            yield pair
    for pairs in texts.values():
        # The text of a number is left out of a template: a filter compares with one or the other.
        numbers = {value for _, kind, value in pairs if kind == "number"}
        yield from (pair for pair in pairs if not (pair[1] == "string" and _number(str(pair[2])) in numbers))


def _pair(name: str, value: object) -> Pair | None:
    """None for what no filter can be equal to."""
    match value:
        case bool():
            return name, "bool", value
        case int() if INT_MIN <= value <= INT_MAX:
            return name, "number", value
        case float() if math.isfinite(value):
            return name, "number", value
        case str():
            return name, "string", value
        case datetime():
            return name, "time", value
        case _:
            return None
