"""The simulator's parts: clock, links, networks, scenarios in three notations, what a run measures."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from catchment import Filter
from catchment.errors import InputError, LimitError
from catchment.model.values import Value
from catchment.routing.baselines.flooding import FloodingCore
from catchment.routing.messages import (
    Action,
    BrokerMessage,
    Client,
    ClientRequest,
    Deliver,
    HostMessage,
    Interface,
    Neighbor,
    Routed,
    Send,
    SetTimer,
    Subscribe,
    Time,
    TimerFired,
)
from catchment.routing.parts.paths import agreed, next_hops, tree
from catchment.routing.siena.acyclic import AcyclicCore
from catchment.routing.siena.general import GeneralCore
from catchment.routing.siena.messages import Interest
from catchment.sim import topology as networks
from catchment.sim.kernel import Kernel
from catchment.sim.network import Direction, LinkState, Quality, arrivals
from catchment.sim.scenarios.groups import Drawn
from catchment.sim.scenarios.networks import network_named
from catchment.sim.scenarios.notations import propagation_scenario, read_scenario, siena_scenario
from catchment.sim.scenarios.play import play
from catchment.sim.simulation import Simulation

# --- clock --------------------------------------------------------------------------------------


def test_occurrences_of_one_time_happen_in_the_order_they_were_scheduled():
    seen: list[str] = []
    kernel = Kernel()
    for at, what in ((5, "c"), (1, "a"), (5, "d"), (1, "b")):
        kernel.schedule(at, seen.append, what)
    kernel.run(4)
    assert (seen, kernel.now) == (["a", "b"], 4)
    kernel.settle()
    assert (seen, kernel.now) == (["a", "b", "c", "d"], 5)


def test_a_run_that_would_not_end_is_ended():
    kernel = Kernel(occurrences_max=100)

    def again() -> None:
        kernel.schedule(kernel.now + 1, again)

    again()
    with pytest.raises(LimitError, match="OCCURRENCES_MAX is 100"):
        kernel.settle()


def test_what_is_idle_keeps_no_run_going():
    seen: list[int] = []
    kernel = Kernel()

    def again() -> None:
        seen.append(kernel.now)
        kernel.schedule(kernel.now + 10, again, is_idle=True)

    kernel.schedule(10, again, is_idle=True)
    assert kernel.is_at_rest
    kernel.schedule(25, seen.append, 0)
    kernel.settle()
    assert (seen, kernel.now, kernel.is_at_rest) == ([10, 20, 0], 25, True)
    kernel.schedule(60, seen.append, 0)
    kernel.settle(until=40)
    assert (seen, kernel.now, kernel.is_at_rest) == ([10, 20, 0, 30, 40], 40, False)


def test_a_timer_set_again_fires_once_and_not_after_a_crash():
    fired: list[int] = []

    class Waiting(AcyclicCore):
        def on_message(
            self, message: ClientRequest | HostMessage | BrokerMessage, source: Interface, now: Time
        ) -> list[Action]:
            if isinstance(message, TimerFired):
                fired.append(now)
                return []
            return [SetTimer("wait", 100), SetTimer("wait", 50)]

    simulation = Simulation(networks.line(2), Waiting)
    simulation.crash("0")
    simulation.settle()
    assert fired == [50]


# --- links --------------------------------------------------------------------------------------


def test_a_stream_keeps_order_and_loses_nothing():
    rng, link = random.Random(1), Direction(LinkState("a", "b", 2), Neighbor("a"), "b")
    quality = Quality(delay_us=10, jitter_us=50, loss_share=0.4, duplicate_share=0.2)
    times, sent = [], 0
    for now in range(0, 1000, 5):
        (arrival,), count = arrivals(quality, link, now, rng)
        times.append(arrival)
        sent += count
    assert times == sorted(times)
    assert sent > 200


def test_datagrams_are_lost_doubled_and_reordered():
    rng, link = random.Random(1), Direction(LinkState("a", "b", 1), Neighbor("a"), "b")
    quality = Quality(loss_share=0.3, duplicate_share=0.3, reorder_share=0.3, transport="datagram")
    times = [arrivals(quality, link, now, rng)[0] for now in range(300)]
    assert {len(each) for each in times} == {0, 1, 2}
    firsts = [each[0] for each in times if each]
    assert firsts != sorted(firsts)


def received(simulation: Simulation, identity: str) -> list[Value]:
    """The value of x in each notification that a client got."""
    deliveries = simulation.client(identity).received
    return [delivery.notification["x"] for delivery in deliveries if isinstance(delivery, Deliver)]


def test_nothing_of_before_arrives_after_a_link_failed():
    simulation = Simulation(networks.line(2), AcyclicCore)
    simulation.connect("s", "0")
    simulation.connect("p", "1")
    simulation.subscribe("s", "1", Filter("x any"))
    simulation.settle()
    simulation.publish("p", {"x": 1})
    simulation.cut("0", "1")
    simulation.heal("0", "1")
    simulation.settle()
    assert received(simulation, "s") == []
    simulation.publish("p", {"x": 2})
    simulation.settle()
    assert received(simulation, "s") == [2]


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_shares_are_probabilities(share: float):
    with pytest.raises(InputError, match="shares"):
        Quality(loss_share=share)


# --- measures -----------------------------------------------------------------------------------


class Pruning(FloodingCore):
    """Tells a neighbor of each notification that it sends in vain. The neighbor does nothing about it."""

    def on_message(self, message: ClientRequest | HostMessage | Interest, source: Interface, now: Time) -> list[Action]:
        return [] if isinstance(message, Interest) else super().on_message(message, source, now)

    def on_notifications(self, batch: Sequence[Routed], source: Interface, now: Time) -> list[Action]:
        actions = super().on_notifications(batch, source, now)
        return actions or [Send(source, Interest())] if isinstance(source, Neighbor) else actions


def test_an_unwanted_arrival_counts_though_it_is_answered_and_the_answer_is_caused_by_traffic():
    simulation = Simulation(networks.line(3), Pruning)
    simulation.connect("s", "1")
    simulation.connect("p", "0")
    simulation.subscribe("s", "1", Filter("x > 5"))
    simulation.publish("p", {"x": 7})
    simulation.publish("p", {"x": 1})
    simulation.settle()
    # Both go on to broker 2, where nobody is.
    assert simulation.unwanted == 2
    assert simulation.control_caused == {"traffic": 2}
    assert simulation.converged_at == {}
    simulation.reset_measures()
    assert (simulation.unwanted, simulation.control_caused, simulation.work.matched) == (0, {}, 0)
    simulation.publish("p", {"x": 1})
    simulation.settle()
    assert (simulation.unwanted, simulation.work.matched) == (1, 3)


# --- networks -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "brokers", "links"),
    [("line 4", 4, 3), ("star 5", 5, 4), ("ring 6", 6, 6), ("mesh 5", 5, 10), ("grid 3x4", 12, 17), ("tree 7", 7, 6)],
)
def test_networks_by_rule(text: str, brokers: int, links: int):
    network = network_named(text, 1, Path())
    assert (len(network.brokers), len(network.links)) == (brokers, links)


def test_transit_stub_has_the_sizes_of_the_texts():
    for count in (100, 1_000):
        network = networks.transit_stub_of(count, 1)
        assert len(network.brokers) == count
        assert network == networks.transit_stub_of(count, 1) != networks.transit_stub_of(count, 2)
    assert len(networks.transit_stub_of(100, 1).spanning_tree().links) == 99


def test_the_backbone_has_24_brokers_of_two_links_at_least():
    network = networks.backbone()
    assert len(network.brokers) == 24
    assert min(len(neighbors) for neighbors in network.neighbors().values()) == 2


def test_a_network_from_a_file(tmp_path: Path):
    (tmp_path / "net.toml").write_text('links = [["a", "b", 3], ["c", "b"]]')
    network = network_named("file net.toml", 1, tmp_path)
    assert network.neighbors() == {"a": {"b": 3}, "b": {"a": 3, "c": 1}, "c": {"b": 1}}
    (tmp_path / "net.toml").write_text('links = [["a"]]')
    with pytest.raises(InputError, match="is no network"):
        network_named("file net.toml", 1, tmp_path)


@pytest.mark.parametrize("text", ["ring", "ring x", "moon 3", "grid 3"])
def test_a_network_that_cannot_be(text: str):
    with pytest.raises(InputError, match="network"):
        network_named(text, 1, Path())


def test_a_network_in_two_parts_is_refused():
    with pytest.raises(InputError, match="reached"):
        networks.Topology(("a", "b", "c"), (networks.Link("a", "b"),))


@pytest.mark.parametrize("seed", range(20))
def test_shortest_paths_are_the_same_in_both_directions(seed: int):
    links = networks.random_network(9, seed, 12).neighbors()
    for start in links:
        for end in links:
            there, back = _path(links, start, end), _path(links, end, start)
            assert there == back[::-1]


def _path(links: dict[str, dict[str, int]], start: str, end: str) -> list[str]:
    parents, path = tree(links, start), [end]
    while (before := parents[path[-1]]) is not None:
        path.append(before)
    return path


def test_a_link_counts_when_both_ends_have_it():
    assert agreed({"a": {"b": 1, "c": 2}, "b": {"a": 3}, "c": {}}) == {"a": {"b": 3}, "b": {"a": 3}, "c": {}}


def test_next_hops_lead_down_the_tree():
    parents = {"a": None, "b": "a", "c": "b", "d": "b", "e": "a"}
    assert next_hops(parents, "a") == {"b": "b", "c": "b", "d": "b", "e": "e"}
    assert next_hops(parents, "b") == {"c": "c", "d": "d"}


def test_a_general_network_goes_round_what_failed():
    simulation = Simulation(networks.ring(5), GeneralCore)
    simulation.connect("s", "0")
    simulation.connect("p", "1")
    simulation.subscribe("s", "1", Filter("x any"))
    simulation.settle()
    simulation.cut("0", "1")
    simulation.settle()
    simulation.publish("p", {"x": 1})
    simulation.settle()
    assert len(simulation.client("s").received) == 1
    assert simulation.traffic.total("notifications") == 4


# --- scenarios ----------------------------------------------------------------------------------

FIGURE_25 = """
servers = acyclic adv_fwd;

objects {
  event = "A";
  number = 1000;
  pub/adv = 10;
  time/pub = 2000~2500;
  cycles = 10;
};

parties {
  pattern = "A";
  number = 10000;
  notif/sub = 10;
  cycles = 10;
};
"""

FIGURE_4_2 = """
# experiment <groups> <transit> <filtertimeout> <time> <style> <seed>
experiment 1 0 32.0 8.0 propagate 47

# publishers <group> <nodes> <start> <stop> <size> <period> <color> {
#   <tags> }
publishers 0 1 0.5 7.0 1000 0.05 DarkGreen {
    temp random 0.0 20.0,
    current random 0.0 20.0,
    fish random 0.0 20.0,
}
# subscribers <group> <nnodes> <start> <stop> <percent> { <filters> }
subscribers 0 2 1.5 7.5 25% {
    (temp >= 10) && (current >= 10),
    (temp < 2.5) || (temp >= 17.5),
}
warming-period 2.0
"""
FIGURE_4_3 = """
set ns [Simulator instance]
$ns at 7.5 "dump-filters fnotimeout 1"
$ns at 7.5 "dump-filters fnotimeout 0"
# $ns at 1.0 "dump-filters fnotimeout 0"
trace-events trace-notimeout
"""


def test_figure_25_of_siena():
    scenario = siena_scenario(FIGURE_25)
    assert (scenario.routing, scenario.network) == ("siena advertising", "transit-stub 100")
    (objects,), (parties,) = scenario.publishers, scenario.subscribers
    assert (objects.count, objects.publications, objects.period_ms, objects.cycles) == (1000, 10, (2000, 2500), 10)
    assert objects.attributes == {"event": "A"}
    assert (parties.count, parties.notifications, parties.cycles) == (10_000, 10, 10)
    assert parties.filters == (Filter("event = 'A'"),)


def test_figure_4_2_of_filter_propagation():
    scenario = propagation_scenario(FIGURE_4_2)
    assert (scenario.routing, scenario.seed, scenario.stop_s) == ("propagation", 47, 8.0)
    assert (scenario.settings, scenario.warm_up_s, scenario.dump_at_s) == ({"filter_timeout_s": 32.0}, 2.0, ())
    (publishers,), (subscribers,) = scenario.publishers, scenario.subscribers
    assert publishers.attributes is not None
    assert publishers.attributes["temp"] == Drawn(0.0, 20.0)
    assert (publishers.start_s, publishers.stop_s, publishers.period_ms) == (0.5, 7.0, (50, 50))
    assert (subscribers.count, subscribers.start_s, subscribers.stop_s) == (2, 1.5, 7.5)
    assert subscribers.filters[1] == Filter("group = 0 and (temp < 2.5 or temp >= 17.5)")
    assert publishers.is_distinct
    assert subscribers.is_distinct


@pytest.mark.parametrize(
    ("style", "routing", "settings"),
    [
        ("dvmrp", "dvmrp", {"prune_timeout_s": 32.0}),
        ("perfect", "perfect", {}),
        ("flood", "flooding", {}),
    ],
)
def test_other_styles_of_figure_4_2(style: str, routing: str, settings: dict[str, float]):
    scenario = propagation_scenario(FIGURE_4_2.replace("propagate", style))
    assert (scenario.routing, scenario.settings) == (routing, settings)


def test_figure_4_3_says_when_tables_are_dumped():
    assert propagation_scenario(FIGURE_4_2 + FIGURE_4_3).dump_at_s == (7.5,)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (FIGURE_25.replace("acyclic adv_fwd", "cubic"), "servers"),
        (FIGURE_25.replace("number = 1000;", "number = many;"), "no number"),
        (FIGURE_25.replace('event = "A";', ""), "event is missing"),
        (FIGURE_25.replace("parties", "guests"), "guests"),
    ],
)
def test_what_is_wrong_with_a_scenario_of_siena(text: str, what: str):
    with pytest.raises(InputError, match=what):
        siena_scenario(text)


SCENARIO = """
seed = 3
routing = "siena general"
network = "ring 6"
links = { delay_ms = 2, loss = 0.1 }
[[publishers]]
count = 2
attributes = { kind = { one_of = ["alarm", "note"] }, level = { from = 0, to = 10 } }
publications = 20
period_ms = [50, 80]
[[subscribers]]
count = 3
filters = ["kind = 'alarm'"]
[[faults]]
at_s = 0.4
cut = ["0", "1"]
"""


def test_a_scenario_is_played_the_same_each_time(tmp_path: Path):
    path = tmp_path / "scenario.toml"
    path.write_text(SCENARIO)
    scenario = read_scenario(path)
    first, second = play(scenario), play(scenario)
    assert first == second
    assert first.published == 40
    assert 0 < first.delivered <= 120
    assert first.notifications.link > 0
    assert first.cost == sum(count.messages for count in first.messages.values())
    assert first.latency_ms is not None
    assert first.latency_ms.mean >= 2


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        ('routing = "siena general"', 'routing = "pigeons"', "there is no routing system"),
        ("seed = 3", "sede = 3", "sede"),
        ('cut = ["0", "1"]', "", "one of cut"),
        ("{ from = 0, to = 10 }", "{ from = 0 }", "attribute 'level'"),
        ("kind = 'alarm'", "kind = = 'alarm'", "line 1"),
    ],
)
def test_what_is_wrong_with_a_scenario(tmp_path: Path, before: str, after: str, what: str):
    path = tmp_path / "scenario.toml"
    path.write_text(SCENARIO.replace(before, after))
    with pytest.raises(InputError, match=what):
        read_scenario(path)


def test_a_subscriber_leaves_after_so_many_and_comes_back():
    text = FIGURE_25.replace("number = 1000;", "number = 2;").replace("number = 10000;", "number = 4;")
    measures = play(siena_scenario(text))
    assert measures.published == 200
    assert measures.delivered == 4 * 10 * 10


def test_advertisements_cut_what_subscriptions_cost():
    """§6.2: interest goes only where publishers are; those here advertise once."""
    text = FIGURE_25.replace("number = 1000;", "number = 1;").replace("number = 10000;", "number = 50;")
    text = text.replace("pub/adv = 10;", "pub/adv = 100;").replace("cycles = 10;", "cycles = 1;", 1)
    advertising = play(siena_scenario(text))
    acyclic = play(siena_scenario(text.replace("adv_fwd", "sub_fwd")))
    assert advertising.control["Interest"] < acyclic.control["Interest"]


def test_every_action_of_a_core_is_in_its_order():
    simulation = Simulation(networks.line(3), AcyclicCore)
    simulation.connect("a", "1")
    core = simulation.cores["1"]
    assert core is not None
    actions = core.on_message(Subscribe("a", "1", Filter("x any")), Client("a"), 0)
    assert [action.interface.name for action in actions if isinstance(action, Send)] == ["0", "2"]


def test_clients_of_a_scenario_roam_and_miss_nothing_but_what_is_published_meanwhile(tmp_path: Path):
    """They are somewhere else each time, and get nothing twice: deliveries are at most one a subscriber."""
    path = tmp_path / "roam.toml"
    text = """
        network = "ring 8"
        links = { delay_ms = 5 }
        routing = "siena general"
        [[publishers]]
        count = 2
        publications = 60
        period_ms = [20, 40]
        start_s = 0.5
        attributes = { level = 5 }
        [[subscribers]]
        count = 3
        filters = ["level > 3"]
        """
    path.write_text(text)
    still = play(read_scenario(path))
    path.write_text(text + "roams_every_s = 0.3\n")
    roaming = play(read_scenario(path))
    assert still.delivered == 2 * 60 * 3
    assert 0.7 * still.delivered < roaming.delivered < still.delivered
    assert sum(roaming.control.values()) > sum(still.control.values())
