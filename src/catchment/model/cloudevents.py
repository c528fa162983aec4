"""CloudEvents 1.0 as notifications, and notifications as CloudEvents. Files and HTTP use the same mapping.

The context attributes of a CloudEvent become attributes of the same names; id, source and time go into the envelope
too. Its data becomes the payload. A notification that came as a CloudEvent goes out as the same CloudEvent. Any other
notification goes out as a CloudEvent of type NOTIFICATION_TYPE with the notification as JSON in its data, because
CloudEvents attributes cannot have all names and values that a notification may have.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from catchment.errors import BadNotificationError, BadValueError, shown
from catchment.model.notification import PAYLOAD_BYTES_MAX, Notification
from catchment.model.values import Value, format_time, parse_time, value_from_json

CLOUDEVENTS_REQUIRED: Final = ("specversion", "id", "source", "type")
CLOUDEVENTS_VERSION: Final = "1.0"
NOTIFICATION_TYPE: Final = "catchment.notification"
_DATA: Final = ("data", "data_base64")
_JSON: Final = "application/json"


# --- in -----------------------------------------------------------------------------------------


def notification_of_cloudevent(event: object) -> Notification:
    """From the JSON object of a CloudEvent."""
    if not isinstance(event, Mapping):
        raise BadNotificationError(f"{shown(event)} is not a CloudEvent: it must be a JSON object")
    return notification_of_context({name: event[name] for name in event if name not in _DATA}, lambda: _data(event))


def notification_of_context(context: Mapping[str, Any], data: Callable[[], bytes]) -> Notification:
    """From context attributes and a function that returns the data. It is called only if the attributes are right."""
    for name in CLOUDEVENTS_REQUIRED:
        if not isinstance(context.get(name), str) or not context[name]:
            raise BadNotificationError(f"a CloudEvent needs {name} as text, found {shown(context.get(name))}")
    if context["specversion"] != CLOUDEVENTS_VERSION:
        version = shown(context["specversion"])
        raise BadNotificationError(f"CloudEvents version {version} is not supported: use {CLOUDEVENTS_VERSION}")
    attributes = {name: _context_value(name, value) for name, value in context.items() if value is not None}
    time = attributes.get("time")
    return Notification(
        attributes,
        id=context["id"],
        source=context["source"],
        time=time if isinstance(time, datetime) else None,
        payload=data(),
    )


def _context_value(name: str, value: object) -> Value:
    if name == "time":
        return fine_time(value)
    if isinstance(value, Mapping | list):
        raise BadNotificationError(f"attribute {shown(name)}: {shown(value)} is no CloudEvents attribute")
    return value_from_json(value)


def fine_time(value: object) -> datetime:
    """A time from text that may have more digits than microseconds."""
    if not isinstance(value, str):
        raise BadValueError(f"{shown(value)} is not a time: write 2026-11-15T10:30:00Z")
    # Many writers give nanoseconds; a time here has microseconds, so further digits are cut off.
    return parse_time(re.sub(r"(\.\d{6})\d+", r"\1", value))


def _data(event: Mapping[str, object]) -> bytes:
    if (encoded := event.get("data_base64")) is not None:
        try:
            return base64.b64decode(encoded, validate=True)  # type: ignore[arg-type]
        except (binascii.Error, ValueError, TypeError):
            raise BadNotificationError(f"data_base64 {shown(encoded)} is not base64 text") from None
    data = event.get("data")
    if data is None:
        return b""
    content_type = event.get("datacontenttype")
    if isinstance(data, str) and isinstance(content_type, str) and "json" not in content_type.lower():
        return data.encode("utf-8", "surrogatepass")[: PAYLOAD_BYTES_MAX + 1]
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


# --- out ----------------------------------------------------------------------------------------


def cloudevent_of(notification: Notification, source: str) -> dict[str, Any]:
    """The members of the CloudEvent's JSON object, for msgspec to encode. `source` is used for a notification that has
    no source."""
    if all(isinstance(notification.get(name), str) for name in CLOUDEVENTS_REQUIRED):
        context = {name: _member(value) for name, value in notification.items()}
        return {**context, **_data_members(notification)}
    event: dict[str, Any] = {
        "specversion": CLOUDEVENTS_VERSION,
        "id": notification.id or _made_id(notification),
        "source": notification.source or source,
        "type": NOTIFICATION_TYPE,
        "datacontenttype": _JSON,
        "data": notification.to_json(),
    }
    return event if notification.time is None else {**event, "time": format_time(notification.time)}


def _member(value: Value) -> object:
    return format_time(value) if isinstance(value, datetime) else value


def _made_id(notification: Notification) -> str:
    """An id for a notification without one. CloudEvents ids must be unique within the source: its sequence number is,
    and without one a digest of its content and time stands in."""
    if notification.seq is not None:
        return str(notification.seq)
    everything = notification.content + notification.payload + str(notification.time).encode("ascii")
    return hashlib.blake2b(everything, digest_size=12).hexdigest()


def _data_members(notification: Notification) -> dict[str, object]:
    if not notification.payload:
        return {}
    content_type = notification.get("datacontenttype", _JSON)
    if isinstance(content_type, str) and "json" in content_type.lower():
        return _json_member(notification.payload)
    try:
        return {"data": notification.payload.decode("utf-8")} if _is_text(content_type) else _binary(notification)
    except UnicodeDecodeError:
        return _binary(notification)


def _json_member(payload: bytes) -> dict[str, object]:
    try:
        payload.decode("utf-8")  # `format` does not check this
        # The text as it was written, without a detour through Python's numbers. What is no JSON travels as base64.
        return {"data": msgspec.Raw(msgspec.json.format(payload, indent=-1))}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {"data_base64": base64.b64encode(payload).decode("ascii")}


def _is_text(content_type: object) -> bool:
    return isinstance(content_type, str) and (content_type.startswith("text/") or "xml" in content_type)


def _binary(notification: Notification) -> dict[str, object]:
    return {"data_base64": base64.b64encode(notification.payload).decode("ascii")}
