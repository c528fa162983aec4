"""What a broker does with what it is sent: good, bad, and not to be had."""

import asyncio

import msgspec
import pytest

from catchment import Filter, Notification
from catchment.broker import connection as connection_module
from catchment.broker import server as server_module
from catchment.model.pattern import IDENTITY_CODEPOINTS_MAX
from catchment.routing.messages import Cancel, MapIdentity, Subscribe
from catchment.routing.parts.identities import SEEN_SOURCES_MAX
from catchment.wire import session as session_module
from catchment.wire.frames import VERSION, frame
from catchment.wire.messages import Accepted, Delivery, Goodbye, Hello, Look, Publish, Refused, Request, Seen, Welcome
from tests.integration.network import Raw, broker, client, run, until

SPOKEN = (VERSION, VERSION)


def framed(*message) -> bytes:
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(4, "big") + body


def note(**attributes):
    return (attributes, "p", 1, None)


BAD = {
    "too long": b"\xff\xff\xff\xff",
    "no message": framed("Nothing"),
    "not MessagePack": b"\0\0\0\1\xc1",
    "NaN": framed("Publish", 1, [note(x=float("nan"))]),
    "a huge integer": framed("Publish", 1, [note(x=2**63)]),
    "a time without a zone": framed("Publish", 1, [({"x": 1}, "p", 1, "2026-01-01T00:00:00")]),
    "a name with $": framed("Publish", 1, [({"$x": 1}, None, None, None)]),
    "a message for clients": framed("Accepted", 1),
    "a message for brokers": framed("Interest", [], []),
    "Hello twice": frame(Hello((VERSION, VERSION), "client", "bad")),
    "a Welcome": frame(Welcome(VERSION, "bad")),
    "a Batch": framed("Batch", []),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_frame_ends_that_connection_and_no_other(bad):
    async def work():
        async with broker() as b, client(b, "alice") as alice, await Raw.client(b, "bad") as raw:
            subscription = await alice.subscribe("x >= 0")
            raw.say(Publish(0, (Notification({"x": 1}),)), BAD[bad], Publish(0, (Notification({"x": 3}),)))
            reason = await raw.goodbye()
            assert reason
            await alice.publish({"x": 2}, ack="accepted")
            # What came before it is published, what came after is not.
            assert [(await subscription.get()).notification["x"] for _ in range(2)] == [1, 2]
            assert not subscription._waiting
            await until(lambda: len(b.connections) == 1)

    run(work())


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (framed("Request", 5, ("Subscribe", "raw", "s", "x = = 3")), "ParseError"),
        (framed("Request", 5, ("Subscribe", "raw", "s", ("pattern", "x ="))), "ParseError"),
        (framed("Request", 5, ("Subscribe", "raw", "s", ("cesql", "x = ("))), "ParseError"),
        (framed("Request", 5, ("Advertise", "raw", "x =")), "ParseError"),
        (framed("Request", 5, ("Subscribe", "raw", "i" * 2_000, "x = 1")), "LimitError"),
        (framed("Request", 5, ("Subscribe", "", "s", "x = 1")), "LimitError"),
        (framed("Request", 5, ("Cancel", "raw", "nothing")), "BadIdError"),
        (framed("Request", 5, ("MapIdentity", "raw", "nobody")), "BadIdError"),
        (framed("Request", 5, ("Subscribe", "@http/1", "s", "x = 1")), "BadIdError"),
        (framed("Request", 5, ("MapIdentity", "raw", "@http/1")), "BadIdError"),
        (framed("Publish", 5, [({str(n): n for n in range(1_025)}, "p", 1, None)]), "LimitError"),
        (framed("Publish", 5, [note(x=1), ({"x" * 300: 1}, "p", 1, None)]), "LimitError"),
        (framed("Look", 5, "explain", ({"x" * 300: 1}, "p", 1, None)), "LimitError"),
        (framed("Look", 5, "explain"), "BadNotificationError"),
    ],
)
def test_what_cannot_be_had_is_refused_and_the_connection_goes_on(request_, kind):
    async def work():
        async with broker() as b, await Raw.client(b, "raw") as raw:
            raw.say(Request(1, Subscribe("raw", "all", Filter("x > 0"))), request_)
            assert await raw.next(Accepted) == Accepted(1)
            refused = await raw.next(Refused)
            assert (refused.number, refused.kind) == (5, kind)
            assert refused.reason
            raw.say(Publish(6, (Notification({"x": 7}),)))
            # None of the refused was published.
            assert (await raw.next(Delivery)).notification["x"] == 7
            assert await raw.next(Accepted) == Accepted(6)

    run(work())


def test_a_bad_publication_that_nobody_waits_for_is_refused_with_0():
    async def work():
        async with broker() as b, await Raw.client(b, "raw") as raw:
            raw.say(framed("Publish", 0, [({"x" * 300: 1}, "p", 1, None)]))
            assert (await raw.next(Refused)).number == 0

    run(work())


def test_bad_publications_count_against_the_credit(monkeypatch):
    monkeypatch.setattr("catchment.broker.credit.CREDIT", 8)

    async def work():
        async with broker() as b, await Raw.client(b, "raw") as raw:
            raw.say(framed("Publish", 0, [({"x" * 300: 1}, "p", 1, None)] * 3))
            await raw.next(Refused)
            await until(lambda: not b.credits.owed)

    run(work())


@pytest.mark.parametrize("versions", [(VERSION + 1, VERSION + 2), (1, VERSION - 1), (0, 0), (5, 1)])
@pytest.mark.parametrize("role", ["client", "broker"])
def test_other_versions_are_refused_clearly(versions, role):
    async def work():
        async with broker() as b, await Raw.dial(b.address) as raw:
            raw.say(Hello(versions, role, "future", routing=b.config.routing))
            (goodbye,) = await raw.rest()
            assert goodbye.is_final
            assert goodbye.reason == f"this broker speaks version {VERSION}, you speak {versions[0]} to {versions[1]}"
            assert not b.node.clients

    run(work())


def test_a_range_of_versions_that_has_ours_is_welcomed():
    async def work():
        async with broker() as b, await Raw.dial(b.address) as raw:
            raw.say(
                framed("Hello", (1, 7), "client", "future", {}, "", 1, "", "agent 7", 0, {}, "", "a field of version 7")
            )
            await until(lambda: b.node.clients)

    run(work())


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        (Hello(SPOKEN, "client", ""), "a name has 1 to"),
        (Hello(SPOKEN, "client", "x" * (IDENTITY_CODEPOINTS_MAX + 1)), "a name has 1 to"),
        (Hello(SPOKEN, "client", "@http"), "names that begin with @ are the broker's own"),
        (Hello(SPOKEN, "broker", "b", routing="siena general"), "two brokers are named 'b'"),
        (Hello(SPOKEN, "broker", "c", routing="flooding"), "b runs siena general, 'c' runs 'flooding'"),
        (Hello(SPOKEN, "broker", "c", routing="siena general", cost=-1), "a link costs 1 to"),
        (Hello(SPOKEN, "broker", "*", routing="siena general"), "'*' is reserved"),
        (Hello(SPOKEN, "broker", "@x", routing="siena general"), "'@x': names that begin with @ are the broker's own"),
        (Hello(SPOKEN, "broker", "", routing="siena general"), "a name has 1 to"),
        (Hello(SPOKEN, "broker", "north\nrefused", routing="siena general"), "no control characters"),
        (Hello(SPOKEN, "client", "*"), "'*' is reserved"),
        (Hello(SPOKEN, "client", "alice\r"), "no control characters"),
    ],
)
def test_who_cannot_be_here_is_told_and_logged(hello, reason, caplog):
    async def work():
        async with broker() as b, await Raw.dial(b.address) as raw:
            raw.say(hello)
            assert reason in await raw.goodbye()
            assert not b.node.clients
            assert not b.node.links

    run(work())
    assert [reason in record.reason for record in caplog.records if record.message == "refused"] == [True]


def test_who_does_not_greet_is_ended(monkeypatch):
    monkeypatch.setattr(session_module, "HANDSHAKE_S", 0.05)

    async def work():
        async with broker() as b, await Raw.dial(b.address) as raw:
            assert "no Hello within" in await raw.goodbye()
            await until(lambda: not b.connections)

    run(work())


def test_too_many_connections(monkeypatch):
    monkeypatch.setattr(server_module, "CONNECTIONS_MAX", 2)

    async def work():
        async with broker() as b, await Raw.client(b, "1"), await Raw.client(b, "2"), await Raw.dial(b.address) as raw:
            assert "CONNECTIONS_MAX" in await raw.goodbye()
            await until(lambda: len(b.connections) == 2)

    run(work())


def test_a_client_that_connects_again_replaces_a_connection_that_does_not_answer(monkeypatch):
    monkeypatch.setattr(session_module, "ANSWER_S_MAX", 0.05)

    async def work():
        async with broker() as b, await Raw.client(b, "alice") as first:
            first.say(Request(1, Subscribe("alice", "s", Filter("x > 0"))))
            await first.next(Accepted)
            # The first reads nothing meanwhile, so it answers no ping.
            async with await Raw.client(b, "alice") as second:
                goodbye = (await first.rest())[-1]
                assert goodbye == Goodbye("'alice' has connected again, and this connection did not answer")
                await until(lambda: len(b.connections) == 1)
                # The end of the first takes nothing from the second.
                second.say(Request(1, Subscribe("alice", "s", Filter("x > 0"))), Publish(2, (Notification({"x": 1}),)))
                assert (await second.next(Delivery)).subscriptions == ("s",)
                assert await second.next(Accepted) == Accepted(2)
            await until(lambda: not b.node.clients)
            assert not b._by_who

    run(work())


def test_an_identity_goes_to_another_client_that_is_there():
    async def work():
        async with broker() as b, await Raw.client(b, "one") as first, await Raw.client(b, "two") as second:
            first.say(Request(1, Subscribe("one", "s", Filter("x > 0"))), Request(2, MapIdentity("one", "two")))
            assert [await first.next(Accepted), await first.next(Accepted)] == [Accepted(1), Accepted(2)]
            first.say(Publish(3, (Notification({"x": 1}),)))
            assert (await second.next(Delivery)).identity == "one"

    run(work())


def test_what_a_client_has_seen_is_bounded():
    async def work():
        seen = {f"source {n}": n for n in range(SEEN_SOURCES_MAX + 500)}
        async with broker() as b, await Raw.client(b, "alice", seen=seen):
            (identity,) = b.node.core.clients
            assert list(identity.newest.last) == list(seen)[500:]

    run(work())


def test_identities_of_a_client_are_bounded(monkeypatch):
    monkeypatch.setattr("catchment.node.access.CLIENT_IDENTITIES_MAX", 3)

    async def work():
        async with broker() as b, await Raw.client(b, "raw") as raw:
            for n in range(5):
                raw.say(Request(n + 1, Subscribe(f"identity {n}", "s", Filter("x > 0"))))
            answers = await raw.rest(lambda messages: len(messages) == 5)
            # One is its own name.
            assert [type(answer) for answer in answers] == [Accepted] * 2 + [Refused] * 3

    run(work())


def test_who_asks_and_never_reads_is_ended(monkeypatch):
    monkeypatch.setattr(connection_module, "CLIENT_OUTBOX_BYTES_MOST", 100_000)

    async def work():
        async with broker() as b, await Raw.client(b, "deaf") as raw, client(b, "alice") as alice:
            while len(b.connections) == 2:
                raw.say(*(Look(n + 1, "status") for n in range(500)))
                await asyncio.sleep(0)
            assert (await alice.look())["name"] == "b"

    run(work())


def test_a_fault_of_ours_ends_one_connection_and_is_logged(caplog):
    async def work():
        async with broker() as b, await Raw.client(b, "unlucky") as raw, client(b, "alice") as alice:
            real = b.node.core.on_message

            def faulty(message, source, now):
                if isinstance(message, Cancel):
                    raise AssertionError("our bug")
                return real(message, source, now)

            b.node.core.on_message = faulty
            raw.say(Request(1, Cancel("unlucky", "s")))
            await raw.rest()
            await until(lambda: len(b.connections) == 1)
            assert (await alice.look())["name"] == "b"

    run(work())
    assert any("our bug" in str(record.exc_info) for record in caplog.records)


def test_looks_are_answered():
    async def work():
        async with broker() as b, await Raw.client(b, "raw") as raw:
            raw.say(Look(1, "status"), Look(2, "explain", Notification({"x": 1})))
            assert (await raw.next(Seen)).report["name"] == "b"
            assert (await raw.next(Seen)).report == []

    run(work())
