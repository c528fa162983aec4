"""Silence about loss ends: a relay is killed or stopped while acknowledged notifications are under way, and all that
does not arrive lies in a gap that the subscriber was told. And how clients, the command and HTTP show gaps."""

import asyncio
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from catchment.broker.config import Config
from catchment.broker.server import Broker
from catchment.cli.sub import print_gap, to_json
from catchment.client import Delivered, GapSpan
from catchment.client.deliveries import GAPS_MAX, Queue
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.routing.messages import Neighbor
from catchment.sim.conformance.entries import Run
from catchment.sim.conformance.gap_checker import GapChecker
from tests.integration.network import ANYWHERE, broker, client, run, until, until_heard
from tests.live.hosts import Hosts
from tests.live.network import LiveNetwork
from tests.live.runs import live_network

EPOCH = datetime.fromtimestamp(0, UTC)
ROUNDS, NOTIFICATIONS = 3, 30
SPAN = GapSpan("far/1/1", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), datetime(1970, 1, 1, 0, 0, 3, tzinfo=UTC), 7)


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with Hosts() as started:
        yield started


def publish_some(network: LiveNetwork) -> None:
    for i in range(NOTIFICATIONS):
        network.publish("bob", {"x": i})
        network.advance(2_000)


@pytest.mark.parametrize("system", ["siena acyclic", "siena general"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_all_that_a_relay_loses_lies_in_a_gap_that_the_subscriber_was_told(
    hosts: Hosts, system: str, how: signal.Signals
):
    gaps = GapChecker(needs_acceptance=True, epoch=EPOCH)
    with live_network(Run(system, "line", 1), hosts, (gaps,)) as network:
        first, relay, *_, last = network.topology.brokers
        network.connect("alice", last)
        network.subscribe("alice", "all", Filter("x any"))
        network.connect("bob", first)
        network.settle()
        gaps.at_quiescence(network)
        publish_some(network)
        network.settle()
        gaps.at_quiescence(network)
        assert network.clients["alice"].gaps == {}
        gaps.has_failed = True
        for _ in range(ROUNDS):
            publish_some(network)
            network._end(relay, how)
            publish_some(network)
            network.restart(relay)
            publish_some(network)
            network.settle()
            gaps.at_quiescence(network)
        told = network.clients["alice"].gaps.values()
        assert gaps.losses_told >= ROUNDS
        # Each is over, and names a link of the relay.
        assert all(gap.until and relay in gap.link for gap in told)


# --- clients ------------------------------------------------------------------------------------


def test_a_client_is_told_at_once_and_with_its_next_delivery():
    async def work() -> None:
        spans: list[GapSpan] = []
        async with (
            broker("a") as a,
            broker("b", (a.address,)) as b,
            client(a, "alice", on_gap=spans.append) as alice,
            client(b, "bob") as bob,
        ):
            subscription = await alice.subscribe("x any or probe any")
            await until_heard(bob, subscription)
            assert [span for span in spans if span.link is None] == []
            spans.clear()
            # The link ends, and is made again.
            b.link_of(Neighbor("a")).abort("tried")
            await until(lambda: spans and spans[-1].until)
            assert ({span.link for span in spans}, len({span.id for span in spans})) == ({("a", "b")}, 1)
            await until_heard_with_gap(bob, subscription)

    run(work())


async def until_heard_with_gap(publisher: Any, subscription: Any) -> None:
    delivery = None
    while delivery is None:
        await publisher.publish({"x": 1}, ack="accepted")
        await asyncio.sleep(0)
        delivery = await subscription.get() if subscription._waiting else None
    assert delivery.gap
    assert [gap.link for gap in delivery.gaps] == [("a", "b")]


def test_a_clean_stop_of_a_broker_that_is_alone_is_no_gap():
    async def work() -> None:
        spans: list[GapSpan] = []
        async with broker("a") as a, client(a, "alice", on_gap=spans.append) as alice:
            await alice.subscribe("x any")
            b = Broker(Config("b", ANYWHERE, neighbors=(a.address,)))
            await b.start()
            await until(lambda: a.node.links)
            await b.stop()
            await until(lambda: not a.node.links)
            assert spans == []

    run(work())


def test_what_is_told_again_is_kept_as_it_is_now_and_only_so_much():
    async def work() -> None:
        queue = Queue()
        for number in range(GAPS_MAX + 3):
            queue.mark_gap(GapSpan(f"g{number}", EPOCH, None))
        queue.mark_gap(GapSpan("g5", EPOCH, EPOCH))
        queue.put("alice", ("s",), (Notification({}),), 1)
        delivery = await queue.get()
        assert len(delivery.gaps) == GAPS_MAX
        assert delivery.gaps[-1] == GapSpan("g5", EPOCH, EPOCH)
        queue.put("alice", ("s",), (Notification({}),), 1)
        assert (await queue.get()).gaps == ()

    run(work())


def test_the_command_prints_a_gap(capsys: pytest.CaptureFixture[str]):
    print_gap(SPAN)
    print_gap(GapSpan("x", EPOCH, None, 3, ("a", "b")))
    lost, failed = capsys.readouterr().err.splitlines()
    assert lost.startswith("gap: the connection to the broker was lost: notifications since 1970-01-01T00:00:01Z")
    assert failed == (
        "gap: the link a - b failed: notifications since 1970-01-01T00:00:00Z may be missing, it is not over, "
        "3 were lost on the link"
    )
    document = to_json(Delivered((Notification({}),), ("s",), "alice", 0, gap=True, gaps=(SPAN,)))
    assert document["gaps"] == [
        {"since": "1970-01-01T00:00:01Z", "until": "1970-01-01T00:00:03Z", "missed": 7, "link": None}
    ]
