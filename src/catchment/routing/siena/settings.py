"""The settings of SIENA's architectures: the master of a broker, its units, how it merges what it tells neighbors."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from catchment.errors import InputError
from catchment.model.measure import Distribution, Spread, choice, even
from catchment.model.values import Value
from catchment.routing.messages import SECOND
from catchment.routing.settings import Settings
from catchment.routing.siena.acyclic import AcyclicCore
from catchment.routing.siena.advertising import AdvertisingCore
from catchment.routing.siena.gateway import HybridCore, Kind, Membership
from catchment.routing.siena.hierarchical import HierarchicalCore
from catchment.routing.siena.merging import LinkPolicy, MergeableCore, Merging, MergingCore


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


def hybrid_core(name: str, settings: HybridSettings) -> HybridCore:
    if not settings.units:
        raise InputError("siena hybrid needs units: write [[settings.units]] for each unit that the broker is in")
    return HybridCore(name, [Membership(unit.unit, unit.kind, unit.neighbors, unit.master) for unit in settings.units])


def merging_core(name: str, settings: MergingSettings) -> MergingCore:
    return MergingCore(_inner(name, settings), _policy(settings))


def _inner(name: str, settings: MergingSettings) -> MergeableCore:
    if settings.master is not None and settings.around != "hierarchical":
        raise InputError(
            f'siena merging: master needs around = "hierarchical", but around is {settings.around}: leave out master'
        )
    match settings.around:
        case "acyclic":
            return AcyclicCore(name)
        case "hierarchical":
            return HierarchicalCore(name, settings.master)
        case "advertising":
            return AdvertisingCore(name)


def _policy(settings: MergingSettings) -> LinkPolicy:
    if settings.batch_ms < 0:
        raise InputError(f"siena merging: batch_ms must not be negative, got {settings.batch_ms}")
    batch = round(settings.batch_ms * SECOND / 1_000)
    if settings.merging == "none":
        return LinkPolicy(None, batch)
    share = settings.merging if isinstance(settings.merging, float) else 0.0
    if not 0 <= share < 1:
        raise InputError(f"siena merging: the share is from 0 to less than 1, got {share}")
    distribution = Distribution({name: expected.spread() for name, expected in settings.expected.items()})
    return LinkPolicy(Merging(share, distribution), batch)
