"""A notification: an immutable set of named, typed values, an envelope and an opaque payload.

A filter that does not name the envelope (`$id`, `$source`, `$time`, `$seq`) ignores it. As JSON a notification is a
flat object: its attributes, the envelope fields that are set, and `$payload` in base64 if there is a payload.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from math import isfinite
from typing import Any, Final

from msgspec import Raw
from msgspec.msgpack import Encoder

from catchment.errors import BadNotificationError, CatchmentError, LimitError, ParseError, shown
from catchment.model.values import (
    INT_MAX,
    INT_MIN,
    STRING_CODEPOINTS_MAX,
    Json,
    Type,
    Value,
    checked,
    checked_name,
    type_of,
    value_from_json,
    value_to_json,
)

# Matching takes time for each attribute. A notification describes something that happened; it is no document.
NOTIFICATION_ATTRIBUTES_MAX: Final = 1_024
# Every broker on the path carries the payload.
PAYLOAD_BYTES_MAX: Final = 1_048_576
# A notification as JSON text: its attributes, and the payload in base64.
NOTIFICATION_JSON_CHARACTERS_MAX: Final = 8 * 1_048_576

ENVELOPE_TYPES: Final = {"$id": Type.STRING, "$source": Type.STRING, "$time": Type.TIME, "$seq": Type.INT}
_PAYLOAD: Final = "$payload"
_encode: Final = Encoder().encode
# What a notification takes in memory beyond its encoded bytes: objects, and attributes as Python keeps them.
NOTIFICATION_OVERHEAD_BYTES: Final = 512
# Names that were checked before: publishers use the same few names again and again. At most so many are kept.
KNOWN_NAMES_MAX: Final = 10_000
KNOWN_NAMES: Final[set[str]] = set()


class Notification(Mapping[str, Value]):
    """`Notification({"symbol": "DIS", "price": 101.25}, time=datetime.now(UTC))`; a Mapping of its attributes."""

    __slots__ = ("_attributes", "_content", "_hash", "_id", "_packed", "_seq", "_source", "_time", "payload")
    _attributes: dict[str, Value]
    _id: str | None
    _source: str | None
    _time: datetime | None
    _seq: int | None
    _hash: int | None
    _content: bytes | None
    _packed: bytes | None

    def __init__(
        self,
        attributes: Mapping[str, object] | Iterable[tuple[str, object]] = (),
        *,
        id: str | None = None,
        source: str | None = None,
        time: datetime | None = None,
        seq: int | None = None,
        payload: bytes = b"",
    ) -> None:
        self._attributes = _checked_mapping(attributes) if type(attributes) is dict else _checked_pairs(attributes)
        self._id = self._source = self._time = self._seq = None
        if id is not None or source is not None or time is not None or seq is not None:
            self._stamp(id, source, time, seq)
        fits = type(payload) is bytes and len(payload) <= PAYLOAD_BYTES_MAX
        self.payload = payload if fits else _checked_payload(payload)
        self._hash = None
        self._content = None
        self._packed = None

    def _stamp(self, id: str | None, source: str | None, time: datetime | None, seq: int | None) -> None:
        """Sets the fields that are given. The usual values are checked here, without a call for each: this is on the
        path of every notification."""
        if id is not None:
            self._id = _checked_field("$id", id)
        if source is not None:
            is_good = type(source) is str and len(source) <= STRING_CODEPOINTS_MAX and source.isascii()
            self._source = source if is_good else _checked_field("$source", source)
        if time is not None:
            is_good = type(time) is datetime and time.tzinfo is UTC and not time.fold
            self._time = time if is_good else _checked_field("$time", time)
        if seq is not None:
            is_good = type(seq) is int and INT_MIN <= seq <= INT_MAX
            self._seq = seq if is_good else _checked_field("$seq", seq)

    @classmethod
    def of_checked(
        cls,
        attributes: dict[str, Value],
        id: str | None,
        source: str | None,
        time: datetime | None,
        seq: int | None,
        payload: bytes,
        packed: bytes | None = None,
    ) -> Notification:
        """A notification of values that the caller has checked: they are what the constructor would have made."""
        notification = cls.__new__(cls)
        notification._attributes = attributes
        notification._id, notification._source, notification._time, notification._seq = id, source, time, seq
        notification.payload = payload
        notification._hash = notification._content = None
        notification._packed = packed
        return notification

    # --- attributes ---

    def __getitem__(self, name: str) -> Value:
        return self._attributes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._attributes)

    def __len__(self) -> int:
        return len(self._attributes)

    @property
    def matched(self) -> Mapping[str, Value]:
        """What filters see: the attributes and the envelope fields that are set."""
        values = self._attributes.copy()
        if self._id is not None:
            values["$id"] = self._id
        if self._source is not None:
            values["$source"] = self._source
        if self._time is not None:
            values["$time"] = self._time
        if self._seq is not None:
            values["$seq"] = self._seq
        return values

    @property
    def content(self) -> bytes:
        """The attributes as MessagePack, made once. Filters that do not name the envelope match two notifications of
        equal content alike."""
        if self._content is None:
            self._content = _encode(self._attributes)
        return self._content

    @property
    def packed(self) -> bytes:
        """The whole notification as MessagePack: the bytes that it was read from (`packed.py`), or made once."""
        if self._packed is None:
            fields = (Raw(self.content), self._source, self._seq, self._time, self._id, self.payload)
            self._packed = _encode(fields)
        return self._packed

    # --- envelope ---

    @property
    def id(self) -> str | None:
        return self._id

    @property
    def source(self) -> str | None:
        return self._source

    @property
    def time(self) -> datetime | None:
        return self._time

    @property
    def seq(self) -> int | None:
        return self._seq

    def stamped(
        self,
        *,
        id: str | None = None,
        source: str | None = None,
        time: datetime | None = None,
        seq: int | None = None,
    ) -> Notification:
        """The same notification with some envelope fields set."""
        copy = Notification.of_checked(self._attributes, self._id, self._source, self._time, self._seq, self.payload)
        copy._content = self._content
        copy._stamp(id, source, time, seq)
        return copy

    # --- identity ---

    def _identity(self) -> tuple[object, ...]:
        # With the types: Python takes 1, 1.0 and True as equal, the model does not.
        matched = self.matched
        return tuple((name, type(matched[name]), matched[name]) for name in sorted(matched)), self.payload

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Notification) and self._identity() == other._identity()

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(self._identity())
        return self._hash

    def __repr__(self) -> str:
        return f"Notification({dict(self.matched)!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return Notification.from_json, (self.to_json(),)

    # --- JSON ---

    def to_json(self) -> dict[str, Json]:
        data = {name: value_to_json(value) for name, value in self.matched.items()}
        if self.payload:
            data[_PAYLOAD] = base64.b64encode(self.payload).decode("ascii")
        return data

    @classmethod
    def from_json(cls, data: object) -> Notification:
        """From a parsed JSON object."""
        if not isinstance(data, Mapping):
            raise BadNotificationError(f"{shown(data)} is not a notification: it must be a JSON object")
        return _from_pairs((checked_name(name), value) for name, value in data.items())

    @classmethod
    def parse(cls, text: str) -> Notification:
        """From JSON text. If a name appears twice, that is an error; neither value is chosen silently."""
        return _from_pairs(_json_object_pairs(text))


def memory_bytes(notification: Notification) -> int:
    """About what a notification takes in memory, and rather more than less. Always the same for the same notification:
    who holds one can add this, and subtract it later."""
    # Twice: as encoded bytes, and as a payload and attributes of their own.
    return 2 * len(notification.packed) + NOTIFICATION_OVERHEAD_BYTES


def _checked_mapping(attributes: dict[str, object]) -> dict[str, Value]:
    """Checks attributes. The usual values are checked here, without a call for each: this is most of the time that it
    takes to decode a notification."""
    if len(attributes) > NOTIFICATION_ATTRIBUTES_MAX:
        return _checked_pairs(attributes)
    values: dict[str, Value] = {}
    for name, value in attributes.items():
        if name not in KNOWN_NAMES:
            _check_attribute_name(name)
        if type(value) is str and len(value) <= STRING_CODEPOINTS_MAX and value.isascii():
            values[name] = value
        elif type(value) is float and isfinite(value):
            values[name] = value + 0.0  # makes -0.0 the one zero, as `checked` does
        elif type(value) is int and INT_MIN <= value <= INT_MAX:
            values[name] = value
        else:
            values[name] = _checked_at(name, value)
    return values


def _checked_pairs(attributes: Mapping[str, object] | Iterable[tuple[str, object]]) -> dict[str, Value]:
    pairs = attributes.items() if isinstance(attributes, Mapping) else attributes
    values: dict[str, Value] = {}
    for name, value in pairs:
        if name not in KNOWN_NAMES:
            _check_attribute_name(name)
        if name in values:
            raise BadNotificationError(f"attribute {shown(name)} appears twice: a notification holds each name once")
        values[name] = _checked_at(name, value)
        if len(values) > NOTIFICATION_ATTRIBUTES_MAX:
            raise LimitError("NOTIFICATION_ATTRIBUTES_MAX", NOTIFICATION_ATTRIBUTES_MAX, "more attributes")
    return values


def _check_attribute_name(name: str) -> None:
    checked_name(name)
    if name[0] == "$":
        raise BadNotificationError(f"{shown(name)} is an envelope name: pass it as {shown(name[1:])}=…")
    if type(name) is str and len(KNOWN_NAMES) < KNOWN_NAMES_MAX:
        KNOWN_NAMES.add(name)


def _checked_at(name: str, value: object) -> Value:
    try:
        return checked(value)
    except LimitError as problem:
        raise LimitError(problem.limit, problem.maximum, f"{problem.actual} in {shown(name)}", problem.advice) from None
    except CatchmentError as problem:
        raise BadNotificationError(f"attribute {shown(name)}: {problem}") from None


def _checked_field(name: str, value: object) -> Any:
    field = _checked_at(name, value)
    if type_of(field) is not ENVELOPE_TYPES[name]:
        raise BadNotificationError(f"{name} is a {ENVELOPE_TYPES[name]}, found the {type_of(field)} {shown(value)}")
    return field


def _checked_payload(payload: object) -> bytes:
    if not isinstance(payload, bytes | bytearray | memoryview):
        raise BadNotificationError(f"the payload is bytes, found {type(payload).__name__}")
    content = bytes(payload)
    if len(content) > PAYLOAD_BYTES_MAX:
        raise LimitError("PAYLOAD_BYTES_MAX", PAYLOAD_BYTES_MAX, f"{len(content):,} bytes", "send a reference instead")
    return content


# --- from JSON ----------------------------------------------------------------------------------


def _from_pairs(pairs: Iterable[tuple[str, object]]) -> Notification:
    attributes: list[tuple[str, object]] = []
    envelope: dict[str, object] = {}
    for name, value in pairs:
        target = _value_at(name, value) if name != _PAYLOAD else _payload_from_json(value)
        if not name.startswith("$"):
            attributes.append((name, target))
        elif name not in (*ENVELOPE_TYPES, _PAYLOAD):
            known = ", ".join((*ENVELOPE_TYPES, _PAYLOAD))
            raise BadNotificationError(f"{shown(name)} is no envelope field: there are {known}")
        elif name in envelope:
            raise BadNotificationError(f"{shown(name)} appears twice: an envelope holds each field once")
        else:
            envelope[name] = target
    return Notification(attributes, **{name[1:]: value for name, value in envelope.items()})  # type: ignore[arg-type]


def _value_at(name: object, value: object) -> Value:
    try:
        return value_from_json(value)
    except LimitError:
        raise
    except CatchmentError as problem:
        raise BadNotificationError(f"attribute {shown(name)}: {problem}") from None


def _payload_from_json(value: object) -> bytes:
    try:
        return base64.b64decode(value, validate=True)  # type: ignore[arg-type]
    except (binascii.Error, ValueError, TypeError):
        raise BadNotificationError(f"$payload {shown(value)} is not base64 text") from None


def _json_object_pairs(text: str) -> list[tuple[str, object]]:
    if len(text) > NOTIFICATION_JSON_CHARACTERS_MAX:
        raise LimitError(
            "NOTIFICATION_JSON_CHARACTERS_MAX", NOTIFICATION_JSON_CHARACTERS_MAX, f"{len(text):,} characters"
        )
    pairs = parsed_json(text, pairs_hook=_Pairs)
    if not isinstance(pairs, _Pairs):
        raise BadNotificationError(f"{shown(pairs)} is not a notification: it must be a JSON object")
    return [(name, dict(value) if isinstance(value, _Pairs) else value) for name, value in pairs]


class _Pairs(list[tuple[str, object]]):
    """A JSON object as its pairs, before it is known whether all names differ."""


def parsed_json(text: str, pairs_hook: type[list[tuple[str, object]]] | None = None) -> object:
    """JSON text as Python values. NaN, infinities and huge integers are refused; every failure is a CatchmentError."""
    try:
        return json.loads(text, object_pairs_hook=pairs_hook, parse_constant=_no_constant, parse_int=_bounded_int)
    except json.JSONDecodeError as problem:
        there = shown(text[problem.pos : problem.pos + 12]) if problem.pos < len(text) else "the end"
        raise ParseError("JSON", problem.lineno, problem.colno, f"{there} ({problem.msg})", ()) from None
    except RecursionError:
        raise ParseError("JSON", 1, 1, "nesting too deep", ("a flat object",)) from None


def _no_constant(text: str) -> object:
    raise BadNotificationError(f"{text} is not a JSON number: a float is finite and not NaN")


def _bounded_int(text: str) -> int:
    if len(text) > 20:  # no 64-bit integer is longer, and the conversion of a long text takes quadratic time
        raise BadNotificationError(f"integer {shown(text)} of {len(text):,} digits: an int has 64 bits")
    return int(text)
