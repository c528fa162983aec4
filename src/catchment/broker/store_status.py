"""What a broker says of its store: for `catchment top`, for the pages, and for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from catchment.broker.storing import Storing
from catchment.routing.messages import SECOND, Time
from catchment.store.interface import IdentityStatus, StoreStatus

if TYPE_CHECKING:
    from prometheus_client.core import Metric

# Identities that Prometheus gets, those for whom most waits first: each makes four series.
IDENTITIES_MEASURED_MAX: Final = 1_000


def store_status(storing: Storing, now: Time) -> dict[str, Any]:
    """Plain values. What is counted in the store itself is from `Storing.last_report`."""
    report = storing.last_report
    return {
        "state": state_of(storing),
        "problem": storing.problem,
        "log": storing.opened.log,
        "waiting_writes": storing.waiting_count,
        "batches": storing.batches,
        "writes": storing.writes,
        **({} if report is None else _counted(report, now)),
    }


def state_of(storing: Storing) -> str:
    if storing.is_broken:
        return "broken"
    return "full" if storing.problem else "works"


def _counted(report: StoreStatus, now: Time) -> dict[str, Any]:
    return {
        "head": report.head,
        "records": report.records,
        "bytes": report.bytes,
        "quarantined": report.quarantined,
        "identities": [
            {
                "identity": each.identity,
                "acknowledged": each.acknowledged,
                "waiting": each.waiting,
                "lag": _lag(report, each),
                "oldest_s": _oldest_s(each, now),
                "lost": each.lost,
            }
            for each in _most_waiting(report)
        ],
    }


def _most_waiting(report: StoreStatus) -> list[IdentityStatus]:
    return sorted(report.identities, key=lambda each: (-each.waiting, each.identity))


def _lag(report: StoreStatus, identity: IdentityStatus) -> int:
    """How many records the log has past what the identity has taken, whoever they are for; 0 if nothing waits."""
    return report.head - identity.acknowledged if identity.waiting else 0


def _oldest_s(identity: IdentityStatus, now: Time) -> float | None:
    return None if identity.oldest is None else round(max(0, now - identity.oldest) / SECOND, 3)


def store_metrics(storing: Storing, now: Time) -> Iterator[Metric]:
    """For Prometheus. The caller has awaited `Storing.report`."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    works = int(state_of(storing) == "works")
    yield GaugeMetricFamily("catchment_store_works", "Whether the store takes records", works)
    yield GaugeMetricFamily("catchment_store_waiting_writes", "Writes that wait for the disk", storing.waiting_count)
    yield CounterMetricFamily("catchment_store_writes", "Writes that are synced", storing.writes)
    yield CounterMetricFamily("catchment_store_batches", "Batches in which they were synced", storing.batches)
    report = storing.last_report
    if report is None:
        return
    yield GaugeMetricFamily("catchment_store_head", "The epoch of the last record", report.head)
    yield GaugeMetricFamily("catchment_store_records", "Records that are kept", report.records)
    yield GaugeMetricFamily("catchment_store_bytes", "The size of the records that are kept", report.bytes)
    yield CounterMetricFamily("catchment_store_quarantined", "Records that were found damaged", report.quarantined)
    waiting = GaugeMetricFamily("catchment_durable_waiting", "Records that wait for an identity", labels=["identity"])
    oldest = GaugeMetricFamily(
        "catchment_durable_oldest_seconds", "The age of the oldest record that waits", labels=["identity"]
    )
    lag = GaugeMetricFamily(
        "catchment_durable_lag", "Records of the log past what the identity has taken", labels=["identity"]
    )
    lost = CounterMetricFamily(
        "catchment_durable_lost", "Records that were dropped or damaged before they were taken", labels=["identity"]
    )
    for each in _most_waiting(report)[:IDENTITIES_MEASURED_MAX]:
        waiting.add_metric([each.identity], each.waiting)
        oldest.add_metric([each.identity], _oldest_s(each, now) or 0)
        lag.add_metric([each.identity], _lag(report, each))
        lost.add_metric([each.identity], each.lost)
    yield from (waiting, oldest, lag, lost)
