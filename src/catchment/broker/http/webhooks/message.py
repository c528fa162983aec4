"""A notification as an HTTP request: CloudEvents in binary or structured mode.

Binary mode has the attributes in headers `ce-…` and the data as the body. The text on webhooks wants a body and a
`Content-Type` in each request. So an event without data or without `datacontenttype` is sent in structured mode,
whatever was asked for; so is an event whose attributes cannot be headers, or would be too long for many servers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal
from urllib.parse import quote

import msgspec

from catchment.broker.http.binding import STRUCTURED
from catchment.errors import CatchmentError
from catchment.model.cloudevents import CLOUDEVENTS_REQUIRED, cloudevent_of, notification_of_cloudevent
from catchment.model.notification import Notification, parsed_json
from catchment.model.values import Value, format_time

Mode = Literal["binary", "structured"]
# What many servers take in all headers is 8 KiB; some is for other headers.
BINARY_HEADERS_BYTES_MAX: Final = 6_144

_STRUCTURED: Final = f"{STRUCTURED}; charset=utf-8"
_ATTRIBUTE: Final = re.compile(r"[a-z0-9]{1,64}")
# What stays as it is in a header (HTTP protocol binding §3.1.3.2): printable ASCII but for space, quote and percent.
_PLAIN: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
_CONTENT_TYPE: Final = re.compile(r"[\x20-\x7e]{1,256}")


@dataclass(frozen=True, slots=True)
class Message:
    headers: Mapping[str, str]
    body: bytes


def structured_json(notification: Notification, source: str) -> bytes:
    """The CloudEvent as JSON. `source` is for a notification that has none."""
    return msgspec.json.encode(cloudevent_of(notification, source))


def message_of(notification: Notification, mode: Mode, source: str) -> Message:
    if mode == "binary" and (message := _binary(_as_cloudevent(notification, source))) is not None:
        return message
    return Message({"content-type": _STRUCTURED}, structured_json(notification, source))


def message_of_json(body: bytes, mode: Mode) -> Message:
    """The same for a CloudEvent that `structured_json` has made."""
    if mode == "binary" and (message := _binary(_read(body))) is not None:
        return message
    return Message({"content-type": _STRUCTURED}, body)


def _as_cloudevent(notification: Notification, source: str) -> Notification | None:
    if all(isinstance(notification.get(name), str) for name in CLOUDEVENTS_REQUIRED):
        return notification
    return _read(structured_json(notification, source))


def _read(body: bytes) -> Notification | None:
    """None if it is too long for a notification: one with a long payload in base64 may be."""
    try:
        return notification_of_cloudevent(parsed_json(body.decode("utf-8")))
    except CatchmentError:
        return None


def _binary(event: Notification | None) -> Message | None:
    """None if it must be sent in structured mode."""
    if event is None:
        return None
    content_type = event.get("datacontenttype")
    if not event.payload or not isinstance(content_type, str) or not _CONTENT_TYPE.fullmatch(content_type):
        return None
    context = {name: value for name, value in event.items() if name != "datacontenttype"}
    if not all(map(_ATTRIBUTE.fullmatch, context)):
        return None
    headers = {f"ce-{name}": quote(_text(value), safe=_PLAIN) for name, value in context.items()}
    if sum(len(name) + len(text) for name, text in headers.items()) > BINARY_HEADERS_BYTES_MAX:
        return None
    return Message({**headers, "content-type": content_type}, event.payload)


def _text(value: Value) -> str:
    """The canonical text of CloudEvents' types."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return format_time(value) if isinstance(value, datetime) else str(value)
