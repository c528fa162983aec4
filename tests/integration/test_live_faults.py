"""What brokers and clients do when the other side dies, comes back or comes twice: mistakes that live runs found."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from catchment.broker import server
from catchment.broker.config import Address, Config, read_config
from catchment.broker.connection import Connection
from catchment.broker.half_sent import HalfSent
from catchment.broker.outboxes import Outboxes
from catchment.broker.turns import Turns
from catchment.client import reconnecting as client_module
from catchment.client.connection import connected
from catchment.errors import InputError
from catchment.routing.messages import Neighbor
from catchment.routing.siena.gateway import HybridCore
from catchment.wire.client_session import ClientSession
from catchment.wire.greetings import ThisBroker
from catchment.wire.session import BrokerSession, Event
from tests.integration.network import ANYWHERE, Raw, broker, client, run, until
from tests.said import language_of

uvloop = pytest.importorskip("uvloop")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (server, client_module):
        monkeypatch.setattr(module, "RETRY_S_FIRST", 0.01)
        monkeypatch.setattr(module, "RETRY_S_MOST", 0.02)


async def nobody() -> Address:
    """Where nobody listens."""
    listener = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
    address = Address(*listener.sockets[0].getsockname()[:2])
    listener.close()
    await listener.wait_closed()
    return address


@pytest.mark.parametrize("run_in", [asyncio.run, uvloop.run])
def test_a_neighbor_that_is_not_there_leaves_nothing_behind(run_in: Any):
    async def work() -> None:
        tries = 0
        async with broker("a", (await nobody(),)) as a:
            dial = a._dial

            async def counted(*given: Any) -> None:
                nonlocal tries
                tries += 1
                await dial(*given)

            a._dial = counted
            await until(lambda: tries > 3)
            # Connections are counted against CONNECTIONS_MAX, and waited for when the broker stops.
            assert len(a.connections) <= 1
            assert len(a._dialing) <= 1

    run_in(work())


@pytest.mark.parametrize(("dialer", "other"), [("a", "z"), ("z", "a")])
def test_a_link_that_both_know_is_not_replaced(dialer: str, other: str):
    """Whoever has opened it: what is under way on it would be lost."""

    async def work() -> None:
        async with broker(other) as there, broker(dialer, (there.address,)) as here:
            await until(lambda: here.node.links and there.node.links)
            before = here.node.links[Neighbor(other)]
            async with await Raw.hailing(here, other, there.config.routing, there.instance) as late:
                assert "link already" in await late.goodbye()
            assert here.node.links[Neighbor(other)] is before

    run(work())


def test_nothing_is_written_to_what_is_closed():
    class Closed(asyncio.Transport):
        def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

        def get_write_buffer_size(self) -> int:
            return 0

        def write(self, data: Any) -> None:
            raise RuntimeError("the handler is closed")

    class Owner:
        def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
            self.turns, self.half_sent, self.outboxes = Turns(loop.time, loop.call_soon), HalfSent(), Outboxes()

        def heard(self, connection: Connection, event: Event) -> None: ...

        def closed(self, connection: Connection, reason: str) -> None: ...

        def congested(self, connection: Connection) -> None: ...

        def drained(self, connection: Connection) -> None: ...

    async def work() -> None:
        loop, problems = asyncio.get_running_loop(), []
        loop.set_exception_handler(lambda loop, context: problems.append(context))
        connection = Connection(Owner(loop), loop, BrokerSession(ThisBroker("b", "flooding", language_of("flooding"))))
        connection.connection_made(Closed())
        connection.put(b"waits for this turn to end")
        connection.connection_lost(None)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert problems == []

    run(work())


# --- clients ------------------------------------------------------------------------------------


def test_what_is_stated_again_goes_before_all_else():
    """A publication needs the advertisement, a cancellation the subscription: neither may overtake it."""

    async def work() -> None:
        config = Config("a", ANYWHERE, routing="siena advertising")
        async with broker("a", routing="siena advertising") as first:
            alice = await client(first, "alice")
            await alice.advertise("level any")
            kept = await alice.subscribe("level > 0", id="kept")
            await alice.subscribe("level > 1", id="gone")
            config = replace(config, listen=first.address)
        waiting = asyncio.gather(
            alice.cancel("gone"), alice.publish({"level": 2}, ack="accepted"), alice.subscribe("level > 2", id="late")
        )
        async with broker("a", listen=config.listen, routing=config.routing) as second:
            await waiting
            assert (await kept.get()).subscriptions == ("kept",)
            assert second.node.core.clients.subscriptions_count == 2
            await alice.close()

    run(work())


def test_who_gives_up_when_just_welcomed_is_gone(monkeypatch: pytest.MonkeyPatch):
    async def work() -> None:
        async with broker() as there:
            opening = asyncio.ensure_future(client(there, "alice"))

            async def giving_up(host: str, port: int, session: ClientSession, events: Any) -> Any:
                def then_cancel(*given: Any) -> None:
                    events.welcomed(*given)
                    opening.cancel()

                return await connected(host, port, session, events._replace(welcomed=then_cancel))

            monkeypatch.setattr(client_module, "connected", giving_up)
            with pytest.raises(asyncio.CancelledError):
                await opening
            await until(lambda: not there.node.clients)

    run(work())


def test_a_subscription_of_another_identity_is_cancelled_as_that():
    async def work() -> None:
        async with broker() as there, client(there, "alice") as alice:
            bobs = await alice.subscribe("level > 0", identity="bob")
            await bobs.cancel()
            assert there.node.core.clients.subscriptions_count == 0

    run(work())


def test_what_was_seen_goes_along():
    async def work() -> None:
        async with broker("a") as a, broker("b") as b, client(b, "publisher") as publisher:
            async with client(a, "alice") as alice:
                assert alice.seen == {}
            async with client(b, "alice", seen={"publisher": 2**62}) as alice:
                assert alice.seen == {"publisher": 2**62}
                subscription = await alice.subscribe("level > 0")
                await publisher.publish({"level": 1}, ack="accepted")
                await alice.look()
                assert not subscription._waiting

    run(work())


# --- configuration ------------------------------------------------------------------------------

HYBRID = """
name = "net.1"
routing = "siena hybrid"

[[settings.units]]
unit = "net"
kind = "general"
neighbors = ["net.2"]

[[settings.units]]
unit = "a"
kind = "hierarchical"
neighbors = ["a.1"]
master = "a.1"
"""


def read(tmp_path: Path, text: str) -> Config:
    (tmp_path / "broker.toml").write_text(text)
    return read_config(tmp_path / "broker.toml")


def test_units_are_read(tmp_path: Path):
    core = read(tmp_path, HYBRID).make_core().inner
    assert isinstance(core, HybridCore)
    assert set(core.ports) == {"net", "a"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (HYBRID.replace("general", "circular"), "circular"),
        (HYBRID.replace("master", "mister"), "mister"),
        (HYBRID.replace('master = "a.1"', 'master = "a.2"'), "its master"),
        ('routing = "siena hybrid"', "needs units"),
        ('routing = "siena merging"\nsettings = { merging = 2.0 }', "from 0 to less than 1"),
        ('routing = "centralized"', "center"),
        ('name = "*"', "is reserved"),
        ('name = "@x"', "are the broker's own"),
        ('name = "a\\nb"', "no control characters"),
        ('name = "' + "x" * 1_025 + '"', "a name has 1 to 1,024 characters"),
    ],
)
def test_bad_settings_are_told(text: str, reason: str, tmp_path: Path):
    with pytest.raises(InputError, match=reason):
        read(tmp_path, text).make_core()
