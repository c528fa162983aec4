"""Decoders: what workers run on each record of a file to get notifications or subscriptions. Nothing here needs Spark.

A decoder takes a record (the bytes of a line or file, or the cells of a CSV row) and yields items: a value, or the
reason why the text is rejected, and that text. A decoder never raises an error for a bad record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Generic, TypeVar

from catchment.errors import BadNotificationError, CatchmentError, InputError, ParseError, shown
from catchment.model.cloudevents import fine_time, notification_of_cloudevent
from catchment.model.notification import ENVELOPE_TYPES, Notification, parsed_json
from catchment.model.values import Type
from catchment.pipeline.schema import PAYLOAD

T = TypeVar("T")
V = TypeVar("V")

_FLOAT: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_BOOLS: Final = {"true": True, "false": False}
_BYTE_ORDER_MARK: Final = "\ufeff"


@dataclass(frozen=True, slots=True)
class Item(Generic[T]):
    """One row of a record, numbered from 0: its value, or the reason why it has none, and its text."""

    row: int
    value: T | None
    reason: str | None = None
    text: str | None = None


Decoder = Callable[[Any], Iterator[Item[T]]]


@dataclass(frozen=True, slots=True)
class SubscriptionRow:
    """A subscription as it was written; its filter is not parsed yet."""

    id: str
    subscriber: str
    filter: str
    broker: str | None = None
    dialect: str | None = None
    expires: datetime | None = None


def _item(row: int, make: Callable[[V], T], record: V, text: Callable[[V], str]) -> Item[T]:
    """The item that `make` makes of a record, or a reject with the reason why it could not."""
    try:
        return Item(row, make(record))
    except ParseError as problem:
        line = f"line {problem.line}, " if problem.line > 1 else ""
        return Item(row, None, f"{line}column {problem.column}: not JSON: found {problem.found}", text(record))
    except UnicodeDecodeError as problem:
        return Item(row, None, f"byte {problem.start + 1} is not UTF-8", text(record))
    except CatchmentError as problem:
        return Item(row, None, str(problem), text(record))
    except RecursionError:  # JSON that is just shallow enough to parse may be too deep to quote in an error message
        return Item(row, None, "nesting too deep: a notification is a flat JSON object", text(record))


def _shown_bytes(content: bytes) -> str:
    return content.decode("utf-8", "backslashreplace")


def _text(content: bytes) -> str:
    return content.decode("utf-8").removeprefix(_BYTE_ORDER_MARK)


# --- lines --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lines(Generic[T]):
    """A decoder of lines: one item for each line, none for a blank line."""

    make: Callable[[str], T]

    def __call__(self, content: bytes) -> Iterator[Item[T]]:
        if content.strip():
            yield _item(0, lambda line: self.make(_text(line)), content, _shown_bytes)


def notification_lines() -> Lines[Notification]:
    return Lines(Notification.parse)


def cloudevent_lines() -> Lines[Notification]:
    return Lines(_cloudevent_text)


def subscription_lines() -> Lines[SubscriptionRow]:
    return Lines(_subscription_text)


# --- CloudEvents --------------------------------------------------------------------------------


def cloudevents_file(content: bytes) -> Iterator[Item[Notification]]:
    """A decoder of whole files: one CloudEvent, or a batch of them."""
    try:
        parsed = parsed_json(_text(content))
    except (CatchmentError, UnicodeDecodeError) as problem:
        yield Item(0, None, f"not JSON: {problem}", _shown_bytes(content))
        return
    for row, cloudevent in enumerate(parsed if isinstance(parsed, list) else [parsed]):
        yield _item(row, notification_of_cloudevent, cloudevent, json.dumps)


def _cloudevent_text(text: str) -> Notification:
    return notification_of_cloudevent(parsed_json(text))


# --- CSV ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NotificationCells:
    """A decoder of CSV rows: cells in the order of `types`, and one more that holds the whole row if the row does not
    fit the header, and is None otherwise."""

    types: tuple[tuple[str, Type | None], ...]

    def __call__(self, cells: Sequence[str | None]) -> Iterator[Item[Notification]]:
        if cells[-1] is not None:
            yield Item(0, None, f"the row does not have {len(self.types)} cells, as the header has", cells[-1])
        else:
            yield _item(0, self._notification, cells, _joined)

    def _notification(self, cells: Sequence[str | None]) -> Notification:
        typed = zip(self.types, cells, strict=False)
        return Notification.from_json(
            {name: _cell(name, kind, text) for (name, kind), text in typed if text is not None}
        )


def _joined(cells: Sequence[str | None]) -> str:
    return ",".join(cell or "" for cell in cells[:-1])


def _cell(name: str, kind: Type | None, text: str) -> object:
    """The JSON of the value in a cell. The payload has the type None, and is base64 text."""
    match kind:
        case None | Type.STRING:
            return text
        case Type.INT | Type.TIME:
            return {kind.value: text.strip()}
        case Type.FLOAT if _FLOAT.fullmatch(text.strip()):
            return {"float": float(text)}
        case Type.BOOL if text.strip().lower() in _BOOLS:
            return _BOOLS[text.strip().lower()]
    raise BadNotificationError(f"attribute {shown(name)}: {shown(text)} is not a {kind}")


def cell_types(header: Sequence[str], types: Mapping[str, Type]) -> tuple[tuple[str, Type | None], ...]:
    """The type of each column of a header. Raises InputError for a column that is not declared, and for a declared one
    that the header lacks."""
    known: dict[str, Type | None] = {**ENVELOPE_TYPES, PAYLOAD: None, **types}
    for name in header:
        if name not in known:
            raise InputError(f"column {shown(name)} has no declared type: declared are {', '.join(types)}")
    if missing := sorted(set(types) - set(header)):
        raise InputError(f"there is no column {shown(missing[0])}: the header has {', '.join(header)}")
    return tuple((name, known[name]) for name in header)


# --- subscriptions ------------------------------------------------------------------------------


def _subscription_text(text: str) -> SubscriptionRow:
    fields = parsed_json(text)
    if not isinstance(fields, Mapping):
        raise InputError(f"{shown(fields)} is not a subscription: it must be a JSON object")
    return _subscription_of(fields)


@dataclass(frozen=True, slots=True)
class SubscriptionCells:
    """A decoder of CSV rows, with cells as for NotificationCells."""

    names: tuple[str, ...]

    def __call__(self, cells: Sequence[str | None]) -> Iterator[Item[SubscriptionRow]]:
        if cells[-1] is not None:
            yield Item(0, None, f"the row does not have {len(self.names)} cells, as the header has", cells[-1])
        else:
            yield _item(0, lambda row: _subscription_of(dict(zip(self.names, row, strict=False))), cells, _joined)


def _subscription_of(fields: Mapping[str, object]) -> SubscriptionRow:
    """A subscription from its fields by name; other fields are ignored."""
    id, subscriber, filter = (_field(fields, name, True) or "" for name in ("id", "subscriber", "filter"))
    broker, dialect = (_field(fields, name, False) for name in ("broker", "dialect"))
    expires = fields.get("expires")
    if isinstance(expires, Mapping):  # {"time": …}, as in the JSON of a notification
        expires = expires.get("time")
    if isinstance(expires, datetime):
        expires = expires if expires.tzinfo else expires.replace(tzinfo=UTC)
    return SubscriptionRow(id, subscriber, filter, broker, dialect, _expiry(expires))


def _expiry(expires: object) -> datetime | None:
    return expires if expires is None or isinstance(expires, datetime) else fine_time(expires)


def _field(fields: Mapping[str, object], name: str, required: bool) -> str | None:
    value = fields.get(name)
    if value is None and not required:
        return None
    if not isinstance(value, str) or (required and not value):
        raise InputError(f"a subscription needs {name} as text, found {shown(value)}")
    return value
