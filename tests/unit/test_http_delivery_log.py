"""What waits to be read over HTTP: bounded, in order, nothing twice."""

import asyncio

from catchment.broker.http.delivery_log import TAKEN_MAX, Log, Reader


def filled(count, **limits):
    log = Log("e", **limits)
    for i in range(count):
        log.append(("s",), b"%d" % i)
    return log


def taken(reader):
    """All there is: how many were lost, and the numbers of the rest."""

    async def work():
        lost, numbers = 0, []
        while (found := await reader.take(0.0)) is not None and (found.lost or found.entries):
            lost += found.lost
            numbers += [one.number for one in found.entries]
        return lost, numbers

    return asyncio.run(work())


def test_a_reader_gets_all_in_order():
    assert taken(Reader(filled(3 * TAKEN_MAX))) == (0, [*range(1, 3 * TAKEN_MAX + 1)])


def test_the_oldest_go_and_are_counted():
    log = filled(10, entries_max=4)
    assert log.lost == 6
    assert taken(Reader(log)) == (6, [7, 8, 9, 10])


def test_bytes_are_bounded_and_one_may_be_longer():
    log = Log("e", bytes_max=10)
    for size in (4, 4, 4, 100):
        log.append((), b"x" * size)
    assert taken(Reader(log)) == (3, [4])


def test_what_was_taken_is_not_lost():
    log = filled(4, entries_max=4)
    taken(Reader(log))
    log.append((), b"x")
    assert log.lost == 0


def test_a_second_reader_begins_where_nobody_was():
    log = filled(3)
    taken(Reader(log))
    log.append((), b"x")
    assert taken(Reader(log)) == (0, [4])


def test_places():
    log = filled(5, entries_max=3)
    assert taken(Reader(log, "e.4")) == (0, [5])
    assert taken(Reader(log, "e.1")) == (1, [3, 4, 5])
    assert taken(Reader(log, "e.5")) == (0, [])
    for unknown in ("e.6", "f.1", "e.x", "7", "e.", "e.-1", "e.²", "e." + "9" * 5_000):
        assert Reader(log, unknown).has_gap
    assert not Reader(log, "e.2").has_gap


def test_the_end_comes_after_what_waits():
    async def work():
        log = filled(1)
        log.end("over")
        reader = Reader(log)
        return [await reader.take(1.0), await reader.take(1.0)]

    found = asyncio.run(work())
    assert len(found[0].entries) == 1
    assert found[1] is None


def test_a_waiting_reader_is_woken():
    async def work():
        log = Log("e")
        reader = Reader(log)
        waiting = asyncio.ensure_future(reader.take(10.0))
        await asyncio.sleep(0)
        log.append((), b"x")
        found = await waiting
        reader.close()
        return found.entries[0].number, log.readers

    assert asyncio.run(work()) == (1, set())
