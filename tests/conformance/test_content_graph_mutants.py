"""Mistakes planted in content graphs: the suite must find each. Some of them are in the pseudo-code of F3's text. What
needs a rare graph or a rare moment is found by a test that makes it."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from catchment.routing.content_graph import stream
from catchment.routing.content_graph.edge import Edge
from catchment.routing.content_graph.forwarders.labels import LabelForwarder
from catchment.routing.content_graph.graph import ContentGraph
from catchment.routing.content_graph.loss import SentLog
from catchment.routing.content_graph.rendezvous import Entered, Rendezvous
from catchment.routing.content_graph.router import Router
from catchment.routing.content_graph.settings import Namespaces
from catchment.routing.content_graph.stream import Stream
from catchment.routing.content_graph.table import Edges, ForwardingTable
from catchment.routing.messages import Neighbor
from tests.conformance.planted import Plant, assert_found
from tests.unit import test_content_graph as brokers
from tests.unit import test_content_graph_figures as figures
from tests.unit import test_content_graph_loss as loss
from tests.unit import test_content_graph_tagging as tagging

SEEDS = range(12)


def forwarded_to_subscribers_instead_of_labels(patch: pytest.MonkeyPatch) -> None:
    """(b) of the text's mistakes."""

    def by_subscribers(self: Any, nodes: tuple[int, ...]) -> Any:
        wanting = {neighbor for node in nodes for neighbor in self.subscribers.get(node, ())}
        return tuple((neighbor, nodes) for neighbor in sorted(wanting))

    patch.setattr(LabelForwarder, "_computed", by_subscribers)


def set_up_with_the_edges_of_the_sender(patch: pytest.MonkeyPatch) -> None:
    """(c): lowest and highest among all nodes, not among those that the neighbor wants."""

    def own_edges(self: Any, node: int, neighbor: Neighbor) -> Edges:
        self.marks.get(node, set()).discard(neighbor)
        wanted = {each for each in self.nodes_of(neighbor) if neighbor not in self.marks.get(each, ())}
        above, below = self.graph.parents[node] & wanted, self.graph.children[node] & wanted
        return Edges(tuple(sorted(above)), tuple(sorted(below)))

    patch.setattr(ForwardingTable, "set_up_for", own_edges)


def merged_labels_are_not_minimized(patch: pytest.MonkeyPatch) -> None:
    """(d)"""
    patch.setattr(ContentGraph, "lowest", lambda self, nodes: nodes)


def labels_are_repaired_breadth_first(patch: pytest.MonkeyPatch) -> None:
    """(e)"""

    def breadth_first(self: Any, node: int) -> list[int]:
        order, level = [node], [node]
        while level:
            level = sorted({child for each in level for child in self.children[each]} - set(order))
            order += level
        return order

    patch.setattr(ContentGraph, "downward", breadth_first)


def ids_are_used_again_after_a_restart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Rendezvous, "_following", lambda self, number, now: number + 1)


def parents_and_children_are_not_linked_when_a_node_goes(patch: pytest.MonkeyPatch) -> None:
    def cut(self: Any, node: int) -> None:
        for parent in self.parents.pop(node):
            self.children[parent].remove(node)
        for child in self.children.pop(node):
            self.parents[child].remove(node)

    patch.setattr(ContentGraph, "remove", cut)


def what_anybody_sends_down_is_accepted(patch: pytest.MonkeyPatch) -> None:
    def deaf(self: Any, place: Any, notification: Any, header: Any, source: Any, outgoing: Any, now: int) -> None:
        self._forward(place, notification, header, outgoing, now)

    patch.setattr(Stream, "_fall", deaf)


def only_the_lowest_of_a_clients_subscriptions_is_named(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ForwardingTable, "wanted_here", lambda self, nodes: sorted(nodes))


def those_who_wait_for_edges_are_not_answered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ForwardingTable, "marked", lambda self, node: [])


def a_node_that_nobody_wants_is_forgotten_before_it_is_acknowledged(patch: pytest.MonkeyPatch) -> None:
    leave = Router._leave_above

    def hasty(self: Any, node: int) -> None:
        leave(self, node)
        self.table.drop(node)

    patch.setattr(Router, "_leave_above", hasty)


def a_new_node_has_no_labels(patch: pytest.MonkeyPatch) -> None:
    def bare(self: Any, node: int) -> None:
        self.changed()
        self.labels[node] = {}

    patch.setattr(LabelForwarder, "inserted", bare)


def the_router_before_is_not_told_that_we_left(patch: pytest.MonkeyPatch) -> None:
    say = Router._say
    patch.setattr(
        Router, "_say", lambda self, neighbor, kind, item: None if kind == "left" else say(self, neighbor, kind, item)
    )


def what_brokers_want_that_are_gone_is_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Rendezvous, "leave", lambda self, brokers, now: Entered(after=self.version))


def edges_are_not_asked_for_again_in_a_new_session(patch: pytest.MonkeyPatch) -> None:
    rise = Router.rise

    def trusting(self: Any, up: Any, is_fresh: bool, now: int) -> None:
        rise(self, up, is_fresh, now)
        self.table.pending.clear()

    patch.setattr(Router, "rise", trusting)


def two_filters_of_one_node_are_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Edge, "_take_off", lambda self, filter, node: self.router.unsubscribe_here(node))


def a_subscription_enters_one_scope_alone(patch: pytest.MonkeyPatch) -> None:
    overlapping = Namespaces.overlapping
    patch.setattr(Namespaces, "overlapping", lambda self, filter: overlapping(self, filter)[:1])


MUTANTS: list[tuple[str, Plant]] = [
    ("content graph", forwarded_to_subscribers_instead_of_labels),
    ("content graph", set_up_with_the_edges_of_the_sender),
    ("content graph", merged_labels_are_not_minimized),
    ("content graph", ids_are_used_again_after_a_restart),
    ("content graph", parents_and_children_are_not_linked_when_a_node_goes),
    ("content graph", only_the_lowest_of_a_clients_subscriptions_is_named),
    ("content graph", those_who_wait_for_edges_are_not_answered),
    ("content graph", a_new_node_has_no_labels),
    ("content graph", the_router_before_is_not_told_that_we_left),
    ("content graph", what_brokers_want_that_are_gone_is_kept),
    ("content graph", edges_are_not_asked_for_again_in_a_new_session),
    ("content graph", two_filters_of_one_node_are_one),
    ("content graph scoped", a_subscription_enters_one_scope_alone),
]


@pytest.mark.parametrize(("entry", "plant"), MUTANTS, ids=[plant.__name__ for _, plant in MUTANTS])
def test_is_found(entry: str, plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(plant, entry, SEEDS, monkeypatch)


# --- found by a test that makes the rare case ---------------------------------------------------


def numbers_are_those_of_the_nodes_above(patch: pytest.MonkeyPatch) -> None:
    """The text's prose, instead of the caption of Figure 3-31."""
    patch.setattr(
        SentLog,
        "numbers",
        lambda self, nodes: tuple(
            (node, self._numbers[node]) for node in sorted(self._graph.at_or_above(nodes)) if node in self._numbers
        ),
    )


def what_is_recovered_comes_after_what_came_later(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stream, "order_of", lambda arrival: -arrival.numbers[0][1])


def set_ups_name_nodes_before_their_own_set_up(patch: pytest.MonkeyPatch) -> None:
    set_up_for = ForwardingTable.set_up_for

    def hasty(self: Any, node: int, neighbor: Neighbor) -> Edges:
        marks, self.marks = self.marks, {}
        edges = set_up_for(self, node, neighbor)
        self.marks = {each: some - {neighbor} if each == node else some for each, some in marks.items()}
        return edges

    patch.setattr(ForwardingTable, "set_up_for", hasty)


def tags_are_taken_with_any_version(patch: pytest.MonkeyPatch) -> None:
    disseminate = Stream._disseminate

    def trusting(self: Any, place: Any, notification: Any, header: Any, outgoing: Any, now: int) -> None:
        header = replace(header, version=place.router.version) if header.version else header
        disseminate(self, place, notification, header, outgoing, now)

    patch.setattr(Stream, "_disseminate", trusting)


BY_TEST: list[tuple[Plant, Callable[[], None]]] = [
    (labels_are_repaired_breadth_first, figures.test_labels_are_repaired_in_topological_order),
    (what_anybody_sends_down_is_accepted, loss.test_what_another_than_the_router_above_sends_down_is_not_taken),
    (
        a_node_that_nobody_wants_is_forgotten_before_it_is_acknowledged,
        brokers.test_a_set_up_that_crosses_an_unsubscription_finds_the_ghost,
    ),
    (
        numbers_are_those_of_the_nodes_above,
        loss.test_the_numbers_of_the_nodes_below_are_known_from_the_beginning,
    ),
    (
        what_is_recovered_comes_after_what_came_later,
        loss.test_figures_3_31_3_32_and_2_7_a_filtered_message_is_no_loss_and_a_lost_one_is,
    ),
    (set_ups_name_nodes_before_their_own_set_up, brokers.test_a_set_up_names_a_node_only_after_its_own),
    (tags_are_taken_with_any_version, tagging.test_preprocessors_have_the_version_of_the_rendezvous_point),
]


@pytest.mark.parametrize(("plant", "test"), BY_TEST, ids=[plant.__name__ for plant, _ in BY_TEST])
def test_is_found_by_its_test(plant: Plant, test: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    test()
    plant(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        test()
