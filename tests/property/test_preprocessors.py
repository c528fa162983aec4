"""Kinds of subscriptions and their searches: relations are partial orders that keep the superset invariant, and every
search finds what the base preprocessor finds, breadth first, and what comparing with all subscriptions finds."""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment import Filter, Notification
from catchment.routing.content_graph.preprocessors import BreadthFirstPreprocessor, Relation
from catchment.routing.content_graph.preprocessors.attribute_values import JsonKind
from catchment.routing.content_graph.preprocessors.hierarchies import ClassKind, Hierarchy, KeywordKind
from catchment.routing.content_graph.preprocessors.kinds import KindPreprocessor, KindTagger
from catchment.routing.content_graph.preprocessors.queries import QueryKind
from catchment.routing.content_graph.preprocessors.ranges import RangeKind
from catchment.routing.content_graph.preprocessors.reading import BREADTH_FIRST, ReadKind
from catchment.routing.content_graph.preprocessors.searches import Range

# --- small worlds: all subscriptions and all documents of a kind, so that brute force can go through them ----------


def pairs(*given: tuple[str, Any]) -> frozenset[Any]:
    """As the kind reads them from filters."""
    read = [JsonKind().read(Filter.of((name, "=", value))) for name, value in given]
    return frozenset(pair for each in read if each is not None for pair in each)


ALL_PAIRS = [("a", "x"), ("a", "1"), ("a", 1), ("a", True), ("b", 2**53), ("b", 2**53 + 1), ("b", 1.5)]
# Every set of pairs is a document. It is a subscription if it has one value of a name.
PAIR_SETS = [
    pairs(*(pair for pair, is_in in zip(ALL_PAIRS, chosen, strict=True) if is_in))
    for chosen in product((False, True), repeat=len(ALL_PAIRS))
]
PAIR_SUBSCRIPTIONS = [each for each in PAIR_SETS if len({name for name, _, _ in each}) == len(each)]
RANGES = [Range(low, high) for low in range(6) for high in range(low, 6)] + [
    Range(float("-inf"), 3),
    Range(2, 1e10),
    Range(2, float("inf")),
]
# Between whole numbers too: else ranges that differ could mean the same.
STRETCHES: list[Any] = [Range(low / 2, high / 2) for low in range(-2, 13) for high in range(low, 13)]
STRETCHES += [Range(1e11, 1e11), None]
TEAMS = {
    "baseball": (),
    "american": ("baseball",),
    "national": ("baseball",),
    "boston": ("american",),
    "cubs": ("national",),
    "allstars": ("american", "national"),
}
NAMES = [*TEAMS, "unknown"]
KEYWORD_SETS = [frozenset(each) for each in product(NAMES, repeat=2)] + [frozenset[str]()]

# Rows of three columns, one of which no query names: each comes, and each becomes each other one.
ROWS = [{"a": a, "b": b, "c": c} for a in range(3) for b in range(2) for c in range(2)]
QUERIES = QueryKind("relation")
QUERY_TEXTS = [
    f"SELECT {columns} FROM {relation} {where}"
    for relation in ("first", "second")
    for columns in ("*", "a", "b", "a, b")
    for where in ("", "WHERE a > 0", "WHERE a > 1", "WHERE b = 1", "WHERE a > 0 and b = 1", "WHERE a > 1 or b = 1")
]


def changed_row(relation: str, row: dict[str, int], before: dict[str, int]) -> Any:
    old = {f"old.{name}": value for name, value in before.items() if value != row[name]}
    change = "update" if old else "insert"
    return QUERIES.document(Notification({"relation": relation, "change": change, **row, **old}))


ROW_CHANGES = [changed_row(relation, *rows) for relation in ("first", "second") for rows in product(ROWS, repeat=2)]

# By name: the kind, all its subscriptions, all documents.
World = tuple[ReadKind[Any, Any], Sequence[Any], Sequence[Any]]
WORLDS: dict[str, World] = {
    "attribute values": (JsonKind(), PAIR_SUBSCRIPTIONS, PAIR_SETS),
    "ranges": (RangeKind("exit", "from", "to"), RANGES, STRETCHES),
    "keywords": (KeywordKind("topic", Hierarchy(TEAMS)), NAMES, KEYWORD_SETS),
    "classes": (ClassKind("class", Hierarchy(TEAMS)), NAMES, [frozenset([name]) for name in NAMES]),
    "queries": (QUERIES, list(dict.fromkeys(map(QUERIES.parse, QUERY_TEXTS))), ROW_CHANGES),
}
SEARCHES = [(world, search) for world, (kind, _, _) in WORLDS.items() for search in (*kind.searches(), BREADTH_FIRST)]
OPPOSITE = {
    Relation.SAME: Relation.SAME,
    Relation.WIDER: Relation.NARROWER,
    Relation.NARROWER: Relation.WIDER,
    Relation.APART: Relation.APART,
}


@pytest.mark.parametrize("world", WORLDS)
@given(data=st.data())
def test_a_relation_is_a_partial_order(world: str, data: st.DataObject):
    kind, subscriptions, _ = WORLDS[world]
    first, second, third = (data.draw(st.sampled_from(subscriptions)) for _ in range(3))
    assert kind.relation(first, first) is Relation.SAME
    assert kind.relation(second, first) is OPPOSITE[kind.relation(first, second)]
    # Equal if and only if it means the same: nodes are found by it. A condition may be written in several ways, but
    # is not here.
    assert kind.is_canonical or kind is QUERIES
    assert (kind.relation(first, second) is Relation.SAME) == (first == second)
    if kind.relation(first, second) is Relation.WIDER and kind.relation(second, third) is Relation.WIDER:
        assert kind.relation(first, third) is Relation.WIDER


@pytest.mark.parametrize("world", WORLDS)
@given(data=st.data())
def test_a_wider_subscription_has_more_documents(world: str, data: st.DataObject):
    """The superset invariant, by going through all documents: in both directions."""
    kind, subscriptions, documents = WORLDS[world]
    first, second = (data.draw(st.sampled_from(subscriptions)) for _ in range(2))
    of_first, of_second = (
        {i for i, document in enumerate(documents) if kind.matches(each, document)} for each in (first, second)
    )
    assert (kind.relation(first, second) is Relation.WIDER) == (of_first > of_second)
    assert (kind.relation(first, second) is Relation.SAME) == (of_first == of_second)


@pytest.mark.parametrize("world", WORLDS)
@given(data=st.data())
def test_a_subscription_is_written_as_a_filter_and_read_again(world: str, data: st.DataObject):
    kind, subscriptions, _ = WORLDS[world]
    subscription = data.draw(st.sampled_from(subscriptions))
    filter = kind.written(subscription)
    assert kind.read(filter) == subscription
    assert kind.read(Filter(str(filter))) == subscription


UNREADABLE = ["int exit >= 5", "exit > 5", "exit >= 5 or exit <= 3", "not a = 1", "a = 1 and a = 2", "x any"]


@pytest.mark.parametrize("text", [*UNREADABLE, "a = 1 and b > 2"])
def test_what_a_kind_cannot_read(text: str):
    for kind in (JsonKind(), RangeKind("exit"), KeywordKind("topic", Hierarchy({}))):
        assert kind.read(Filter(text)) is None


def test_ends_past_all_ints_are_no_range_for_any_broker():
    """Its canonical form has two parts. Who is sent it must read the same as who sends it."""
    filter = Filter("exit >= 2 and exit <= 1e300")
    assert RangeKind("exit").read(filter) is RangeKind("exit").read(Filter(str(filter))) is None


changes = st.lists(st.tuples(st.booleans(), st.integers(0, 10_000)), max_size=30)


def grown(
    kind: ReadKind[Any, Any],
    subscriptions: Sequence[Any],
    steps: Iterable[tuple[bool, int]],
    *targets: Any,
    first: int = 1,
    there: dict[int, Any] | None = None,
) -> dict[int, Any]:
    """Adds and removes subscriptions at several preprocessors, which must agree; returns what is there."""
    there = {} if there is None else there
    for node, (is_added, choice) in enumerate(steps, start=first):
        if is_added or not there:
            subscription = subscriptions[choice % len(subscriptions)]
            places = [target.add(node, write(kind, target, subscription)) for target in targets]
            assert len(set(places)) == 1
            if places[0].node == node:
                there[node] = subscription
        else:
            gone = sorted(there)[choice % len(there)]
            for target in targets:
                target.remove(gone)
            del there[gone]
    return there


def _found(preprocessor: KindPreprocessor, document: Any) -> tuple[int, ...]:
    return preprocessor._lowest(list(preprocessor.search.nodes(document)))


def write(kind: ReadKind[Any, Any], target: Any, subscription: Any) -> Any:
    return subscription if isinstance(target, BreadthFirstPreprocessor) else kind.written(subscription)


@pytest.mark.parametrize(("world", "search"), SEARCHES)
@given(data=st.data(), steps=changes)
def test_every_search_finds_what_breadth_first_finds(
    world: str, search: str, data: st.DataObject, steps: list[tuple[bool, int]]
):
    kind, subscriptions, documents = WORLDS[world]
    fast, slow = KindPreprocessor(kind, search), BreadthFirstPreprocessor(kind)
    there: dict[int, Any] = {}
    for count in range(len(steps) + 1):
        # Asked between changes too: what a search has sorted must not be old.
        if count % 5 == 0 or count == len(steps):
            document = data.draw(st.sampled_from(documents))
            assert [_found(fast, document)] == slow.nodes_for([document])
        there = grown(kind, subscriptions, steps[count : count + 1], fast, slow, first=count + 1, there=there)
    assert (fast.graph.parents, fast.graph.children) == (slow.graph.parents, slow.graph.children)
    for document in data.draw(st.lists(st.sampled_from(documents), min_size=1, max_size=5)):
        found = _found(fast, document)
        assert [found] == slow.nodes_for([document])
        # And by comparing with all: a node is lowest if no other that matches is narrower.
        matching = {node: each for node, each in there.items() if kind.matches(each, document)}
        lowest = [
            node
            for node, each in matching.items()
            if not any(kind.relation(each, other) is Relation.WIDER for other in matching.values())
        ]
        assert list(found) == sorted(lowest)
    for node, subscription in there.items():
        assert fast.find(kind.written(subscription)) == node


@pytest.mark.parametrize("world", WORLDS)
@given(steps=changes)
def test_a_tagger_that_is_told_the_graph_finds_the_same(world: str, steps: list[tuple[bool, int]]):
    """Other brokers are told nodes with their places, as the rendezvous point has found them."""
    kind, subscriptions, documents = WORLDS[world]
    preprocessor, tagger = KindPreprocessor(kind), KindTagger(kind)
    add, take = preprocessor.put, preprocessor.take

    def put(node: int, filter: Filter, parents: Iterable[int], children: Iterable[int]) -> None:
        parents, children = set(parents), set(children)
        add(node, filter, parents, children)
        tagger.put(node, filter, parents, children)

    def taken(node: int) -> Filter:
        tagger.take(node)
        return take(node)

    preprocessor.put, preprocessor.take = put, taken  # type: ignore[method-assign]
    grown(kind, subscriptions, steps, preprocessor)
    for document in documents[:: max(1, len(documents) // 10)]:
        assert sorted(tagger.search.nodes(document)) == sorted(preprocessor.search.nodes(document))


PLAIN = ["x > 3", "x > 5", "topic >* 'b'", "exit != 4", "not a = 'x'"]


@pytest.mark.parametrize("world", ["keywords", "ranges"])
@given(
    steps=changes,
    plain=st.lists(st.sampled_from(PLAIN), max_size=4, unique=True),
    topic=st.sampled_from(NAMES),
    exits=st.tuples(st.integers(-1, 6), st.integers(-1, 6)),
    x=st.integers(0, 7),
)
def test_filters_that_a_kind_cannot_read_are_matched_by_attributes(
    world: str, steps: list[tuple[bool, int]], plain: list[str], topic: str, exits: tuple[int, int], x: int
):
    kind, subscriptions, _ = WORLDS[world]
    preprocessor = KindPreprocessor(kind)
    there = grown(kind, subscriptions, steps, preprocessor)
    filters = {1_000 + i: Filter(text) for i, text in enumerate(plain)}
    for node, filter in filters.items():
        assert preprocessor.add(node, filter) == (node, (), ())
        assert preprocessor.add(2_000, filter).node == preprocessor.find(filter) == node
    low, high = exits
    notification = Notification({"topic": topic, "from": low, "to": high, "x": x})
    document = kind.document(notification)
    (found,) = preprocessor.nodes_for([notification])
    expected = {node for node, each in there.items() if kind.matches(each, document)}
    expected |= {node for node, filter in filters.items() if filter.matches(notification)}
    # What is found are the lowest: with all above them, it is everything that matches.
    assert preprocessor.graph.at_or_above(found) == expected


def test_fast_searches_look_at_less():
    """Counted, on a flat and sparse graph, where the text says that breadth first is a linear search."""
    examined = {}
    for search in (*JsonKind().searches(), BREADTH_FIRST):
        preprocessor = KindPreprocessor(JsonKind(), search)
        for node in range(300):
            preprocessor.put(node, Filter.of(("symbol", "=", f"S{node}"), ("kind", "=", "quote")), (), ())
        document = pairs(("symbol", "S7"), ("kind", "quote"), ("price", 5))
        assert list(preprocessor.search.nodes(document)) == [7]
        examined[search] = preprocessor.search.examined
    assert examined[BREADTH_FIRST] == 300
    assert examined["sorted levels"] == 300  # all begin with the same pair: `kind`
    assert examined["index"] == examined["hash"] == 300
    assert examined["matcher"] == 0


def test_sorted_levels_and_ranges_pass_over_most():
    levels = KindPreprocessor(JsonKind(), "sorted levels")
    for node in range(300):
        levels.put(node, Filter.of(("a", "=", node), ("b", "=", node % 2)), (), ())
    assert list(levels.search.nodes(pairs(("a", 7), ("b", 1)))) == [7]
    assert levels.search.examined == 1
    exact = KindPreprocessor(JsonKind(), "hash")
    for node in range(300):
        exact.put(node, Filter.of(("a", "=", node), ("b", "=", node % 2)), (), ())
    assert list(exact.search.nodes(pairs(("a", 7), ("b", 1)))) == [7]
    assert exact.search.examined == 0
    ranges = KindPreprocessor(RangeKind("exit"), "index")
    for node in range(1_000):
        ranges.put(node, Filter.of(("exit", ">=", node), ("exit", "<=", node + 1)), (), ())
    assert sorted(ranges.search.nodes(Range(500.5, 500.6))) == [500]
    assert ranges.search.examined <= 64
