"""Notifications read by msgspec alone are those that the model would have made, and what it refuses is refused."""

import math
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Raw

from catchment.model.notification import KNOWN_NAMES, Notification
from catchment.model.packed import NotPlainError, notification_of, plain_of_raw
from catchment.routing.messages import Routed
from catchment.wire.frames import Decoder, WireError
from catchment.wire.messages import Unfit
from tests import strategies as some
from tests.said import TO_BROKER, TO_CLIENT, language_of

pack = msgspec.msgpack.encode
times = st.datetimes(timezones=st.just(UTC))
# Of a frame that anybody may send: what the model takes, and what it does not.
names = st.sampled_from(("price", "volume", "é", "", "$seq", "x" * 255, "x" * 256, "new name")) | some.texts
values: st.SearchStrategy[Any] = st.one_of(
    some.values,
    st.sampled_from((math.nan, math.inf, -math.inf, -0.0, 2**63, 2**64 - 1, -(2**63), None, b"bytes", [], {"a": 1})),
    st.sampled_from(("x" * 65_536, "x" * 65_537)),
)
fields = st.tuples(
    st.dictionaries(names, values, max_size=4) | values,
    st.none() | some.texts | values,
    st.none() | some.ints | values,
    st.none() | times | values,
    st.none() | some.texts | values,
    st.binary(max_size=20) | values,
)
notes = st.builds(lambda all_fields, count: list(all_fields[:count]), fields, st.integers(3, 6)) | values


class SlowDecoder(Decoder[Any]):
    """Asks the model about each notification."""

    def _plain(self, body: bytes) -> None:
        return None


def decoder_of(union: Any) -> Decoder[Any]:
    return Decoder(union)


def outcome(decoder, body):
    try:
        message = decoder.decoded(body)
    except WireError as problem:
        return str(problem)
    if isinstance(message, Unfit):
        return message.number, message.notifications, str(message.error)
    # As text, too: -0.0 is equal to 0.0, and not the same.
    return message, repr(message)


def messages(packed):
    """Each kind of message that holds notifications, made of these."""
    yield TO_BROKER, pack(("Publish", 7, [*map(Raw, packed)]))
    yield language_of("flooding"), pack(("Batch", [((2,), [*map(Raw, packed)])]))
    yield language_of("siena general"), pack(("Batch", [((n, "b"), [Raw(each)]) for n, each in enumerate(packed)]))
    yield language_of("centralized"), pack(("Batch", [((2, ("c", "d")), [*map(Raw, packed)])]))
    yield from ((TO_CLIENT, pack(("Delivery", "me", ["s"], Raw(each)))) for each in packed)


@given(st.lists(notes, max_size=3))
@example([[{"price": -0.0}, "me", 1, None]])
@example([[{"price": 1.5}, "me", 1, "2026-01-01T00:00:00Z"]])
@example([[{"price": 1.5}, "me", 1.0, None, None, b""], [{"price": 1}, None, None, None]])
@example([[{"price": 1.5}, "me", 1, None, None, b"", 7]])
def test_what_is_read_is_what_the_model_makes(batch):
    for union, body in messages([*map(pack, batch)]):
        assert outcome(decoder_of(union), body) == outcome(SlowDecoder(union), body)


@given(st.lists(some.notifications, max_size=3))
def test_what_is_kept_is_what_came(batch):
    for notification in batch:
        try:
            came = plain_of_raw(Raw(notification.packed))
        except (NotPlainError, msgspec.ValidationError):
            continue  # for the model to make
        assert came == notification
        assert (came.packed, came.content) == (notification.packed, notification.content)


def test_the_usual_are_read_in_one_go():
    usual = Notification({"price": 1.5, "volume": 3, "é": "é", "is": True}, source="me", seq=1, time=datetime.now(UTC))
    for union, body in messages([usual.packed]):
        assert decoder_of(union)._plain(body) == SlowDecoder(union).decoded(body)


def test_a_name_that_is_new_is_known_the_next_time():
    name = "a name that nobody has used before"
    assert name not in KNOWN_NAMES
    body = pack(("Publish", 0, [({name: 1}, "me", 1, None)]))
    decoder = decoder_of(TO_BROKER)
    assert decoder._plain(body) is None
    message = decoder.decoded(body)
    assert decoder._plain(body) == message


@pytest.mark.parametrize("entries", [2, 20])
def test_a_name_that_stands_twice_is_not_sent_on(entries):
    others = b"".join(pack(f"n{i}") + pack(i) for i in range(entries - 2))
    head = bytes([0x80 + entries]) if entries < 16 else b"\xde" + entries.to_bytes(2, "big")
    attributes = head + pack("price") + pack(1) + others + pack("price") + pack(2)
    note = b"\x96" + attributes + pack("me") + pack(1) + pack(None) + pack(None) + pack(b"body")
    for _ in range(2):  # its names are new, then known
        message = decoder_of(TO_BROKER).decoded(b"\x93" + pack("Publish") + pack(0) + b"\x91" + note)
        (notification,) = message.notifications
        assert notification["price"] == 2
        assert notification.packed.count(b"price") == 1
        assert notification_of(msgspec.msgpack.decode(notification.packed)) == notification


def test_what_leaves_out_fields_is_sent_on_whole():
    Notification({"price": 1})
    short = pack(({"price": 1}, "me", 1, None))
    assert plain_of_raw(Raw(short)).packed == notification_of(msgspec.msgpack.decode(short)).packed != short


def test_what_is_stamped_is_not_sent_as_it_came():
    came = plain_of_raw(Raw(Notification({"price": 1.5}, source="me").packed))
    stamped = came.stamped(seq=7)
    assert notification_of(msgspec.msgpack.decode(stamped.packed)) == stamped
    assert Routed(stamped).notification.packed != came.packed
