"""Nothing grows without bound, whatever the other side sends: one test for each limit that is not tested elsewhere."""

import asyncio
import io
import logging
import socket
from typing import cast

import pytest

from catchment import Advertisement, Filter, Notification, Pattern
from catchment.broker import logs
from catchment.broker.config import Address
from catchment.client import RefusedError
from catchment.model.values import parse_time
from catchment.routing.messages import Advertise, MapIdentity, Neighbor, Subscribe
from catchment.routing.parts import clients, newest
from catchment.wire.frames import REASON_CODEPOINTS_MAX, VERSION, frame
from catchment.wire.messages import Accepted, Delivery, Goodbye, Hello, Ping, Refused, Request, Welcome
from tests.integration.live import Live
from tests.integration.network import FakeBroker, Raw, broker, client, run, until

ROUTINGS = ("siena general", "siena advertising", "siena delegating", "flooding")


def framed_ping(payload: bytes) -> bytes:
    """Of a WebSocket, masked with zeros."""
    return b"\x89" + bytes([0x80 | len(payload)]) + bytes(4) + payload


# --- what clients ask for -----------------------------------------------------------------------


@pytest.mark.parametrize("routing", ROUTINGS)
def test_advertisements_of_an_identity_are_bounded(routing, monkeypatch):
    monkeypatch.setattr(clients, "IDENTITY_ADVERTISEMENTS_MAX", 3)

    async def work():
        async with broker(routing=routing) as b, client(b, "alice") as alice:
            for n in range(3):
                await alice.advertise(f"x{n} any")
            with pytest.raises(RefusedError, match="IDENTITY_ADVERTISEMENTS_MAX is 3, found one more; advertise wider"):
                await alice.advertise("x3 any")
            offers = getattr(b.node.core, "offers", None)
            assert offers is None or len(offers) == 3
            # The same again is none more, and there is room when one is withdrawn.
            await alice.advertise("x2 any")
            await alice.unadvertise("x2 any")
            await alice.advertise("x3 any")
            assert alice._standing.advertisements.keys() == {("alice", Advertisement(f"x{n} any")) for n in (0, 1, 3)}

    run(work())


def test_identities_that_others_map_to_a_client_are_bounded(monkeypatch):
    """Each is kept as long as its handler, also when who has mapped it is gone."""
    monkeypatch.setattr("catchment.node.access.CLIENT_IDENTITIES_MAX", 4)

    async def work():
        async with broker() as b, await Raw.client(b, "handler"):
            answers = []
            for n in range(6):
                async with await Raw.client(b, f"mapper {n}") as raw:
                    raw.say(Request(1, MapIdentity(f"identity {n}", "handler")))
                    answers.append(type(await raw.next(Accepted | Refused)))
                await until(lambda: len(b.node.clients) == 1)
            assert answers == [Accepted] * 4 + [Refused] * 2
            assert len(b.node.core.clients) == 5

    run(work())


def test_what_waits_for_a_suspended_identity_is_bounded_in_bytes(monkeypatch):
    monkeypatch.setattr(clients, "SUSPENDED_BYTES_MAX", 100_000)

    async def work():
        async with broker() as b, client(b, "a") as a:
            subscription = await a.subscribe("n >= 0")
            await a.suspend()
            await a.publish([Notification({"n": n}, payload=bytes(9_000)) for n in range(30)], ack="accepted")
            assert b.node.core.clients.waiting_bytes <= 100_000
            await a.resume()
            # Each takes its 9,000 bytes twice, encoded and decoded, and some more.
            deliveries = [await subscription.get() for _ in range(5)]
            assert [delivery.notification["n"] for delivery in deliveries] == [*range(25, 30)]
            assert deliveries[0].missed == 25
            assert b.node.core.clients.waiting_bytes == 0

    run(work())


@pytest.mark.parametrize("routing", ["siena general", "siena delegating"])
def test_a_pattern_with_too_many_keys_gives_up_the_oldest_and_tells(routing, monkeypatch):
    """Who publishes does not notice; it was its connection that ended."""
    monkeypatch.setattr("catchment.model.monitor.MONITOR_KEYS_MAX", 3)

    async def work():
        async with broker(routing=routing) as b, client(b, "a") as a, client(b, "p") as publisher:
            subscription = await a.subscribe(Pattern("[step = 1] -> [step = 2] by host"))
            await publisher.advertise("step any, host any")
            for host in range(5):
                await publisher.publish({"step": 1, "host": host}, ack="accepted")
            for host in range(5):
                await publisher.publish({"step": 2, "host": host}, ack="accepted")
            deliveries = [await subscription.get() for _ in range(3)]
            assert [delivery.notification["host"] for delivery in deliveries] == [2, 3, 4]
            assert subscription.missed == deliveries[0].missed == 2

    run(work())


def test_a_wait_that_is_too_old_is_given_up_without_a_word(monkeypatch):
    monkeypatch.setattr("catchment.model.monitor.MONITOR_KEYS_MAX", 2)

    async def work():
        async with broker() as b, client(b, "a") as a:
            subscription = await a.subscribe(Pattern("[step = 1] -> [step = 2] within 5m by host"))
            hours = [parse_time(f"2026-01-01T0{n}:00:00Z") for n in range(5)]
            await a.publish([Notification({"step": 1, "host": n}, time=hour) for n, hour in enumerate(hours)])
            await a.publish(Notification({"step": 2, "host": 4}, time=parse_time("2026-01-01T04:01:00Z")))
            assert (await subscription.get()).notification["host"] == 4
            assert subscription.missed == 0

    run(work())


def test_names_of_publishers_are_bounded_in_all(monkeypatch):
    monkeypatch.setattr(newest, "NAMES_CODEPOINTS_MAX", 4_100)

    async def work():
        async with broker() as b, client(b, "a") as a:
            subscription = await a.subscribe("n >= 0")
            for n in range(50):
                await a.publish(Notification({"n": n}, source=f"{n}" + "x" * 1_000, seq=1), ack="accepted")
            for _ in range(50):
                await subscription.get()
            (identity,) = b.node.core.clients
            for known in (identity.newest, b.node.core.inner._newest, b.node.access.numbers._newest, a._seen):
                assert [int(source.rstrip("x")) for source in known.last] == [46, 47, 48, 49]

    run(work())


# --- what is logged and remembered --------------------------------------------------------------


def _logged(format: logs.LogFormat, work) -> list[str]:
    out, logger = io.StringIO(), logging.getLogger("catchment")
    before = (logger.handlers[:], logger.level, logger.propagate)
    logs.set_up(format, out)
    try:
        run(work())
    finally:
        logger.handlers[:], logger.level, logger.propagate = before
    return out.getvalue().splitlines()


@pytest.mark.parametrize("format", ["human", "json"])
def test_what_others_say_does_not_fill_the_log_nor_forge_its_lines(format):
    async def work():
        async with broker("a") as a:
            for name in ("x" * 1_000_000, "y\n00:00:00 info link up neighbor=z"):
                async with await Raw.dial(a.address) as raw:
                    raw.say(Hello((9, 9), "broker", name))
                    await raw.goodbye()
            async with await Raw.neighbor(a, "n", a.config.routing) as raw:
                raw.say(Goodbye("r" * 1_000_000))
                await until(lambda: not a.node.links)

    lines = _logged(format, work)
    assert [len(line) < 2 * logs.FIELD_CHARACTERS_MAX for line in lines] == [True] * 6
    assert sum("info link up neighbor=z" in line for line in lines) == 1
    assert not any(line.startswith("00:00:00") for line in lines)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"name": "x" * 2_000}, "a name has 1 to 1,024 characters"),
        ({"instance": "x" * 2_000}, "a name has 1 to 1,024 characters"),
        ({"name": ""}, "a name has 1 to 1,024 characters"),
        ({"name": "a"}, "two brokers are named 'a'"),
        ({"name": "*"}, "'*' is reserved: it stands for everybody"),
        ({"name": "@x"}, "'@x': names that begin with @ are the broker's own"),
    ],
)
def test_names_in_greetings_are_checked_on_both_sides(given, reason):
    async def work():
        came: asyncio.Queue[Raw] = asyncio.Queue()
        async with broker("a") as a:
            greeting = {"name": "fine", "routing": a.config.routing, **given}
            async with await Raw.dial(a.address) as raw:
                raw.say(Hello((VERSION, VERSION), "broker", **greeting))
                assert (await raw.goodbye()).startswith(reason)
            # The same of one that was dialed.
            server = await asyncio.start_server(
                lambda reader, writer: came.put_nowait(Raw(reader, writer, Hello | Goodbye)), "127.0.0.1"
            )
            address = Address(*server.sockets[0].getsockname()[:2])
            a._tasks.append(asyncio.ensure_future(a._keep_link(address)))
            async with await came.get() as raw:
                await raw.next(Hello)
                raw.say(Welcome(VERSION, **greeting))
                assert (await raw.goodbye()).startswith(reason)
            assert not a.node.links
            server.close()

    run(work())


def test_the_reason_of_a_goodbye_is_bounded():
    async def work():
        async with FakeBroker() as fake, client(fake, "alice", reconnect=False) as alice:
            (await fake.next()).say(Goodbye("r" * 1_000_000))
            with pytest.raises(Exception, match="was lost") as caught:
                await alice.look()
            assert len(str(caught.value)) < 2 * REASON_CODEPOINTS_MAX

    run(work())


# --- what waits ---------------------------------------------------------------------------------


def test_what_waits_to_be_read_from_a_subscription_is_bounded_in_bytes(monkeypatch):
    monkeypatch.setattr("catchment.client.deliveries.QUEUE_BYTES_MAX", 100_000)

    async def work():
        async with broker() as b, client(b, "a") as a:
            subscription = await a.subscribe("n >= 0")
            await a.publish([Notification({"n": n}, payload=bytes(9_000)) for n in range(30)], ack="accepted")
            await until(lambda: len(subscription._waiting) + subscription.missed == 30)
            assert subscription._bytes <= 100_000
            assert [(await subscription.get()).notification["n"] for _ in range(11)] == [*range(11)]
            assert (subscription.missed, subscription._bytes) == (19, 0)
            await a.publish({"n": 30}, ack="accepted")
            assert (await subscription.get()).missed == 19

    run(work())


def test_a_broker_that_pings_and_does_not_read_fills_no_memory_of_a_client(monkeypatch):
    monkeypatch.setattr("catchment.client.connection.OUTBOX_BYTES", 10_000)

    async def work():
        async with FakeBroker() as fake, client(fake, "alice") as alice:
            wire = await fake.next()
            cast("asyncio.Transport", wire._writer.transport).pause_reading()
            transport = alice.connection._transport
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
            while not alice.connection._is_paused:
                wire.say(frame(Ping()) * 2_000)
                await wire.flush()
            waits = transport.get_write_buffer_size()
            wire.say(frame(Ping()) * 20_000)
            await wire.flush()
            # It is no worse for it: what is delivered comes.
            everything = aiter(alice)
            wire.say(Delivery("alice", (), Notification({"x": 1})))
            assert (await anext(everything)).notification["x"] == 1
            assert transport.get_write_buffer_size() <= waits

    run(work())


def test_who_pings_a_websocket_and_does_not_read_is_ended(monkeypatch):
    monkeypatch.setattr("catchment.broker.http.protocols.WEBSOCKET_OUTBOX_BYTES_MAX", 100_000)
    # Else it would rest long before.
    monkeypatch.setattr("catchment.broker.http.protocols.PINGS_PER_S", 1e9)
    with Live() as live, socket.socket() as raw:
        b = live.broker()
        assert b.http is not None
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        raw.settimeout(30)
        raw.connect((b.http.address.host, b.http.address.port))
        upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\n"
        key = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
        raw.sendall(f"GET /events/ws HTTP/1.1\r\nHost: localhost\r\n{upgrade}{key}\r\n".encode())
        assert b"101" in raw.recv(64)
        with pytest.raises(ConnectionError):
            raw.sendall(framed_ping(bytes(125)) * 1_000_000)


def test_subscriptions_of_an_identity_are_bounded(monkeypatch):
    monkeypatch.setattr(clients, "IDENTITY_SUBSCRIPTIONS_MAX", 3)

    async def work():
        async with broker() as b, await Raw.client(b, "raw") as raw:
            for n in range(5):
                raw.say(Request(n + 1, Subscribe("raw", f"s{n}", Filter(f"x > {n}"))))
            answers = await raw.rest(lambda answers: len(answers) == 5)
            assert [type(answer) for answer in answers] == [Accepted] * 3 + [Refused] * 2
            assert "IDENTITY_SUBSCRIPTIONS_MAX is 3" in answers[-1].reason
            raw.say(Request(6, Advertise("raw", Advertisement("x any"))))
            assert await raw.next(Accepted) == Accepted(6)
            assert Neighbor("raw") not in b.node.links

    run(work())
