"""The wire: what is sent is what is read, however it is cut; what is no message ends a connection, and costs memory in
proportion to what came."""

import contextlib
import random
import tracemalloc
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, get_args, get_origin

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from catchment.errors import BadFilterError, LimitError, ParseError
from catchment.model.filter import Filter
from catchment.model.language import FILTER_TEXT_CODEPOINTS_MAX
from catchment.model.notification import NOTIFICATION_ATTRIBUTES_MAX, PAYLOAD_BYTES_MAX, Notification
from catchment.model.values import NAME_CODEPOINTS_MAX, STRING_CODEPOINTS_MAX
from catchment.routing import messages as said
from catchment.routing.baselines.messages import AddressedHeader
from catchment.routing.siena import messages as siena
from catchment.routing.systems import SYSTEMS
from catchment.wire import messages as wire
from catchment.wire.frames import (
    BATCH_MAX,
    FRAME_BYTES_MAX,
    Decoder,
    WireError,
    batch_frame,
    batch_size,
    bytes_of,
    checked_bytes,
    delivery_frame,
    durable_delivery_frame,
    frame,
    pieces,
)
from catchment.wire.messages import Unfit
from tests.property.wire_messages import BATCHES, BY_UNION, KINDS, UNIONS, messages_of, notifications, plain, unions


def decoder_of(union: str) -> Decoder[Any]:
    return Decoder(UNIONS[union])


def read(union: str, data: bytes) -> list[Any]:
    return decoder_of(union).feed(data)


def test_there_is_a_strategy_for_every_kind():
    kinds = {kind for union in UNIONS.values() for kind in get_args(union)}
    assert set(KINDS) == {get_origin(kind) or kind for kind in kinds}
    assert set(BATCHES) == {system.header for system in SYSTEMS.values()}


# --- what is sent is what is read ---------------------------------------------------------------


@pytest.mark.parametrize("union", sorted(UNIONS))
@given(st.data())
def test_each_message_is_read_as_it_was_sent(union, data):
    message = data.draw(BY_UNION[union])
    assert read(union, frame(message)) == [message]


# Each kind in one of the unions that have it. That all of them read it is checked above, with fewer examples of each.
UNION_OF_KIND = {kind: union for union, kinds in UNIONS.items() for kind in get_args(kinds)}


@pytest.mark.parametrize(
    ("union", "kind"),
    [
        pytest.param(union, kind, id=f"{union}: {getattr(kind, '__name__', kind)}")
        for kind, union in UNION_OF_KIND.items()
    ],
)
@given(st.data())
def test_each_kind_comes_back(union, kind, data):
    message = data.draw(messages_of(kind))
    (came,) = read(union, frame(message))
    assert type(came) is (get_origin(kind) or kind)
    assert came == message
    assert frame(came) == frame(message)


@given(st.data(), unions)
def test_however_it_is_cut(data, union):
    sent = data.draw(st.lists(BY_UNION[union], min_size=1, max_size=4))
    stream = b"".join(map(frame, sent))
    sizes = data.draw(st.integers(1, 9).map(lambda size: [size] * (len(stream) // size + 1)) | _cuts(len(stream)))
    decoder, came, start = decoder_of(union), list[Any](), 0
    for size in sizes:
        came += decoder.feed(stream[start : start + size])
        start += size
    assert came == sent


def _cuts(length):
    """Sizes of pieces, some of them empty, that make up so many bytes."""
    return st.lists(st.integers(0, length), max_size=12).map(
        lambda places: [end - start for start, end in zip([0, *sorted(places)], [*sorted(places), length], strict=True)]
    )


@given(KINDS[wire.Delivery])
def test_a_delivery_whose_notification_was_encoded_before(message):
    made = delivery_frame(message.identity, message.subscriptions, message.notification.packed)
    assert made == frame(message)


@given(KINDS[wire.DurableDelivery])
def test_a_durable_delivery_whose_notification_was_encoded_before(message):
    notification = message.notification.packed
    made = durable_delivery_frame(
        message.identity, message.subscriptions, notification, message.log, message.epoch, message.lost
    )
    assert made == frame(message)


@pytest.mark.parametrize("header", [*BATCHES])
@given(st.data())
def test_a_batch_whose_notifications_were_encoded_before(header, data):
    batches = data.draw(st.lists(BATCHES[header], min_size=1, max_size=8))
    whole = [routed for batch in batches for routed in batch.routed()]
    made = batch_frame(whole)
    assert batch_size(whole) == len(made)
    (came,) = read(next(name for name, system in SYSTEMS.items() if system.header is header), made)
    assert came.routed() == whole
    assert frame(came) == made
    # One header for all that follow one another with it.
    for parcel, following in pairwise(came.parcels):
        assert parcel.header != following.header


def test_headers_are_written_once():
    first = said.Routed(Notification({"x": 1}), siena.OriginHeader(1, "a broker with a long name"))
    second = said.Routed(Notification({"x": 2}), siena.OriginHeader(2, "a broker with a long name"))
    assert batch_frame([first] * 100).count(b"a broker with a long name") == 1
    assert batch_frame([first, second] * 2).count(b"a broker with a long name") == 4


def test_a_notification_may_end_before_its_id_and_its_payload():
    fields = [{"x": 1}, "me", 7, None, "n1", b"body"]
    for count in (4, 5, 6):
        body = msgspec.msgpack.encode(["Publish", 0, [fields[:count]]])
        (message,) = read("to broker", framed(body))
        (note,) = message.notifications
        assert (note.seq, note.id, note.payload) == (7, "n1" if count > 4 else None, b"body" if count > 5 else b"")


@given(st.lists(notifications, max_size=20), st.integers(1, 5))
def test_pieces_are_the_batch(batch, count_max):
    parts = list(pieces(batch, [*map(bytes_of, batch)], count_max))
    assert [notification for part in parts for notification in part] == batch
    assert all(1 <= len(part) <= count_max for part in parts)


def test_pieces_fit_a_frame():
    batch = [Notification({"n": n}, payload=bytes(PAYLOAD_BYTES_MAX)) for n in range(8)]
    batch += [Notification({f"n{n}": "x" * STRING_CODEPOINTS_MAX for n in range(20)})] * 4
    for part in pieces(batch, [*map(bytes_of, batch)], BATCH_MAX):
        frame(wire.Publish(1, tuple(part)))


# --- what is not sent by us ---------------------------------------------------------------------

# A frame of small lists becomes many small lists: what they take beside a byte each.
MEMORY_FACTOR = 100
MEMORY_CONSTANT = 300_000
# Filters are parsed, and parts of them are kept to be met again.
PARSING_CONSTANT = 8_000_000


def memory_of(union: str, data: bytes) -> int:
    """The most that reading this takes, whatever comes of it."""
    decoder = decoder_of(union)
    tracemalloc.start()
    try:
        decoder.feed(data)
    except WireError:
        pass
    finally:
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return most


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@given(unions, st.binary(max_size=300))
def test_any_bytes_are_messages_or_a_wire_error(union, data):
    for given_bytes in (data, framed(data)):
        with contextlib.suppress(WireError):
            read(union, given_bytes)


@st.composite
def mutated(draw, union):
    """A valid frame with some bytes changed, put in, or left out; its length set right or left as it was."""
    body = bytearray(frame(draw(BY_UNION[union]))[4:])
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(body)))
        change = draw(st.integers(0, 2))
        if change == 0:
            body[place:place] = draw(st.binary(min_size=1, max_size=5))
        elif change == 1:
            del body[place : place + draw(st.integers(1, 5))]
        else:
            # What MessagePack begins long things with, and anything else.
            byte = draw(st.integers(0xC0, 0xDF) | st.integers(0, 255))
            body[place : place + 1] = bytes([byte]) + draw(st.sampled_from((b"", b"\xff" * 4, b"\0\x0f\xff\xff")))
    return framed(bytes(body))


@pytest.mark.parametrize("union", sorted(UNIONS))
@given(st.data())
def test_mutated_frames_are_messages_or_a_wire_error(union, data):
    changed = data.draw(mutated(union))
    assert memory_of(union, changed) <= MEMORY_FACTOR * len(changed) + PARSING_CONSTANT


HEADS = {
    "array 16": b"\xdc\xff\xff",
    "array 32": b"\xdd\xff\xff\xff\xff",
    "map 16": b"\xde\xff\xff",
    "map 32": b"\xdf\xff\xff\xff\xff",
    "string 16": b"\xda\xff\xff",
    "string 32": b"\xdb\xff\xff\xff\xff",
    "binary 32": b"\xc6\xff\xff\xff\xff",
    "ext 32": b"\xc9\xff\xff\xff\xff\x05",
    "time of a wrong length": b"\xc9\x7f\xff\xff\xff\xff",
}
PLACES = {
    "message": ("to broker", b""),
    "notifications": ("to broker", b"\x93\xa7Publish\x00"),
    "notification": ("to broker", b"\x93\xa7Publish\x00\x91"),
    "attributes": ("to broker", b"\x93\xa7Publish\x00\x91\x94"),
    "value": ("to broker", b"\x93\xa7Publish\x00\x91\x94\x81\xa1x"),
    "filter": ("to broker", b"\x93\xa7Request\x01\x94\xa9Subscribe\xa1a\xa1b"),
    "report": ("to client", b"\x93\xa4Seen\x01"),
    "seen": ("to broker", b"\x95\xa5Hello\x92\x01\x01\xa6client\xa1a"),
    "filters": ("siena acyclic", b"\x93\xa8Interest"),
    "parcels": ("siena general", b"\x92\xa5Batch"),
    "header": ("siena general", b"\x92\xa5Batch\x91\x92"),
    "notifications of a parcel": ("siena general", b"\x92\xa5Batch\x91\x92\x92\x01\xa1a"),
}


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("place", PLACES)
def test_a_declared_length_takes_no_memory(head, place):
    union, start = PLACES[place]
    for repeats in (1, 200):
        data = framed(start + HEADS[head] * repeats)
        with pytest.raises(WireError):
            read(union, data)
        assert memory_of(union, data) < MEMORY_CONSTANT


def test_a_long_frame_is_refused_by_its_length_alone():
    decoder = decoder_of("to broker")
    with pytest.raises(WireError, match="FRAME_BYTES_MAX"):
        decoder.feed((FRAME_BYTES_MAX + 1).to_bytes(4, "big"))
    assert memory_of("to broker", b"\xff\xff\xff\xff") < 10_000
    # One of the right length waits for its bytes, and holds no more than have come.
    assert memory_of("to broker", FRAME_BYTES_MAX.to_bytes(4, "big")) < 10_000


def test_what_is_in_a_frame_takes_memory_in_proportion():
    for inner in (b"\x90", b"\x80", b"\xc0", b"\xa1x", b"\xcb" + bytes(8)):
        many = 200_000 // len(inner)
        data = framed(b"\x93\xa7Publish\x00\x91\x94\x81\xa1x\xdd" + many.to_bytes(4, "big") + inner * many)
        assert memory_of("to broker", data) <= MEMORY_FACTOR * len(data) + MEMORY_CONSTANT


@pytest.mark.parametrize("opening", [b"\x91", b"\x81\xa1x", b"\xdc\x00\x01", b"\xdf\x00\x00\x00\x01\xa1x"])
def test_nesting_has_an_end(opening):
    for start in (b"", b"\x93\xa7Publish\x00\x91\x94\x81\xa1x", b"\x93\xa7Request\x01\x94\xa9Subscribe\xa1a\xa1b"):
        for depth in (50, 5_000, 500_000):
            with pytest.raises(WireError):
                read("to broker", framed(start + opening * depth + b"\xc0"))


def test_after_a_bad_frame_the_good_ones_before_it_have_been_read():
    decoder = decoder_of("to broker")
    bodies = decoder.bodies(frame(wire.Ping()) + b"\xff\xff\xff\xff")
    assert decoder.decoded(next(bodies)) == wire.Ping()
    with pytest.raises(WireError):
        next(bodies)


# --- values that are none: the connection ends --------------------------------------------------


def publish(*attributes, envelope=(None, None, None), number=7, rest=()) -> bytes:
    """What a client of another language might send."""
    notes = [(each, *envelope, *rest) for each in attributes]
    return framed(msgspec.msgpack.encode(("Publish", number, notes)))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (publish({"x": float("nan")}), "NaN"),
        (publish({"x": float("inf")}), "finite"),
        (publish({"x": 2**63}), "64 bits"),
        (publish({"x": datetime(2026, 1, 1)}, envelope=(None, None, datetime(2026, 1, 1))), "is a time"),
        (publish({"$x": 1}), "envelope name"),
        (publish({"": 1}), "empty"),
        (publish({1: 1}), "not a string"),
        (publish({"x": None}), "not a value"),
        (publish({"x": [1]}), "not a value"),
        (publish({"x": {"y": 1}}), "not a value"),
        (publish({"x": b"1"}), "not a value"),
        (publish({"x": msgspec.msgpack.Ext(5, b"1")}), "not a value"),
        (publish({"x": 1}, envelope=(5, None, None)), "source is a string"),
        (publish({"x": 1}, envelope=(None, "5", None)), "seq is a int"),
        (publish({"x": 1}, envelope=(None, None, 5)), "time is a time"),
        (publish({"x": 1}, rest=("id", "no bytes")), "payload is bytes"),
        (publish({"x": 1}, rest=("id", b"", 1)), "4 to 6 fields"),
        (publish([1]), "expected a dict"),
        (framed(msgspec.msgpack.encode(("Publish", 1, [5]))), "expected a list"),
        (framed(msgspec.msgpack.encode(("Publish", 1.5, []))), "int"),
        (framed(msgspec.msgpack.encode(("Nothing", 1))), "Nothing"),
        (framed(msgspec.msgpack.encode(("Request", 1, ("Interest", [], [])))), "Interest"),
        (framed(msgspec.msgpack.encode(("Request", 1, ("Subscribe", "a", "b", ("sql", "x"))))), "is no Wanted"),
        (framed(msgspec.msgpack.encode(("Request", 1, ("Subscribe", "a", "b", 5)))), "is no Wanted"),
        (framed(b""), "truncated"),
        (framed(b"\x93\xa7Publish\x00\x90\xc0"), "trailing"),
        # A time of more nanoseconds than there are, or past the year 9999.
        (framed(b"\x93\xa7Publish\x00\x91\x94\x81\xa1x\xd7\xff" + b"\xff" * 8 + b"\xc0" * 3), ""),
        (framed(b"\x93\xa7Publish\x00\x91\x94\x81\xa1x\xc7\x0c\xff" + b"\x7f" * 12 + b"\xc0" * 3), ""),
    ],
)
def test_what_is_no_value_is_a_bad_frame(data, reason):
    with pytest.raises(WireError, match=reason or None):
        read("to broker", data)


def test_times_are_timestamps_whatever_their_length():
    at = datetime(2026, 11, 15, 10, 30, tzinfo=UTC)
    seconds = int(at.timestamp())
    for made in (
        b"\xd6\xff" + seconds.to_bytes(4, "big"),
        b"\xd7\xff" + (seconds | 5_000 << 34).to_bytes(8, "big"),
        b"\xc7\x0c\xff" + (5_000).to_bytes(4, "big") + seconds.to_bytes(8, "big"),
    ):
        (message,) = read("to broker", framed(b"\x93\xa7Publish\x00\x91\x94\x81\xa1x" + made + b"\xc0\xc0\xc0"))
        assert message.notifications[0]["x"].replace(microsecond=0) == at


# --- what cannot be had: a client is refused, and the connection goes on ------------------------


def request(*body) -> bytes:
    return framed(msgspec.msgpack.encode(("Request", 7, body)))


@pytest.mark.parametrize(
    ("data", "kind", "count"),
    [
        (request("Subscribe", "a", "b", "x = = 3"), ParseError, 0),
        (request("Subscribe", "a", "b", ""), ParseError, 0),
        (request("Subscribe", "a", "b", "x = " + "1" * FILTER_TEXT_CODEPOINTS_MAX), LimitError, 0),
        (request("Subscribe", "a", "b", "not (" * 500 + "x = 1" + ")" * 500), LimitError, 0),
        (request("Subscribe", "a", "b", ("pattern", "x = 1 ->")), ParseError, 0),
        (request("Subscribe", "a", "b", ("cesql", "x = (")), ParseError, 0),
        (request("Unsubscribe", "a", "x ="), ParseError, 0),
        (request("Advertise", "a", "x ="), ParseError, 0),
        (request("Unadvertise", "a", "not x = 1"), (ParseError, BadFilterError), 0),
        (publish({str(n): n for n in range(NOTIFICATION_ATTRIBUTES_MAX + 1)}, {"x": 1}), LimitError, 2),
        (publish({"x": "y" * (STRING_CODEPOINTS_MAX + 1)}), LimitError, 1),
        (publish({"x" * (NAME_CODEPOINTS_MAX + 1): 1}), LimitError, 1),
        (publish({"x": 1}, rest=(None, bytes(PAYLOAD_BYTES_MAX + 1))), LimitError, 1),
        (publish({str(n): "y" * STRING_CODEPOINTS_MAX for n in range(40)}), LimitError, 1),
        (
            framed(msgspec.msgpack.encode(("Look", 7, "explain", ({"x" * 300: 1}, None, None, None)))),
            LimitError,
            0,
        ),
    ],
)
def test_what_cannot_be_had_is_found_with_its_number(data, kind, count):
    (unfit,) = read("to broker", data)
    assert isinstance(unfit, Unfit)
    assert (unfit.number, unfit.notifications) == (7, count)
    assert isinstance(unfit.error, kind)


def test_between_brokers_it_is_a_bad_frame():
    for message, reason in (
        (("Interest", (), ("x = = 3",)), "column 5"),
        (("Batch", [[[1], [[{"x" * 300: 1}, None, None, None]]]]), "NAME_CODEPOINTS_MAX"),
    ):
        with pytest.raises(WireError, match=reason):
            read("siena acyclic", framed(msgspec.msgpack.encode(message)))


@pytest.mark.parametrize("union", sorted(SYSTEMS))
@settings(max_examples=30)
@given(st.data())
def test_a_message_of_another_system_is_a_bad_frame(union, data):
    own = {kind.__name__ for kind in SYSTEMS[union].messages}
    others = {kind for system in SYSTEMS.values() for kind in system.messages if kind.__name__ not in own}
    assert others
    kind = data.draw(st.sampled_from(sorted(others, key=lambda kind: kind.__name__)))
    with pytest.raises(WireError) as caught:
        read(union, frame(data.draw(KINDS[kind])))
    assert caught.value.name == kind.__name__


@pytest.mark.parametrize("union", sorted(SYSTEMS))
def test_a_header_of_another_system_is_a_bad_frame(union):
    headers = {
        said.Header: said.Header(1),
        siena.OriginHeader: siena.OriginHeader(1, "a"),
        AddressedHeader: AddressedHeader(1, ("a", "b")),
    }
    for kind, header in headers.items():
        data = batch_frame([said.Routed(Notification({"x": 1}), header)])
        if kind is SYSTEMS[union].header:
            assert len(read(union, data)) == 1
        else:
            with pytest.raises(WireError):
                read(union, data)


def test_it_is_a_bad_frame_if_more_is_wrong_with_it():
    good = request("Subscribe", "a", "b", "x = = 3")[4:]
    for body in (good[:-1], good + b"\xc0", good.replace(b"\x07", b"\xa1x")):
        with pytest.raises(WireError):
            read("to broker", framed(body))


def test_a_batch_has_a_limit():
    note = ({"x": 1}, None, None, None)

    def publication(count: int) -> tuple[Any, ...]:
        return "Publish", 1, [note] * count

    def one_parcel(count: int) -> tuple[Any, ...]:
        return "Batch", [((1,), [note] * count)]

    def many_parcels(count: int) -> tuple[Any, ...]:
        return "Batch", [((1,), [note])] * count

    for union, made in (("to broker", publication), ("flooding", one_parcel), ("flooding", many_parcels)):
        assert len(read(union, framed(msgspec.msgpack.encode(made(BATCH_MAX))))) == 1
        with pytest.raises(WireError, match="BATCH_MAX"):
            read(union, framed(msgspec.msgpack.encode(made(BATCH_MAX + 1))))


def test_what_is_too_long_is_not_framed():
    many = Notification({f"n{n}": "x" * STRING_CODEPOINTS_MAX for n in range(100)})
    with pytest.raises(LimitError, match="FRAME_BYTES_MAX"):
        frame(wire.Publish(1, (many,)))
    with pytest.raises(LimitError, match="FRAME_BYTES_MAX"):
        delivery_frame("a", ("s",), many.packed)
    with pytest.raises(LimitError, match="NOTIFICATION_BYTES_MAX"):
        checked_bytes(many)


# --- versions -----------------------------------------------------------------------------------


@given(KINDS[wire.Hello], st.lists(plain, max_size=3))
@example(wire.Hello((1, 1), "client", "alice"), ["more"])
def test_a_later_version_may_say_more(hello, more):
    """Fields that this version does not know come after those that it does."""
    fields = msgspec.msgpack.decode(frame(hello)[4:])
    (came,) = read("to broker", framed(msgspec.msgpack.encode(fields + more)))
    assert came == hello


def test_the_least_hello():
    (came,) = read("to broker", framed(msgspec.msgpack.encode(("Hello", (1, 3), "client", "alice"))))
    assert came == wire.Hello((1, 3), "client", "alice")


@given(st.randoms(use_true_random=False))
def test_many_small_mutations_of_one_stream(chance: random.Random):
    """Streams as they come, cut and damaged: never anything but a WireError."""
    stream = bytearray(
        frame(wire.Hello((1, 1), "client", "a"))
        + frame(wire.Request(1, said.Subscribe("a", "b", Filter("x = 1 and y < 2"))))
        + frame(wire.Publish(0, (Notification({"x": 1}, time=datetime(2026, 1, 1, tzinfo=UTC), payload=b"p"),)))
    )
    for _ in range(chance.randrange(1, 5)):
        stream[chance.randrange(len(stream))] = chance.randrange(256)
    decoder, start = decoder_of("to broker"), 0
    try:
        while start < len(stream):
            size = chance.randrange(1, 40)
            decoder.feed(bytes(stream[start : start + size]))
            start += size
    except WireError:
        pass
