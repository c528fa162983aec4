"""What can go wrong for a client."""

from __future__ import annotations

from catchment import errors
from catchment.errors import CatchmentError
from catchment.wire.messages import Refused


class ConnectionLostError(CatchmentError):
    """The connection ended: what was under way may have been done or not."""


class RefusedError(CatchmentError):
    """A broker refused, with an error of a kind that this version does not know."""


def error_of(refused: Refused) -> CatchmentError:
    """The error that the broker had, of the same kind where it is one of ours that takes a text alone."""
    kind = getattr(errors, refused.kind, None)
    if kind in (errors.BadIdError, errors.BadFilterError, errors.BadNotificationError, errors.BadValueError):
        found: CatchmentError = kind(refused.reason)
        return found
    return RefusedError(f"{refused.kind}: {refused.reason}")
