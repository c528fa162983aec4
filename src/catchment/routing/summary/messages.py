"""What brokers of the system `summary` say, the header that they write on notifications, and their settings.

Numbers in these messages have a meaning only on one link and in one direction. A sender numbers attributes and brokers
in the order in which it names them, from 0. `Summarized` begins anew.
"""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from catchment.errors import InputError
from catchment.routing.messages import BrokerMessage, BrokerName, Header, Number
from catchment.routing.parts.link_states import Links
from catchment.routing.settings import Settings

# A virtual degree is compared with numbers of links.
DEGREE_MAX: Final = 1_000_000
# A day: who changes a subscription should not wait longer.
PERIOD_MS_MAX: Final = 86_400_000

# Ids of subscriptions: for each broker its number, and the numbers of subscriptions there (c1 and c2 of the text).
Ids = tuple[tuple[int, tuple[int, ...]], ...]


class RangeIds(Struct, frozen=True, array_like=True):
    """A row of an AACS: the number of the attribute, the kind of values (0 for numbers, 1 for times, 2 for booleans),
    the first key, how many keys it has, and the ids. An equality has one key."""

    attribute: int
    kind: Literal[0, 1, 2]
    low: int
    span: int
    ids: Ids


class PatternIds(Struct, frozen=True, array_like=True):
    """A row of a SACS: the number of the attribute, operator and operand, and the ids."""

    attribute: int
    operator: str
    operand: str
    ids: Ids


class Rows(Struct, frozen=True, array_like=True):
    """Rows with ids. `everything` has the ids of subscriptions that name no attribute."""

    ranges: tuple[RangeIds, ...] = ()
    patterns: tuple[PatternIds, ...] = ()
    everything: Ids = ()


class WeighedLinks(Links, frozen=True):
    """A record of links, with the virtual degree of `origin` (§6). None if the number of its links is its degree."""

    degree: int | None


class Summarized(BrokerMessage, frozen=True):
    """The sender's merged summary, which replaces all that it said before.

    `attributes` and `brokers` are the names that are numbered from 0 on. `merged` is the set Merged_Brokers: the
    numbers of the brokers whose subscriptions the summary has. `ids` lists all ids by the attributes that they name
    (c3): a bit set, whose last byte has the attributes 0 to 7. A long summary goes on in `SummaryChange`; then `merged`
    comes with the last of these."""

    seq: Number
    attributes: tuple[str, ...]
    brokers: tuple[BrokerName, ...]
    merged: tuple[int, ...]
    ids: tuple[tuple[bytes, Ids], ...]
    rows: Rows


class SummaryChange(BrokerMessage, frozen=True):
    """What has changed in the sender's summary since the message numbered `after`.

    `attributes` and `brokers` are the names that are numbered next. `left` and `joined` are brokers that are no longer,
    or now, in Merged_Brokers. `ids` lists ids that are new or have other attributes. In `withdrawn` and `announced` a
    row has only the ids that leave it or come to it. A row without ids is gone."""

    seq: Number
    after: Number
    attributes: tuple[str, ...]
    brokers: tuple[BrokerName, ...]
    left: tuple[int, ...]
    joined: tuple[int, ...]
    ids: tuple[tuple[bytes, Ids], ...]
    withdrawn: Rows
    announced: Rows


class WalkHeader(Header, frozen=True, gc=False):
    """A copy on its way to the broker `to`.

    With `checked`, it walks: these are the brokers whose subscriptions have been examined (BROCLI), and `to` examines
    its own and goes on. Without, it is for the clients of `to`; `ids` are the numbers of the subscriptions there that
    it may match."""

    to: BrokerName
    checked: tuple[BrokerName, ...] | None
    ids: tuple[Number, ...]


class SummarySettings(Settings, frozen=True):
    """How summaries are propagated, and where notifications go.

    `period_ms` is the time from one propagation to the next; 0 means that each change is propagated at once. `sends`
    says whether a neighbor gets differences of rows, the whole summary when it has changed, or the whole summary in
    every period. `degree` is the broker's virtual degree, or a table of virtual degrees by broker. `next_broker` says
    which broker a notification goes to next: the one of highest degree, the nearest, or another from each broker, which
    spreads the load. With `subsumes`, only filters that no other filter of this broker's clients covers are
    summarized."""

    period_ms: float = 0.0
    sends: Literal["differences", "wholes", "always"] = "differences"
    degree: int | dict[str, int] | None = None
    next_broker: Literal["degree", "nearest", "spread"] = "degree"
    subsumes: bool = False

    def degree_of(self, broker: str) -> int | None:
        """The virtual degree of a broker; None if it has none."""
        return self.degree.get(broker) if isinstance(self.degree, dict) else self.degree


def checked_settings(settings: SummarySettings) -> SummarySettings:
    """The settings; InputError if they cannot be."""
    if not 0 <= settings.period_ms <= PERIOD_MS_MAX:
        raise InputError(f"period_ms of summary: 0 to {PERIOD_MS_MAX:,}, got {settings.period_ms}")
    if settings.sends == "always" and not settings.period_ms:
        raise InputError('sends of summary: "always" needs a period: set period_ms')
    degrees = settings.degree.values() if isinstance(settings.degree, dict) else (settings.degree,)
    for degree in degrees:
        if degree is not None and not 1 <= degree <= DEGREE_MAX:
            raise InputError(f"degree of summary: 1 to {DEGREE_MAX:,}, got {degree}")
    return settings
