"""The client: what it does when the connection is lost, and its credit."""

import asyncio
from typing import Any

import pytest

from catchment import Notification
from catchment.client import (
    ConnectionLostError,
    RefusedError,
)
from catchment.client import connection as connection_module
from catchment.client import reconnecting as client_module
from catchment.errors import BadIdError, BadNumberError, LimitError
from catchment.routing.messages import Advertise, Cancel, Subscribe, Suspend
from catchment.wire import session as session_module
from catchment.wire.frames import VERSION
from catchment.wire.messages import (
    Accepted,
    Batch,
    Credit,
    Goodbye,
    Hello,
    Look,
    Publish,
    Refused,
    Request,
    Welcome,
)
from tests.integration.network import FakeBroker, Proxy, Raw, broker, client, run, until

LOST = ConnectionLostError


# --- connecting again ---------------------------------------------------------------------------


def test_what_was_asked_for_is_asked_for_again_and_a_gap_is_told():
    async def work():
        async with broker() as b, Proxy(b) as proxy, client(proxy, "reader") as reader, client(b, "p") as publisher:
            subscription = await reader.subscribe("n >= 0", id="mine")
            other = await reader.subscribe("n >= 0", identity="other")
            await publisher.publish({"n": 0}, ack="accepted")
            first = await subscription.get()
            assert (first.notification["n"], first.gap) == (0, False)
            proxy.cut()
            await until(lambda: "reader" not in [interface.name for interface in b.node.clients])
            await publisher.publish({"n": 1}, ack="accepted")
            await until(lambda: b.node.core.clients.subscriptions_count == 2)
            await publisher.publish({"n": 2}, ack="accepted")
            second, third = await subscription.get(), await other.get()
            assert (second.notification["n"], second.gap, second.subscriptions) == (2, True, ("mine",))
            assert third.notification["n"] == 0
            await subscription.cancel()
            await other.cancel()
            assert b.node.core.clients.subscriptions_count == 0

    run(work())


def test_advertisements_and_suspension_are_stated_again_before_subscriptions():
    async def work():
        async with FakeBroker() as fake, client(fake, "alice") as alice:
            wire = await fake.next()

            async def asked(work, kind):
                doing = asyncio.ensure_future(work)
                request = await wire.next(Request)
                assert isinstance(request.body, kind)
                wire.say(Accepted(request.number))
                return await doing

            await asked(alice.subscribe("x > 0", id="s"), Subscribe)
            await asked(alice.advertise("x any"), Advertise)
            await asked(alice.suspend(), Suspend)
            await asked(alice.subscribe("x > 1", id="gone"), Subscribe)
            await asked(alice.cancel("gone"), Cancel)
            await wire.close()
            wire = await fake.next()
            bodies = [(await wire.next(Request)).body for _ in range(3)]
            assert [type(body) for body in bodies] == [Advertise, Suspend, Subscribe]
            assert bodies[2].id == "s"

    run(work())


def test_nothing_comes_twice_after_a_connection_was_lost():
    async def work():
        async with broker() as b, Proxy(b) as proxy, client(proxy, "reader") as reader, client(b, "p") as publisher:
            subscription = await reader.subscribe("n >= 0")
            for n in range(5):
                await publisher.publish(Notification({"n": n}, source="p", seq=n + 1), ack="accepted")
                assert (await subscription.get()).notification["n"] == n
                proxy.cut()
                await until(lambda: not reader.is_connected)
                await until(lambda: b.node.core.clients.subscriptions_count == 1)
                # The same once more: the broker does not take it, and whoever has had it does not get it again.
                with pytest.raises(BadNumberError, match="goes back") as refused:
                    await publisher.publish(Notification({"n": n}, source="p", seq=n + 1), ack="accepted")
                assert refused.value.after == n + 1
            assert not subscription._waiting

    run(work())


def test_a_subscription_that_is_refused_later_ends_with_the_reason():
    async def work():
        async with FakeBroker() as fake, client(fake, "alice") as alice:
            wire = await fake.next()
            subscribing = asyncio.ensure_future(alice.subscribe("x > 0"))
            wire.say(Accepted((await wire.next(Request)).number))
            subscription = await subscribing
            await wire.close()
            wire = await fake.next()
            wire.say(Refused((await wire.next(Request)).number, "LimitError", "too many"))
            with pytest.raises(RefusedError, match="too many"):
                await subscription.get()

    run(work())


def test_what_is_under_way_when_the_connection_is_lost_raises():
    async def work():
        async with FakeBroker() as fake, client(fake, "alice") as alice:
            wire = await fake.next()
            under_way = [
                asyncio.ensure_future(call)
                for call in (alice.subscribe("x > 0"), alice.publish({"x": 1}, ack="accepted"), alice.look())
            ]
            await wire.next(Publish)
            await wire.close()
            outcomes = await asyncio.gather(*under_way, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [LOST, LOST, LOST]
            assert not alice._subscriptions
            # The connection that follows is good.
            wire = await fake.next()
            looking = asyncio.ensure_future(alice.advertise("x any"))
            wire.say(Accepted((await wire.next(Request)).number))
            await looking

    run(work())


def test_what_is_asked_without_a_connection_waits_for_one_and_is_asked_once():
    async def work():
        async with broker() as b, Proxy(b) as proxy, client(proxy, "alice") as alice:
            proxy.refuse()
            await until(lambda: not alice.is_connected)
            subscribing = asyncio.ensure_future(alice.subscribe("x > 0"))
            publishing = asyncio.ensure_future(alice.publish({"x": 1}, ack="accepted"))
            proxy.refuse(False)
            subscription = await subscribing
            await publishing
            assert (await subscription.get()).notification["x"] == 1
            assert b.node.totals.refused == 0

    run(work())


def test_a_client_that_does_not_reconnect_says_so_to_all():
    async def work():
        async with broker() as b, Proxy(b) as proxy, client(proxy, "alice", reconnect=False) as alice:
            subscription = await alice.subscribe("x > 0")
            reading = asyncio.ensure_future(subscription.get())
            proxy.cut()
            with pytest.raises(LOST):
                await reading
            for work in (alice.publish({"x": 1}), alice.subscribe("x > 1"), alice.look()):
                with pytest.raises(LOST):
                    await work

    run(work())


def test_a_second_comer_does_not_end_the_first():
    async def work():
        async with broker() as b, client(b, "alice") as first:
            subscription = await first.subscribe("x > 0")
            for _ in range(3):
                with pytest.raises(LOST, match="'alice' is connected already, and answers"):
                    await client(b, "alice")
            await first.publish({"x": 1}, ack="accepted")
            assert (await subscription.get()).notification["x"] == 1
            assert len(b._rivals) == 0

    run(work())


def test_a_client_whose_name_was_taken_comes_back(monkeypatch):
    """A client that is stalled loses its name to another process; when that goes, it has its name again."""
    monkeypatch.setattr(session_module, "ANSWER_S_MAX", 0.05)
    monkeypatch.setattr(client_module, "RETRY_S_FIRST", 0.01)
    monkeypatch.setattr(client_module, "RETRY_S_MOST", 0.02)

    async def work():
        async with broker() as b, Proxy(b) as proxy, client(proxy, "alice") as first:
            subscription = await first.subscribe("x > 0")
            proxy.stall()
            async with client(b, "alice") as second:
                assert [each.name for each in b.node.clients] == ["alice"]
                assert b.node.core.clients.subscriptions_count == 0
                proxy.flow()
                # The first hears that it was replaced, tries again, and is refused as long as the second answers.
                await until(lambda: first.connection.session.is_ended)
                await second.publish({"x": 1}, ack="accepted")
            await until(lambda: b.node.core.clients.subscriptions_count == 1)
            await first.publish({"x": 2}, ack="accepted")
            delivery = await subscription.get()
            assert (delivery.notification["x"], delivery.gap) == (2, True)

    run(work())


def test_who_waits_for_a_name_has_it_as_soon_as_it_is_free(monkeypatch):
    # Not because the first had no time to answer.
    monkeypatch.setattr(session_module, "ANSWER_S_MAX", 1_000)

    async def work():
        async with broker() as b, await Raw.client(b, "alice") as first, await Raw.dial(b.address) as second:
            second.say(Hello((VERSION, VERSION), "client", "alice"))
            await until(lambda: len(b._rivals) == 1)
            # A third does not wait.
            with pytest.raises(LOST, match="another connection waits for the name"):
                await client(b, "alice")
            first.say(Goodbye("done"))
            await second.next(Welcome)
            assert len(b._rivals) == 0

    run(work())


def test_who_waits_for_a_name_may_go_away():
    async def work():
        async with broker() as b, await Raw.client(b, "alice") as first:
            async with await Raw.dial(b.address) as second:
                second.say(Hello((VERSION, VERSION), "client", "alice"))
                await until(lambda: len(b._rivals) == 1)
            await until(lambda: len(b._rivals) == 0)
            first.say(Publish(1, (Notification({"x": 1}),)))
            await first.next(Accepted)

    run(work())


def test_a_refusal_that_is_final_ends_a_client_that_connects_again():
    async def work():
        async with FakeBroker() as fake, client(fake, "alice") as alice:
            subscribing = asyncio.ensure_future(alice.subscribe("x > 0"))
            wire = await fake.next()
            wire.say(Accepted((await wire.next(Request)).number))
            subscription = await subscribing
            fake.refusal = Goodbye("never", is_final=True)
            await wire.close()
            await until(lambda: alice._failed is not None)
            with pytest.raises(LOST, match="never"):
                await subscription.get()

    run(work())


@pytest.mark.parametrize("version", [0, 1, VERSION + 1])
def test_another_version_is_refused(version):
    async def work():
        async with FakeBroker(version=version) as fake:
            with pytest.raises(LOST, match=f"speaks version {version}"):
                await client(fake, "alice")

    run(work())


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (Accepted(99), "Accepted 99 answers nothing that was asked"),
        (Publish(1, ()), "'Publish' is out of place in SERVED"),
        (Batch(()), "'Batch' is out of place in SERVED"),
        (Credit(-1), "a credit of -1"),
    ],
)
def test_a_broker_that_says_what_it_must_not_is_left_for_another_connection(bad, reason):
    async def work():
        async with FakeBroker() as fake, client(fake, "alice") as alice:
            wire = await fake.next()
            looking = asyncio.ensure_future(alice.look())
            await wire.next(Look)
            wire.say(bad)
            assert (await wire.next(Goodbye)).reason.startswith(reason)
            with pytest.raises(LOST):
                await looking
            await fake.next()

    run(work())


def test_a_silent_broker_is_left(monkeypatch):
    monkeypatch.setattr(connection_module, "TICK_S", 0.02)

    async def work():
        async with FakeBroker() as fake, client(fake, "alice") as alice:
            await fake.next()
            looking = asyncio.ensure_future(alice.look())
            with pytest.raises(LOST, match="silent"):
                await looking
            await fake.next()

    run(work())


def test_a_broker_that_does_not_answer_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(connection_module, "CONNECT_S_MAX", 0.05)

    async def work():
        async with broker() as b, Proxy(b) as proxy:
            proxy.stall()
            with pytest.raises(LOST, match="no answer"):
                await client(proxy, "alice")

    run(work())


def test_nobody_there():
    async def work():
        async with broker() as b:
            gone = b.address
        at = type("Gone", (), {"address": gone})
        with pytest.raises(LOST, match="cannot connect"):
            await client(at, "alice")

    run(work())


# --- credit -------------------------------------------------------------------------------------


def test_never_more_than_the_credit_also_after_a_reconnect():
    async def work():
        async with FakeBroker(credit=10) as fake, client(fake, "p") as publisher:
            wire = await fake.next()
            publishing = asyncio.ensure_future(_publish_each(publisher, 35))
            assert await _received(wire, 10) == [*range(10)]
            wire.say(Credit(5))
            assert await _received(wire, 5) == [*range(10, 15)]
            # Credit of one connection is none of the next.
            wire.say(Credit(3))
            assert await _received(wire, 3) == [15, 16, 17]
            await wire.close()
            wire = await fake.next()
            assert await _received(wire, 10) == [*range(18, 28)]
            assert not publishing.done()
            wire.say(Credit(7))
            assert await _received(wire, 7) == [*range(28, 35)]
            await publishing

    run(work())


async def _publish_each(publisher, count):
    for n in range(count):
        await publisher.publish({"n": n})


async def _received(wire, count):
    numbers: list[int] = []
    while len(numbers) < count:
        numbers += [notification["n"] for notification in (await wire.next(Publish)).notifications]
    return numbers


def test_what_is_published_first_is_sent_first():
    """A small publication does not overtake a large one that waits for credit: its number would be the greater."""

    async def work():
        async with FakeBroker(credit=5) as fake, client(fake, "p") as publisher:
            wire = await fake.next()
            await publisher.publish([Notification({"n": n}) for n in range(3)])
            large = asyncio.ensure_future(publisher.publish([Notification({"n": n}) for n in range(3, 7)]))
            small = asyncio.ensure_future(publisher.publish({"n": 7}))
            assert await _received(wire, 3) == [0, 1, 2]
            wire.say(Credit(8))
            sent = [notification for _ in range(3) for notification in (await wire.next(Publish)).notifications]
            assert [notification["n"] for notification in sent] == [3, 4, 5, 6, 7]
            assert [notification.seq for notification in sent] == sorted({notification.seq for notification in sent})
            await asyncio.gather(large, small)

    run(work())


def test_a_publication_may_be_longer_than_the_credit():
    async def work():
        async with FakeBroker(credit=3) as fake, client(fake, "p") as publisher:
            wire = await fake.next()
            publishing = asyncio.ensure_future(
                publisher.publish([Notification({"n": n}) for n in range(8)], ack="accepted")
            )
            for expected in ([0, 1, 2], [3, 4, 5], [6, 7]):
                publish = await wire.next(Publish)
                assert [notification["n"] for notification in publish.notifications] == expected
                assert not publishing.done()
                wire.say(Credit(3), Accepted(publish.number))
            await publishing

    run(work())


def test_close_ends_all_that_waits():
    async def work():
        async with FakeBroker(credit=1) as fake:
            alice = await client(fake, "alice")
            await fake.next()
            await alice.publish({"x": 1})
            waiting = [
                asyncio.ensure_future(call)
                for call in (alice.publish({"x": 2}), alice.publish({"x": 3}), alice.subscribe("x > 0"), alice.look())
            ]
            await until(lambda: len(alice.connection._waiting) == 2)
            await alice.close()
            outcomes = await asyncio.gather(*waiting, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [LOST] * 4
            with pytest.raises(LOST):
                await alice.publish({"x": 4})
            await alice.close()

    run(work())


def test_close_waits_for_what_was_published():
    async def work():
        async with broker() as b:
            async with client(b, "p") as publisher:
                await publisher.publish([Notification({"n": n}, payload=bytes(10_000)) for n in range(500)])
            await until(lambda: b.node.totals.published == 500)

    run(work())


def test_whoever_does_not_wait_for_an_answer_leaves_nothing_behind():
    async def work():
        async with FakeBroker() as fake, client(fake, "alice") as alice:
            wire = await fake.next()
            for _ in range(20):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(alice.subscribe("x > 0"), 0.005)
            assert not alice._subscriptions
            # What was asked and is not wanted any more is cancelled at the broker.
            requests = [await wire.next(Request) for _ in range(40)]
            assert [type(request.body) for request in requests] == [Subscribe, Cancel] * 20
            wire.say(*(Accepted(request.number) for request in requests))
            await until(lambda: not alice.connection._waiting)

    run(work())


def test_what_is_too_large_is_refused_here():
    async def work():
        async with broker() as b, client(b, "p") as publisher:
            with pytest.raises(LimitError, match="NOTIFICATION_BYTES_MAX"):
                await publisher.publish({f"x{n}": "y" * 65_536 for n in range(40)})
            await publisher.publish({"x": 1}, ack="accepted")

    run(work())


def test_a_second_subscription_of_the_same_id():
    async def work():
        async with broker() as b, client(b, "alice") as alice:
            asking: list[Any] = [alice.subscribe("x > 0", id="s"), alice.subscribe("x > 1", id="s")]
            first, second = await asyncio.gather(*asking, return_exceptions=True)
            assert isinstance(second, BadIdError)
            await alice.publish({"x": 2})
            assert not isinstance(first, BaseException)
            assert (await first.get()).subscriptions == ("s",)

    run(work())


def test_what_a_client_has_seen_is_bounded(monkeypatch):
    monkeypatch.setattr("catchment.client.client.SEEN_SOURCES_MAX", 20)
    monkeypatch.setattr("catchment.client.client.SEEN_BYTES_MAX", 400)

    async def work():
        async with broker() as b, client(b, "alice") as alice:
            subscription = await alice.subscribe("x > 0")
            await alice.publish([Notification({"x": 1}, source=f"source {n:02}", seq=1) for n in range(50)])
            for _ in range(50):
                await subscription.get()
            assert list(alice.seen) == [f"source {n}" for n in range(30, 50)]
            assert list(alice._seen_lately()) == [f"source {n}" for n in range(43, 50)]

    run(work())


def test_a_goodbye_is_said():
    async def work():
        async with FakeBroker() as fake:
            async with client(fake, "alice"):
                wire = await fake.next()
            assert await wire.next(Goodbye) == Goodbye("done")

    run(work())
