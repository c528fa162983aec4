"""Errors as answers (RFC 9457)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from starlette.responses import Response

from catchment.broker.hosts import ForeignPageError, WrongHostError
from catchment.broker.http.binding import REJECTED_SHOWN_MAX, BadEventsError, RejectedEvent, UnknownMediaTypeError
from catchment.broker.http.catalog import FixedError, NoStoreError
from catchment.broker.http.subscriptions import FullError, TakenIdError, UnknownSubscriptionError
from catchment.broker.http.webhooks.registry import SinkRefusedError
from catchment.broker.targets import ForbiddenTargetError
from catchment.errors import CatchmentError, InputError, LimitError
from catchment.store.interface import StoreError

_PROBLEM: Final = "application/problem+json"
_TITLES: Final = {
    400: "Bad request",
    403: "Forbidden",
    404: "Not found",
    409: "Conflict",
    413: "Too much",
    415: "Unknown media type",
    421: "Not this broker",
    422: "Refused",
    501: "No store",
    502: "The sink refuses",
    503: "Not now",
}


class TooLongError(InputError):
    """A body longer than BODY_BYTES_MAX."""


def answer(
    value: object, status: int = 200, headers: Mapping[str, str] | None = None, media_type: str = "application/json"
) -> Response:
    return Response(msgspec.json.encode(value), status, headers, media_type)


def problem(status: int, detail: str, kind: str = "", **more: Any) -> Response:
    """An error as RFC 9457 describes it. `kind` is the name of the error's class."""
    title = _TITLES.get(status, kind or "Problem")
    members = {"type": "about:blank", "title": title, "status": status, "detail": detail, **more}
    headers = {"Retry-After": "1"} if status == 503 else {}
    return answer(members | ({"kind": kind} if kind else {}), status, headers, _PROBLEM)


def problem_of(error: CatchmentError) -> Response:
    match error:
        case BadEventsError():
            return problem(400, str(error), "BadEventsError", accepted=0, errors=listed_errors(error.rejected))
        case UnknownMediaTypeError():
            return problem(415, str(error))
        case UnknownSubscriptionError():
            return problem(404, str(error))
        case NoStoreError():
            return problem(501, str(error))
        case SinkRefusedError():
            return problem(502, str(error))
        case FixedError():
            return problem(409, str(error))
        case ForbiddenTargetError():
            return problem(403, str(error))
        case StoreError():
            return problem(503, str(error), type(error).__name__)
        case FullError():
            return problem(503, str(error))
        case TakenIdError():
            return problem(409, str(error), "BadIdError")
        case WrongHostError():
            return problem(421, str(error))
        case ForeignPageError():
            return problem(403, str(error))
        case TooLongError():
            return problem(413, str(error))
        case LimitError() if error.limit == "BATCH_EVENTS_MAX":
            return problem(413, str(error), "LimitError")
    return problem(400, str(error), type(error).__name__)


def listed_errors(rejected: Sequence[RejectedEvent]) -> list[Any]:
    return [msgspec.to_builtins(event) for event in rejected[:REJECTED_SHOWN_MAX]]
