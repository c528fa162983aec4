"""What a broker counts, for Prometheus: read when asked for, from counters that are kept anyway."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from catchment.broker.http.subscriptions import Subscriptions
    from catchment.broker.server import Broker

_TOTALS: Final = {
    "published": "Notifications that clients of this broker have published",
    "received": "Notifications that neighbors have sent",
    "forwarded": "Notifications sent to neighbors",
    "delivered": "Notifications given to clients",
    "lost": "Notifications dropped because a client was behind",
    "refused": "Requests and notifications refused",
}
# Others count as one: whoever asks must not fill our memory with names.
_METHODS: Final = frozenset({"GET", "POST", "DELETE", "HEAD", "WEBSOCKET"})


class Requests:
    """Answers over HTTP, by method and status."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, int]] = Counter()

    def count(self, method: str, status: int) -> None:
        self.counts[method if method in _METHODS else "other", status] += 1


class BrokerCollector(Collector):
    def __init__(self, broker: Broker, subscriptions: Subscriptions, requests: Requests) -> None:
        self._broker, self._subscriptions, self._requests = broker, subscriptions, requests

    def collect(self) -> Iterator[Metric]:
        node, sessions = self._broker.node, getattr(self._broker.node.core, "sessions", None)
        yield InfoMetricFamily(
            "catchment_broker", "Who this is", {"name": node.name, "routing": self._broker.config.routing}
        )
        for name, text in _TOTALS.items():
            count = getattr(node.totals, name) + (self._subscriptions.lost if name == "lost" else 0)
            yield CounterMetricFamily(f"catchment_notifications_{name}", text, count)
        yield GaugeMetricFamily("catchment_uptime_seconds", "Since the start", self._broker.uptime_s)
        yield GaugeMetricFamily("catchment_clients", "Clients that are connected, over HTTP too", len(node.clients))
        count = 0 if sessions is None else sessions.subscriptions_count
        yield GaugeMetricFamily("catchment_subscriptions", "Subscriptions of clients of this broker", count)
        yield GaugeMetricFamily("catchment_http_subscriptions", "Of those over HTTP", len(self._subscriptions))
        yield GaugeMetricFamily("catchment_http_streams", "Readers of those", self._subscriptions.readers_count)
        yield from self._links()
        answers = CounterMetricFamily("catchment_http_requests", "Answers over HTTP", labels=("method", "status"))
        for (method, status), count in sorted(self._requests.counts.items()):
            answers.add_metric((method, str(status)), count)
        yield answers

    def _links(self) -> Iterator[Metric]:
        links = sorted(self._broker.node.links.items())
        yield GaugeMetricFamily("catchment_links", "Links to neighbors that are up", len(links))
        received = CounterMetricFamily("catchment_link_received", "Notifications from a neighbor", labels=("neighbor",))
        forwarded = CounterMetricFamily("catchment_link_forwarded", "Notifications to a neighbor", labels=("neighbor",))
        waiting = GaugeMetricFamily("catchment_link_outbox_bytes", "What waits for a neighbor", labels=("neighbor",))
        congested = GaugeMetricFamily(
            "catchment_link_congested", "Whether so much waits that publishers wait too", labels=("neighbor",)
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
            "catchment_publishers_held", "Publishers that are not read because a link is full", len(credits.held)
        )
        yield CounterMetricFamily(
            "catchment_links_given_up", "Links ended because too much waited", credits.links_given_up
        )
        yield CounterMetricFamily("catchment_bytes_given_up", "What was lost with those", credits.bytes_given_up)


def registry_of(broker: Broker, subscriptions: Subscriptions, requests: Requests) -> CollectorRegistry:
    """One for each broker: several may be in one process."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(BrokerCollector(broker, subscriptions, requests))
    return registry
