"""CloudEvents in HTTP requests: the structured, binary and batched modes of CloudEvents' HTTP protocol binding.

A request is accepted as a whole or not at all. If an event of a batch is bad, nothing is published, and the error names
each bad event by its index in the batch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import unquote_to_bytes

from catchment.errors import BadNotificationError, CatchmentError, InputError, LimitError, shown
from catchment.model.cloudevents import notification_of_cloudevent, notification_of_context
from catchment.model.notification import Notification, parsed_json

# Room for one event with the largest payload in base64, or for some thousand small ones. It is half of FRAME_BYTES_MAX,
# because a frame holds an event's id and source twice: as attributes and in the envelope.
BODY_BYTES_MAX: Final = 2 * 1_048_576
# The events of a request are published in one call of the node.
BATCH_EVENTS_MAX: Final = 4_096
# How many rejected events an answer lists. If there are more, the reason is likely the same.
REJECTED_SHOWN_MAX: Final = 100

STRUCTURED: Final = "application/cloudevents+json"
BATCHED: Final = "application/cloudevents-batch+json"
_PREFIX: Final = "ce-"
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')

_Given = TypeVar("_Given")


@dataclass(frozen=True, slots=True)
class RejectedEvent:
    """Why an event of a request was not published; `index` is its index in the batch, from 0."""

    index: int
    kind: str
    reason: str

    @classmethod
    def of(cls, index: int, problem: CatchmentError) -> RejectedEvent:
        return cls(index, type(problem).__name__, str(problem))


class BadEventsError(InputError):
    """A request with bad events; nothing of it is published."""

    def __init__(self, rejected: Sequence[RejectedEvent], count: int) -> None:
        self.rejected, self.count = tuple(rejected), count
        super().__init__(f"{len(rejected)} of {count} events are not valid CloudEvents; nothing is published")


class UnknownMediaTypeError(InputError):
    """A body of a media type that the broker does not read."""


def notifications_of(headers: Iterable[tuple[str, str]], body: bytes) -> list[Notification]:
    """The notifications in a request, or an InputError. The names of the headers must be in lower case."""
    header_list = list(headers)
    content_type = next((value for name, value in header_list if name == "content-type"), "")
    media_type, charset = _media_type(content_type)
    if media_type.startswith("application/cloudevents") and charset not in ("", "utf-8"):
        raise UnknownMediaTypeError(f"{shown(content_type)}: JSON must be in UTF-8")
    if media_type == STRUCTURED:
        return _read_all([_json(body)], notification_of_cloudevent)
    if media_type == BATCHED:
        return _read_all(_batch(_json(body)), notification_of_cloudevent)
    if media_type.startswith("application/cloudevents"):
        raise UnknownMediaTypeError(f"{shown(content_type)}: use {STRUCTURED} or {BATCHED}")
    if not any(name == "ce-specversion" for name, _ in header_list):
        raise UnknownMediaTypeError(
            f"not a CloudEvent: send {STRUCTURED}, {BATCHED}, or headers ce-specversion, ce-id, ce-source and ce-type"
        )
    return _read_all([header_list], lambda headers: _binary(headers, content_type, body))


def _media_type(content_type: str) -> tuple[str, str]:
    """The media type and its charset, in lower case; the charset may be empty."""
    media_type, *parameters = (part.strip() for part in content_type.lower().split(";"))
    charsets = (text.partition("=")[2].strip('" ') for text in parameters if text.startswith("charset="))
    return media_type, next(charsets, "")


def _json(body: bytes) -> object:
    try:
        return parsed_json(body.decode("utf-8"))
    except UnicodeDecodeError as problem:
        raise BadNotificationError(f"byte {problem.start + 1} is not UTF-8") from None


def _batch(value: object) -> list[object]:
    if not isinstance(value, list):
        raise BadNotificationError(f"a batch must be an array of CloudEvents, found {shown(value)}")
    if len(value) > BATCH_EVENTS_MAX:
        raise LimitError("BATCH_EVENTS_MAX", BATCH_EVENTS_MAX, f"{len(value):,} events", "send several batches")
    return value


def _read_all(events: Sequence[_Given], read: Callable[[_Given], Notification]) -> list[Notification]:
    """All events read, or a BadEventsError that names every bad event, not only the first."""
    notifications: list[Notification] = []
    rejected: list[RejectedEvent] = []
    for index, event in enumerate(events):
        try:
            notifications.append(read(event))
        except CatchmentError as problem:
            rejected.append(RejectedEvent.of(index, problem))
        except RecursionError:
            rejected.append(RejectedEvent(index, "BadNotificationError", "nesting too deep"))
    if rejected:
        raise BadEventsError(rejected, len(events))
    return notifications


def _binary(headers: Sequence[tuple[str, str]], content_type: str, body: bytes) -> Notification:
    """An event in binary mode: its attributes are headers `ce-…`, its data is the body."""
    context = {"datacontenttype": content_type} if content_type else {}
    for header, value in headers:
        if header.startswith(_PREFIX):
            name = header.removeprefix(_PREFIX)
            if name in ("data", "data_base64", "datacontenttype"):
                raise BadNotificationError(
                    f"header {header} is not allowed: the body is the data, and Content-Type is its type"
                )
            if name in context:
                raise BadNotificationError(f"header {header} is given twice")
            context[name] = _decoded(header, value)
    return notification_of_context(context, lambda: body)


def _decoded(header: str, value: str) -> str:
    """The value without percent-encoding (HTTP protocol binding §3.1.3.2) and without the quotes around it."""
    quoted = _QUOTED.fullmatch(value)
    text = value if quoted is None else re.sub(r"\\(.)", r"\1", quoted[1])
    try:
        # Some senders put UTF-8 into a header without percent-encoding. Starlette decodes headers as Latin-1, so
        # encoding as Latin-1 gives the bytes that were sent.
        return unquote_to_bytes(text.encode("latin-1")).decode("utf-8")
    except UnicodeError:
        raise BadNotificationError(f"header {header}: {shown(value)} is not percent-encoded UTF-8") from None
