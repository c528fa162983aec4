"""Filters without a normal form, in every place that compares filters: there a wider filter stands in for them."""

import pytest

from catchment import Advertisement, Filter
from catchment.cli import main
from catchment.routing.messages import Deliver
from catchment.routing.summary.ids import Schema
from catchment.routing.summary.summary import Summary
from catchment.sim.conformance.entries import ENTRIES
from catchment.sim.simulation import Simulation
from catchment.sim.topology import line

COUNT = 8
# With more parts than the budget allows, and with a constraint of which no set of values is known.
OPAQUE = 'a0 cidr "10.0.0.0/8" and a1 = 1'
TEXT = " and ".join(f"(a{i} > 0 or b{i} < 0)" for i in range(COUNT))
GOOD = {f"a{i}": 1 for i in range(COUNT)}
# The wider filter lets it through: it looks at some of the parts only.
NEAR = GOOD | {f"a{COUNT - 1}": 0}
FAR = {"a0": 0}
OFFERED = Advertisement(", ".join(f"a{i} any" for i in range(COUNT)))
CASES = [
    pytest.param(TEXT, (GOOD, NEAR, FAR), id="many parts"),
    pytest.param(OPAQUE, ({"a0": "10.0.0.7", "a1": 1}, {"a0": "10.0", "a1": 1}, {"a0": "1", "a1": 1}), id="opaque"),
]


@pytest.mark.parametrize(("text", "rows"), CASES)
def test_the_wider_filter_lets_through_what_the_filter_matches(text, rows):
    filter = Filter(text)
    assert not filter.is_normal
    assert filter.routed.is_normal
    assert [filter.matches(row) for row in rows] == [True, False, False]
    assert [filter.routed.matches(row) for row in rows] == [True, True, False]


@pytest.mark.parametrize(("text", "rows"), CASES)
@pytest.mark.parametrize("name", [name for name in ENTRIES if "hybrid" not in name])
def test_clients_get_exactly_what_they_want(name, text, rows):
    simulation = Simulation(line(3), ENTRIES[name].make_core(line(3)))
    simulation.connect("alice", "0")
    simulation.connect("bob", "2")
    simulation.advertise("bob", OFFERED)
    simulation.subscribe("alice", "1", Filter(text))
    simulation.subscribe("bob", "1", Filter(text))
    simulation.settle()
    for row in rows:
        simulation.publish("bob", row)
    simulation.settle()
    for client in ("alice", "bob"):
        deliveries = [each for each in simulation.clients[client].received if isinstance(each, Deliver)]
        assert [dict(each.notification) for each in deliveries] == [rows[0]]
    if (converge := ENTRIES[name].converge) is not None:
        converge(simulation)
    assert list(ENTRIES[name].tables(simulation)) == []
    simulation.unsubscribe("alice", Filter(text))
    simulation.cancel("bob", "1")
    simulation.unadvertise("bob", OFFERED)
    simulation.settle()
    assert [left for core in simulation.cores.values() if core is not None for left in core.leftovers()] == []


def test_a_summary_misses_nothing():
    summary = Summary.of(1, {7: Filter(TEXT)}, Schema())
    assert [id.number for id in summary.matches(GOOD)] == [7]
    assert not summary.is_exact


def test_check_says_how_it_is_routed(capsys):
    assert main(["check", TEXT]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "by a wider filter" in out
    assert main(["check", "a > 1 or b < 2"]) == 0
    assert "exact: brokers compare it" in " ".join(capsys.readouterr().out.split())
