"""What brokers of the system `grid` say, the header that they write on notifications, and their settings."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from catchment.errors import InputError
from catchment.model.filter import Filter
from catchment.model.pattern import IDENTITY_CODEPOINTS_MAX
from catchment.routing.grid.units import BLOCK_LIMIT, LEVELS_MAX, Path, context_of
from catchment.routing.messages import BrokerMessage, BrokerName, Header, LinkCost, Number
from catchment.routing.settings import Settings

# Links that a notification may cross. Paths are logarithmic: a longer one goes round.
HOPS_MAX: Final = 255
# Connections that one unit has with others. Each of its brokers may have some; far more than paths can use.
GATEWAYS_MAX: Final = 10_000
# Units that one copy of a notification is for: those of two levels at once at the top, and one level at a time below.
COPY_UNITS_MAX: Final = BLOCK_LIMIT * (BLOCK_LIMIT + LEVELS_MAX)
# The context of a broker that is given none: one cluster, and one level.
DEFAULT_CONTEXT: Final = "grid"

UnitPath = Annotated[tuple[BrokerName, ...], Meta(min_length=1, max_length=LEVELS_MAX + 1)]
Level = Annotated[int, Meta(ge=0, le=LEVELS_MAX)]
Count = Annotated[int, Meta(ge=1, le=2**31)]
SubUnit = Annotated[str, Meta(max_length=IDENTITY_CODEPOINTS_MAX)]


class Context(BrokerMessage, frozen=True):
    """The first message over a link: the path of the sender, which ends with its name."""

    path: UnitPath


class Gateway(Struct, frozen=True, array_like=True, order=True):
    """A connection between two brokers, as one end of it is seen (§3.1.1). `ends` are the two brokers, by name and
    sorted: they tell one connection from another. `to` is the unit at the other end, of the connection's level."""

    ends: tuple[BrokerName, BrokerName]
    level: Level
    cost: LinkCost
    to: UnitPath


class Gateways(BrokerMessage, frozen=True):
    """All connections that leave `unit`, as its gatekeeper `speaker` knows them. It replaces what the speaker said with
    a lesser `seq`. A broker speaks for itself; a gatekeeper of level ℓ speaks for its unit of level ℓ."""

    unit: UnitPath
    speaker: BrokerName
    seq: Number
    gateways: Annotated[tuple[Gateway, ...], Meta(max_length=GATEWAYS_MAX)]


class Counted(Struct, frozen=True, array_like=True):
    """So many predicates of a unit are this filter. `within` is empty, or the unit of the level below that has them: a
    unit of the highest level says which of its units want what."""

    within: SubUnit
    filter: Filter
    count: Count


class Profile(BrokerMessage, frozen=True):
    """All that clients of `unit` want, as `speaker` knows it: it replaces what the speaker said before."""

    unit: UnitPath
    speaker: BrokerName
    seq: Number
    counts: tuple[Counted, ...]


class ProfileChange(BrokerMessage, frozen=True):
    """±δω: predicates that have come to a unit and that have left it, since the change numbered `after`. Speaker and
    number together are the unique id of the change (§3.2.2): whoever has it counts it once."""

    unit: UnitPath
    speaker: BrokerName
    seq: Number
    after: Number
    minus: tuple[Counted, ...]
    plus: tuple[Counted, ...]


class GridHeader(Header, frozen=True, gc=False):
    """`seen` is the routing information of §3.3: units that have the notification. A path says that of the unit and of
    all units around it. `to` are the units that this copy is for."""

    seen: Annotated[tuple[UnitPath, ...], Meta(max_length=HOPS_MAX + 1)]
    to: Annotated[tuple[UnitPath, ...], Meta(min_length=1, max_length=COPY_UNITS_MAX)]


class GridSettings(Settings, frozen=True):
    """`context` is the path of the broker's cluster, with dots: `A.SC-1.c`; or a table of contexts by broker. `levels`,
    if given, is how many names it must have: the same number at all brokers."""

    context: str | dict[str, str] = DEFAULT_CONTEXT
    levels: Annotated[int, Meta(ge=1, le=LEVELS_MAX)] | None = None

    def context_for(self, broker: str) -> Path:
        """The path of the cluster of a broker; InputError if the settings have none for it."""
        text = self.context.get(broker) if isinstance(self.context, dict) else self.context
        if text is None:
            raise InputError(f"context of grid: the table has no context for the broker {broker}")
        path = context_of(text)
        if self.levels is not None and len(path) != self.levels:
            raise InputError(
                f"context {text} of {broker} has {len(path)} levels, the setting levels says {self.levels}"
            )
        return path
