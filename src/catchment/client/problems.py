"""Errors that only a client raises."""

from __future__ import annotations

from typing import Final

from catchment import errors
from catchment.errors import CatchmentError
from catchment.wire.messages import Refused


class ConnectionLostError(CatchmentError):
    """The connection ended. The broker may or may not have done what it was asked for last. If `is_final`, the broker
    has said that connecting again will fail for the same reason."""

    is_final = False


class RefusedError(CatchmentError):
    """A broker refused a request with an error of a kind that the client cannot rebuild."""


# Errors that take nothing but a text.
_REBUILT: Final = (
    errors.BadIdError,
    errors.BadFilterError,
    errors.BadNotificationError,
    errors.BadValueError,
    errors.ForeignIdentityError,
    errors.UnavailableError,
)


def error_of(refused: Refused) -> CatchmentError:
    """The error that the broker raised, of the same class if that class takes nothing but a text; else RefusedError."""
    kind = getattr(errors, refused.kind, None)
    if kind is errors.BadNumberError and refused.after is not None:
        return errors.BadNumberError(refused.reason, refused.after)
    if kind in _REBUILT:
        error: CatchmentError = kind(refused.reason)
        return error
    return RefusedError(f"{refused.kind}: {refused.reason}")
