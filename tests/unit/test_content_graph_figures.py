"""The worked examples of F3's text, with their values. Node ids are the text's: 1 baseball, 4 American League, 10 East,
31 Boston; 1 is above 4 and 10, which are above 31."""

from __future__ import annotations

import pytest

from catchment.model.filter import Filter
from catchment.routing.content_graph.forwarders import FORWARDERS
from catchment.routing.content_graph.preprocessors import BreadthFirstPreprocessor, FilterKind, FilterPreprocessor
from catchment.routing.content_graph.table import ForwardingTable
from catchment.routing.messages import Neighbor

F, G, H = map(Neighbor, "FGH")


def table_of(forwarder: str, *nodes: tuple[int, tuple[int, ...], tuple[int, ...]]) -> ForwardingTable:
    table = ForwardingTable(FORWARDERS[forwarder])
    for node, parents, children in nodes:
        table.set_up(node, parents, children)
    return table


def labels(table: ForwardingTable) -> dict[int, dict[str, tuple[int, ...]]]:
    return {
        node: {neighbor.name: label for neighbor, label in sorted(some.items())}
        for node, some in sorted(table.forwarder.labels.items())
    }


@pytest.fixture
def figure_3_19() -> ForwardingTable:
    table = table_of("labels", (31, (), ()))
    table.subscribe(31, G, 0)
    assert labels(table) == {31: {"G": (31,)}}
    table.set_up(4, (), (31,))
    table.subscribe(4, F, 0)
    assert labels(table)[31] == {"F": (4,), "G": (31,)}
    table.set_up(1, (), (4,))
    table.subscribe(1, F, 0)
    # All below node 1 have labels for F already.
    assert labels(table) == {1: {"F": (1,)}, 4: {"F": (4,)}, 31: {"F": (4,), "G": (31,)}}
    table.set_up(10, (1,), (31,))
    # A newly inserted node has labels, though nobody wants it.
    assert labels(table)[10] == {"F": (1,)}
    table.subscribe(10, H, 0)
    assert labels(table)[31] == {"F": (4,), "G": (31,), "H": (10,)}
    table.subscribe(4, H, 0)
    return table


def test_figure_3_19(figure_3_19):
    assert labels(figure_3_19) == {
        1: {"F": (1,)},
        4: {"F": (4,), "H": (4,)},
        10: {"F": (1,), "H": (10,)},
        31: {"F": (4,), "G": (31,), "H": (4, 10)},
    }
    assert figure_3_19.outputs((31,)) == ((F, (4,)), (G, (31,)), (H, (4, 10)))


def test_figure_3_19_unsubscribed(figure_3_19):
    figure_3_19.unsubscribe(4, F)
    assert [labels(figure_3_19)[node].get("F") for node in (4, 10, 31)] == [(1,)] * 3
    figure_3_19.unsubscribe(1, F)
    assert not any("F" in some for some in labels(figure_3_19).values())


def test_labels_that_are_merged_keep_the_lowest_alone():
    """The text merges the labels of all parents: H on 1, 4, 10 without 10 would have {1, 4} at 31."""
    table = table_of("labels", (1, (), ()), (4, (1,), ()), (10, (1,), ()), (31, (4, 10), ()))
    for node in (1, 4, 10):
        table.subscribe(node, H, 0)
    table.unsubscribe(10, H)
    assert labels(table)[31] == {"H": (4,)}
    assert labels(table)[10] == {"H": (1,)}


def test_labels_are_repaired_in_topological_order():
    """Breadth first, e would be repaired before f, and keep what is gone."""
    table = table_of("labels", *((node, above, ()) for node, above in ((1, ()), (2, (1,)), (3, (2,)), (6, (3,)))))
    table.set_up(9, (1,), ())
    table.set_up(5, (6, 9), ())
    table.subscribe(1, F, 0)
    assert labels(table)[5] == {"F": (1,)}
    table.unsubscribe(1, F)
    assert all(not some for some in labels(table).values())


@pytest.mark.parametrize(
    ("forwarder", "header", "to_f", "to_g"),
    [
        ("labels", (31,), (31,), (4,)),
        ("minimal", (31,), (31,), (4,)),
        ("stored", (31,), (31,), (31,)),
        ("lists", (1, 4, 10, 31), (1, 4, 10, 31), (1, 4, 10, 31)),
    ],
)
def test_figures_3_9_3_13_3_16_and_3_20(forwarder, header, to_f, to_g):
    """F wants Boston, G wants the American League: each gets one copy of news about Boston."""
    table = table_of(forwarder, (1, (), ()), (4, (1,), ()), (10, (1,), ()), (31, (4, 10), ()))
    table.subscribe(31, F, 0)
    table.subscribe(4, G, 0)
    assert table.outputs(header) == ((F, to_f), (G, to_g))
    # News about the league, and about baseball in general.
    assert [neighbor for neighbor, _ in table.outputs((1, 4) if forwarder == "lists" else (4,))] == [G]
    assert table.outputs((1,)) == ()


def test_figure_3_22():
    """A new subscription is inserted between those that contain it and those that it contains."""
    for preprocessor in (FilterPreprocessor(), BreadthFirstPreprocessor(FilterKind())):
        preprocessor.add(1, Filter("sport = 'baseball'"))
        preprocessor.add(4, Filter("sport = 'baseball' and league = 'American'"))
        for node, team in ((30, "New York"), (31, "Boston"), (32, "Detroit")):
            preprocessor.add(node, Filter(f"sport = 'baseball' and league = 'American' and team = '{team}'"))
        both = Filter("sport = 'baseball' and league = 'American' and team in ('Boston', 'New York')")
        assert preprocessor.add(50, both) == (50, (4,), (30, 31))
        assert preprocessor.graph.children[4] == {32, 50}
        assert preprocessor.graph.parents[31] == {50}
        preprocessor.remove(50)
        assert preprocessor.graph.children[4] == {30, 31, 32}


def test_set_ups_are_of_nodes_that_the_neighbor_wants():
    """The text's SendGraphSetup compares with all nodes above: then 31 would have no parent here."""
    table = table_of("labels", (1, (), ()), (4, (1,), ()), (31, (4,), ()))
    table.subscribe(1, F, 0)
    table.subscribe(31, F, 0)
    assert table.set_up_for(31, F) == ((1,), ())
    assert table.set_up_for(1, F) == ((), (31,))


def test_a_node_that_goes_leaves_its_parents_linked_to_its_children():
    table = table_of("labels", (1, (), ()), (4, (1,), ()), (10, (1,), ()), (31, (4, 10), ()))
    table.subscribe(1, F, 0)
    table.drop(4)
    table.drop(10)
    assert table.graph.children == {1: {31}, 31: set()}
    assert table.outputs((31,)) == ((F, (1,)),)


def test_the_same_id_in_two_namespaces_is_two_nodes():
    first, second = table_of("labels", (4, (), ())), table_of("labels", (4, (), ()))
    first.subscribe(4, F, 0)
    assert first.outputs((4,)) == ((F, (4,)),)
    assert second.outputs((4,)) == ()
