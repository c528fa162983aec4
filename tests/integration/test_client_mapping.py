"""Identities that a client has mapped to another outlive the connection, and the broker."""

import asyncio

import pytest

from catchment.client import reconnecting as client_module
from catchment.routing.messages import MapIdentity, Subscribe
from catchment.wire.messages import Accepted, Refused, Request
from tests.integration.network import FakeBroker, Proxy, broker, client, run, until


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(client_module, "RETRY_S_FIRST", 0.01)
    monkeypatch.setattr(client_module, "RETRY_S_MOST", 0.02)


async def _mapped(b, owner, handler) -> None:
    """What `x` is due goes to the handler."""
    await owner.subscribe("n >= 0", id="s", identity="x")
    await owner.map_identity("x", handler.identity)


def _handler_of(b, identity: str) -> str | None:
    return next((each.client.name for each in b.node.core.clients if each.name == identity), None)


@pytest.mark.parametrize("first", ["owner", "handler"])
def test_mappings_are_stated_again_after_a_restart_of_the_broker(first):
    """Whoever comes back first."""

    async def work():
        async with broker() as b, Proxy(b) as late:
            owner = await client(b if first == "owner" else late, "owner")
            handler = await client(late if first == "owner" else b, "handler")
            deliveries = aiter(handler)
            await _mapped(b, owner, handler)
            await owner.publish({"n": 1}, ack="accepted")
            delivery = await anext(deliveries)
            assert (delivery.notification["n"], delivery.identity) == (1, "x")
            late.refuse()
        async with broker(listen=b.address) as again, Proxy(again) as late_again:
            await until(lambda: again.node.clients)
            late_client = handler if first == "owner" else owner
            assert [interface.name for interface in again.node.clients] == [first]
            # A proxy of the second broker, at an address of its own.
            late_client._connecting._addresses = [(late_again.address.host, late_again.address.port)]
            await until(lambda: _handler_of(again, "x") == "handler")
            await until(lambda: again.node.core.clients.subscriptions_count == 1)
            await owner.publish({"n": 2}, ack="accepted")
            delivery = await anext(deliveries)
            while delivery.notification["n"] != 2:
                delivery = await anext(deliveries)
            assert (delivery.identity, delivery.gap) == ("x", True)
            await owner.close()
            await handler.close()

    run(work())


def test_a_mapping_survives_that_only_its_maker_was_away():
    async def work():
        async with broker() as b, Proxy(b) as proxy, client(proxy, "owner") as owner, client(b, "handler") as handler:
            deliveries = aiter(handler)
            await _mapped(b, owner, handler)
            proxy.cut()
            await until(lambda: len(b.node.clients) == 1)
            await until(lambda: len(b.node.clients) == 2)
            await owner.publish({"n": 1}, ack="accepted")
            assert (await anext(deliveries)).identity == "x"
            # It was there still, and can be cancelled by who has made it.
            (subscription,) = owner._subscriptions.values()
            await subscription.cancel()
            assert b.node.core.clients.subscriptions_count == 0

    run(work())


def test_mappings_are_stated_before_subscriptions_and_again_until_the_handler_is_there():
    async def work():
        async with FakeBroker() as fake, client(fake, "owner") as owner:
            wire = await fake.next()
            asking = asyncio.ensure_future(_mapped(None, owner, owner))
            for _ in range(2):
                wire.say(Accepted((await wire.next(Request)).number))
            await asking
            await wire.close()
            wire = await fake.next()
            mapping, subscribing = [await wire.next(Request) for _ in range(2)]
            assert isinstance(subscribing.body, Subscribe)
            wire.say(Accepted(subscribing.number))
            for _ in range(3):
                assert mapping.body == MapIdentity("x", "owner")
                wire.say(Refused(mapping.number, "BadIdError", "there is no client owner"))
                mapping = await wire.next(Request)
            # Refused for another reason it is given up.
            wire.say(Refused(mapping.number, "LimitError", "too many"))
            await until(lambda: not owner._standing._handlers)

    run(work())
