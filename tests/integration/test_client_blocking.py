"""The client without `await`."""

import asyncio
import queue
import threading

import pytest

from catchment import Notification
from catchment.broker.config import Config
from catchment.broker.server import Broker
from catchment.client import (
    BlockingClient,
    BlockingSubscription,
    ConnectionLostError,
    GapSpan,
    connect_blocking,
)
from catchment.errors import BadIdError
from catchment.routing.messages import Client
from tests.integration.network import ANYWHERE

LOST = ConnectionLostError


@pytest.fixture
def broker():
    """A broker in a loop of its own, and a way to do something in that loop."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start():
        broker = Broker(Config(listen=ANYWHERE))
        await broker.start()
        return broker

    broker = asyncio.run_coroutine_threadsafe(start(), loop).result()
    yield broker, loop.call_soon_threadsafe
    asyncio.run_coroutine_threadsafe(broker.stop(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def served(broker):
    return f"catchment://{broker[0].address}"


def next_of(subscription: BlockingSubscription) -> Notification:
    delivery = subscription.get(timeout=10)
    assert delivery is not None
    return delivery.notification


def test_the_same_without_await(served):
    with connect_blocking(served, identity="alice") as alice, connect_blocking(served) as other:
        subscription = alice.subscribe("x > 0", id="s")
        assert subscription.get(timeout=0.01) is None
        other.publish([Notification({"x": n}) for n in range(1, 4)], ack="accepted")
        assert [next_of(subscription)["x"] for _ in range(3)] == [1, 2, 3]
        alice.advertise("x any")
        alice.unadvertise("x any")
        alice.suspend()
        other.publish({"x": 9}, ack="accepted")
        assert subscription.get(timeout=0.01) is None
        alice.resume()
        assert next_of(subscription)["x"] == 9
        assert alice.look()["name"] == alice.broker == "broker"
        assert alice.identity == "alice"
        with pytest.raises(BadIdError):
            alice.cancel("nothing")
        subscription.cancel()
        assert list(subscription) == []
        alice.subscribe("x > 5")
        alice.unsubscribe("x > 1")
        assert alice.look()["subscriptions"] == 0


def test_without_await_many_threads_may_use_it(served):
    with connect_blocking(served) as client:
        subscription = client.subscribe("n >= 0")
        threads = [threading.Thread(target=_publish_blocking, args=(client, start)) for start in range(0, 100, 25)]
        for thread in threads:
            thread.start()
        numbers = [next_of(subscription)["n"] for _ in range(100)]
        for thread in threads:
            thread.join()
        assert {*numbers} == {*range(100)}


def _publish_blocking(client: BlockingClient, start: int) -> None:
    for n in range(start, start + 25):
        client.publish({"n": n})


def test_without_await_what_ends_says_so(served):
    client = connect_blocking(served)
    subscription = client.subscribe("x > 0")
    client.close()
    client.close()
    for call in (lambda: client.publish({"x": 1}), lambda: subscription.get(timeout=1), client.look):
        with pytest.raises(LOST):
            call()
    with pytest.raises(LOST, match="cannot connect"):
        connect_blocking("catchment://127.0.0.1:1")


def test_without_await_a_gap_is_told_at_once(served, broker):
    spans: queue.Queue[GapSpan] = queue.Queue()
    refused: list[str] = []

    def on_gap(span: GapSpan) -> None:
        if not refused:
            try:
                client.look()
            except RuntimeError as problem:  # instead of waiting for itself
                refused.append(str(problem))
        spans.put(span)

    with connect_blocking(served, identity="alice", on_gap=on_gap) as client:
        subscription = client.subscribe("x > 0")
        outlet = broker[0].node.clients[Client("alice")].outlet
        broker[1](lambda: outlet.end("tried"))
        begun, over = spans.get(timeout=10), spans.get(timeout=10)
        assert (begun.id, begun.until, begun.link) == (over.id, None, None)
        assert over.until is not None
        client.publish({"x": 1}, ack="accepted")
        delivery = subscription.get(timeout=10)
        assert delivery is not None
        assert delivery.gaps == (over,)
    assert refused == ["on_gap runs in the thread of the client: call the client from another thread"]
