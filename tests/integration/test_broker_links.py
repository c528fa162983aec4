"""Links between brokers: their beginning, what may be said on them, and their end."""

import asyncio
from dataclasses import replace

import pytest

from catchment import Filter, Notification
from catchment.broker import server as server_module
from catchment.broker.config import Config, read_config
from catchment.broker.server import Broker
from catchment.errors import InputError
from catchment.routing.messages import Header, LinkDown, LinkUp, Neighbor, Routed, Subscribe
from catchment.routing.parts import link_states
from catchment.routing.parts.distance_vectors import Distances
from catchment.routing.parts.link_states import Links
from catchment.routing.propagation.messages import Filtered
from catchment.routing.siena.messages import Interest, OriginHeader
from catchment.wire import session as session_module
from catchment.wire.frames import VERSION, batch_frame, frame
from catchment.wire.messages import (
    Batch,
    Goodbye,
    Hello,
    Parcel,
    Publish,
    Request,
    Welcome,
)
from tests.integration.network import ANYWHERE, FakeBroker, Proxy, Raw, broker, client, pair, run, until, until_heard

KILOBYTES_64 = bytes(65_536)


def reasons(caplog, message: str) -> list[str]:
    return [record.reason for record in caplog.records if record.message == message]


# --- configuration ------------------------------------------------------------------------------


def test_a_broker_needs_no_configuration(tmp_path):
    empty = tmp_path / "empty.toml"
    empty.write_text("")
    assert read_config(empty) == Config()
    assert (str(Config().listen), Config().routing) == ("127.0.0.1:7400", "siena general")

    async def work():
        started = Broker(replace(Config(), listen=ANYWHERE))
        await started.start()
        async with client(started, "alice") as alice:
            subscription = await alice.subscribe("x > 0")
            await alice.publish({"x": 1})
            assert (await subscription.get()).notification["x"] == 1
        await started.stop()

    run(work())


@pytest.mark.parametrize(
    "text",
    ['name = ""', 'name = "@x"', 'routing = "none"', "port = 5", 'listen = "x:y"', "name =", 'neighbors = "a"'],
)
def test_a_bad_configuration_is_refused(tmp_path, text):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(InputError):
        read_config(path)


# --- links --------------------------------------------------------------------------------------


async def _two_that_name_each_other(first: str, second: str) -> None:
    async with broker(first) as a, broker(second, (a.address,)) as b:
        # The first learns the address of the second when it has one.
        a._tasks.append(asyncio.ensure_future(a._keep_link(b.address)))
        await until(lambda: a.node.links and b.node.links)
        await until(lambda: len(a.connections) == len(b.connections) == 1)
        async with client(a, "p") as publisher, client(b, "reader") as reader:
            subscription = await reader.subscribe("n >= 0 or probe = true")
            await until_heard(publisher, subscription)
            for n in range(20):
                await publisher.publish({"n": n}, ack="accepted")
            assert [(await subscription.get()).notification["n"] for _ in range(20)] == [*range(20)]
            assert list(a.node.links) == [Neighbor(second)]
            assert list(b.node.links) == [Neighbor(first)]


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("b", "a")])
def test_two_that_name_each_other_have_one_link(first, second, monkeypatch):
    # Refused often and soon, so that many more attempts are made than at other times.
    monkeypatch.setattr(server_module, "RETRY_S_MOST", 0.02)
    run(_two_that_name_each_other(first, second))


def test_two_that_connect_at_the_same_moment_have_one_link():
    async def work():
        for _ in range(10):
            async with broker("a") as a, broker("b") as b:
                a._tasks.append(asyncio.ensure_future(a._keep_link(b.address)))
                b._tasks.append(asyncio.ensure_future(b._keep_link(a.address)))
                await _one_link(a, b)

    run(work())


async def _one_link(a: Broker, b: Broker) -> None:
    await until(lambda: len(a.connections) == len(b.connections) == 1)
    await until(lambda: a.node.links and b.node.links)
    # The same connection: what one says on it the other hears.
    (at_a,), (at_b,) = a.connections, b.connections
    assert at_a._transport is not None
    assert at_b._transport is not None
    assert at_a._transport.get_extra_info("sockname") == at_b._transport.get_extra_info("peername")


def test_another_routing_system_is_refused_and_both_logs_say_so(caplog):
    async def work():
        async with broker("a", routing="flooding") as a, broker("b", (a.address,)) as b:
            await until(lambda: reasons(caplog, "no link"))
            assert not a.node.links
            assert not b.node.links

    run(work())
    said = "a runs flooding, 'b' runs 'siena general'"
    assert said in reasons(caplog, "refused")
    assert reasons(caplog, "no link") == [said]


def test_the_same_name_is_refused_and_both_logs_say_so(caplog):
    async def work():
        async with broker("a") as a, broker("a", (a.address,)):
            await until(lambda: reasons(caplog, "no link"))

    run(work())
    assert reasons(caplog, "no link") == ["two brokers are named 'a'"]


def test_a_broker_that_names_itself_has_no_link(caplog):
    async def work():
        async with broker("a") as a:
            a._tasks.append(asyncio.ensure_future(a._keep_link(a.address)))
            await until(lambda: reasons(caplog, "no link"))
            await until(lambda: not a.connections)

    run(work())


def test_attempts_are_made_with_back_off_and_logged_once(caplog, monkeypatch):
    monkeypatch.setattr(server_module, "RETRY_S_FIRST", 0.01)

    async def work():
        async with broker("a") as a, Proxy(a) as proxy:
            proxy.refuse()
            async with broker("b", (proxy.address,)) as b:
                await until(lambda: len(proxy.attempts) >= 6)
                gaps = [after - before for before, after in zip(proxy.attempts, proxy.attempts[1:], strict=False)]
                # Each about twice the one before, or as much more as the machine adds; clocks of loops are coarse.
                assert all(gap >= 0.8 * 0.01 * 2**number for number, gap in enumerate(gaps, 1))
                proxy.refuse(False)
                await until(lambda: b.node.links)

    run(work())
    assert len(reasons(caplog, "no link")) <= 2


def test_what_was_announced_is_announced_again_after_a_link_was_lost():
    async def work():
        async with pair() as two:
            for n in range(3):
                await until_heard(two.publisher, two.subscription)
                await two.publisher.publish({"n": n}, ack="accepted")
                assert (await two.subscription.get()).notification["n"] == n
                two.proxy.cut()

    run(work())


def test_a_broker_that_came_back_is_a_neighbor_again():
    async def work():
        async with broker("b") as b, client(b, "reader") as reader:
            subscription = await reader.subscribe("n >= 0 or probe = true")
            port = ANYWHERE
            for n in range(3):
                async with broker("a", listen=port) as a:
                    port = a.address
                    if n == 0:
                        b._tasks.append(asyncio.ensure_future(b._keep_link(a.address)))
                    async with client(a, "p") as publisher:
                        await until_heard(publisher, subscription)
                await until(lambda: not b.node.links)

    run(work())


def test_a_neighbor_that_says_what_it_must_not_loses_its_link_and_nobody_else():
    async def work():
        async with broker("a") as a, broker("b", (a.address,)) as b:
            await until(lambda: a.node.links)
            async with await Raw.neighbor(a, "bad", a.config.routing) as bad:
                await until(lambda: len(a.node.links) == 2)
                bad.say(b"\0\0\0\x03\x92\xa1x")
                assert (await bad.goodbye()).startswith("bad frame: ")
                await until(lambda: len(a.node.links) == 1)
            assert list(a.node.links) == [Neighbor("b")]
            assert b.node.links

    run(work())


LIES = {
    "a distance below 0": (Distances((("x", -1),)), "neighbor 'bad' told the number -1 for 'x'"),
    "a huge distance": (Distances((("x", 2**40),)), "neighbor 'bad' told the number 1099511627776 for 'x'"),
    "a broker at no distance": (Distances((("b", 0),)), "only itself is 0"),
    "a filter for an unknown publisher": (Filtered("x", Filter("x > 0")), "neighbor 'bad' sent a filter for 'x'"),
    "a filter for a tree that it is not in": (Filtered("b", Filter("x > 0")), "does not lead through here"),
    "too many brokers": (Distances(tuple((f"b{i}", 3) for i in range(10_001))), "DESTINATIONS_MAX is 10,000"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_neighbor_that_lies_in_filter_propagation_loses_its_link_and_nobody_else(lie):
    message, reason = LIES[lie]

    async def work():
        async with broker("a", routing="propagation") as a, broker("b", (a.address,), routing="propagation") as b:
            await until(lambda: a.node.links and b.node.links)
            async with await Raw.neighbor(a, "bad", "propagation") as bad:
                await until(lambda: len(a.node.links) == 2)
                bad.say(frame(Distances((("bad", 0),))), frame(message))
                assert reason in await bad.goodbye()
            await until(lambda: list(a.node.links) == [Neighbor("b")])
            async with client(b, "reader") as reader, client(a, "p") as publisher:
                subscription = await reader.subscribe("probe any")
                await until_heard(publisher, subscription)
            assert a.node.core.inner.vectors.reached == ("a", "b")

    run(work())


OUT_OF_PLACE = {
    "a message of another system": frame(Interest((), (Filter("x > 0"),))),
    "a header of another system": batch_frame([Routed(Notification({"x": 1}), Header(1))]),
    "a request": frame(Request(1, Subscribe("alice", "s", Filter("x > 0")))),
    "a publication": frame(Publish(1, (Notification({"x": 1}),))),
    "a second Hello": frame(Hello((VERSION, VERSION), "broker", "other", routing="siena general")),
    "a Welcome": frame(Welcome(VERSION, "other", "siena general")),
}


@pytest.mark.parametrize("bad", OUT_OF_PLACE)
def test_what_a_neighbor_must_not_say_does_not_reach_the_core(bad):
    async def work():
        async with broker("a") as a:
            core, heard = a.node.core, []
            on_message, on_notifications = core.on_message, core.on_notifications

            def noting_message(message, source, now):
                heard.append(type(message))
                return on_message(message, source, now)

            def noting_notifications(batch, source, now):
                heard.append(Batch)
                return on_notifications(batch, source, now)

            core.on_message, core.on_notifications = noting_message, noting_notifications
            async with await Raw.neighbor(a, "bad", a.config.routing) as raw:
                good = batch_frame([Routed(Notification({"x": 1}), OriginHeader(1, "bad"))])
                raw.say(good, OUT_OF_PLACE[bad], good)
                assert await raw.goodbye()
                await until(lambda: not a.connections)
            assert heard == [LinkUp, Batch, LinkDown]

    run(work())


def test_a_batch_between_brokers_has_a_limit():
    async def work():
        async with broker("a") as a, await Raw.neighbor(a, "bad", a.config.routing) as bad:
            bad.say(Batch((Parcel(OriginHeader(1, "bad"), (Notification({"x": 1}),) * 4_097),)))
            assert "BATCH_MAX" in await bad.goodbye()

    run(work())


def test_large_notifications_go_in_several_frames():
    async def work():
        async with (
            broker("a") as a,
            broker("b", (a.address,)) as b,
            client(a, "p") as publisher,
            client(b, "reader") as reader,
        ):
            subscription = await reader.subscribe("n >= 0 or probe = true")
            await until_heard(publisher, subscription)
            await publisher.publish(
                [Notification({"n": n}, payload=bytes(1_000_000)) for n in range(12)], ack="accepted"
            )
            assert [(await subscription.get()).notification["n"] for _ in range(12)] == [*range(12)]

    run(work())


def test_a_neighbor_that_answers_with_another_version_is_left(caplog):
    async def work():
        async with FakeBroker(version=9) as fake, broker("b") as b:
            b._tasks.append(asyncio.ensure_future(b._keep_link(fake.address)))
            goodbye = await (await fake.next()).next(Goodbye)
            assert "speaks version 9" in goodbye.reason
            await until(lambda: reasons(caplog, "no link"))

    run(work())


def test_a_greeting_that_is_not_answered_is_given_up(monkeypatch):
    monkeypatch.setattr(session_module, "HANDSHAKE_S", 0.05)

    async def work():
        async with broker("a") as a, Proxy(a) as proxy:
            proxy.stall()
            async with broker("b", (proxy.address,)):
                await until(lambda: len(proxy.attempts) >= 3)

    run(work())


# --- two of one name ----------------------------------------------------------------------------

TWIN = "a has a link to another broker named 'twin': names are unique in a network"


@pytest.fixture
def soon(monkeypatch):
    monkeypatch.setattr(session_module, "ANSWER_S_MAX", 0.2)
    monkeypatch.setattr(server_module, "RETRY_S_FIRST", 0.01)
    monkeypatch.setattr(server_module, "RETRY_S_MOST", 0.05)


def test_another_of_the_same_name_is_refused_while_the_first_answers(soon, caplog):
    async def work():
        async with (
            broker("a") as a,
            broker("twin", (a.address,)) as first,
            client(a, "p") as publisher,
            client(first, "reader") as reader,
        ):
            subscription = await reader.subscribe("n >= 0 or probe = true")
            await until_heard(publisher, subscription)
            link = a.node.links[Neighbor("twin")]
            async with broker("twin", (a.address,)) as second:
                # Longer than an answer may take.
                await until(lambda: len(reasons(caplog, "refused")) > 20)
                assert not second.node.links
                await publisher.publish({"n": 1}, ack="accepted")
                assert (await subscription.get()).notification["n"] == 1
            assert a.node.links[Neighbor("twin")] is link

    run(work())
    assert set(reasons(caplog, "refused")) == {TWIN}
    assert reasons(caplog, "no link") == [TWIN]
    assert not [record for record in caplog.records if record.message == "link replaced"]


def test_another_of_the_same_name_that_was_dialed_is_left(soon, caplog):
    async def work():
        async with broker("twin") as first, broker("twin") as second, broker("a", (first.address,)) as a:
            await until(lambda: a.node.links)
            a._tasks.append(asyncio.ensure_future(a._keep_link(second.address)))
            await until(lambda: reasons(caplog, "no link"))
            assert a.link_of(Neighbor("twin")).instance == first.instance
            await until(lambda: first.node.links and not second.node.links)

    run(work())
    assert reasons(caplog, "no link") == [TWIN]


def test_a_refusal_for_the_name_is_not_final():
    async def work():
        async with broker("a") as a, await Raw.neighbor(a, "twin", a.config.routing, "1"):
            async with await Raw.hailing(a, "twin", a.config.routing, "2") as raw:
                assert await raw.next(Goodbye) == Goodbye(TWIN, is_final=False)
            assert list(a.node.links) == [Neighbor("twin")]

    run(work())


def test_a_broker_that_came_back_takes_the_place_of_what_does_not_answer(soon, caplog):
    """Of the one that is gone not even the end of its connection was heard."""

    async def work():
        async with broker("a") as a, Proxy(a) as proxy, broker("twin", (proxy.address,)) as gone:
            await until(lambda: a.node.links and gone.node.links)
            proxy.stall()
            async with (
                broker("twin", (a.address,)) as back,
                client(a, "p") as publisher,
                client(back, "reader") as reader,
            ):
                await until(lambda: back.node.links)
                assert a.link_of(Neighbor("twin")).instance == back.instance
                subscription = await reader.subscribe("probe = true")
                await until_heard(publisher, subscription)

    run(work())
    assert [record.neighbor for record in caplog.records if record.message == "link replaced"] == ["twin"]


def test_who_takes_what_waits_for_it_is_alive_however_late_its_answer(monkeypatch):
    async def work():
        async with broker("a", routing="flooding") as a, await Raw.neighbor(a, "slow", "flooding") as slow:
            link = a.link_of(Neighbor("slow"))
            async with client(a, "p") as publisher:
                while link.outbox_bytes < 3_000_000:
                    await publisher.publish(Notification({"n": 1}, payload=KILOBYTES_64), ack="accepted")
            monkeypatch.setattr(session_module, "ANSWER_S_MAX", 0.0001)
            for _ in range(3):
                link.is_alive()
                left = link.outbox_bytes
                await asyncio.sleep(0.001)
                assert not link.is_alive()
                while link.outbox_bytes >= left:
                    await slow._reader.read(65_536)
                assert link.is_alive()

    run(work())


# --- a neighbor that is refused hears why -------------------------------------------------------


def test_a_newcomer_that_finds_no_room_hears_why_though_it_has_said_much(caplog, monkeypatch):
    """It tells all that it knows at once: a connection closed with that unread would be reset, and the reason lost."""
    caplog.set_level("INFO")

    async def work():
        async with broker("a") as a, broker("b", (a.address,)) as b:
            await until(lambda: a.node.links and b.node.links)
            await until(lambda: "b" in a.node.core.inner.links.records)
            monkeypatch.setattr(link_states, "BROKERS_MAX", 2)
            async with broker("c", (a.address,)), client(b, "bob") as bob:
                downs = lambda: [  # noqa: E731
                    record.reason
                    for record in caplog.records
                    if record.message == "link down" and (record.broker, record.neighbor) == ("c", "a")
                ]
                await until(downs)
                assert {*downs()} == {"BROKERS_MAX is 2, found one more; split the network"}
                # Those that are there go on.
                subscription = await bob.subscribe("x any")
                await bob.publish({"x": 1}, ack="accepted")
                assert (await subscription.get()).notification["x"] == 1

    run(work())


def test_numbers_from_far_ahead_end_the_link_with_a_reason_and_no_traceback(caplog):
    async def work():
        async with broker("a") as a, await Raw.neighbor(a, "m", a.config.routing) as liar:
            liar.say(frame(Links("a", 2**62, ()), 1_000), frame(Links("m", 2**62, ()), 1_000))
            assert "s ahead of the clock here" in await liar.goodbye()
        async with broker("a") as a, await Raw.neighbor(a, "m", a.config.routing) as liar:
            liar.say(frame(Links("a", 2**64 - 1, ()), 1_000))
            assert "bad frame: Expected `int` <= 4611686018427387904" in await liar.goodbye()
            assert a.node.core.inner.links.seq < 2**62

    run(work())
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
