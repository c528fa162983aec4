"""Strategies for the messages of a connection: one for each kind, and one for each union that a decoder reads."""

from typing import Any, get_args, get_origin

from hypothesis import strategies as st

from catchment.model.cesql import Cesql
from catchment.routing import messages as said
from catchment.routing.baselines.messages import AddressedHeader, Registration
from catchment.routing.parts.link_states import Links
from catchment.routing.siena import messages as siena
from catchment.routing.summary import messages as summary
from catchment.routing.systems import SYSTEMS
from catchment.wire import messages as wire
from tests import strategies as some
from tests.said import TO_BROKER, TO_CLIENT, language_of

numbers = st.integers(0, 2**64 - 1)
counts = st.integers(0, 2**31)
cesql = st.sampled_from(("a = 'b'", "LENGTH(c) > 3 OR NOT EXISTS d", "x LIKE 'é%_'", "TRUE")).map(Cesql)
wanted = some.filters | some.patterns | cesql
texts = some.texts
plain = st.recursive(
    st.none() | texts | some.ints | some.floats | some.bools,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)


def several(elements):
    return st.lists(elements, max_size=3).map(tuple)


notifications = some.notifications
# Few, so that they are often the same in succession.
hops = st.integers(0, 2)
HEADERS: dict[type, st.SearchStrategy[Any]] = {
    said.Header: st.builds(said.Header, hops),
    siena.OriginHeader: st.builds(siena.OriginHeader, hops, texts),
    summary.WalkHeader: st.builds(
        summary.WalkHeader, hops, texts, st.none() | several(texts), several(st.integers(0, 2**48 - 1))
    ),
    AddressedHeader: st.builds(AddressedHeader, hops, st.none() | st.tuples(texts, texts)),
}
BATCHES: dict[type, st.SearchStrategy[Any]] = {
    header: st.builds(wire.Batch, several(st.builds(wire.Parcel, made, several(notifications))))
    for header, made in HEADERS.items()
}
interest = st.builds(siena.Interest, several(some.filters), several(some.filters))
subscribe = st.builds(said.Subscribe, texts, texts, wanted)
cancel = st.builds(said.Cancel, texts, texts)
requests = st.one_of(
    subscribe,
    cancel,
    st.builds(said.Unsubscribe, texts, wanted),
    st.builds(said.Advertise, texts, some.advertisements),
    st.builds(said.Unadvertise, texts, some.advertisements),
    st.builds(said.MapIdentity, texts, texts),
    st.builds(said.Suspend, texts),
    st.builds(said.Resume, texts),
)
held = st.builds(siena.Held, notifications, some.ints, several(counts))
seen = st.dictionaries(texts, some.ints, max_size=4)
roles = st.sampled_from(("client", "broker"))
ids = several(st.tuples(counts, several(counts)))
keys = st.integers(-(2**63), 2**63 - 1)
rows = st.builds(
    summary.Rows,
    several(st.builds(summary.RangeIds, counts, st.sampled_from((0, 1, 2)), keys, keys, ids)),
    several(st.builds(summary.PatternIds, counts, texts, texts, ids)),
    ids,
)
named_ids = several(st.tuples(st.binary(max_size=3), ids))
KINDS: dict[type, st.SearchStrategy[Any]] = {
    wire.Hello: st.builds(wire.Hello, st.tuples(counts, counts), roles, texts, seen, texts, counts, texts, texts),
    wire.Welcome: st.builds(wire.Welcome, counts, texts, texts, counts, counts, texts, texts),
    wire.Goodbye: st.builds(wire.Goodbye, texts, st.booleans()),
    wire.Ping: st.just(wire.Ping()),
    wire.Pong: st.just(wire.Pong()),
    wire.Request: st.builds(wire.Request, numbers, requests),
    wire.Publish: st.builds(wire.Publish, numbers, several(notifications)),
    wire.Look: st.builds(wire.Look, numbers, st.sampled_from(("status", "explain")), st.none() | notifications),
    wire.Accepted: st.builds(wire.Accepted, numbers),
    wire.Refused: st.builds(wire.Refused, numbers, texts, texts),
    wire.Credit: st.builds(wire.Credit, counts),
    wire.Delivery: st.builds(wire.Delivery, texts, several(texts), notifications),
    wire.SequenceDelivery: st.builds(wire.SequenceDelivery, texts, texts, several(notifications)),
    wire.Lost: st.builds(wire.Lost, texts, counts),
    wire.Seen: st.builds(wire.Seen, numbers, plain),
    wire.Batch: st.one_of(*BATCHES.values()),
    siena.Interest: interest,
    siena.Advertised: st.builds(siena.Advertised, several(some.advertisements), several(some.advertisements)),
    siena.Delegated: st.builds(
        siena.Delegated, several(some.patterns), several(some.patterns), several(some.patterns), interest
    ),
    siena.Part: st.builds(siena.Part, some.patterns, several(held), st.booleans()),
    Links: st.builds(Links, texts, counts, several(st.tuples(texts, counts))),
    siena.Wants: st.builds(siena.Wants, texts, counts, several(some.filters)),
    siena.WantsChange: st.builds(
        siena.WantsChange, texts, counts, counts, several(some.filters), several(some.filters)
    ),
    summary.WeighedLinks: st.builds(
        summary.WeighedLinks, texts, counts, several(st.tuples(texts, counts)), st.none() | counts
    ),
    summary.Summarized: st.builds(
        summary.Summarized, counts, several(texts), several(texts), several(counts), named_ids, rows
    ),
    summary.SummaryChange: st.builds(
        summary.SummaryChange,
        *(counts, counts, several(texts), several(texts), several(counts), several(counts), named_ids, rows, rows),
    ),
    Registration: st.builds(Registration, texts, counts, counts, st.booleans(), several(subscribe | cancel)),
}
UNIONS: dict[str, Any] = {
    "to broker": TO_BROKER,
    "to client": TO_CLIENT,
    **{name: language_of(name) for name in SYSTEMS},
}


def messages_of(kind: Any) -> st.SearchStrategy[Any]:
    """Messages of a kind, as it stands in a union: batches have one header there."""
    return BATCHES[get_args(kind)[0]] if get_origin(kind) is wire.Batch else KINDS[kind]


BY_UNION = {name: st.one_of(*map(messages_of, get_args(union))) for name, union in UNIONS.items()}
unions = st.sampled_from(sorted(UNIONS))
