"""Durable delivery over real connections: brokers with and without a store in one loop."""

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from catchment import Notification
from catchment.broker.config import Address, StoreConfig
from catchment.client import connect
from catchment.client import publishing as publishing_module
from catchment.client import reconnecting as reconnecting_module
from catchment.errors import BadIdError, UnavailableError
from tests.integration.network import broker, client, run, until


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("RETRY_S_FIRST", 0.01), ("RETRY_S_MOST", 0.05)):
        monkeypatch.setattr(reconnecting_module, name, value)
    for name, value in (("RESEND_S_FIRST", 0.01), ("RESEND_S_MOST", 0.05)):
        monkeypatch.setattr(publishing_module, name, value)


def storage(name: str, directory: Path, neighbors: tuple[Address, ...] = (), **given: Any) -> Any:
    return broker(name, neighbors, store=StoreConfig(url=str(directory / f"{name}.db"), **given))


@asynccontextmanager
async def linked(directory: Path) -> Any:
    """Two storages and a broker without a disk, in a line: each knows the storages."""
    async with (
        storage("a", directory) as a,
        storage("b", directory, (a.address,)) as b,
        broker("c", (b.address,), store=StoreConfig(storage="b")) as c,
    ):
        await until(lambda: all(len(each.core.storages()) == 2 for each in (a, b, c)))
        await until(lambda: all(is_reached for each in (a, b, c) for *_, is_reached in each.core.storages()))
        yield a, b, c


async def taken(queue: Any, count: int) -> list[int]:
    """The next numbers that come, all of them acknowledged."""
    numbers = []
    async with asyncio.timeout(30):
        for _ in range(count):
            delivery = await queue.get()
            numbers.append(delivery.notification["n"])
            delivery.ack()
    return numbers


def numbered(first: int, last: int) -> list[Notification]:
    return [Notification({"n": n}) for n in range(first, last + 1)]


async def subscribed(reader: Any, wanted: str = "n > 0", **given: Any) -> Any:
    subscription = await reader.subscribe(wanted, id="s", durable=True, **given)
    async with asyncio.timeout(30):
        assert await subscription.effective == ()
    return subscription


# --- subscribers --------------------------------------------------------------------------------


def test_what_was_published_while_a_subscriber_was_away_comes_when_it_is_back(tmp_path: Path) -> None:
    async def work() -> None:
        async with storage("a", tmp_path) as a, client(a, "publisher") as publisher:
            async with client(a, "reader", state=tmp_path / "reader") as reader:
                subscription = await subscribed(reader)
                await publisher.publish(numbered(1, 3), ack="stored")
                assert await taken(subscription, 3) == [1, 2, 3]
            await publisher.publish(numbered(4, 600), ack="stored")
            async with client(a, "reader", state=tmp_path / "reader") as reader:
                subscription = await subscribed(reader)
                # More than a window.
                assert await taken(subscription, 597) == [*range(4, 601)]

    run(work())


def test_what_was_read_and_not_taken_comes_again_and_what_was_taken_does_not(tmp_path: Path) -> None:
    async def work() -> None:
        async with storage("a", tmp_path) as a, client(a, "publisher") as publisher:
            async with client(a, "reader") as reader:
                subscription = await subscribed(reader)
                await publisher.publish(numbered(1, 3), ack="stored")
                first, second = await subscription.get(), await subscription.get()
                # The first was taken when the second was asked for; the second is only read.
                assert (first.notification["n"], second.notification["n"]) == (1, 2)
                await until(lambda: reader.positions == {first.log: first.epoch})
            async with client(a, "reader", positions={first.log: first.epoch}) as reader:
                assert await taken(await subscribed(reader), 2) == [2, 3]

    run(work())


def test_a_subscriber_roams_and_its_old_broker_is_dead_for_ever(tmp_path: Path) -> None:
    async def work() -> None:
        async with linked(tmp_path) as (a, b, c), client(a, "publisher") as publisher:
            async with broker("old", (b.address,)) as old:
                await until(lambda: len(old.core.storages()) == 2)
                reader = await client(old, "reader", state=tmp_path / "reader")
                subscription = await subscribed(reader)
                await publisher.publish(numbered(1, 5), ack="stored")
                assert await taken(subscription, 5) == [1, 2, 3, 4, 5]
                await publisher.publish(numbered(6, 9), ack="stored")
                await reader.close()
            async with client(c, "reader", state=tmp_path / "reader") as reader:
                subscription = await subscribed(reader)
                assert await taken(subscription, 4) == [6, 7, 8, 9]
                await publisher.publish(numbered(10, 10), ack="stored")
                assert await taken(subscription, 1) == [10]

    run(work())


def test_a_client_with_several_addresses_goes_on_at_the_next_broker(tmp_path: Path) -> None:
    async def work() -> None:
        async with linked(tmp_path) as (a, b, c), client(a, "publisher") as publisher:
            async with broker("old", (b.address,)) as old:
                await until(lambda: len(old.core.storages()) == 2)
                reader = await connect([f"catchment://{old.address}", f"catchment://{c.address}"], identity="reader")
                subscription = await subscribed(reader)
                await publisher.publish(numbered(1, 3), ack="stored")
                assert await taken(subscription, 3) == [1, 2, 3]
            await publisher.publish(numbered(4, 6), ack="stored")
            # The same object goes on, at the other broker.
            assert await taken(subscription, 3) == [4, 5, 6]
            assert reader.broker == "c"
            await reader.close()

    run(work())


def test_an_edit_keeps_the_place_and_goes_by_the_old_filter_before_and_the_new_one_after(tmp_path: Path) -> None:
    async def work() -> None:
        async with storage("a", tmp_path) as a, client(a, "publisher") as publisher, client(a, "reader") as reader:
            subscription = await subscribed(reader, "n < 3")
            await publisher.publish(numbered(1, 4), ack="stored")
            await subscription.edit("n > 2")
            assert await asyncio.wait_for(subscription.effective, 30) == ()
            await publisher.publish(numbered(1, 4), ack="stored")
            assert await taken(subscription, 4) == [1, 2, 3, 4]

    run(work())


def test_what_comes_before_the_program_subscribes_again_waits_for_it(tmp_path: Path) -> None:
    async def work() -> None:
        async with storage("a", tmp_path) as a, client(a, "publisher") as publisher:
            async with client(a, "reader") as reader:
                await subscribed(reader)
            await publisher.publish(numbered(1, 3), ack="stored")
            async with client(a, "reader") as reader:
                await until(lambda: len(reader._durably._unclaimed) == 3)
                assert reader.positions in ({}, {a.core.log: 0})
                assert await taken(await subscribed(reader), 3) == [1, 2, 3]

    run(work())


def test_all_subscriptions_of_an_identity_are_durable_or_none(tmp_path: Path) -> None:
    async def work() -> None:
        async with storage("a", tmp_path) as a, client(a, "reader") as reader:
            await subscribed(reader)
            with pytest.raises(BadIdError, match="durable"):
                await reader.subscribe("n > 5")
            with pytest.raises(BadIdError, match="connect as"):
                await reader.subscribe("n > 5", identity="other", durable=True)

    run(work())


# --- publishers ---------------------------------------------------------------------------------


def test_a_broker_without_a_disk_has_publications_kept_by_the_storage_that_it_names(tmp_path: Path) -> None:
    async def work() -> None:
        async with linked(tmp_path) as (a, b, c), client(c, "publisher") as publisher, client(a, "reader") as reader:
            subscription = await subscribed(reader)
            kept = await publisher.publish(numbered(1, 3), ack="stored")
            assert (kept.storage, kept.log) == ("b", b.core.log)
            # Also what nobody waits for.
            await publisher.publish(numbered(4, 6), ack="accepted")
            assert await taken(subscription, 6) == [1, 2, 3, 4, 5, 6]

    run(work())


def test_without_any_storage_nothing_is_stored_and_the_error_says_so() -> None:
    async def work() -> None:
        async with broker("a") as a, client(a, "alice") as alice:
            with pytest.raises(UnavailableError, match="stor"):
                await alice.publish({"n": 1}, ack="stored")
            with pytest.raises(UnavailableError, match="no broker of this network has a store"):
                await alice.subscribe("n > 0", durable=True)
            # The rest goes on.
            await alice.publish({"n": 1}, ack="accepted")

    run(work())


def test_publications_of_a_client_that_is_offline_are_released_in_order(tmp_path: Path) -> None:
    async def work() -> None:
        async with storage("a", tmp_path) as a, client(a, "reader") as reader:
            subscription = await subscribed(reader)
            url = f"catchment://{a.address}"
            # Nobody listens there.
            publisher = await connect("127.0.0.1:1", identity="p", state=tmp_path / "p", offline=True)
            futures = [publisher.publish_nowait(each) for each in numbered(1, 4)]
            await publisher.close()
            assert all(future.exception() is not None for future in futures)
            # Another process sends them, before its own.
            async with connect(url, identity="p", state=tmp_path / "p") as publisher:
                assert publisher.unkept_count <= 4
                await publisher.publish(numbered(5, 6), ack="stored")
                assert publisher.unkept_count == 0
            assert await taken(subscription, 6) == [1, 2, 3, 4, 5, 6]

    run(work())


def test_a_publisher_goes_on_at_another_broker_with_what_is_not_confirmed(tmp_path: Path) -> None:
    async def work() -> None:
        async with linked(tmp_path) as (a, b, c), client(b, "reader") as reader:
            subscription = await subscribed(reader)
            publisher = await connect(
                [f"catchment://{a.address}", f"catchment://{c.address}"], identity="p", state=tmp_path / "p"
            )
            assert (await publisher.publish(numbered(1, 2), ack="stored")).storage == "a"
            first = await subscription.get()
            # The reader has not taken the second: the publisher stays with its storage, at another broker too.
            publisher._connecting.drop("moves")
            await until(lambda: publisher.is_connected and publisher.broker == "c")
            kept = await publisher.publish(numbered(3, 4), ack="stored")
            assert kept.storage == "a"
            first.ack()
            assert await taken(subscription, 3) == [2, 3, 4]
            # Everything is settled soon, and each confirmation says whether it is: then nothing binds it any more.
            while publisher._publishing.unkept.bound_to:
                await publisher.publish({"n": -1}, ack="stored")
            await publisher.close()

    run(work())


def test_a_storage_that_is_away_holds_up_its_publishers_and_nobody_else(tmp_path: Path) -> None:
    async def work() -> None:
        async with linked(tmp_path) as (a, b, c), client(b, "reader") as reader:
            subscription = await subscribed(reader)
            async with storage("away", tmp_path, (b.address,)) as away:
                await until(lambda: len(c.core.storages()) == 3)
                moving = await connect(
                    [f"catchment://{away.address}", f"catchment://{c.address}"], identity="p", state=tmp_path / "p"
                )
                kept = await moving.publish(numbered(1, 1), ack="stored")
                assert kept.storage == "away"
            # Its storage is gone, and nobody knows whether all of it was taken.
            await until(lambda: moving.is_connected and moving.broker == "c")
            waiting = asyncio.ensure_future(moving.publish(numbered(2, 2), ack="stored"))
            async with client(a, "other") as other:
                assert (await other.publish(numbered(100, 100), ack="stored")).storage == "a"
            assert sorted(await taken(subscription, 2)) == [1, 100]
            assert not waiting.done()
            # The storage comes back, at another address, with what it has on disk.
            async with storage("away", tmp_path, (b.address,)):
                assert (await asyncio.wait_for(waiting, 60)).storage == "away"
                assert await taken(subscription, 1) == [2]
            # Whoever will not wait leaves it.
            await until(lambda: moving.is_connected)
            waiting = asyncio.ensure_future(moving.publish(numbered(3, 3), ack="stored"))
            moving.leave_storage()
            assert (await asyncio.wait_for(waiting, 60)).storage in ("a", "b")
            assert await taken(subscription, 1) == [3]
            await moving.close()

    run(work())


def test_many_are_published_at_once_and_each_once(tmp_path: Path) -> None:
    async def work() -> None:
        async with storage("a", tmp_path) as a, client(a, "p", state=tmp_path / "p") as p, client(a, "r") as reader:
            subscription = await subscribed(reader)
            assert await p.publish_many(numbered(1, 5_000)) == 5_000
            assert await taken(subscription, 5_000) == [*range(1, 5_001)]

    run(work())


# --- groups -------------------------------------------------------------------------------------


async def shared_by(queues: dict[str, Any], count: int) -> dict[str, list[int]]:
    """Who got what, until all have come."""
    got: dict[str, list[int]] = {name: [] for name in queues}

    async def read(name: str, queue: Any) -> None:
        while True:
            delivery = await queue.get()
            got[name].append(delivery.notification["n"])
            delivery.ack()
            # Lets the others have a turn.
            await asyncio.sleep(0)

    tasks = [asyncio.ensure_future(read(name, queue)) for name, queue in queues.items()]
    await until(lambda: sum(map(len, got.values())) >= count)
    for task in tasks:
        task.cancel()
    return got


def test_members_of_a_group_share_what_comes_and_one_that_goes_leaves_the_rest_to_the_others(tmp_path: Path) -> None:
    async def work() -> None:
        async with storage("a", tmp_path) as a, client(a, "p") as publisher:
            first, second = await client(a, "first"), await client(a, "second")
            queues = {
                "first": await first.subscribe("n > 0", id="s", group="workers"),
                "second": await second.join("workers"),
            }
            assert await asyncio.wait_for(queues["first"].effective, 30) == ()
            await publisher.publish(numbered(1, 100), ack="stored")
            got = await shared_by(queues, 100)
            assert sorted(got["first"] + got["second"]) == [*range(1, 101)]
            assert all(got.values())
            # One has some that it has not taken, and goes.
            await publisher.publish(numbered(101, 200), ack="stored")
            await until(lambda: len(queues["second"]._waiting) > 10)
            await second.close()
            got = await shared_by({"first": queues["first"]}, 100)
            assert sorted(got["first"]) == [*range(101, 201)]
            await first.close()

    run(work())


def test_a_group_is_where_its_members_are_and_others_are_told(tmp_path: Path) -> None:
    async def work() -> None:
        async with linked(tmp_path) as (a, _, c), client(a, "first") as first, client(c, "second") as second:
            subscription = await first.subscribe("n > 0", id="s", group="workers")
            assert await asyncio.wait_for(subscription.effective, 30) == ()
            await until(lambda: c.core.table.is_group("workers"))
            await until(lambda: c.core.table.place("workers").broker == "a")
            with pytest.raises(BadIdError, match="are at a: connect there"):
                await second.join("workers")
            await first.leave("workers")
            await until(lambda: c.core.table.place("workers").broker is None)
            queue = await second.join("workers")
            await second.publish({"n": 1}, ack="stored")
            assert await taken(queue, 1) == [1]

    run(work())


# --- going back ---------------------------------------------------------------------------------


def test_a_subscriber_goes_back_to_an_epoch_and_to_a_time(tmp_path: Path) -> None:
    async def work() -> None:
        async with storage("a", tmp_path, retain_days=1) as a, client(a, "p") as publisher, client(a, "r") as reader:
            subscription = await subscribed(reader)
            await publisher.publish(numbered(1, 3), ack="stored")
            assert await taken(subscription, 3) == [1, 2, 3]
            between = datetime.now(UTC)
            await publisher.publish(numbered(4, 6), ack="stored")
            assert await taken(subscription, 3) == [4, 5, 6]
            (log,) = reader.positions
            await subscription.rewind(log=log, epoch=1)
            assert await taken(subscription, 5) == [2, 3, 4, 5, 6]
            await subscription.rewind(since=between)
            assert await taken(subscription, 3) == [4, 5, 6]
            # And on from there.
            await publisher.publish(numbered(7, 7), ack="stored")
            assert await taken(subscription, 1) == [7]
            with pytest.raises(BadIdError, match="either since, or log and epoch"):
                await reader.rewind()

    run(work())


def test_who_is_forgotten_is_due_nothing_and_begins_anew(tmp_path: Path) -> None:
    async def work() -> None:
        async with storage("a", tmp_path) as a, client(a, "p") as publisher, client(a, "r") as reader:
            await subscribed(reader, acks="manual")
            await publisher.publish(numbered(1, 3), ack="stored")
            await reader.forget()
            await until(lambda: not a.core.table.is_durable("r"))
            await publisher.publish(numbered(4, 4), ack="stored")
            subscription = await subscribed(reader)
            await publisher.publish(numbered(5, 5), ack="stored")
            assert await taken(subscription, 1) == [5]

    run(work())


# --- the store fails ----------------------------------------------------------------------------


def test_a_full_store_refuses_what_durable_subscribers_are_due_and_lets_the_rest_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("catchment.broker.storing.PROBE_S", 0.02)
    monkeypatch.setattr("catchment.broker.storing.COLLECT_S", 0.02)

    async def work() -> None:
        async with (
            broker("a", store=StoreConfig(url="memory:")) as a,
            client(a, "p") as publisher,
            client(a, "r") as reader,
            client(a, "t") as transient,
        ):
            subscription = await subscribed(reader, acks="manual")
            unkept = await transient.subscribe("n < 0")
            await publisher.publish(numbered(1, 2), ack="stored")
            disk = a.storing._store._disk
            disk.fill()
            # The first that finds it full is told that it is not kept, and from then on all are.
            waiting = asyncio.ensure_future(publisher.publish(numbered(3, 3), ack="stored"))
            await until(lambda: a.storing.problem)
            await until(lambda: a.core._shared.is_full)
            async with client(a, "other") as other:
                with pytest.raises(UnavailableError, match="full"):
                    await other.publish({"n": 7}, ack="accepted")
                await other.publish({"n": -1}, ack="accepted")
            assert (await unkept.get()).notification["n"] == -1
            status = await publisher.look()
            assert status["store"]["state"] == "full"
            # What was stored before is delivered and acknowledged all the same.
            assert await taken(subscription, 2) == [1, 2]
            await until(lambda: a.storing._store.opened().acknowledged.get("r") == 2)
            assert not waiting.done()
            disk.free()
            kept = await asyncio.wait_for(waiting, 30)
            assert kept is not None
            assert await taken(subscription, 1) == [3]
            assert (await publisher.look())["store"]["state"] == "works"

    run(work())


def test_a_store_that_breaks_is_not_tried_again_and_the_broker_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with (
            broker("a", store=StoreConfig(url="memory:")) as a,
            client(a, "p") as publisher,
            client(a, "r") as reader,
        ):
            await subscribed(reader)
            a.storing._store._disk.fail()
            waiting = asyncio.ensure_future(publisher.publish(numbered(1, 1), ack="stored"))
            await until(lambda: a.storing.is_broken)
            await publisher.publish({"n": -1}, ack="accepted")
            with pytest.raises(UnavailableError):
                await publisher.publish({"n": 1}, ack="accepted")
            assert not waiting.done()
            waiting.cancel()
            assert (await publisher.look())["store"]["state"] == "broken"

    run(work())
    assert "the store has failed" in caplog.text


# --- looking in ---------------------------------------------------------------------------------


def test_the_status_says_who_is_how_far_behind(tmp_path: Path) -> None:
    async def work() -> None:
        async with linked(tmp_path) as (a, _, c), client(a, "reader") as reader, client(a, "p") as p:
            await subscribed(reader, acks="manual")
            await p.publish(numbered(1, 3), ack="stored")
            status = await p.look()
            (row,) = status["store"]["identities"]
            assert (status["store"]["state"], row["identity"], row["waiting"], row["lost"]) == ("works", "reader", 3, 0)
            assert row["oldest_s"] >= 0
            assert row["lag"] >= 3
            assert [(each["name"], each["is_reached"]) for each in status["storages"]] == [("a", True), ("b", True)]
            async with client(c, "looker") as looker:
                assert (await looker.look())["store"] is None

    run(work())
