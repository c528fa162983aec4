"""Filter propagation with one tree for all publishers, and trees in networks with redundant links (§6.2, 5)."""

from collections.abc import Sequence
from typing import Any

import pytest

from catchment.errors import InputError
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.routing.messages import (
    PUBLISHED,
    Action,
    Client,
    ClientUp,
    Forward,
    LinkDown,
    LinkUp,
    Neighbor,
    Routed,
    Send,
    Subscribe,
)
from catchment.routing.parts.distance_vectors import INFINITY, Distances
from catchment.routing.propagation.core import PropagationCore
from catchment.routing.propagation.messages import Filtered, PropagationSettings
from catchment.routing.siena.messages import OriginHeader
from catchment.sim.scenarios.measures import Measures
from catchment.sim.scenarios.notations import read_scenario
from catchment.sim.scenarios.play import play_ready, variants
from catchment.sim.scenarios.ready import ready_run
from catchment.sim.scenarios.records import table_rows
from catchment.sim.simulation import Simulation
from catchment.sim.topology import Topology, line, mesh, ring
from tools.compare_systems import PAGE, SCENARIO

# In the one tree, a is the root and above broker m; x and y are below m.
A, X, Y = Neighbor("a"), Neighbor("x"), Neighbor("y")
BOB = Client("bob")
ONE = PropagationSettings(tree="one")
TRUE, LOW, HIGH = Filter("true"), Filter("v < 3"), Filter("v > 7")


class Broker:
    """Broker m with the neighbors a, x and y."""

    def __init__(self, settings: PropagationSettings = ONE) -> None:
        self.core = PropagationCore("m", settings)
        self.seq = 0
        for neighbor in (A, X, Y):
            self.tell(LinkUp(), neighbor)
            self.tell(Distances(((neighbor.name, 0),)), neighbor)
        for child in (X, Y):
            self.below(child)
        self.tell(ClientUp("bob"), BOB)

    def tell(self, message: Any, source: Any) -> list[Action]:
        return self.core.on_message(message, source, 0)

    def below(self, neighbor: Neighbor, root: str = "a") -> list[Action]:
        """A neighbor says that its route to the root leads through m."""
        return self.tell(Distances(((root, INFINITY + 2),)), neighbor)

    def beside(self, neighbor: Neighbor, root: str = "a", distance: int = 2) -> list[Action]:
        """A neighbor says that its route to the root does not lead through m."""
        return self.tell(Distances(((root, distance),)), neighbor)

    def event(self, source: Neighbor | None, root: str = "a", **attributes: Any) -> list[Action]:
        """A notification from a neighbor, or from a client here."""
        self.seq += 1
        header = PUBLISHED if source is None else OriginHeader(1, root)
        routed = Routed(Notification(attributes, source="p", seq=self.seq), header)
        return self.core.on_notifications([routed], source or BOB, 0)

    @property
    def table(self) -> list[tuple[str, str, str]]:
        return [(root, neighbor, str(filter)) for root, neighbor, filter in self.core.rows()]


def receivers(actions: Sequence[Action]) -> list[str]:
    return [action.interface.name for action in actions if isinstance(action, Forward)]


def said(actions: Sequence[Action]) -> list[tuple[str, str, str]]:
    """Who is told which filter, for which tree."""
    return [
        (action.interface.name, action.message.publisher, str(action.message.wanted))
        for action in actions
        if isinstance(action, Send) and isinstance(action.message, Filtered)
    ]


def test_a_notification_goes_up_and_down_and_not_back():
    broker = Broker()
    assert receivers(broker.event(None, v=5)) == ["a", "x", "y"]
    assert receivers(broker.event(X, v=5)) == ["a", "y"]
    assert receivers(broker.event(A, v=5)) == ["x", "y"]


def test_what_is_published_here_says_which_tree_it_is_in():
    (forward, *_) = (action for action in Broker().event(None, v=5) if isinstance(action, Forward))
    assert forward.batch[0].header == OriginHeader(1, "a")


def test_the_table_has_one_row_for_each_neighbor_however_many_publish():
    broker = Broker()
    for source in (None, A, X, Y):
        broker.event(source, v=5)
    broker.tell(Filtered("a", LOW), X)
    rows = [("a", "a", "true"), ("a", "x", "v < 3"), ("a", "y", "true"), ("a", "self", "false")]
    assert broker.table == rows


def test_a_neighbor_is_told_what_all_others_want():
    broker = Broker()
    broker.event(None, v=5)
    assert said(broker.tell(Filtered("a", LOW), X)) == []
    assert said(broker.tell(Filtered("a", HIGH), Y)) == [("a", "a", "v < 3 or v > 7")]
    # Now that a has sent one, the children are told what is wanted above and beside them.
    assert said(broker.tell(Filtered("a", Filter("v = 5")), A)) == [
        ("x", "a", "v = 5 or v > 7"),
        ("y", "a", "v < 3 or v = 5"),
    ]
    assert receivers(broker.event(X, v=5)) == ["a"]
    assert receivers(broker.event(X, v=8)) == ["y"]
    assert receivers(broker.event(A, v=5)) == []


def test_a_changed_subscription_goes_to_all_that_hold_a_filter():
    broker = Broker()
    for neighbor, filter in ((X, LOW), (Y, HIGH), (A, Filter("v = 5"))):
        broker.tell(Filtered("a", filter), neighbor)
    changed = said(broker.tell(Subscribe("bob", "1", Filter("w = 1")), BOB))
    assert [(neighbor, text.count("w = 1")) for neighbor, _, text in changed] == [("a", 1), ("x", 1), ("y", 1)]


def test_only_who_sent_something_unwanted_is_answered():
    broker = Broker()
    broker.tell(LinkDown(), Y)
    assert said(broker.tell(Filtered("a", LOW), X)) == [("a", "a", "v < 3")]
    # x is closed, a is open: what x sends goes to a.
    assert said(broker.event(X, v=5)) == []
    assert said(broker.tell(Filtered("a", HIGH), A)) == [("x", "a", "v > 7")]


def test_a_neighbor_that_was_told_a_filter_and_comes_back_is_told_true():
    """x leaves the tree and comes back before it has heard our filter: it takes that for valid, and we must know."""
    broker = Broker()
    broker.tell(LinkDown(), Y)
    broker.event(None, v=5)
    assert said(broker.tell(Filtered("a", HIGH), A)) == [("x", "a", "v > 7")]
    assert said(broker.beside(X)) == []
    assert said(broker.below(X)) == [("x", "a", "true")]
    # Said once: x and we have begun anew.
    assert said(broker.beside(X)) + said(broker.below(X)) == []


def test_the_filter_of_a_parent_is_forgotten_with_the_parent():
    broker = Broker()
    broker.tell(Filtered("a", HIGH), A)
    broker.beside(X, distance=1)
    broker.tell(LinkDown(), A)
    assert broker.core.vectors.parent("a") == X
    broker.event(X, v=5)
    assert broker.table == [("a", "x", "true"), ("a", "y", "true"), ("a", "self", "false")]


def test_a_filter_of_somebody_who_is_not_in_the_tree_is_ignored():
    broker = Broker()
    broker.beside(Y)
    assert broker.tell(Filtered("a", LOW), Y) == []
    assert broker.tell(Filtered("nowhere", LOW), X) == []
    assert broker.core.publishers == ()


def test_another_root_takes_over_and_filters_are_withdrawn():
    broker = Broker()
    broker.event(None, v=5)
    for neighbor, filter in ((X, LOW), (Y, HIGH)):
        broker.tell(Filtered("a", filter), neighbor)
    assert broker.core.trees.own == "a"
    # A broker whose name comes first appears behind a.
    actions = broker.tell(Distances((("Zoe", 3),)), A)
    assert broker.core.trees.own == "Zoe"
    assert said(actions) == [("a", "a", "true")]
    # The children have not heard of it yet: their filters are kept until they withdraw them.
    assert list(broker.core.publishers) == ["a"]
    broker.tell(Filtered("a", TRUE), X)
    broker.tell(Filtered("a", TRUE), Y)
    assert not broker.core.publishers


def test_a_tree_that_was_left_is_forgotten_when_its_last_filter_goes_with_a_neighbor():
    broker = Broker()
    broker.tell(Filtered("a", LOW), X)
    broker.tell(Distances((("Zoe", 3),)), A)
    assert list(broker.core.publishers) == ["a"]
    broker.beside(X)
    assert not broker.core.publishers


def test_what_comes_in_a_tree_that_is_not_used_is_passed_on_and_nothing_is_kept():
    broker = Broker()
    broker.tell(Distances((("Zoe", 3),)), A)
    assert receivers(broker.event(A, root="a", v=5)) == ["x", "y"]
    assert broker.core.publishers == ()


def test_the_root_that_is_named_or_else_the_first():
    broker = Broker(PropagationSettings(tree="one", root="x"))
    assert broker.core.trees.own == "x"
    broker.tell(LinkDown(), X)
    assert broker.core.trees.own == "a"
    broker.tell(LinkDown(), A)
    broker.tell(LinkDown(), Y)
    assert broker.core.trees.own == "m"


def test_a_root_without_one_tree_is_refused():
    with pytest.raises(InputError, match="set tree to one"):
        PropagationCore("m", PropagationSettings(root="x"))


# --- whole networks -----------------------------------------------------------------------------


def simulated(topology: Topology, settings: PropagationSettings, wanted: dict[str, str]) -> Simulation:
    """A network with a client at each broker, in which filters are ideal."""
    simulation = Simulation(topology, lambda broker: PropagationCore(broker, settings))
    for broker in topology.brokers:
        simulation.connect(f"at {broker}", broker)
    for broker, filter in wanted.items():
        simulation.subscribe(f"at {broker}", "1", Filter(filter))
    simulation.settle()
    make_ideal(simulation)
    return simulation


def make_ideal(simulation: Simulation) -> None:
    """Everybody publishes what nobody wants."""
    for broker in simulation.topology.brokers:
        simulation.publish(f"at {broker}", {"nobody": 1})
    simulation.settle()


@pytest.mark.parametrize(("tree", "rows"), [("one", 3 * 2 - 2 + 3), ("per publisher", 3 * 2 + 3 * 3)])
def test_dumped_tables_are_ideal(tree: Any, rows: int):
    simulation = simulated(line(3), PropagationSettings(tree=tree), {"0": "v > 5", "2": "v > 7"})
    dumped = list(table_rows(simulation))
    assert all(row["is_ideal"] for row in dumped)
    assert len(dumped) == rows
    by_place = {(row["broker"], row["child"]): row["actual"] for row in dumped if row["publisher"] == "0"}
    assert by_place["0", "1"] == "v > 7"
    assert (("2", "1") in by_place) == (tree == "one")


@pytest.mark.parametrize("settings", [PropagationSettings(), ONE], ids=["per publisher", "one tree"])
@pytest.mark.parametrize("topology", [mesh(5), ring(6)], ids=["mesh", "ring"])
def test_trees_in_a_mesh_send_one_copy_and_a_spare_link_takes_over(topology: Topology, settings: PropagationSettings):
    """§6.2, 5: a tree is embedded in a mesh. Its spare links carry nothing until a link of the tree fails."""
    publisher, subscriber = topology.brokers[0], topology.brokers[len(topology.brokers) // 2]
    simulation = simulated(topology, settings, {subscriber: "v > 5"})
    publish_and_check(simulation, publisher)
    core = simulation.cores[subscriber]
    assert isinstance(core, PropagationCore)
    (parent,) = core.trees.upstream(publisher)
    simulation.cut(subscriber, parent.name)
    simulation.settle()
    make_ideal(simulation)
    publish_and_check(simulation, publisher)
    assert len(simulation.client(f"at {subscriber}").received) == 2


def publish_and_check(simulation: Simulation, publisher: str) -> None:
    """No broker gets a copy that it has no use for: neither a second one, nor one that is not wanted behind it."""
    before = simulation.unwanted
    simulation.publish(f"at {publisher}", {"v": 9})
    simulation.settle()
    assert simulation.unwanted == before


def test_one_scenario_with_one_tree():
    """The figures of docs/routing.md: the same deliveries, and a table that does not grow with publishers."""

    def played(*assignments: str) -> Measures:
        (scenario,) = variants(read_scenario(SCENARIO), ["propagation"], assignments=assignments)
        return play_ready(ready_run(scenario, SCENARIO.parent))[0]

    trees, one = played(), played("tree=one")
    assert (one.delivered, one.published) == (trees.delivered, trees.published)
    assert one.tables.filters.total * 2 < trees.tables.filters.total
    page = PAGE.read_text("utf-8")
    for measures, words in ((trees, "a tree for each publisher"), (one, "one tree")):
        figures = (
            f"{measures.notifications.link:,} | {measures.control['Filtered']} | {measures.tables.filters.largest} |"
        )
        assert f"| {words} | {figures} {measures.hops_mean:.2f} |" in page
