"""CloudEvents in HTTP requests: the HTTP protocol binding's structured, binary and batched modes.

A request is read whole or refused whole: of a batch with a bad event nothing is published, and each that is bad is told
by its place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_to_bytes

from catchment.errors import BadNotificationError, CatchmentError, InputError, LimitError, shown
from catchment.model.cloudevents import notification_of_cloudevent, notification_of_context
from catchment.model.notification import Notification, parsed_json

# One event with the largest payload in base64, or some thousand small ones; half of a frame between brokers, which
# holds id and source twice.
BODY_BYTES_MAX: Final = 2 * 1_048_576
# They are published in one go.
BATCH_EVENTS_MAX: Final = 4_096
# So many bad ones are told of; with the rest it is likely the same.
TOLD_MAX: Final = 100

STRUCTURED: Final = "application/cloudevents+json"
BATCHED: Final = "application/cloudevents-batch+json"
_PREFIX: Final = "ce-"
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with the event at a place of a batch, counted from 0."""

    index: int
    kind: str
    reason: str

    @classmethod
    def of(cls, index: int, problem: CatchmentError) -> Fault:
        return cls(index, type(problem).__name__, str(problem))


class BadEventsError(InputError):
    """A request with events that cannot be; nothing of it is published."""

    def __init__(self, faults: Sequence[Fault], count: int) -> None:
        self.faults, self.count = tuple(faults), count
        super().__init__(f"{len(faults)} of {count} events are no CloudEvents; none is published")


class UnknownMediaTypeError(InputError):
    """A body of no kind that is read."""


def notifications_of(headers: Iterable[tuple[str, str]], body: bytes) -> list[Notification]:
    """What a request has published. InputError for what is none; names of headers are lower-case."""
    given = list(headers)
    content_types = [value for name, value in given if name == "content-type"]
    content_type = content_types[0] if content_types else ""
    media_type, charset = _media_type(content_type)
    if media_type.startswith("application/cloudevents") and charset not in ("", "utf-8"):
        raise UnknownMediaTypeError(f"{shown(content_type)}: JSON is in UTF-8")
    if media_type == STRUCTURED:
        return _checked([_json(body)], notification_of_cloudevent)
    if media_type == BATCHED:
        return _checked(_batch(_json(body)), notification_of_cloudevent)
    if media_type.startswith("application/cloudevents"):
        raise UnknownMediaTypeError(f"{shown(content_type)}: this reads {STRUCTURED} and {BATCHED}")
    if not any(name == "ce-specversion" for name, _ in given):
        raise UnknownMediaTypeError(
            f"no CloudEvent: send {STRUCTURED}, {BATCHED}, or headers ce-specversion, ce-id, ce-source and ce-type"
        )
    return _checked([given], lambda found: _binary(found, content_type, body))


def _media_type(text: str) -> tuple[str, str]:
    media_type, *parameters = (part.strip() for part in text.lower().split(";"))
    charsets = [one.partition("=")[2].strip('" ') for one in parameters if one.startswith("charset=")]
    return media_type, charsets[0] if charsets else ""


def _json(body: bytes) -> object:
    try:
        return parsed_json(body.decode("utf-8"))
    except UnicodeDecodeError as problem:
        raise BadNotificationError(f"byte {problem.start + 1} is not UTF-8") from None


def _batch(found: object) -> list[object]:
    if not isinstance(found, list):
        raise BadNotificationError(f"a batch is an array of CloudEvents, found {shown(found)}")
    if len(found) > BATCH_EVENTS_MAX:
        raise LimitError("BATCH_EVENTS_MAX", BATCH_EVENTS_MAX, f"{len(found):,} events", "send them in several")
    return found


def _checked(found: Sequence[object], make: Callable[[object], Notification]) -> list[Notification]:
    notifications: list[Notification] = []
    faults: list[Fault] = []
    for index, one in enumerate(found):
        try:
            notifications.append(make(one))
        except CatchmentError as problem:
            faults.append(Fault.of(index, problem))
        except RecursionError:
            faults.append(Fault(index, "BadNotificationError", "nesting too deep"))
    if faults:
        raise BadEventsError(faults, len(found))
    return notifications


def _binary(found: object, content_type: str, body: bytes) -> Notification:
    assert isinstance(found, list)
    context = {"datacontenttype": content_type} if content_type else {}
    for header, value in found:
        if header.startswith(_PREFIX):
            name = header.removeprefix(_PREFIX)
            if name in ("data", "data_base64", "datacontenttype"):
                raise BadNotificationError(f"header {header}: data is the body, its type is in Content-Type")
            if name in context:
                raise BadNotificationError(f"header {header} stands twice")
            context[name] = _decoded(header, value)
    return notification_of_context(context, lambda: body)


def _decoded(header: str, value: str) -> str:
    """Percent-encoding undone (HTTP protocol binding §3.1.3.2), and the quotes around a value."""
    quoted = _QUOTED.fullmatch(value)
    text = value if quoted is None else re.sub(r"\\(.)", r"\1", quoted[1])
    try:
        # Some send UTF-8 as it is, which a server reads as Latin-1.
        return unquote_to_bytes(text.encode("latin-1")).decode("utf-8")
    except UnicodeError:
        raise BadNotificationError(f"header {header}: {shown(value)} is not percent-encoded UTF-8") from None
