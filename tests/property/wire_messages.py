"""Strategies for the messages of a connection: one for each kind, and one for each union that a decoder reads."""

from typing import Any, get_args, get_origin

from hypothesis import strategies as st

from catchment.model.cesql import Cesql
from catchment.model.pattern import PATTERN_FILTERS_MAX
from catchment.routing import messages as said
from catchment.routing.baselines import messages as baseline
from catchment.routing.baselines.messages import AddressedHeader, Graft, Prune, Registration
from catchment.routing.content_graph import messages as graph
from catchment.routing.durable import messages as durable
from catchment.routing.grid import messages as grid
from catchment.routing.parts.distance_vectors import Distances
from catchment.routing.parts.link_states import Links
from catchment.routing.propagation.messages import Filtered
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
# What the wire lets through as the name of a broker, the number of a record, a link's cost.
brokers = st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp")), min_size=1, max_size=8).filter(
    lambda name: name != "*" and not name.startswith("@")
)
records = st.integers(0, said.NUMBER_MAX)
costs = st.integers(1, said.LINK_COST_MAX)
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
node_ids = several(records)
node_numbers = several(st.tuples(records, records))
missing = several(st.tuples(records, records, records))
units = st.lists(brokers, min_size=1, max_size=3).map(tuple)
HEADERS: dict[type, st.SearchStrategy[Any]] = {
    said.Header: st.builds(said.Header, hops),
    siena.OriginHeader: st.builds(siena.OriginHeader, hops, brokers),
    AddressedHeader: st.builds(AddressedHeader, hops, st.none() | st.tuples(brokers, texts)),
    summary.WalkHeader: st.builds(
        summary.WalkHeader, hops, brokers, st.none() | several(brokers), several(st.integers(0, 2**48 - 1))
    ),
    graph.ContentHeader: st.builds(
        graph.ContentHeader, hops, texts, st.booleans(), counts, node_ids, node_numbers, texts, st.booleans()
    ),
    grid.GridHeader: st.builds(
        grid.GridHeader, hops, several(units), st.lists(units, min_size=1, max_size=3).map(tuple)
    ),
    baseline.ReceiverHeader: st.builds(baseline.ReceiverHeader, hops, brokers, texts),
    baseline.TopicHeader: st.builds(baseline.TopicHeader, hops, brokers, records),
    baseline.ChannelHeader: st.builds(baseline.ChannelHeader, hops, brokers, records),
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
places = st.integers(0, durable.ENTRIES_MAX)
links_crossed = st.integers(0, durable.DIRECTED_HOPS_MAX)
# A log, an identity or an id of a durable subscription: not empty.
logs = texts.filter(bool).map(lambda text: text[:8])
positions = st.dictionaries(logs, records, max_size=3)
durable_requests = st.one_of(
    st.builds(durable.SubscribeDurable, texts, texts, wanted, texts, st.booleans()),
    st.builds(durable.CancelDurable, texts, texts),
    st.builds(durable.Join, texts),
    st.builds(durable.Leave, texts),
    st.builds(durable.Rewind, texts, texts, records, st.none() | records),
    st.builds(durable.Forget, texts),
)
shares = st.builds(
    durable.Share, logs, records, records, records, several(st.tuples(places, several(texts))), records, records
)
held = st.builds(siena.Held, notifications, records, several(st.integers(0, PATTERN_FILTERS_MAX - 1)))
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
gateways = st.builds(grid.Gateway, st.tuples(brokers, brokers), st.integers(0, 8), costs, units)
counted = several(st.builds(grid.Counted, texts, some.filters, st.integers(1, 2**31)))
named_ids = several(st.tuples(st.binary(max_size=3), ids))
KINDS: dict[type, st.SearchStrategy[Any]] = {
    wire.Hello: st.builds(
        wire.Hello,
        st.tuples(counts, counts),
        roles,
        texts,
        seen,
        texts,
        counts,
        texts,
        texts,
        records,
        positions,
        texts,
    ),
    wire.Welcome: st.builds(
        wire.Welcome, counts, texts, texts, counts, counts, texts, texts, counts, st.none() | records, records, texts
    ),
    wire.Goodbye: st.builds(wire.Goodbye, texts, st.booleans()),
    wire.Ping: st.just(wire.Ping()),
    wire.Pong: st.just(wire.Pong()),
    wire.Request: st.builds(wire.Request, numbers, requests | durable_requests),
    wire.Publish: st.builds(wire.Publish, numbers, several(notifications)),
    wire.PublishStored: st.builds(wire.PublishStored, numbers, several(notifications), st.none() | records),
    durable.Taken: st.builds(durable.Taken, texts, logs, records),
    wire.Look: st.builds(wire.Look, numbers, st.sampled_from(("status", "explain")), st.none() | notifications),
    wire.Accepted: st.builds(wire.Accepted, numbers),
    wire.Refused: st.builds(wire.Refused, numbers, texts, texts),
    wire.Credit: st.builds(wire.Credit, counts),
    wire.Delivery: st.builds(wire.Delivery, texts, several(texts), notifications),
    wire.DurableDelivery: st.builds(wire.DurableDelivery, texts, several(texts), notifications, logs, records, records),
    wire.Confirmed: st.builds(wire.Confirmed, logs, records, texts, logs, st.booleans()),
    wire.Effective: st.builds(wire.Effective, texts, texts, several(texts)),
    wire.LostLog: st.builds(wire.LostLog, texts, texts, logs),
    durable.Reach: st.builds(durable.Reach, brokers, records, several(st.tuples(brokers, costs)), logs),
    durable.Durable: st.builds(durable.Durable, logs, logs, records, st.none() | wanted, brokers, texts, st.booleans()),
    durable.Place: st.builds(
        durable.Place, logs, records, st.none() | brokers, positions, positions, st.none() | records
    ),
    durable.Span: st.builds(
        durable.Span,
        brokers,
        logs,
        several(st.tuples(records, notifications)),
        several(st.tuples(brokers, several(shares))),
        links_crossed,
    ),
    durable.At: st.builds(durable.At, brokers, logs, logs, records, records, st.booleans(), links_crossed),
    durable.Offer: st.builds(
        durable.Offer, brokers, brokers, logs, st.none() | records, several(notifications), st.booleans(), links_crossed
    ),
    durable.Kept: st.builds(
        durable.Kept,
        *(brokers, brokers, logs, logs, records, st.booleans(), st.booleans(), records, texts, links_crossed),
    ),
    durable.Knows: st.builds(durable.Knows, brokers, brokers, logs, logs, records, links_crossed),
    durable.Ask: st.builds(durable.Ask, brokers, brokers, logs, logs, records, links_crossed),
    wire.SequenceDelivery: st.builds(wire.SequenceDelivery, texts, texts, several(notifications)),
    wire.Lost: st.builds(wire.Lost, texts, counts),
    said.LinkReport: st.builds(said.LinkReport, records, records, records, records),
    said.Beat: st.builds(said.Beat, records, records, records),
    said.Parting: st.builds(said.Parting, records, st.booleans()),
    said.Gap: st.builds(said.Gap, brokers, records, st.tuples(brokers, brokers), records, records, st.none() | records),
    wire.Seen: st.builds(wire.Seen, numbers, plain),
    wire.Batch: st.one_of(*BATCHES.values()),
    siena.Interest: interest,
    siena.Advertised: st.builds(siena.Advertised, several(some.advertisements), several(some.advertisements)),
    siena.Delegated: st.builds(
        siena.Delegated, several(some.patterns), several(some.patterns), several(some.patterns), interest
    ),
    siena.Part: st.builds(siena.Part, some.patterns, several(held), st.booleans()),
    Links: st.builds(Links, brokers, records, several(st.tuples(brokers, costs))),
    siena.Wants: st.builds(siena.Wants, brokers, records, several(some.filters)),
    siena.WantsChange: st.builds(
        siena.WantsChange, brokers, records, records, several(some.filters), several(some.filters)
    ),
    Distances: st.builds(Distances, several(st.tuples(brokers, some.ints))),
    Filtered: st.builds(Filtered, brokers, some.filters),
    Prune: st.builds(Prune, brokers),
    Graft: st.builds(Graft, brokers),
    summary.WeighedLinks: st.builds(
        summary.WeighedLinks, brokers, records, several(st.tuples(brokers, costs)), st.none() | counts
    ),
    summary.Summarized: st.builds(
        summary.Summarized, records, several(texts), several(brokers), several(counts), named_ids, rows
    ),
    summary.SummaryChange: st.builds(
        summary.SummaryChange,
        *(records, records, several(texts), several(brokers), several(counts), several(counts), named_ids, rows, rows),
    ),
    grid.Context: st.builds(grid.Context, units),
    grid.Gateways: st.builds(grid.Gateways, units, brokers, records, several(gateways)),
    grid.Profile: st.builds(grid.Profile, units, brokers, records, counted),
    grid.ProfileChange: st.builds(grid.ProfileChange, units, brokers, records, records, counted, counted),
    Registration: st.builds(Registration, brokers, records, records, st.booleans(), several(subscribe | cancel)),
    baseline.Subscribed: st.builds(
        baseline.Subscribed,
        brokers,
        records,
        st.none() | records,
        several(st.tuples(texts, texts)),
        several(st.tuples(st.tuples(texts, texts), wanted)),
    ),
    baseline.Channels: st.builds(
        baseline.Channels,
        brokers,
        records,
        st.none() | records,
        several(records),
        several(st.tuples(records, several(records))),
    ),
    graph.NodesWanted: st.builds(
        graph.NodesWanted,
        texts,
        brokers,
        records,
        records,
        st.booleans(),
        several(some.filters),
        several(some.filters),
    ),
    graph.NodesGiven: st.builds(
        graph.NodesGiven,
        texts,
        brokers,
        records,
        records,
        several(st.tuples(some.filters, records)),
        node_numbers,
    ),
    graph.SubscribeNodes: st.builds(
        graph.SubscribeNodes, texts, records, st.booleans(), st.booleans(), node_ids, records
    ),
    graph.GraphSetup: st.builds(
        graph.GraphSetup, texts, records, several(st.builds(graph.Setup, records, node_ids, node_ids))
    ),
    graph.GraphChange: st.builds(
        graph.GraphChange,
        texts,
        records,
        records,
        records,
        st.booleans(),
        node_ids,
        several(st.builds(graph.Named, records, some.filters, node_ids, node_ids)),
    ),
    graph.Left: st.builds(graph.Left, texts),
    graph.NumbersWanted: st.builds(graph.NumbersWanted, texts, brokers, node_ids),
    graph.Numbers: st.builds(graph.Numbers, texts, brokers, node_ids, node_numbers),
    graph.Recover: st.builds(graph.Recover, texts, brokers, node_ids, missing),
    graph.Recovered: st.builds(
        graph.Recovered,
        texts,
        brokers,
        missing,
        several(st.builds(graph.Again, notifications, node_ids, node_numbers)),
        node_numbers,
        node_ids,
    ),
    **{
        kind: st.builds(kind, texts, records, node_ids)
        for kind in (
            graph.NodesRefused,
            graph.UnsubscribeNodes,
            graph.UnsubscribedAck,
            graph.Resubscribed,
            graph.ResubscribedAck,
        )
    },
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
