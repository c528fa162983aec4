"""The settings of SIENA's architectures: the master of a broker, its units, how it merges what it tells neighbors."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from catchment.model.measure import Spread, choice, even
from catchment.model.values import Value
from catchment.routing.settings import Settings

# The architecture of a unit of a hybrid network.
Kind = Literal["hierarchical", "acyclic", "advertising", "general"]


class HierarchicalSettings(Settings, frozen=True):
    """`master` is the name of the broker above this one; the root has none."""

    master: str | None = None


class UnitSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """A unit that the broker is in: the names of its neighbors there, and in a hierarchy its master."""

    unit: str
    kind: Kind
    neighbors: frozenset[str]
    master: str | None = None


class HybridSettings(Settings, frozen=True):
    """The units that the broker is in. A broker that is in more than one is a gateway."""

    units: tuple[UnitSettings, ...] = ()


class Expected(Struct, frozen=True, forbid_unknown_fields=True, rename={"low": "from", "high": "to"}):
    """Which values of an attribute to expect: numbers from `from` to `to`, evenly, or each value of `one_of` equally
    often."""

    low: float = 0.0
    high: float = 0.0
    one_of: tuple[str | int | float | bool, ...] = ()

    def spread(self) -> Spread:
        values: dict[Value, float] = dict.fromkeys(self.one_of, 1.0)
        return choice(values) if values else even(self.low, self.high)


class MergingSettings(Settings, frozen=True):
    """How a broker merges and batches what it tells its neighbors (SIENA §5.3).

    `around` is the architecture of the broker. `merging` is "none", "perfect", or a number: how much of what a merged
    filter lets through may be unwanted, as a share. `expected` says which notifications to expect, to compute that
    share. `batch_ms` is how long changes wait so that they go together."""

    around: Literal["acyclic", "hierarchical", "advertising"] = "acyclic"
    master: str | None = None
    merging: Literal["none", "perfect"] | float = "perfect"
    batch_ms: float = 0.0
    expected: dict[str, Expected] = field(default_factory=dict)
