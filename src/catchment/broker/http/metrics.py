"""The broker's counters, for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from catchment.broker.store_status import store_metrics
from catchment.routing.core import Inspection

if TYPE_CHECKING:
    from catchment.broker.http.catalog import Catalog
    from catchment.broker.http.webhooks.registry import Webhooks
    from catchment.broker.server import Broker

_TOTALS: Final = {
    "published": "Notifications published by clients of this broker",
    "received": "Notifications received from neighbors",
    "forwarded": "Notifications sent to neighbors",
    "delivered": "Notifications delivered to clients",
    "lost": "Notifications dropped because a client was behind",
    "refused": "Requests and notifications refused",
    "unwanted": "Notifications received from a neighbor that nobody here or beyond wants",
    "looped": "Notifications dropped because they had crossed too many links",
    "absurd": "Notifications received from a neighbor and dropped because their number is far ahead of the clock",
    "old": "Notifications dropped because they were not newer than the last one of their source",
}
# All other methods are counted together: a client that makes up methods must not fill our memory.
_METHODS: Final = frozenset({"GET", "POST", "PUT", "DELETE", "HEAD", "WEBSOCKET"})


class AnswerCounts:
    """How many answers were sent over HTTP, by method and status."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, int]] = Counter()

    def count(self, method: str, status: int) -> None:
        self.counts[method if method in _METHODS else "other", status] += 1


class BrokerCollector(Collector):
    """Reads the counters of one broker each time Prometheus asks."""

    def __init__(self, broker: Broker, catalog: Catalog, answers: AnswerCounts) -> None:
        self._broker, self._catalog, self._answers = broker, catalog, answers

    def collect(self) -> Iterator[Metric]:
        node, inspection = self._broker.node, self._broker.node.core.inspect()
        yield InfoMetricFamily(
            "catchment_broker",
            "The name and the routing system of this broker",
            {"name": node.name, "routing": self._broker.config.routing},
        )
        counts = node.counts(inspection.work)
        for name, text in _TOTALS.items():
            count = counts[name] + (self._catalog.transient.lost if name == "lost" else 0)
            yield CounterMetricFamily(f"catchment_notifications_{name}", text, count)
        yield CounterMetricFamily(
            "catchment_gaps", "Gaps that clients were told, each time one changed", node.totals.gaps
        )
        yield GaugeMetricFamily("catchment_uptime_seconds", "Seconds since the broker started", self._broker.uptime_s)
        yield GaugeMetricFamily("catchment_clients", "Connected clients, including those over HTTP", len(node.clients))
        count = node.core.clients.subscriptions_count
        yield GaugeMetricFamily("catchment_subscriptions", "Subscriptions of clients of this broker", count)
        yield from _tables_and_work(inspection)
        clients = node.core.clients
        yield GaugeMetricFamily(
            "catchment_suspended_bytes", "Memory for what waits for suspended identities", clients.waiting_bytes
        )
        yield GaugeMetricFamily(
            "catchment_monitors_bytes", "Memory for the partial matches of patterns", clients.watching.bytes_count
        )
        yield GaugeMetricFamily(
            "catchment_http_subscriptions",
            "Subscriptions made over HTTP that are not durable",
            len(self._catalog.transient),
        )
        yield GaugeMetricFamily(
            "catchment_http_streams",
            "Streams that read subscriptions made over HTTP",
            self._catalog.readers_count,
        )
        if self._catalog.durable is not None:
            count = len(self._catalog.streams)
            yield GaugeMetricFamily(
                "catchment_http_durable_subscriptions", "Durable subscriptions that are read over HTTP", count
            )
            yield from _webhooks(self._catalog.webhooks)
        yield from self._links()
        if self._broker.storing is not None:
            yield from store_metrics(self._broker.storing, node.now())
        yield from self._connections()
        yield self._http_answers()

    def _connections(self) -> Iterator[Metric]:
        broker = self._broker
        gauges = {
            "catchment_greedy_connections": (
                "Connections handled after all others",
                broker.turns.greedy_count,
            ),
            "catchment_half_sent_bytes": (
                "Bytes of frames and bodies that are not whole",
                broker.half_sent.bytes,
            ),
            "catchment_outboxes_bytes": ("Bytes that wait to be sent to clients and neighbors", broker.outboxes.bytes),
        }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(name, text, value)
        counters = {
            "catchment_half_sent_given_up": (
                "Connections ended because too much was begun and not whole",
                broker.half_sent.given_up,
            ),
            "catchment_outboxes_closed": ("Connections ended because too much waited", broker.outboxes.closed_count),
        }
        if broker.http is not None:
            text = "HTTP connections closed because they took too long, sent too much, or there was no room"
            counters["catchment_http_connections_closed"] = (text, broker.http.edge.closed_count)
            yield GaugeMetricFamily("catchment_http_connections", "HTTP connections", broker.http.connections_count)
        for name, (text, value) in counters.items():
            yield CounterMetricFamily(name, text, value)

    def _http_answers(self) -> Metric:
        answers = CounterMetricFamily(
            "catchment_http_requests", "HTTP requests answered, by method and status", labels=("method", "status")
        )
        for (method, status), count in sorted(self._answers.counts.items()):
            answers.add_metric((method, str(status)), count)
        return answers

    def _links(self) -> Iterator[Metric]:
        links = sorted(self._broker.node.links.items())
        yield GaugeMetricFamily("catchment_links", "Links to neighbors that are up", len(links))
        received = CounterMetricFamily(
            "catchment_link_received", "Notifications received from a neighbor", labels=("neighbor",)
        )
        forwarded = CounterMetricFamily(
            "catchment_link_forwarded", "Notifications forwarded to a neighbor", labels=("neighbor",)
        )
        waiting = GaugeMetricFamily(
            "catchment_link_outbox_bytes", "Bytes that wait to be sent to a neighbor", labels=("neighbor",)
        )
        congested = GaugeMetricFamily(
            "catchment_link_congested",
            "1 if so much waits for a neighbor that publishers wait too, else 0",
            labels=("neighbor",),
        )
        for neighbor, link in links:
            connection = self._broker.link_of(neighbor)
            received.add_metric((neighbor.name,), link.received)
            forwarded.add_metric((neighbor.name,), link.forwarded)
            waiting.add_metric((neighbor.name,), connection.outbox_bytes)
            congested.add_metric((neighbor.name,), connection.is_congested)
        yield from (received, forwarded, waiting, congested)
        credits = self._broker.credits
        yield GaugeMetricFamily(
            "catchment_publishers_held",
            "Publishers that the broker does not read because a link is full",
            len(credits.held),
        )
        yield CounterMetricFamily(
            "catchment_links_given_up",
            "Links that the broker ended because too much waited for them",
            credits.links_given_up,
        )
        yield CounterMetricFamily(
            "catchment_bytes_given_up", "Bytes that were lost with links given up", credits.bytes_given_up
        )


def _tables_and_work(inspection: Inspection) -> Iterator[Metric]:
    yield GaugeMetricFamily("catchment_table_filters", "Filters held for clients and brokers", inspection.filters)
    yield GaugeMetricFamily("catchment_table_bytes", "The length of the texts of these filters", inspection.bytes)
    yield CounterMetricFamily("catchment_matched", "Notifications matched by content", inspection.work.matched)
    yield CounterMetricFamily("catchment_compared", "Pairs of filters compared by covering", inspection.work.compared)
    yield CounterMetricFamily("catchment_looked_up", "Rows and ids of summaries looked up", inspection.work.looked_up)


def _webhooks(webhooks: Webhooks) -> Iterator[Metric]:
    """There are at most WEBHOOKS_MAX, so each may have its own label."""
    labels = ("webhook",)
    active = GaugeMetricFamily("catchment_webhook_active", "1 if the last attempt was accepted", labels=labels)
    delivered = CounterMetricFamily("catchment_webhook_delivered", "Notifications the sink accepted", labels=labels)
    failed = CounterMetricFamily("catchment_webhook_failed", "Requests the sink did not accept", labels=labels)
    lost = CounterMetricFamily("catchment_webhook_lost", "Notifications that retention has dropped", labels=labels)
    waiting = GaugeMetricFamily(
        "catchment_webhook_waiting", "Notifications in memory that wait for the sink", labels=labels
    )
    dead = GaugeMetricFamily("catchment_webhook_dead_letters", "Dead letters", labels=labels)
    for id in webhooks.ids:
        status = webhooks[id].webhook.status
        active.add_metric((id,), status["state"] == "active")
        delivered.add_metric((id,), status["delivered"])
        failed.add_metric((id,), status["failed"])
        lost.add_metric((id,), status["lost"])
        waiting.add_metric((id,), status["waiting"])
        dead.add_metric((id,), status["dead"])
    yield from (active, delivered, failed, lost, waiting, dead)


def registry_of(broker: Broker, catalog: Catalog, answers: AnswerCounts) -> CollectorRegistry:
    """A registry for this broker alone: several brokers may run in one process."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(BrokerCollector(broker, catalog, answers))
    return registry
