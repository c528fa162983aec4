"""Cores of SIENA's architectures that are made of several parts, from their settings."""

from __future__ import annotations

from catchment.errors import InputError
from catchment.model.measure import Distribution
from catchment.routing.messages import SECOND
from catchment.routing.siena.acyclic import AcyclicCore
from catchment.routing.siena.advertising import AdvertisingCore
from catchment.routing.siena.gateway import HybridCore, Membership
from catchment.routing.siena.hierarchical import HierarchicalCore
from catchment.routing.siena.merging import LinkPolicy, MergeableCore, Merging, MergingCore
from catchment.routing.siena.settings import HybridSettings, MergingSettings


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
