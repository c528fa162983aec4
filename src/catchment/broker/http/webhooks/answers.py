"""What a sink's answer means for the notification that was sent.

| answer | meaning |
|---|---|
| 2xx | accepted |
| 410 | the sink is retired: the webhook ends |
| 429, 503 with `Retry-After` | not now: nothing is sent until then. It counts as no attempt |
| 400, 406, 411, 413, 414, 415, 422, 431 | this notification will never be accepted: a dead letter at once |
| all else: 3xx (never followed), other 4xx, 5xx, no answer | an attempt has failed: try again |

401, 403 and 404 are tried again: they are about the sink's set-up, not about this notification, and people mend that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

# The longest wait that a sink can ask for: a day. A sink that wants to be left alone for longer answers 410.
RETRY_AFTER_S_MAX: Final = 86_400.0
# If 429 says no time, or one that cannot be read.
RETRY_AFTER_S_DEFAULT: Final = 60.0

_HOPELESS: Final = frozenset({400, 406, 411, 413, 414, 415, 422, 431})


@dataclass(frozen=True, slots=True)
class SinkAnswer:
    """Names of headers are in lower case. `text` is the beginning of the body, for people."""

    status: int
    headers: Mapping[str, str]
    text: str = ""

    @property
    def summary(self) -> str:
        return f"{self.status} {self.text}".strip()


@dataclass(frozen=True, slots=True)
class Accepted:
    pass


@dataclass(frozen=True, slots=True)
class Gone:
    reason: str


@dataclass(frozen=True, slots=True)
class NotNow:
    reason: str
    wait_s: float


@dataclass(frozen=True, slots=True)
class Hopeless:
    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    reason: str


Outcome = Accepted | Gone | NotNow | Hopeless | Failed


def outcome_of(answer: SinkAnswer, wall: datetime) -> Outcome:
    """`wall` is the time now: a `Retry-After` may be a date."""
    status, reason = answer.status, f"the sink answered {answer.summary}"
    if 200 <= status < 300:
        return Accepted()
    if status == 410:
        return Gone(reason)
    if status in _HOPELESS:
        return Hopeless(reason)
    if status in (429, 503):
        wait_s = retry_after_s(answer.headers.get("retry-after", ""), wall)
        if wait_s is not None or status == 429:
            return NotNow(reason, RETRY_AFTER_S_DEFAULT if wait_s is None else wait_s)
    if 300 <= status < 400:
        return Failed(f"{reason}: redirects are not followed")
    return Failed(reason)


def retry_after_s(text: str, wall: datetime) -> float | None:
    """Seconds to wait (RFC 9110 §10.2.3): a number, or a date. None if it is neither."""
    text = text.strip()
    if text.isascii() and text.isdecimal():
        return min(float(text[:12]), RETRY_AFTER_S_MAX)
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, IndexError, TypeError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return min(max(0.0, (date - wall).total_seconds()), RETRY_AFTER_S_MAX)
