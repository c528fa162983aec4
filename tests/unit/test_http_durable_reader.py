"""The reader of a durable subscription: places, what is acknowledged when, and where a pass ends."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.broker.http.durable_client import DurableEntry
from catchment.broker.http.durable_streams import (
    PASS_BYTES_MAX,
    PASS_ENTRIES_MAX,
    PLACE_CHARACTERS_MAX,
    PLACE_LOGS_MAX,
    DurableReader,
    Places,
)
from catchment.broker.http.interest import REVISIONS_KEPT_MAX, Interest, Revisions
from catchment.broker.http.streams import RETURN_MS, server_sent_events
from catchment.model.notification import Notification

PLACES = Places("key")
LEVEL_5 = {"filters": [{"exact": {"level": "5"}}]}


def a_reader(positions=None, must_return=True, filters=None, size=10):
    taken = []
    interest = Interest(Revisions(filters or {}))
    reader = DurableReader(
        "orders",
        PLACES,
        positions or {},
        lambda: interest,
        lambda notification: b"x" * size,
        lambda log, epoch: taken.append((log, epoch)),
        must_return,
    )
    return reader, taken


def an_entry(epoch, log="a", level=5, lost=0):
    return DurableEntry(log, epoch, Notification({"level": level}), ("r1",), lost)


async def all_of(reader):
    """The places of all entries that the reader has, in portions."""
    places = []
    while (portion := await reader.take(0)) is not None and portion.entries:
        places += [PLACES.positions(reader.place(entry.number)) for entry in portion.entries]
    return places


def test_a_place_names_the_position_in_each_log():
    async def scene():
        reader, taken = a_reader({"c": 9})
        for epoch, log in ((1, "a"), (4, "b"), (7, "a")):
            reader.enqueue(an_entry(epoch, log))
        assert await all_of(reader) == [{"c": 9, "a": 1}, {"c": 9, "a": 1, "b": 4}, {"c": 9, "b": 4, "a": 7}]
        assert taken == []  # to send is not to acknowledge

    asyncio.run(scene())


def test_what_is_acknowledged_is_taken_log_by_log():
    async def scene():
        reader, taken = a_reader()
        for epoch, log in ((1, "a"), (4, "b"), (7, "a")):
            reader.enqueue(an_entry(epoch, log))
        await all_of(reader)
        reader.acknowledge({"a": 6, "b": 4, "unknown": 3})
        assert taken == [("a", 1), ("b", 4)]
        reader.acknowledge({"a": 6})
        reader.acknowledge({"a": 99})  # what was not sent cannot be acknowledged
        assert taken == [("a", 1), ("b", 4), ("a", 7)]

    asyncio.run(scene())


def test_what_is_not_wanted_is_acknowledged_with_what_was_sent_before_it():
    async def scene():
        reader, taken = a_reader(filters=LEVEL_5)
        reader.enqueue(an_entry(1, level=4))
        reader.enqueue(an_entry(2))
        reader.enqueue(an_entry(3, level=4))
        await all_of(reader)
        assert taken == [("a", 1)]
        reader.acknowledge({"a": 2})
        assert taken == [("a", 1), ("a", 3)]

    asyncio.run(scene())


@pytest.mark.parametrize(("size", "count"), [(10, PASS_ENTRIES_MAX), (PASS_BYTES_MAX // 3, 3)])
def test_a_pass_ends_when_too_much_is_not_acknowledged(size, count):
    async def scene():
        reader, _ = a_reader(size=size)
        for epoch in range(1, PASS_ENTRIES_MAX + 20):
            reader.enqueue(an_entry(epoch))
        assert len(await all_of(reader)) == count
        assert await reader.take(0) is None
        assert reader.is_pass_over

    asyncio.run(scene())


def test_a_reader_that_acknowledges_goes_on():
    async def scene():
        reader, _ = a_reader()
        for epoch in range(1, 1_001):
            reader.enqueue(an_entry(epoch))
            if epoch % 100 == 0:
                places = await all_of(reader)
                assert len(places) == 100
                reader.acknowledge(places[-1])
        assert not reader.is_pass_over

    asyncio.run(scene())


def test_a_websocket_waits_instead():
    async def scene():
        reader, _ = a_reader(must_return=False)
        for epoch in range(1, PASS_ENTRIES_MAX + 20):
            reader.enqueue(an_entry(epoch))
        assert len(await all_of(reader)) == PASS_ENTRIES_MAX + 19
        assert (await reader.take(0)).entries == ()
        assert reader.end_reason is None

    asyncio.run(scene())


def test_what_was_lost_is_told_before_the_entry_that_follows():
    async def scene():
        reader, _ = a_reader(filters=LEVEL_5)
        for entry in (an_entry(1), an_entry(5, lost=3, level=4), an_entry(6, lost=2)):
            reader.enqueue(entry)
        portions = [await reader.take(0), await reader.take(0)]
        assert [(portion.lost, len(portion.entries)) for portion in portions] == [(0, 1), (5, 1)]

    asyncio.run(scene())


def test_the_stream_of_a_pass_tells_the_reader_to_come_back_at_once():
    async def scene():
        reader, _ = a_reader()
        for epoch in range(1, PASS_ENTRIES_MAX + 2):
            reader.enqueue(an_entry(epoch))
        text = b"".join([block async for block in server_sent_events(reader, "/b")])
        assert text.count(b"\nid: d:a:") == PASS_ENTRIES_MAX
        assert text.rstrip().rpartition(b"retry: ")[2].startswith(b"%d\nevent: end" % RETURN_MS)

    asyncio.run(scene())


LOGS = st.text("0123456789abcdef", min_size=1, max_size=32)


@given(st.dictionaries(LOGS, st.integers(0, 10**18 - 1), max_size=PLACE_LOGS_MAX))
def test_a_place_is_read_as_it_was_written(positions):
    text = PLACES.text(positions)
    assert len(text) <= PLACE_CHARACTERS_MAX
    assert PLACES.positions(text) == positions
    assert Places("another").positions(text) is None


@given(st.one_of(st.text(), st.from_regex(r"d:[0-9a-f:,~]{0,60}"), st.integers(), st.none()))
def test_what_is_no_place_is_none(text):
    assert PLACES.positions(text) is None


def test_a_changed_place_is_none():
    text = PLACES.text({"a": 5})
    assert PLACES.positions(text.replace("5~", "6~")) is None


def test_a_place_names_only_so_many_logs():
    async def scene():
        reader, _ = a_reader(must_return=False)
        for number in range(PLACE_LOGS_MAX + 5):
            reader.enqueue(an_entry(1, f"log{number}"))
        places = await all_of(reader)
        assert len(places[-1]) == PLACE_LOGS_MAX
        assert "log0" not in places[-1]
        assert f"log{PLACE_LOGS_MAX + 4}" in places[-1]

    asyncio.run(scene())


def test_revisions():
    revisions = Revisions(LEVEL_5)
    assert revisions.edited(LEVEL_5) is revisions
    edited = revisions.edited({"types": ["t"]})
    assert (edited.id, edited.earlier) == ("r2", {"r1": LEVEL_5})
    for number in range(20):
        edited = edited.edited({"types": [str(number)]})
    assert (edited.id, len(edited.earlier)) == ("r22", REVISIONS_KEPT_MAX)
    # What came by a revision that is not kept is delivered: more is better than less.
    assert Interest(edited).wants(("r1",), Notification({}))
