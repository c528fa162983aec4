"""The messages that SIENA's brokers send each other, and the header of notifications in general networks.

hop by hop     Interest and Advertised; for patterns, Delegated and Part
general        Wants and WantsChange, and `Links` of the link states (`parts/link_states.py`)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Final, TypeVar

from msgspec import Meta, Struct

from catchment.model.advertisement import Advertisement
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.model.pattern import PATTERN_FILTERS_MAX, Pattern
from catchment.routing.messages import BrokerMessage, BrokerName, Header, Number

# Filters or advertisements in one message: a broker takes some 10 ms to read them and to find their places.
MESSAGE_FILTERS_MAX: Final = 64

T = TypeVar("T")


def in_parts(withdrawn: Sequence[T], announced: Sequence[T]) -> list[tuple[tuple[T, ...], tuple[T, ...]]]:
    """A change as several smaller ones. What is announced comes first, so that nothing is missed in between; and what
    is withdrawn and announced again is there at the end."""
    if len(withdrawn) + len(announced) <= MESSAGE_FILTERS_MAX:
        return [(tuple(withdrawn), tuple(announced))]
    again = set(withdrawn) & set(announced)
    gone = [each for each in withdrawn if each not in again]
    return [((), part) for part in _sliced(announced)] + [(part, ()) for part in _sliced(gone)]


def _sliced(filters: Sequence[T]) -> list[tuple[T, ...]]:
    return [
        tuple(filters[start : start + MESSAGE_FILTERS_MAX]) for start in range(0, len(filters), MESSAGE_FILTERS_MAX)
    ]


class Interest(BrokerMessage, frozen=True):
    """What the sender wants to get: the filters that it withdraws and the filters that it announces, as one change.

    Both are in one message, so that there is no moment between them: a notification that a withdrawn filter let through
    and an announced one lets through is never missed. A long change is several messages, the announcements first."""

    withdrawn: tuple[Filter, ...] = ()
    announced: tuple[Filter, ...] = ()

    def parts(self) -> Sequence[Interest]:
        return [Interest(*part) for part in in_parts(self.withdrawn, self.announced)]


class Advertised(BrokerMessage, frozen=True):
    """What notifications may come from the sender or through it: the advertisements that it withdraws and those that it
    announces, as one change."""

    withdrawn: tuple[Advertisement, ...] = ()
    announced: tuple[Advertisement, ...] = ()

    def parts(self) -> Sequence[Advertised]:
        return [Advertised(*part) for part in in_parts(self.withdrawn, self.announced)]


class Delegated(BrokerMessage, frozen=True):
    """The patterns that the receiver is to thin for the sender (SIENA §5.4.3): those withdrawn and those announced,
    together with a change of plain interest, as one change. The receiver answers each withdrawn pattern with a last
    `Part`. `ongoing` has the announced patterns of which the sender may already have the first notifications."""

    withdrawn: tuple[Pattern, ...] = ()
    announced: tuple[Pattern, ...] = ()
    ongoing: tuple[Pattern, ...] = ()
    interest: Interest = Interest()


class Held(Struct, frozen=True, array_like=True):
    """A notification that was held back. `steps` are the places of the filters of the pattern that it is held for.
    `arrived` is when it came to the first broker that held it."""

    notification: Notification
    arrived: Number
    steps: tuple[Annotated[int, Meta(ge=0, lt=PATTERN_FILTERS_MAX)], ...]


class Part(BrokerMessage, frozen=True):
    """What was held back for a delegated pattern, by time of publication. `is_last` answers a withdrawal: no more parts
    of this pattern follow, unless it is delegated again."""

    carries_notifications: ClassVar[bool] = True

    pattern: Pattern
    held: tuple[Held, ...]
    is_last: bool = False


class Wants(BrokerMessage, frozen=True):
    """All that the clients of `origin` want. Brokers flood it."""

    origin: BrokerName
    seq: Number
    filters: tuple[Filter, ...]


class WantsChange(BrokerMessage, frozen=True):
    """What has changed in the wants of `origin` since the record numbered `after`. Brokers flood it."""

    origin: BrokerName
    seq: Number
    after: Number
    withdrawn: tuple[Filter, ...]
    announced: tuple[Filter, ...]


class OriginHeader(Header, frozen=True, gc=False):
    """`origin` is the broker where the notification was published: the notification travels down that broker's tree.
    If filter propagation has one tree for all publishers, `origin` is its root."""

    origin: BrokerName
