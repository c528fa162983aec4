"""Whether a sink has agreed to be sent to: the validation handshake of "HTTP 1.1 Web Hooks for Event Delivery", §4.

The broker asks with OPTIONS and says who it is (`WebHook-Request-Origin`), how often it would send
(`WebHook-Request-Rate`, requests a minute) and where consent can be given later (`WebHook-Request-Callback`). A sink
agrees with `WebHook-Allowed-Origin` in its answer, or by a request to the callback, whose URL has a secret key. The
status of the answer means nothing: many servers answer OPTIONS for reasons of their own.

Until a sink agrees nothing is sent to it. Notifications wait in the store, and the broker asks again, less and less
often. Consent by handshake is asked for again each REVALIDATE_S; a sink that then does not agree is sent nothing more.
If it cannot be reached then, consent stays as it was. Consent by callback, or by the operator (`trusted`), stays until
the sink changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct

from catchment.broker.http.webhooks.pacing import BACKOFF_S_FIRST

# How often consent by handshake is asked for anew.
REVALIDATE_S: Final = 86_400.0
# While there is no consent the broker asks again, at last once an hour: it must not become a nuisance itself.
ASK_AGAIN_S_MOST: Final = 3_600.0
# Requests a minute: the most that may be asked for, and that a sink can allow. A sink that allows more gets this.
RATE_MAX: Final = 60_000

ORIGIN_HEADER: Final = "webhook-request-origin"
RATE_HEADER: Final = "webhook-request-rate"
CALLBACK_HEADER: Final = "webhook-request-callback"
ALLOWED_ORIGIN_HEADER: Final = "webhook-allowed-origin"
ALLOWED_RATE_HEADER: Final = "webhook-allowed-rate"


class Permission(Struct, frozen=True):
    """What a sink has said, as it is kept. `at` is a wall clock in seconds. `rate` is requests a minute, None for any.
    A sink that has agreed has `by`."""

    by: Literal["", "handshake", "callback", "trusted"] = ""
    rate: int | None = None
    at: float = 0.0

    @property
    def is_granted(self) -> bool:
        return bool(self.by)


def granted(headers: Mapping[str, str], origin: str, asked_rate: int | None, at: float) -> Permission:
    """What the answer to an OPTIONS request says. Names of headers are in lower case."""
    allowed = headers.get(ALLOWED_ORIGIN_HEADER, "").strip()
    if allowed != "*" and allowed.lower() != origin.lower():
        return Permission()
    return Permission("handshake", allowed_rate(headers, asked_rate), at)


def allowed_rate(headers: Mapping[str, str], asked_rate: int | None) -> int | None:
    """The rate that a sink allows, never more than was asked for. A sink that says none, or something that is no rate,
    gets the rate that was asked for: §4.2.2 wants an answer, but consent without one is still consent."""
    text = headers.get(ALLOWED_RATE_HEADER, "").strip()
    # Python refuses to convert very long texts of digits, so those are refused first.
    if not text.isascii() or not text.isdecimal() or len(text) > 9 or int(text) == 0:
        return asked_rate
    rate = min(int(text), RATE_MAX)
    return rate if asked_rate is None else min(rate, asked_rate)


class Asking(Struct):
    """When to ask a sink for permission. `due_at` is a time of the loop's clock."""

    due_at: float = 0.0
    failures: int = 0

    def on_granted(self, permission: Permission, now: float, wall: float) -> None:
        self.failures = 0
        again_in = permission.at + REVALIDATE_S - wall if permission.by == "handshake" else float("inf")
        # A clock that was set back must not put off the question for ever.
        self.due_at = now + min(again_in, REVALIDATE_S) if again_in != float("inf") else again_in

    def on_no_answer(self, now: float, chance: float) -> None:
        self.failures += 1
        longest = min(BACKOFF_S_FIRST * 2 ** min(self.failures, 30), ASK_AGAIN_S_MOST)
        # Half of the pause is drawn: a sink that is starting is asked soon, but never at once.
        self.due_at = now + longest * (1 + chance) / 2
