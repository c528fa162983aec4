"""CloudEvents 1.0 as notifications, and notifications as CloudEvents: one mapping for files and for HTTP.

A CloudEvent's context attributes are attributes under their own names; id, source and time are in the envelope too;
its data is the payload. A notification that came as a CloudEvent goes out as the same one. Any other goes out as a
CloudEvent of type NOTIFICATION_TYPE, whose data is the notification as JSON: its names and values may be none that
CloudEvents attributes can have.
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


def notification_of_cloudevent(found: object) -> Notification:
    """From the JSON object of a CloudEvent."""
    if not isinstance(found, Mapping):
        raise BadNotificationError(f"{shown(found)} is not a CloudEvent: it must be a JSON object")
    return notification_of_context({name: found[name] for name in found if name not in _DATA}, lambda: _data(found))


def notification_of_context(context: Mapping[str, Any], data: Callable[[], bytes]) -> Notification:
    """From context attributes, and what gives the data as bytes once those are known to be right."""
    for name in CLOUDEVENTS_REQUIRED:
        if not isinstance(context.get(name), str) or not context[name]:
            raise BadNotificationError(f"a CloudEvent has a text {name}, found {shown(context.get(name))}")
    if context["specversion"] != CLOUDEVENTS_VERSION:
        raise BadNotificationError(f"CloudEvents {shown(context['specversion'])}: this reads {CLOUDEVENTS_VERSION}")
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
    """A time that may be written finer than microseconds."""
    if not isinstance(value, str):
        raise BadValueError(f"{shown(value)} is not a time: write 2026-11-15T10:30:00Z")
    # Writers of nanoseconds are many; a time here has microseconds.
    return parse_time(re.sub(r"(\.\d{6})\d+", r"\1", value))


def _data(found: Mapping[str, object]) -> bytes:
    if (encoded := found.get("data_base64")) is not None:
        try:
            return base64.b64decode(encoded, validate=True)  # type: ignore[arg-type]
        except (binascii.Error, ValueError, TypeError):
            raise BadNotificationError(f"data_base64 {shown(encoded)} is not base64 text") from None
    data = found.get("data")
    if data is None:
        return b""
    content_type = found.get("datacontenttype")
    if isinstance(data, str) and isinstance(content_type, str) and "json" not in content_type.lower():
        return data.encode("utf-8", "surrogatepass")[: PAYLOAD_BYTES_MAX + 1]
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


# --- out ----------------------------------------------------------------------------------------


def cloudevent_of(notification: Notification, source: str) -> dict[str, Any]:
    """The members of its JSON object, for msgspec to encode. `source` is that of one without a source of its own."""
    if all(isinstance(notification.get(name), str) for name in CLOUDEVENTS_REQUIRED):
        context = {name: _member(value) for name, value in notification.items()}
        return {**context, **_data_members(notification)}
    found: dict[str, Any] = {
        "specversion": CLOUDEVENTS_VERSION,
        "id": notification.id or _made_id(notification),
        "source": notification.source or source,
        "type": NOTIFICATION_TYPE,
        "datacontenttype": _JSON,
        "data": notification.to_json(),
    }
    return found if notification.time is None else {**found, "time": format_time(notification.time)}


def _member(value: Value) -> object:
    return format_time(value) if isinstance(value, datetime) else value


def _made_id(notification: Notification) -> str:
    """CloudEvents ask for an id that is unique for the source: its number is, or else what it says, and when."""
    if notification.seq is not None:
        return str(notification.seq)
    said = notification.content + notification.payload + str(notification.time).encode("ascii")
    return hashlib.blake2b(said, digest_size=12).hexdigest()


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
        payload.decode("utf-8")  # which `format` does not look at
        # As it was written, not by way of Python's numbers; what is no JSON travels as bytes.
        return {"data": msgspec.Raw(msgspec.json.format(payload, indent=-1))}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {"data_base64": base64.b64encode(payload).decode("ascii")}


def _is_text(content_type: object) -> bool:
    return isinstance(content_type, str) and (content_type.startswith("text/") or "xml" in content_type)


def _binary(notification: Notification) -> dict[str, object]:
    return {"data_base64": base64.b64encode(notification.payload).decode("ascii")}
