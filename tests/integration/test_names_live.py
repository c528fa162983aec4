"""Nobody silences a source, and nobody speaks for the identity of another: attacks over real connections."""

import asyncio
import json
import time
from typing import Any

import httpx
import pytest

from catchment import Filter, Notification
from catchment.client import Client
from catchment.client import numbering as numbering_module
from catchment.errors import BadIdError, BadNumberError, ForeignIdentityError
from catchment.model.values import INT_MAX
from catchment.node.numbers import SEQ_AHEAD_MAX
from catchment.routing.messages import Cancel, MapIdentity, Resume, Suspend, Unsubscribe
from catchment.wire.frames import VERSION
from catchment.wire.messages import Accepted, Hello, Publish, Refused, Request, Welcome
from tests.integration.network import ANYWHERE, FakeBroker, Raw, broker, client, pair, run, until

HOUR = 3_600_000_000


def _hello(name: str) -> Hello:
    return Hello((VERSION, VERSION), "client", name)


def micros() -> int:
    return time.time_ns() // 1_000


def test_a_poisoned_number_silences_nobody():
    """Finding 9: 2⁶³−1 under the name of a source that is not there."""

    async def work():
        async with broker() as b, client(b, "reader") as reader, await Raw.client(b, "mallory") as mallory:
            subscription = await reader.subscribe("n >= 0")
            for number, seq in enumerate((INT_MAX, micros() + HOUR), 1):
                mallory.say(Publish(number, (Notification({"n": 0}, source="victim", seq=seq),)))
                refused = await mallory.next(Refused)
                assert (refused.number, refused.kind) == (number, "BadNumberError")
                assert "leaps ahead" in refused.reason
                assert abs(refused.after - micros()) < HOUR
            # As far ahead as it may be: the victim learns of it when it connects.
            ahead = micros() + SEQ_AHEAD_MAX - 1_000_000
            mallory.say(Publish(3, (Notification({"n": 1}, source="victim", seq=ahead),)))
            await mallory.next(Accepted)
            assert (await subscription.get()).notification["n"] == 1
            async with client(b, "victim") as victim:
                await victim.publish({"n": 2}, ack="accepted")
                delivery = await subscription.get()
                assert (delivery.notification["n"], delivery.notification.seq) == (2, ahead + 1)
                # Now the name belongs to the victim.
                mallory.say(Publish(4, (Notification({"n": 3}, source="victim", seq=ahead + 9),)))
                assert (await mallory.next(Refused)).kind == "ForeignIdentityError"
            assert b.node.counts()["old"] == 0

    run(work())


def test_a_publisher_whose_clock_was_an_hour_ahead_is_heard_at_once(monkeypatch):
    """Finding 9, with our own client: its clock does not matter, before or after it is set right."""

    async def work():
        async with broker() as b, client(b, "reader") as reader:
            subscription = await reader.subscribe("n >= 0")
            for n, ahead in enumerate((HOUR, 0)):
                monkeypatch.setattr(numbering_module, "time_ns", lambda ahead=ahead: (micros() + ahead) * 1_000)
                async with client(b, "publisher") as publisher:
                    await publisher.publish({"n": n}, ack="accepted")
                    assert (await subscription.get()).notification["n"] == n
            assert b.node.counts()["old"] == b.node.totals.refused == 0

    run(work())


def test_a_publisher_that_numbers_by_a_wrong_clock_is_told_and_goes_on():
    """Finding 9, with a client of another make."""

    async def work():
        async with broker() as b, client(b, "reader") as reader, await Raw.client(b, "p") as raw:
            subscription = await reader.subscribe("n >= 0")
            raw.say(Publish(1, (Notification({"n": 1}, source="p", seq=micros() + HOUR),)))
            after = (await raw.next(Refused)).after
            raw.say(Publish(0, (Notification({"n": 2}, source="p", seq=after + 1),)))
            assert (await subscription.get()).notification["n"] == 2
            # Also without an answer, a number that goes back is refused.
            raw.say(Publish(0, (Notification({"n": 3}, source="p", seq=after + 1),)))
            refused = await raw.next(Refused)
            assert (refused.number, refused.after, "goes back" in refused.reason) == (0, after + 1, True)

    run(work())


def test_a_fresh_process_learns_the_last_number_of_its_name():
    async def work():
        async with broker() as b:
            async with await Raw.client(b, "p") as raw:
                raw.say(Publish(1, (Notification({"n": 1}, seq=41), Notification({"n": 2}, seq=42))))
                await raw.next(Accepted)
            await until(lambda: not b.node.clients)
            async with await Raw.dial(b.address) as raw:
                raw.say(_hello("p"))
                welcome = await raw.next(Welcome)
                assert welcome.last_seq == 42
                assert abs(welcome.now - micros()) < HOUR
            async with await Raw.dial(b.address) as raw:
                raw.say(_hello("q"))
                assert (await raw.next(Welcome)).last_seq is None

    run(work())


def test_numbers_that_a_broker_has_heard_of_elsewhere_are_refused_and_gone_on_after():
    """A source publishes at `a`, then at `b` with a number that goes back: not dropped, but told."""

    async def work():
        async with pair() as network, client(network.a, "source") as publisher:
            await publisher.publish(Notification({"n": 1}, seq=500), ack="accepted")
            assert (await network.subscription.get()).notification["n"] == 1
            await publisher.close()
            async with client(network.b, "source") as again:
                with pytest.raises(BadNumberError, match="goes back") as refused:
                    await again.publish(Notification({"n": 2}, seq=500), ack="accepted")
                assert refused.value.after == 500
                # The client's own numbers begin after those that the broker knows.
                await again.publish({"n": 3}, ack="accepted")
                assert (await network.subscription.get()).notification["n"] == 3

    run(work())


def test_what_is_dropped_as_old_elsewhere_is_counted_and_shown():
    """Somebody publishes under the name of a source that is at another broker: what the source publishes is dropped as
    old until the clock has caught up, within a minute, and the broker that drops it says so."""

    async def work():
        async with (
            pair() as network,
            client(network.b, "mallory") as mallory,
            client(network.a, "victim") as victim,
        ):
            ahead = micros() + SEQ_AHEAD_MAX - 1_000_000
            await mallory.publish(Notification({"n": 0}, source="victim", seq=ahead), ack="accepted")
            assert (await network.subscription.get()).notification["n"] == 0
            await victim.publish({"n": 1}, ack="accepted")
            await until(lambda: network.b.node.counts()["old"] > 0)
            assert (await mallory.look())["totals"]["old"] == 1

    run(work())


def test_a_client_publishes_once_more_with_greater_numbers():
    """The numbers were the client's own, so the caller need not know."""

    async def work():
        async with FakeBroker() as fake, client(fake, "p") as publisher:
            wire = await fake.next()
            both = [Notification({"n": n}) for n in (1, 2)]
            publishing = asyncio.ensure_future(publisher.publish(both, ack="accepted"))
            first = await wire.next(Publish)
            # Well past what the client's clock says meanwhile.
            after = first.notifications[-1].seq + HOUR
            wire.say(Refused(first.number, "BadNumberError", "goes back", after))
            second = await wire.next(Publish)
            assert [each.seq for each in second.notifications] == [after + 1, after + 2]
            assert [each["n"] for each in second.notifications] == [1, 2]
            wire.say(Accepted(second.number))
            await publishing
            # Numbers of the caller's are the caller's business.
            publishing = asyncio.ensure_future(publisher.publish(Notification({"n": 3}, seq=1), ack="accepted"))
            third = await wire.next(Publish)
            wire.say(Refused(third.number, "BadNumberError", "goes back", after))
            with pytest.raises(BadNumberError) as refused:
                await publishing
            assert refused.value.after == after

    run(work())


def test_identities_belong_to_their_connection():
    """Finding 10."""

    async def work():
        async with broker() as b, client(b, "alice") as alice, client(b, "mallory") as mallory:
            own = await alice.subscribe("n >= 0", id="s")
            other = await alice.subscribe("n >= 0", id="s", identity="alice's phone")
            for identity in ("alice", "alice's phone"):
                for attack in (
                    mallory.cancel("s", identity=identity),
                    mallory.unsubscribe("true", identity=identity),
                    mallory.suspend(identity=identity),
                    mallory.resume(identity=identity),
                    mallory.map_identity(identity, "mallory"),
                    mallory.advertise("n any", identity=identity),
                    mallory.subscribe("n >= 0", id="t", identity=identity),
                ):
                    with pytest.raises(ForeignIdentityError, match="belongs to another client"):
                        await attack
            await mallory.publish({"n": 1}, ack="accepted")
            assert (await own.get()).notification["n"] == (await other.get()).notification["n"] == 1
            with pytest.raises(ForeignIdentityError):
                await mallory.publish(Notification({"n": 2}, source="alice's phone"), ack="accepted")
            await alice.map_identity("alice's phone", "mallory")
            await mallory.publish(Notification({"n": 3}, source="alice's phone"), ack="accepted")
            assert (await own.get()).notification.source == "alice's phone"

    run(work())


def test_nobody_takes_the_identities_of_subscriptions_over_http():
    """Finding 10: `@http/…`."""

    async def work():
        async with (
            broker(http=ANYWHERE) as b,
            httpx.AsyncClient(base_url=f"http://{b.http.address}") as http,
            await Raw.client(b, "mallory") as mallory,
        ):
            given = {"id": "sold", "filters": [{"catchment": "n >= 0"}]}
            assert (await http.post("/subscriptions", json=given)).status_code == 201
            requests: list[Any] = [
                Cancel("@http/sold", "sold"),
                Unsubscribe("@http/sold", Filter("true")),
                Suspend("@http/sold"),
                Resume("@http/sold"),
                MapIdentity("@http/sold", "mallory"),
                MapIdentity("mallory", "@http/sold"),
            ]
            for number, request in enumerate(requests, 1):
                mallory.say(Request(number, request))
                assert (await mallory.next(Refused)).kind == BadIdError.__name__
            event = {"specversion": "1.0", "id": "1", "type": "t", "source": "mallory"}
            headers = {"Content-Type": "application/cloudevents+json"}
            answer = await http.post("/events", content=json.dumps(event), headers=headers)
            assert (answer.status_code, answer.json()["kind"]) == (422, "ForeignIdentityError")
            for source in ("*", "@http", "a\nb"):
                answer = await http.post("/events", content=json.dumps({**event, "source": source}), headers=headers)
                assert (answer.status_code, answer.json()["kind"]) == (422, "BadIdError")
            answer = await http.post("/events", content=json.dumps({**event, "source": "/shop"}), headers=headers)
            assert answer.status_code == 202

    run(work())


@pytest.mark.parametrize("name", ["*", "@x", "", "a\nb", "x" * 1_025])
def test_our_client_does_not_even_try_a_name_that_nobody_may_have(name):
    async def work():
        async with broker() as b:
            with pytest.raises(BadIdError, match="identity: "):
                await Client(f"catchment://{b.address}", name).open()

    run(work())


def test_a_name_that_another_client_has_introduced_is_not_to_be_had_until_it_is_gone():
    async def work():
        async with broker() as b:
            async with client(b, "mallory") as mallory:
                await mallory.suspend(identity="alice")
                async with await Raw.dial(b.address) as raw:
                    raw.say(_hello("alice"))
                    (goodbye,) = await raw.rest()
                    assert "identity of another client" in goodbye.reason
                    assert not goodbye.is_final
            await until(lambda: not b.node.clients)
            async with client(b, "alice"):
                pass

    run(work())
