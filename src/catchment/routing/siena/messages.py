"""What SIENA's brokers say to each other, and the header that general networks write on notifications.

hop by hop     Interest, Advertised; Delegated and Part of patterns
general        Wants, WantsChange, and `Links` of the link states (`parts/link_states.py`)
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from catchment.model.filter import Advertisement, Filter, Pattern
from catchment.model.notification import Notification
from catchment.routing.messages import BrokerMessage, Header, Time


class Interest(BrokerMessage, frozen=True):
    """What the sender wants to be sent: filters withdrawn and filters announced, as one change.

    One message, so that there is no moment between the two: what a withdrawn filter let through is let through
    still if one of the announced wants it."""

    withdrawn: tuple[Filter, ...] = ()
    announced: tuple[Filter, ...] = ()


class Advertised(BrokerMessage, frozen=True):
    """What may come from the sender, or through it: advertisements withdrawn and announced, as one change."""

    withdrawn: tuple[Advertisement, ...] = ()
    announced: tuple[Advertisement, ...] = ()


class Delegated(BrokerMessage, frozen=True):
    """Patterns that the sender wants thinned for it (SIENA §5.4.3), withdrawn and announced, and what it wants besides:
    one change. Each that is withdrawn is answered with a last `Part`. `ongoing` names those announced of which the
    sender may already have the first notifications."""

    withdrawn: tuple[Pattern, ...] = ()
    announced: tuple[Pattern, ...] = ()
    ongoing: tuple[Pattern, ...] = ()
    interest: Interest = Interest()


class Held(Struct, frozen=True, array_like=True):
    """A notification that was held back, for some filters of a pattern, by their places in it. `arrived` is when it
    came to the broker that held it first."""

    notification: Notification
    arrived: Time
    steps: tuple[int, ...]


class Part(BrokerMessage, frozen=True):
    """What was held back of a delegated pattern, by time of publication; the last for one that was withdrawn."""

    carries_notifications: ClassVar[bool] = True

    pattern: Pattern
    held: tuple[Held, ...]
    is_last: bool = False


class Wants(BrokerMessage, frozen=True):
    """All that the clients of `origin` want. Flooded."""

    origin: str
    seq: int
    filters: tuple[Filter, ...]


class WantsChange(BrokerMessage, frozen=True):
    """What has changed in that since the record numbered `after`. Flooded."""

    origin: str
    seq: int
    after: int
    withdrawn: tuple[Filter, ...]
    announced: tuple[Filter, ...]


class OriginHeader(Header, frozen=True, gc=False):
    """`origin` is the broker that the notification was published at: it travels down that broker's tree."""

    origin: str
