"""A neighbor that does not keep up: publishers here wait, memory is bounded, nothing that was acknowledged is lost."""

import asyncio
import io
import re

import httpx
import pytest
from rich.console import Console

from catchment import Notification
from catchment.broker import connection as connection_module
from catchment.broker.credit import CREDIT
from catchment.cli.top import rates_table
from catchment.routing.messages import Header, Neighbor
from catchment.wire import session as session_module
from catchment.wire.messages import Batch, Parcel
from tests.integration.live import ANY_PORT
from tests.integration.network import Raw, broker, client, notifications_in, pair, run, until

uvloop = pytest.importorskip("uvloop")
KILOBYTES_16 = bytes(16_384)
PUBLISHERS, EACH = 4, 250


@pytest.fixture
def small(monkeypatch):
    """A sixteenth of what they are, so that systems' buffers do not hide them."""
    for name in ("CONGESTED_BYTES", "FULL_BYTES", "LINK_OUTBOX_BYTES_MAX"):
        monkeypatch.setattr(connection_module, name, getattr(connection_module, name) // 16)


async def _publish(publisher, acknowledged: list[tuple[str, int]]) -> None:
    for n in range(EACH):
        large = Notification({"n": n, "by": publisher.identity}, payload=KILOBYTES_16)
        await publisher.publish(large, ack="accepted")
        acknowledged.append((publisher.identity, n))


@pytest.mark.parametrize("run_in", [run, uvloop.run])
def test_large_notifications_wait_before_the_credit_is_used_up(run_in, small):
    """As many publishers as could fill the outbox of the link with the credit that they have."""

    async def work():
        async with broker(routing="flooding") as b, await Raw.neighbor(b, "deaf", "flooding") as deaf:
            publishers = [await client(b, f"p{n}") for n in range(PUBLISHERS)]
            acknowledged: list[tuple[str, int]] = []
            publishing = [asyncio.create_task(_publish(publisher, acknowledged)) for publisher in publishers]
            await until(lambda: len(b.credits.held) == PUBLISHERS)
            assert all(owed < CREDIT // 4 for owed in b.credits.owed.values())
            before, most = len(acknowledged), connection_module.FULL_BYTES + PUBLISHERS * 2 * len(KILOBYTES_16)
            async with client(b, "looks") as looking:
                for _ in range(50):
                    status = await looking.look()
                    assert status["links"][0]["outbox_bytes"] <= most
                    assert status["publishers_held"] == PUBLISHERS
            assert len(acknowledged) <= before + PUBLISHERS
            assert not any(task.done() for task in publishing)
            # It reads again: all comes, in the order of each.
            messages = await deaf.rest(lambda messages: len(notifications_in(messages)) == PUBLISHERS * EACH)
            await asyncio.gather(*publishing)
            heard = [(notification["by"], notification["n"]) for notification in notifications_in(messages)]
            for publisher in publishers:
                assert [n for by, n in heard if by == publisher.identity] == [*range(EACH)]
                await publisher.close()
            assert (b.credits.held, b.credits.congested, b.credits.links_given_up) == ({}, {}, 0)

    run_in(work())


def test_all_that_was_acknowledged_comes_when_a_stalled_neighbor_goes_on(small):
    async def work():
        async with pair() as two:
            two.proxy.stall()
            acknowledged: list[tuple[str, int]] = []
            rounds = asyncio.create_task(_publish_rounds(two.publisher, acknowledged, 3))
            await until(lambda: two.a.credits.held)
            assert two.a.link_of(Neighbor("b")).outbox_bytes < connection_module.LINK_OUTBOX_BYTES_MAX
            two.proxy.flow()
            await rounds
            deliveries = [await two.subscription.get() for _ in range(3 * EACH)]
            assert [
                (delivery.notification["by"], delivery.notification["n"]) for delivery in deliveries
            ] == acknowledged
            assert not any(delivery.missed or delivery.gap for delivery in deliveries)
            assert two.a.credits.links_given_up == 0

    run(work())


async def _publish_rounds(publisher, acknowledged, rounds: int) -> None:
    for _ in range(rounds):
        await _publish(publisher, acknowledged)


def test_publishers_go_on_when_the_full_link_is_gone(small):
    async def work():
        async with broker(routing="flooding") as b, client(b, "p") as publisher:
            acknowledged: list[tuple[str, int]] = []
            async with await Raw.neighbor(b, "deaf", "flooding"):
                publishing = asyncio.create_task(_publish_rounds(publisher, acknowledged, 3))
                await until(lambda: b.credits.held)
            await publishing
            assert not b.credits.held

    run(work())


def test_publishers_go_on_when_the_full_link_is_replaced(small, monkeypatch):
    """By the same broker, started again: what it was is not gone, but nobody waits for that."""
    monkeypatch.setattr(session_module, "ANSWER_S_MAX", 0)

    async def work():
        async with broker(routing="flooding") as b, client(b, "p") as publisher:
            acknowledged: list[tuple[str, int]] = []
            async with await Raw.neighbor(b, "deaf", "flooding"):
                publishing = asyncio.create_task(_publish_rounds(publisher, acknowledged, 3))
                await until(lambda: b.credits.held)
                async with await Raw.neighbor(b, "deaf", "flooding", "2") as again:
                    await again.rest(lambda _: publishing.done())
                    await publishing
                    assert not b.credits.held

    run(work())


def test_a_publisher_that_waits_is_not_taken_for_dead(small):
    """It may well answer pings: nobody reads that."""

    async def work():
        async with broker(routing="flooding") as b, client(b, "p") as publisher:
            async with await Raw.neighbor(b, "deaf", "flooding"):
                acknowledged: list[tuple[str, int]] = []
                publishing = asyncio.create_task(_publish_rounds(publisher, acknowledged, 3))
                await until(lambda: b.credits.held)
                (waiting,) = b.credits.held
                for _ in range(10 * session_module.SILENT_TICKS_MAX):
                    waiting.tick(asyncio.get_running_loop().time())
                    assert waiting.is_open
            await publishing

    run(work())


def test_links_are_read_whoever_is_full_and_what_they_bring_too_much_is_counted(small, caplog):
    """The last resort: a neighbor brings more than another takes."""

    async def work():
        async with (
            broker(routing="flooding", http=ANY_PORT) as b,
            await Raw.neighbor(b, "deaf", "flooding"),
            await Raw.neighbor(b, "loud", "flooding") as loud,
            client(b, "looks") as looking,
        ):
            n = 0
            before = await looking.look()
            congested = before
            while not b.credits.links_given_up:
                large = Notification({"n": n}, source="l", seq=n + 1, payload=KILOBYTES_16)
                loud.say(Batch((Parcel(Header(1), (large,)),)))
                await loud.flush()
                n += 1
                if b.is_congested and not congested["links"][0]["is_congested"]:
                    congested = await looking.look()
            assert list(b.node.links) == [Neighbor("loud")]
            after = await looking.look()
            assert after["links_given_up"] == 1
            assert after["bytes_given_up"] > connection_module.LINK_OUTBOX_BYTES_MAX
            told = _told(rates_table(before, congested, 1.0)) + _told(rates_table(before, after, 1.0))
            assert re.search(r"link to deaf, congested: [\d,]+ bytes wait", told)
            assert "links given up" in told
            async with httpx.AsyncClient(base_url=f"http://{b.http.address}") as http:
                metrics = (await http.get("/metrics")).text
            assert "catchment_links_given_up_total 1.0" in metrics
            assert 'catchment_link_outbox_bytes{neighbor="loud"} 0.0' in metrics

    run(work())
    logged = [
        (record.message, record.neighbor)
        for record in caplog.records
        if record.message in ("link congested", "link given up")
    ]
    assert logged == [("link congested", "deaf"), ("link given up", "deaf")]


def _told(table) -> str:
    printed = io.StringIO()
    Console(width=200, file=printed).print(table)
    return printed.getvalue()
