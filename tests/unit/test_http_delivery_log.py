"""The log of deliveries that wait to be read over HTTP: bounded, in order, nothing twice."""

import asyncio

from catchment.broker.http.delivery_log import PORTION_ENTRIES_MAX, DeliveryLog, Portion, Reader


def filled(count, **limits) -> DeliveryLog:
    log = DeliveryLog("e", **limits)
    for i in range(count):
        log.append(("s",), b"%d" % i)
    return log


def taken(reader: Reader) -> tuple[int, list[int]]:
    """Takes all there is: how many deliveries were lost, and the numbers of the rest."""

    async def work() -> tuple[int, list[int]]:
        lost, numbers = 0, []
        while (portion := await reader.take(0.0)) is not None and (portion.lost or portion.entries):
            lost += portion.lost
            numbers += [entry.number for entry in portion.entries]
        return lost, numbers

    return asyncio.run(work())


def test_a_reader_gets_all_in_order():
    count = 3 * PORTION_ENTRIES_MAX
    assert taken(Reader(filled(count))) == (0, [*range(1, count + 1)])


def test_the_oldest_are_dropped_and_counted():
    log = filled(10, entries_max=4)
    assert log.lost == 6
    assert taken(Reader(log)) == (6, [7, 8, 9, 10])


def test_bytes_are_bounded_but_a_single_delivery_may_be_longer():
    log = DeliveryLog("e", bytes_max=10)
    for size in (4, 4, 4, 100):
        log.append((), b"x" * size)
    assert taken(Reader(log)) == (3, [4])


def test_what_was_taken_is_not_lost():
    log = filled(4, entries_max=4)
    taken(Reader(log))
    log.append((), b"x")
    assert log.lost == 0


def test_a_second_reader_starts_with_what_nobody_has_taken():
    log = filled(3)
    taken(Reader(log))
    log.append((), b"x")
    assert taken(Reader(log)) == (0, [4])


def test_a_reader_starts_after_a_place():
    log = filled(5, entries_max=3)
    assert taken(Reader(log, "e.4")) == (0, [5])
    assert taken(Reader(log, "e.1")) == (1, [3, 4, 5])
    assert taken(Reader(log, "e.5")) == (0, [])
    for unknown in ("e.6", "f.1", "e.x", "7", "e.", "e.-1", "e.²", "e." + "9" * 5_000):
        assert Reader(log, unknown).has_gap
    assert not Reader(log, "e.2").has_gap


def test_the_end_comes_after_what_waits():
    async def work() -> tuple[Portion | None, Portion | None]:
        log = filled(1)
        log.end("over")
        reader = Reader(log)
        return await reader.take(1.0), await reader.take(1.0)

    first, second = asyncio.run(work())
    assert first is not None
    assert len(first.entries) == 1
    assert second is None


def test_a_waiting_reader_is_woken():
    async def work() -> tuple[int, set[Reader]]:
        log = DeliveryLog("e")
        reader = Reader(log)
        waiting = asyncio.ensure_future(reader.take(10.0))
        await asyncio.sleep(0)
        log.append((), b"x")
        portion = await waiting
        reader.close()
        assert portion is not None
        return portion.entries[0].number, log.readers

    assert asyncio.run(work()) == (1, set())
