"""Scenarios: what they measure, computed by hand; what is wrong with them; that runs can be compared.

The small network is a line of brokers with links of cost 1 and 1 ms. Alice wants x > 5 at one end, bob publishes at
the other, at stated times.
"""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec import to_builtins

from catchment import Filter, Notification
from catchment.errors import InputError
from catchment.model.values import Value
from catchment.routing.baselines.messages import AddressedHeader
from catchment.routing.messages import Deliver, DeliverSequence, Header, Routed
from catchment.routing.siena.messages import Interest
from catchment.routing.systems import SYSTEMS
from catchment.sim.scenarios.behaviour import Behaviour
from catchment.sim.scenarios.measures import Convergence, Latency, Measures, NotificationCount, Size
from catchment.sim.scenarios.notations import read_scenario
from catchment.sim.scenarios.play import play, play_ready, variants
from catchment.sim.scenarios.ready import ready_run
from catchment.sim.scenarios.scenario import Scenario
from catchment.sim.scenarios.settings import expected_of
from catchment.sim.simulation import BEGINNING, SimClient, Simulation
from catchment.wire.frames import batch_frame, frame

LINE = """
network = "line 3"
routing = "siena acyclic"

[[publishers]]
name = "bob"
at = ["0"]
publish = [{ at_s = 1.0, x = 9 }, { at_s = 2.0, x = 1 }, { at_s = 3.0, x = 7 }]

[[subscribers]]
name = "alice"
at = ["2"]
filters = ["x > 5"]
"""


def scenario_of(tmp_path: Path, text: str) -> Scenario:
    path = tmp_path / "scenario.toml"
    path.write_text(text)
    return read_scenario(path)


def played(tmp_path: Path, text: str) -> Measures:
    return play(scenario_of(tmp_path, text))


def published(x: int, seq: int, at_s: int) -> Notification:
    """What bob publishes, as his broker stamps it."""
    return Notification({"x": x}, source="bob", seq=seq, time=BEGINNING + timedelta(seconds=at_s))


# --- measures -----------------------------------------------------------------------------------


def test_measures_of_a_line(tmp_path: Path):
    measures = played(tmp_path, LINE)
    assert (measures.published, measures.delivered, measures.refused) == (3, 2, 0)
    # 9 and 7 go over both links; 1 stays at bob's broker.
    assert measures.notifications == NotificationCount(link=4, logical=4)
    assert measures.control == {"Interest": 2}
    assert measures.control_caused == {"change": 2, "traffic": 0, "idle": 0}
    assert measures.cost == 6
    assert measures.hops_mean == 2
    assert measures.latency_ms == Latency(mean=2.0, p99=2.0)
    assert measures.convergence_ms == Convergence(mean=2.0, most=2.0)
    assert measures.false_positives == 0
    # Each broker has alice's filter once, whose text is `x > 5`.
    assert measures.tables.filters == Size(largest=1, total=3)
    assert measures.tables.bytes == Size(largest=5, total=15)
    # Three at bob's broker, two at each other.
    assert (measures.work.matched, measures.work.compared) == (7, 0)
    assert measures.work.matched_per_notification == pytest.approx(7 / 3)
    assert (measures.simulated_s, measures.warm_up_s) == (3.002, 0)
    assert [(load.between, load.messages) for load in measures.links] == [(("0", "1"), 3), (("1", "2"), 3)]


def test_bytes_are_those_of_the_frames(tmp_path: Path):
    measures = played(tmp_path, LINE)
    interest = len(frame(Interest(announced=(Filter("x > 5"),))))
    batches = sum(
        len(batch_frame([Routed(notification, Header(hops))]))
        for notification in (published(9, 1, 1), published(7, 3, 3))
        for hops in (1, 2)
    )
    assert {name: count.bytes for name, count in measures.messages.items()} == {
        "Interest": 2 * interest,
        "notifications": batches,
    }
    assert measures.bytes == 2 * interest + batches == sum(load.bytes for load in measures.links)


def test_a_relay_is_no_logical_hop(tmp_path: Path):
    """From bob's broker to the center and from there to alice's: two hops of brokers that handle it, on four links."""
    text = LINE.replace('"line 3"', '"line 5"').replace('["2"]', '["4"]\nstart_s = 0.5')
    # Measured when brokers know the way to the center.
    measures = played(
        tmp_path,
        "warm_up_s = 0.5" + text.replace('"siena acyclic"', '"centralized"\nsettings = { center = "2" }'),
    )
    # What alice does not want ends at the center, two links away.
    assert measures.notifications == NotificationCount(link=2 * 4 + 2, logical=2 * 2 + 1)
    assert (measures.delivered, measures.hops_mean, measures.false_positives) == (2, 4, 1)
    # The center alone matches, each once.
    assert measures.work.matched == 3
    # Her request goes two links.
    assert measures.control == {"Registration": 2}
    nine, one, seven = published(9, 1, 1), published(1, 2, 2), published(7, 3, 3)
    up = [Routed(each, AddressedHeader(hops, None)) for each in (nine, one, seven) for hops in (1, 2)]
    down = [Routed(each, AddressedHeader(hops, ("4", "alice"))) for each in (nine, seven) for hops in (3, 4)]
    assert measures.messages["notifications"].bytes == sum(len(batch_frame([routed])) for routed in up + down)


def test_what_floods_is_unwanted_where_nobody_is(tmp_path: Path):
    measures = played(tmp_path, LINE.replace("siena acyclic", "flooding"))
    assert measures.notifications == NotificationCount(link=6, logical=6)
    assert measures.false_positives == 1
    assert (measures.control, measures.convergence_ms) == ({}, None)
    assert measures.tables.filters == Size(largest=1, total=1)


def test_costs_are_those_of_links(tmp_path: Path):
    (tmp_path / "net.toml").write_text('links = [["0", "1", 3], ["1", "2", 5]]')
    scenario = scenario_of(tmp_path, LINE.replace('"line 3"', '"file net.toml"'))
    measures = play(scenario, tmp_path)
    assert measures.cost == 3 * 3 + 3 * 5
    assert measures.latency_ms == Latency(mean=8.0, p99=8.0)


def test_measures_are_plain_data(tmp_path: Path):
    """What is made of them is JSON: the same after writing and reading."""
    plain = to_builtins(played(tmp_path, LINE))
    assert plain["notifications"] == {"link": 4, "logical": 4}
    assert plain["tables"] == {"filters": {"largest": 1, "total": 3}, "bytes": {"largest": 5, "total": 15}}
    assert plain["convergence_ms"] == {"mean": 2.0, "most": 2.0}


def test_measures_begin_after_the_warm_up(tmp_path: Path):
    measures = played(tmp_path, f"warm_up_s = 3.0\n{LINE}")
    # What happens at that time counts.
    assert (measures.published, measures.delivered) == (1, 1)
    assert measures.notifications == NotificationCount(link=2, logical=2)
    assert (measures.control, measures.control_caused["change"], measures.convergence_ms) == ({}, 0, None)
    assert measures.bytes == sum(len(batch_frame([Routed(published(7, 3, 3), Header(hops))])) for hops in (1, 2))
    assert measures.work.matched == 3
    # The tables were filled before.
    assert measures.tables.filters == Size(largest=1, total=3)
    assert (measures.simulated_s, measures.warm_up_s) == (3.002, 3.0)


def test_a_warm_up_that_outlasts_all_publications_is_noted(tmp_path: Path):
    measures, notes = play_ready(ready_run(scenario_of(tmp_path, f"warm_up_s = 9.0\n{LINE}")))
    assert (measures.published, measures.work.matched_per_notification, measures.hops_mean) == (0, None, None)
    assert measures.simulated_s == 9.0
    assert notes == ("nothing was published after the warm-up of 9 s: make warm_up_s less",)


def test_samples_say_what_happened_since_the_last(tmp_path: Path):
    """Through the warm-up too. What happens at the time of a sample is in it."""
    measures = played(tmp_path, f"sample_every_s = 1.0\nwarm_up_s = 1.5\n{LINE}")
    assert [sample.at_s for sample in measures.samples] == [1.0, 2.0, 3.0, 3.002]
    assert [sample.published for sample in measures.samples] == [1, 1, 1, 0]
    assert [sample.delivered for sample in measures.samples] == [0, 1, 0, 1]
    assert [sample.control for sample in measures.samples] == [2, 0, 0, 0]
    # The second link of the first is used after the sample at 1 s.
    assert [sample.link for sample in measures.samples] == [1, 1, 1, 1]
    assert [sample.filters for sample in measures.samples] == [3, 3, 3, 3]
    assert sum(sample.bytes for sample in measures.samples) == played(tmp_path, LINE).bytes


def test_tables_are_looked_at_each_second_and_at_the_end(tmp_path: Path):
    """Bob subscribes for less than a second between two looks: nobody sees that."""
    seen = LINE + '[[changes]]\nat_s = 1.5\nclient = "bob"\nid = "2"\nsubscribe = "x < 0"\n'
    assert played(tmp_path, seen).tables.filters == Size(largest=2, total=6)
    unseen = seen + '[[changes]]\nat_s = 1.7\nclient = "bob"\ncancel = "2"\n'
    assert played(tmp_path, unseen).tables.filters == Size(largest=1, total=3)


def test_a_run_ends_at_stop_s(tmp_path: Path):
    measures = played(tmp_path, f"stop_s = 2.5\n{LINE}")
    assert (measures.published, measures.delivered, measures.simulated_s) == (2, 1, 2.5)


# --- changes ------------------------------------------------------------------------------------


def change(at_s: float, **keys: str | bool) -> str:
    lines = (f"{name} = {'true' if value is True else repr(value)}" for name, value in keys.items())
    return "\n".join(["[[changes]]", f"at_s = {at_s}", *lines, ""])


@pytest.mark.parametrize(
    ("changes", "delivered"),
    [
        ((change(1.5, client="alice", id="2", subscribe="x < 5"),), 3),
        ((change(1.5, client="alice", cancel="1"),), 1),
        ((change(1.5, client="alice", unsubscribe="x > 0"),), 1),
        ((change(1.5, client="alice", unsubscribe="x > 6"),), 2),
        ((change(1.5, client="alice", disconnect=True),), 1),
        ((change(1.5, client="alice", disconnect=True), change(2.5, client="alice", connect="1")), 2),
        ((change(1.5, client="alice", suspend=True),), 1),
        ((change(1.5, client="alice", suspend=True), change(4.0, client="alice", resume=True)), 2),
        ((change(1.5, client="bob", disconnect=True),), 1),
    ],
)
def test_clients_change_what_they_want_at_a_time(tmp_path: Path, changes: Sequence[str], delivered: int):
    assert played(tmp_path, LINE + "".join(changes)).delivered == delivered


def test_a_name_means_a_client_or_all_of_a_table(tmp_path: Path):
    text = LINE.replace('name = "alice"', 'name = "alice"\ncount = 3')
    assert played(tmp_path, text + change(1.5, client="alice", cancel="1")).delivered == 3
    assert played(tmp_path, text + change(1.5, client="alice.1", cancel="1")).delivered == 5
    unnamed = text.replace('name = "alice"\n', "")
    assert played(tmp_path, unnamed + change(1.5, client="s0.2", cancel="1")).delivered == 5


def test_a_subscriber_may_have_changes_alone(tmp_path: Path):
    text = LINE.replace('filters = ["x > 5"]', "")
    pattern = "[x = 9] -> [x = 7]"
    assert played(tmp_path, text + change(0.5, client="alice", id="p", subscribe=pattern)).delivered == 1


def test_advertisements_change(tmp_path: Path):
    text = LINE.replace("siena acyclic", "siena advertising")
    run = ready_run(scenario_of(tmp_path, text))
    measures, notes = play_ready(run)
    assert (measures.refused, measures.delivered) == (3, 0)
    assert any("siena advertising refused 3" in note and "bob was told" in note for note in notes)
    offers = change(1.5, client="bob", advertise="x any") + change(2.5, client="bob", unadvertise="x any")
    later = played(tmp_path, text + offers)
    assert (later.refused, later.delivered) == (2, 0)
    always = played(tmp_path, text.replace('at = ["0"]', 'at = ["0"]\nadvertises = "x any"'))
    assert (always.refused, always.delivered) == (0, 2)


# --- placement ----------------------------------------------------------------------------------

MANY = """
network = "ring 5"
[[publishers]]
count = 5
distinct = true
attributes = { x = 1 }
[[subscribers]]
count = 5
at = ["2", "4"]
filters = ["x any"]
"""


def test_clients_are_where_the_scenario_puts_them(tmp_path: Path):
    homes = ready_run(scenario_of(tmp_path, MANY)).homes
    assert sorted(homes[f"p0.{number}"] for number in range(5)) == ["0", "1", "2", "3", "4"]
    assert [homes[f"s0.{number}"] for number in range(5)] == ["2", "4", "2", "4", "2"]


def test_placement_depends_on_the_seed_alone(tmp_path: Path):
    scenario = scenario_of(tmp_path, MANY.replace('at = ["2", "4"]', "").replace("ring 5", "ring 9"))
    runs = [ready_run(variant) for variant in variants(scenario, ["siena acyclic", "flooding", "centralized"], [1, 2])]
    by_seed = [{tuple(run.homes.items()) for run in runs if run.scenario.seed == seed} for seed in (1, 2)]
    assert [len(homes) for homes in by_seed] == [1, 1]
    assert by_seed[0] != by_seed[1]


# --- comparing ----------------------------------------------------------------------------------

DRAWN = """
network = "random 12"
[[publishers]]
count = 3
at = ["00"]
publications = 30
period_ms = [20, 90]
cycles = 2
roams_every_s = 0.5
attributes = { x = { from = 0, to = 10 }, kind = { one_of = ["a", "b"] } }
publish = [{ at_s = 0.25, x = 9.5, kind = "a" }]
[[subscribers]]
count = 10
filters = ["x > 5", "kind = 'b'"]
notifications = 4
cycles = 3
"""


class Recorder:
    """What was published, when and by whom."""

    def __init__(self) -> None:
        self.publications: list[tuple[int, str, dict[str, Value]]] = []

    def published(self, simulation: Simulation, client: SimClient, notification: Notification) -> None:
        self.publications.append((simulation.now, client.identity, dict(notification)))

    def delivered(self, simulation: Simulation, client: SimClient, delivery: Deliver | DeliverSequence) -> None:
        pass


def publications(scenario: Scenario) -> list[tuple[int, str, dict[str, Value]]]:
    run, recorder = ready_run(scenario), Recorder()
    behaviour = Behaviour(run, lambda done, total: None)
    simulation = Simulation(run.topology, run.make_core, seed=scenario.seed, observers=(recorder, behaviour))
    behaviour.set_up(simulation)
    simulation.settle()
    return recorder.publications


def test_publications_do_not_depend_on_the_system(tmp_path: Path):
    """Though subscribers react to what they get, and that comes at another time in each."""
    systems = ["siena acyclic", "siena general", "flooding", "centralized"]
    first, *others = [publications(variant) for variant in variants(scenario_of(tmp_path, DRAWN), systems)]
    assert len(first) == 3 * (2 * 30 + 1)
    assert all(other == first for other in others)
    assert first.count((250_000, "p0.0", {"x": 9.5, "kind": "a"})) == 1
    (other_seed,) = variants(scenario_of(tmp_path, DRAWN), seeds=[2])
    assert publications(other_seed) != first


def test_every_system_can_be_compared_on_a_hybrid_network(tmp_path: Path):
    """All that refuse nothing deliver the same, though they are at it quite differently."""
    text = LINE.replace('"line 3"', '"clusters-in-acyclic 3x3"').replace('"0"', '"net.0"').replace('"2"', '"b.1"')
    scenario = scenario_of(tmp_path, text.replace('name = "bob"', 'name = "bob"\nadvertises = "x any"'))
    delivered = {variant.routing: play(variant).delivered for variant in variants(scenario, list(SYSTEMS))}
    assert delivered == dict.fromkeys(SYSTEMS, 2)


def test_a_system_that_counts_links_says_if_brokers_are_too_far_apart(tmp_path: Path):
    far = scenario_of(tmp_path, LINE.replace("line 3", "line 17").replace('"0"', '"00"').replace('"2"', '"16"'))
    (plain,) = variants(far, ["propagation"])
    assert ready_run(plain).notes == (
        "propagation: brokers that are 16 links apart or more do not reach each other, and some are 16 apart: "
        "use --set infinity=17",
    )
    assert play(plain).delivered == 0
    (enough,) = variants(far, ["propagation"], assignments=["infinity=17"])
    assert ready_run(enough).notes == ()
    assert play(enough).delivered == 2


def test_a_system_that_needs_a_tree_says_so(tmp_path: Path):
    faults = '[[faults]]\nat_s = 1.0\ncut = ["1", "2"]\n[[faults]]\nat_s = 2.0\ncut = ["0", "1"]\n'
    run = ready_run(scenario_of(tmp_path, LINE.replace("line 3", "ring 3") + faults))
    assert run.is_on_spanning_tree
    assert "with 2 of 3 links" in run.notes[0]
    # The tree is that of least cost from broker 0, so one of the two links is left out.
    assert "the link between 1 and 2 is not in its tree" in run.notes[1]
    assert [fault.names for fault in run.faults] == [("0", "1")]
    whole = ready_run(scenario_of(tmp_path, LINE.replace("line 3", "ring 3").replace("acyclic", "general") + faults))
    assert (whole.is_on_spanning_tree, whole.notes, len(whole.faults)) == (False, (), 2)


# --- settings -----------------------------------------------------------------------------------


def test_settings_are_those_of_the_system(tmp_path: Path):
    text = LINE.replace('"siena acyclic"', '"siena merging"\nsettings = { merging = "none", batch_ms = 50 }')
    # At each hop but the first the change waits.
    assert played(tmp_path, text).convergence_ms == Convergence(mean=102.0, most=102.0)
    hierarchy = text.replace("settings = {", 'settings = { around = "hierarchical",')
    # Broker 0 is the root: alice's filter goes up to it, and every notification.
    assert played(tmp_path, hierarchy).control == {"Interest": 2}


def test_settings_are_assigned_to_those_that_have_them(tmp_path: Path):
    scenario = scenario_of(tmp_path, LINE)
    merging, acyclic = variants(scenario, ["siena merging", "siena acyclic"], (), ["merging=0.3", "batch_ms = 20"])
    assert (merging.settings, acyclic.settings) == ({"merging": 0.3, "batch_ms": 20}, {})
    (perfect,) = variants(merging, (), (), ["merging=perfect"])
    assert perfect.settings == {"merging": "perfect", "batch_ms": 20}
    (flooding,) = variants(perfect, ["flooding"])
    assert flooding.settings == {}


@pytest.mark.parametrize(
    ("systems", "text", "what"),
    [
        (["siena acyclic"], "merging=0.3", "use --routing with one of siena merging"),
        (["siena acyclic"], "colour=red", "there are none of siena acyclic"),
        (["siena merging"], "merging=often", "merging of siena merging"),
        (["siena merging"], "batch_ms", "write NAME=VALUE"),
        (["flooding", "flooding"], "batch_ms=1", "flooding twice"),
        (["pigeons"], "batch_ms=1", "there is no routing system 'pigeons'"),
    ],
)
def test_what_is_wrong_with_an_assignment(tmp_path: Path, systems: list[str], text: str, what: str):
    with pytest.raises(InputError, match=what):
        variants(scenario_of(tmp_path, LINE), systems, (), [text])


def test_what_all_publishers_draw_alike_is_expected(tmp_path: Path):
    text = """
        network = "line 2"
        routing = "siena merging"
        [[publishers]]
        attributes = { a = { from = 0, to = 10 }, b = "x", c = 1, d = { one_of = [1, 2] } }
        [[publishers]]
        attributes = { a = { from = 0, to = 10 }, c = 2, d = { one_of = [1, 2] }, e = 1979-05-27T07:32:00Z }
        publish = [{ at_s = 1.0, b = "x" }, { at_s = 1.0, d = 1 }]
        """
    scenario = scenario_of(tmp_path, text)
    expected = {"a": {"from": 0.0, "to": 10.0}, "b": {"one_of": ["x"]}}
    assert expected_of(scenario.publishers) == expected
    assert ready_run(scenario).settings == {"expected": expected}
    (told,) = variants(scenario, (), (), ["expected={ a = { one_of = [3] } }"])
    assert ready_run(told).settings == {"expected": {"a": {"one_of": [3]}}}


# --- what is wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        ("routing =", "core =", r"scenario.toml: there is no key 'core'; the keys are network, routing"),
        ('name = "bob"', 'nmae = "bob"', r"\[\[publishers\]\] 1: there is no key 'nmae'; the keys are count, name"),
        ('name = "bob"', "count = 0", r"\[\[publishers\]\] 1: count: Expected `int` >= 1"),
        ('at = ["0"]', 'at = ["7"]', r"clients bob: at: there is no broker '7'; brokers are 0, 1, 2"),
        ('at = ["0"]', "count = 4\ndistinct = true", "clients bob: distinct: 4 clients .* 3 brokers"),
        ('at = ["0"]', 'at = ["0", "0"]\ncount = 2\ndistinct = true', "1 brokers in at"),
        ("at_s = 1.0, x", "x", r"\[\[publishers\]\] 1: publish, number 1: at_s says when"),
        ("x = 9", "x = []", r"publish, number 1: .*list"),
        ("publish =", "publications = 3 #", "have attributes that they draw, or publish"),
        ('filters = ["x > 5"]', 'filters = ["x >"]', r"\[\[subscribers\]\] 1: filters: .*line 1"),
        ('filters = ["x > 5"]', "", "a name by which"),
        ('name = "alice"', 'name = "bob"', "two clients are named 'bob'"),
        ('network = "line 3"', 'network = "line 3"\nwarm_up_s = 9\nstop_s = 5', "stop it later"),
        ('network = "line 3"', 'network = "line 3"\nsettings = { center = "1" }', "it has no settings"),
        ('routing = "siena acyclic"', 'routing = "siena hybrid"', r"needs a network of units.*\[\[units\]\]"),
        (
            'routing = "siena acyclic"',
            'routing = "siena merging"\nsettings = { batch_ms = "long" }',
            "batch_ms of siena merging",
        ),
        (
            'routing = "siena acyclic"',
            'routing = "siena hierarchical"\nsettings = { master = "1" }',
            "master of siena hierarchical follows from a broker's place",
        ),
        (
            'routing = "siena acyclic"',
            'routing = "centralized"\nsettings = { center = "9" }',
            "center of centralized: there is no broker '9'",
        ),
    ],
)
def test_what_is_wrong_with_a_scenario(tmp_path: Path, before: str, after: str, what: str):
    assert before in LINE
    with pytest.raises(InputError, match=what):
        ready_run(scenario_of(tmp_path, LINE.replace(before, after)))


@pytest.mark.parametrize(
    ("table", "what"),
    [
        (change(1.0, client="carol", cancel="1"), "there is no client 'carol'; the groups of clients are bob, alice"),
        (change(1.0, client="alice"), r"\[\[changes\]\] 1: a change is one of subscribe, cancel"),
        (change(1.0, client="alice", cancel="1", suspend=True), "a table of its own"),
        (change(1.0, client="alice", subscribe="x > 7"), "a new subscription has an id"),
        (change(1.0, client="alice", cancel="1", id="1"), "others have none"),
        (change(1.0, client="alice", id="2", subscribe="x >"), r"\[\[changes\]\] 1: subscribe: .*line 1"),
        (change(1.0, client="alice", connect="9"), r"\[\[changes\]\] at 1.0 s: connect: there is no broker '9'"),
        (change(-1.0, client="alice", cancel="1"), r"\[\[changes\]\] 1: at_s: Expected `float` >= 0"),
        ('[[faults]]\nat_s = 1.0\ncut = ["0", "2"]', r"no link between 0 and 2; 0 has links to 1"),
        ('[[faults]]\nat_s = 1.0\ncrash = "9"', r"\[\[faults\]\] at 1.0 s: crash: there is no broker '9'"),
        ("[[faults]]\nat_s = 1.0", r"\[\[faults\]\] 1: a fault is one of cut, heal, crash, restart"),
        ("[links]\nloss = 2.0", "links: a link's shares"),
        ('[links]\ntransport = "pigeon"', r"\[links\]: transport: Invalid enum value 'pigeon'"),
    ],
)
def test_what_is_wrong_with_a_change_a_fault_or_links(tmp_path: Path, table: str, what: str):
    with pytest.raises(InputError, match=what):
        ready_run(scenario_of(tmp_path, f"{LINE}\n{table}"))
