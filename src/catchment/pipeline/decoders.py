"""From one record of a file to notifications or subscriptions, without Spark: what workers run on each row.

A decoder takes a record (the bytes of a line or file, or the cells of a CSV row) and yields items: a value, or the
reason why there is none with the text that was refused. It never raises for what it is given.
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
    """One row of a record, counted from 0: its value, or why there is none."""

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


def _item(row: int, make: Callable[[V], T], given: V, text: Callable[[V], str]) -> Item[T]:
    """What `make` makes of a record, or its complaint."""
    try:
        return Item(row, make(given))
    except ParseError as problem:
        place = f"line {problem.line}, " if problem.line > 1 else ""
        return Item(row, None, f"{place}column {problem.column}: not JSON: found {problem.found}", text(given))
    except UnicodeDecodeError as problem:
        return Item(row, None, f"byte {problem.start + 1} is not UTF-8", text(given))
    except CatchmentError as problem:
        return Item(row, None, str(problem), text(given))
    except RecursionError:  # JSON just shallow enough to parse may be too deep to be quoted in a complaint
        return Item(row, None, "nesting too deep: a notification is a flat JSON object", text(given))


def shown_bytes(content: bytes) -> str:
    return content.decode("utf-8", "backslashreplace")


def _text(content: bytes) -> str:
    return content.decode("utf-8").removeprefix(_BYTE_ORDER_MARK)


# --- lines --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lines(Generic[T]):
    """A decoder of lines: one item each, none of a blank one."""

    make: Callable[[str], T]

    def __call__(self, content: bytes) -> Iterator[Item[T]]:
        if content.strip():
            yield _item(0, lambda found: self.make(_text(found)), content, shown_bytes)


def notification_lines() -> Lines[Notification]:
    return Lines(Notification.parse)


def cloudevent_lines() -> Lines[Notification]:
    return Lines(_cloudevent_text)


def subscription_lines() -> Lines[SubscriptionRow]:
    return Lines(_subscription_text)


# --- CloudEvents --------------------------------------------------------------------------------


def cloudevents_file(content: bytes) -> Iterator[Item[Notification]]:
    """A whole file: one CloudEvent, or a batch of them."""
    try:
        found = parsed_json(_text(content))
    except (CatchmentError, UnicodeDecodeError) as problem:
        yield Item(0, None, f"not JSON: {problem}", shown_bytes(content))
        return
    for row, one in enumerate(found if isinstance(found, list) else [found]):
        yield _item(row, notification_of_cloudevent, one, json.dumps)


def _cloudevent_text(text: str) -> Notification:
    return notification_of_cloudevent(parsed_json(text))


# --- CSV ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NotificationCells:
    """A decoder of CSV rows: cells in the order of `types`, the last one the row where it does not fit its header."""

    types: tuple[tuple[str, Type | None], ...]

    def __call__(self, cells: Sequence[str | None]) -> Iterator[Item[Notification]]:
        if cells[-1] is not None:
            yield Item(0, None, f"not {len(self.types)} cells, as the header has", cells[-1])
        else:
            yield _item(0, self._notification, cells, _joined)

    def _notification(self, cells: Sequence[str | None]) -> Notification:
        given = zip(self.types, cells, strict=False)
        return Notification.from_json(
            {name: _cell(name, kind, text) for (name, kind), text in given if text is not None}
        )


def _joined(cells: Sequence[str | None]) -> str:
    return ",".join(cell or "" for cell in cells[:-1])


def _cell(name: str, kind: Type | None, text: str) -> object:
    """A cell as the JSON of a value; None is the type of the payload, which is base64."""
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
    """The type of each column of a header; InputError for one that nobody declared, or that is not there."""
    known: dict[str, Type | None] = {**ENVELOPE_TYPES, PAYLOAD: None, **types}
    for name in header:
        if name not in known:
            raise InputError(f"column {shown(name)} has no declared type: there are {', '.join(types)}")
    if missing := sorted(set(types) - set(header)):
        raise InputError(f"there is no column {shown(missing[0])}: the header has {', '.join(header)}")
    return tuple((name, known[name]) for name in header)


# --- subscriptions ------------------------------------------------------------------------------


def _subscription_text(text: str) -> SubscriptionRow:
    found = parsed_json(text)
    if not isinstance(found, Mapping):
        raise InputError(f"{shown(found)} is not a subscription: it must be a JSON object")
    return subscription_of(found)


@dataclass(frozen=True, slots=True)
class SubscriptionCells:
    """A decoder of CSV rows, as NotificationCells."""

    names: tuple[str, ...]

    def __call__(self, cells: Sequence[str | None]) -> Iterator[Item[SubscriptionRow]]:
        if cells[-1] is not None:
            yield Item(0, None, f"not {len(self.names)} cells, as the header has", cells[-1])
        else:
            yield _item(0, lambda row: subscription_of(dict(zip(self.names, row, strict=False))), cells, _joined)


def subscription_of(found: Mapping[str, object]) -> SubscriptionRow:
    """From named fields; fields of other names are not ours."""
    id, subscriber, filter = (_field(found, name, True) or "" for name in ("id", "subscriber", "filter"))
    broker, dialect = (_field(found, name, False) for name in ("broker", "dialect"))
    expires = found.get("expires")
    if isinstance(expires, Mapping):
        expires = expires.get("time")
    if isinstance(expires, datetime):
        expires = expires if expires.tzinfo else expires.replace(tzinfo=UTC)
    return SubscriptionRow(id, subscriber, filter, broker, dialect, _expiry(expires))


def _expiry(found: object) -> datetime | None:
    return found if found is None or isinstance(found, datetime) else fine_time(found)


def _field(found: Mapping[str, object], name: str, needed: bool) -> str | None:
    value = found.get(name)
    if value is None and not needed:
        return None
    if not isinstance(value, str) or (needed and not value):
        raise InputError(f"a subscription has a text {name}, found {shown(value)}")
    return value
