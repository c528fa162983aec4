"""What some of SIENA's architectures have to know of a broker: its master, its units, how it talks to neighbors."""

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
    """`master` is the name of the broker above; the root has none."""

    master: str | None = None


class UnitSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """A unit that the broker is in: its neighbors there by name, and in a hierarchy the broker above it."""

    unit: str
    kind: Kind
    neighbors: frozenset[str]
    master: str | None = None


class HybridSettings(Settings, frozen=True):
    """The units that the broker is in; in more than one it is a gateway."""

    units: tuple[UnitSettings, ...] = ()


class Expected(Struct, frozen=True, forbid_unknown_fields=True, rename={"low": "from", "high": "to"}):
    """How the values of an attribute are spread: evenly from `from` to `to`, or each of `one_of` alike."""

    low: float = 0.0
    high: float = 0.0
    one_of: tuple[str | int | float | bool, ...] = ()

    def spread(self) -> Spread:
        values: dict[Value, float] = dict.fromkeys(self.one_of, 1.0)
        return choice(values) if values else even(self.low, self.high)


class MergingSettings(Settings, frozen=True):
    """How a broker merges and batches what it says over its links (SIENA §5.3).

    `around` is the architecture that it merges for. `merging` is "none", "perfect", or the share that nobody asked
    for of what a merged filter may let through; `expected` says how notifications are spread, for that share.
    `batch_ms` is how long changes wait to go together."""

    around: Literal["acyclic", "hierarchical", "advertising"] = "acyclic"
    master: str | None = None
    merging: Literal["none", "perfect"] | float = "perfect"
    batch_ms: float = 0.0
    expected: dict[str, Expected] = field(default_factory=dict)


def hybrid_core(name: str, settings: HybridSettings) -> HybridCore:
    if not settings.units:
        raise InputError("siena hybrid needs units: write [[settings.units]] for each that the broker is in")
    return HybridCore(name, [Membership(each.unit, each.kind, each.neighbors, each.master) for each in settings.units])


def merging_core(name: str, settings: MergingSettings) -> MergingCore:
    return MergingCore(_inner(name, settings), _policy(settings))


def _inner(name: str, settings: MergingSettings) -> MergeableCore:
    if settings.master is not None and settings.around != "hierarchical":
        raise InputError(f"siena merging: a broker has a master only around hierarchical, not {settings.around}")
    match settings.around:
        case "acyclic":
            return AcyclicCore(name)
        case "hierarchical":
            return HierarchicalCore(name, settings.master)
        case "advertising":
            return AdvertisingCore(name)


def _policy(settings: MergingSettings) -> LinkPolicy:
    if settings.batch_ms < 0:
        raise InputError(f"siena merging: batch_ms is not negative, got {settings.batch_ms}")
    batch = round(settings.batch_ms * SECOND / 1_000)
    if settings.merging == "none":
        return LinkPolicy(None, batch)
    share = settings.merging if isinstance(settings.merging, float) else 0.0
    if not 0 <= share < 1:
        raise InputError(f"siena merging: the share is from 0 to less than 1, got {share}")
    distribution = Distribution({name: each.spread() for name, each in settings.expected.items()})
    return LinkPolicy(Merging(share, distribution), batch)
