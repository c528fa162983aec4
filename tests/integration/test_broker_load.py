"""A broker under load: who publishes too fast waits, who reads too slowly loses and is told, others notice nothing."""

import asyncio
from typing import Any

import pytest

from catchment import Filter, Notification
from catchment.broker import connection as connection_module
from catchment.broker import server as server_module
from catchment.broker.connection import Connection
from catchment.broker.credit import CREDIT, CREDIT_SLACK
from catchment.broker.server import Broker
from catchment.routing.messages import Subscribe
from catchment.wire import session as session_module
from catchment.wire.frames import BATCH_MAX, PIECE_BYTES
from catchment.wire.messages import Accepted, Credit, Delivery, Lost, Publish, Request
from tests.integration.network import Raw, broker, client, notifications_in, pair, run, until, until_heard

KILOBYTES_4 = bytes(4_096)


def several(count: int, start: int = 0, payload: bytes = b"", source: str = "p") -> list[Notification]:
    return [Notification({"n": n}, source=source, seq=n + 1, payload=payload) for n in range(start, start + count)]


def is_out_of_credit(b) -> bool:
    """Whether a publisher has so little credit left that the next piece of a large publication does not go."""
    owed = b.credits.owed.values()
    assert all(count <= CREDIT for count in owed)
    return b.is_congested and any(count > CREDIT - PIECE_BYTES // len(KILOBYTES_4) for count in owed)


def connection_of(b: Broker, name: str) -> Connection:
    (connection,) = [each for each in b.connections if each.who and each.who.name == name]
    return connection


# --- credit -------------------------------------------------------------------------------------


def test_credit_comes_back_for_what_was_handled():
    async def work():
        async with broker() as b, await Raw.client(b, "p") as raw:
            # More, in all, than was ever allowed at once.
            sent, credit = 0, CREDIT
            while sent < 5 * CREDIT:
                while credit < BATCH_MAX:
                    credit += (await raw.next(Credit)).notifications
                raw.say(Publish(0, tuple(several(BATCH_MAX, sent))))
                sent, credit = sent + BATCH_MAX, credit - BATCH_MAX
                assert 0 <= credit <= CREDIT
            await until(lambda: b.node.totals.published == sent)

    run(work())


def test_publishers_wait_while_a_link_is_congested():
    async def work():
        async with (
            broker(routing="flooding") as b,
            await Raw.neighbor(b, "deaf", "flooding") as deaf,
            client(b, "p") as publisher,
            client(b, "reader") as reader,
        ):
            subscription = await reader.subscribe("n >= 0")
            total = 2 * CREDIT
            publishing = asyncio.create_task(publisher.publish(several(total, payload=KILOBYTES_4)))
            # As much as it has credit for, and nothing more; who is here has it all the same.
            await until(lambda: is_out_of_credit(b))
            published = b.node.totals.published
            for _ in range(50):
                assert (await reader.look())["totals"]["published"] == published
            assert not publishing.done()
            await until(lambda: len(subscription._waiting) + subscription.missed == b.node.totals.published)
            messages = await deaf.rest(lambda messages: len(notifications_in(messages)) == total)
            await publishing
            assert [notification["n"] for notification in notifications_in(messages)] == [*range(total)]
            await until(lambda: len(subscription._waiting) + subscription.missed == total)

    run(work())


def test_who_ignores_credit_is_ended_and_the_others_are_not():
    async def work():
        async with (
            broker(routing="flooding") as b,
            await Raw.neighbor(b, "deaf", "flooding"),
            await Raw.client(b, "greedy") as greedy,
            client(b, "alice") as alice,
        ):
            for start in range(0, 4 * CREDIT, 512):
                # So large that the link is congested, and not so large that it is not read any more.
                greedy.say(Publish(0, tuple(several(512, start, KILOBYTES_4[:2_048], "greedy"))))
            messages = await greedy.rest()
            assert "past its credit" in messages[-1].reason
            given = CREDIT + sum(message.notifications for message in messages if isinstance(message, Credit))
            assert given < b.node.totals.published <= given + CREDIT_SLACK
            await until(lambda: len(b.node.clients) == 1)
            assert not b.credits.owed
            await alice.publish({"x": 1}, ack="accepted")

    run(work())


def test_publishers_need_not_wait_for_a_link_that_is_gone():
    async def work():
        async with broker(routing="flooding") as b, client(b, "p") as publisher:
            async with await Raw.neighbor(b, "deaf", "flooding"):
                publishing = asyncio.create_task(publisher.publish(several(2 * CREDIT, payload=KILOBYTES_4)))
                await until(lambda: is_out_of_credit(b))
                assert not publishing.done()
            await publishing
            await until(lambda: b.node.totals.published == 2 * CREDIT)

    run(work())


# --- slow consumers -----------------------------------------------------------------------------


def test_a_slow_consumer_is_told_exactly_what_it_missed(monkeypatch):
    monkeypatch.setattr(connection_module, "CLIENT_OUTBOX_BYTES_MAX", 1_048_576)

    async def work():
        async with broker() as b, client(b, "p") as publisher, await Raw.client(b, "slow") as slow:
            slow.say(Request(1, Subscribe("slow", "s", Filter("n >= 0"))))
            await slow.next(Accepted)
            outlet = connection_of(b, "slow")
            most, sent = 0, 0
            # It reads now and then, and for the last time when nothing is published any more.
            for _ in range(6):
                while not b.node.totals.lost or outlet.is_behind() is False:
                    await publisher.publish(several(100, sent, KILOBYTES_4), ack="accepted")
                    sent, most = sent + 100, max(most, outlet.outbox_bytes)
                slow._unread += await slow.read()
            assert most <= connection_module.CLIENT_OUTBOX_BYTES_MAX + 2 * len(KILOBYTES_4)
            messages = await slow.rest(lambda messages: _accounted(messages) >= sent)
            delivered = [message.notification["n"] for message in messages if isinstance(message, Delivery)]
            assert _accounted(messages) == sent
            assert sum(message.count for message in messages if isinstance(message, Lost)) == b.node.totals.lost > 0
            assert delivered == sorted(set(delivered))

    run(work())


def _accounted(messages: list[Any]) -> int:
    return sum(each.count if isinstance(each, Lost) else 1 for each in messages if isinstance(each, Delivery | Lost))


def test_a_client_that_does_not_read_its_subscription_counts_too(monkeypatch):
    monkeypatch.setattr("catchment.client.deliveries.QUEUE_MAX", 50)

    async def work():
        async with broker() as b, client(b, "a") as a:
            subscription = await a.subscribe("n >= 0")
            await a.publish(several(180), ack="accepted")
            await until(lambda: subscription.missed == 130)
            assert [(await subscription.get()).notification["n"] for _ in range(50)] == [*range(50)]
            await a.publish(several(1, 180), ack="accepted")
            assert (await subscription.get()).missed == 130
            assert subscription.missed == 130

    run(work())


def test_what_was_missed_while_suspended_is_told_also_to_a_slow_client(monkeypatch):
    monkeypatch.setattr("catchment.routing.parts.clients.SUSPENDED_MAX", 10)

    async def work():
        async with broker() as b, client(b, "a") as a:
            subscription = await a.subscribe("n >= 0")
            await a.suspend()
            await a.publish(several(25), ack="accepted")
            await a.resume()
            deliveries = [await subscription.get() for _ in range(10)]
            assert [delivery.notification["n"] for delivery in deliveries] == [*range(15, 25)]
            assert (deliveries[0].missed, subscription.missed) == (15, 15)

    run(work())


# --- one of a hundred ---------------------------------------------------------------------------

READERS = 99
ROUND_NOTIFICATIONS = 100
ROUNDS = 3


@pytest.mark.slow
def test_one_stalled_reader_of_a_hundred_takes_nothing_from_the_others():
    """How long they wait is measured by `./dev bench stall`."""

    async def work():
        async with broker() as b, client(b, "p") as publisher:
            others = [await client(b, f"reader {n}") for n in range(READERS)]
            for reader in others:
                await reader.subscribe("n >= 0")
            async with await Raw.client(b, "stalled") as stalled:
                await _stall(b, stalled, publisher)
                for number in range(ROUNDS):
                    lost = b.node.totals.lost
                    await _round(publisher, others, number)
                    assert b.node.totals.lost == lost + ROUND_NOTIFICATIONS  # by the stalled one alone
            for reader in others:
                await reader.close()

    run(work())


async def _stall(b, stalled: Raw, publisher) -> None:
    """So much waits for it that it loses what comes."""
    stalled.say(Request(1, Subscribe("stalled", "s", Filter("n >= 0 or big = true"))))
    await stalled.next(Accepted)
    lost = b.node.totals.lost
    while b.node.totals.lost == lost:
        await publisher.publish([Notification({"big": True}, payload=bytes(262_144))] * 8, ack="accepted")


async def _round(publisher, others, number: int) -> None:
    queues = [next(iter(reader._subscriptions.values())) for reader in others]
    for n in range(ROUND_NOTIFICATIONS):
        await publisher.publish({"n": number * ROUND_NOTIFICATIONS + n})
    for queue in queues:
        for n in range(ROUND_NOTIFICATIONS):
            async with asyncio.timeout(30):
                delivery = await queue.get()
            assert (delivery.notification["n"], delivery.missed) == (number * ROUND_NOTIFICATIONS + n, 0)


# --- links --------------------------------------------------------------------------------------


def test_a_link_that_stays_congested_is_dropped_and_comes_back(monkeypatch, caplog):
    monkeypatch.setattr(connection_module, "LINK_OUTBOX_BYTES_MAX", 6 * 1_048_576)
    caplog.set_level("INFO", "catchment.broker")

    async def work():
        async with pair() as two:
            two.proxy.stall()
            publishing = asyncio.create_task(two.publisher.publish(several(CREDIT, 0, KILOBYTES_4 * 2, "bulk")))
            await until(lambda: not two.a.node.links)
            await publishing
            two.proxy.flow()
            two.proxy.cut()
            await until(lambda: two.a.node.links and two.b.node.links)
            await until_heard(two.publisher, two.subscription)
            # Nothing wrong, nothing twice, in order; what was under way is lost.
            await two.publisher.publish({"n": CREDIT}, ack="accepted")
            assert (await two.subscription.get()).notification["n"] == CREDIT

    run(work())
    assert any("bytes wait for it" in getattr(record, "reason", "") for record in caplog.records)


# --- nothing grows ------------------------------------------------------------------------------


def _timers_count() -> int:
    """Those of the loop that wait to fire, where it lets us see them."""
    return sum(not timer.cancelled() for timer in getattr(asyncio.get_running_loop(), "_scheduled", ()))


def test_nothing_is_left_of_clients_that_are_gone():
    async def work():
        async with broker() as b:
            before = _timers_count()
            for round in range(10):
                raws = [await Raw.client(b, f"client {n}") for n in range(20)]
                for n, raw in enumerate(raws):
                    raw.say(
                        Request(1, Subscribe(f"client {n}", "s", Filter(f"x = {n}"))), Publish(0, tuple(several(5)))
                    )
                    await raw.next(Accepted)
                for raw in raws:
                    await (raw.close() if round % 2 else raw.__aexit__())
            await until(lambda: not b.connections)
            await until(lambda: not b.node.clients)
            assert (b._by_who, b.credits.owed, b._dialing, b._timers.count) == ({}, {}, {}, 0)
            assert len(b.node.core.clients) == 0
            assert _timers_count() <= before + 3

    run(work())


def test_who_takes_what_waits_is_not_silent_and_who_does_not_is(monkeypatch):
    monkeypatch.setattr(server_module, "TICK_S", 0.02)

    async def work():
        async with broker() as b, client(b, "p") as publisher, await Raw.client(b, "deaf") as deaf:
            await until(lambda: len(b.connections) == 1)
            await deaf.rest()
            assert (await publisher.look())["name"] == "b"

    run(work())


def test_a_slow_reader_that_never_answers_a_ping_is_kept_while_it_reads(monkeypatch):
    monkeypatch.setattr(connection_module, "CLIENT_OUTBOX_BYTES_MAX", 4 * 1_048_576)

    async def work():
        async with broker() as b, client(b, "p") as publisher, await Raw.client(b, "slow") as slow:
            slow.say(Request(1, Subscribe("slow", "s", Filter("n >= 0"))))
            await slow.next(Accepted)
            outlet = connection_of(b, "slow")
            sent = 0
            now = asyncio.get_running_loop().time
            outlet.tick(now())
            for _ in range(4 * session_module.SILENT_TICKS_MAX):
                while not outlet.is_behind():
                    await publisher.publish(several(100, sent, KILOBYTES_4), ack="accepted")
                    sent += 100
                taken = outlet._put_bytes - outlet.outbox_bytes
                while outlet._put_bytes - outlet.outbox_bytes == taken:
                    await slow._reader.read(262_144)
                outlet.tick(now())
                assert outlet.is_open
            # It stops reading: now it is.
            for _ in range(session_module.SILENT_TICKS_MAX + 2):
                outlet.tick(now())
            assert (outlet.is_open, outlet.session.reason) == (False, "it is silent")

    run(work())
