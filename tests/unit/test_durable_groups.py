"""Durable delivery in small worlds: groups, going back, relays, and whose a durable identity is."""

import pytest

from catchment.model.filter import Filter
from catchment.routing.durable.messages import CancelDurable, SubscribeDurable
from catchment.sim.durable import DurableSimulation
from catchment.sim.stores import DiskTimes
from catchment.sim.topology import line
from tests.unit.durable_world import publish, status_of, subscribed, values, world

# --- groups ---------------------------------------------------------------------------------------


def group_of(simulation: DurableSimulation, *members: str) -> None:
    for member in members:
        simulation.connect(member, "0")
    simulation.subscribe_group(members[0], "g", "a", Filter("x > 0"))
    simulation.settle()
    for member in members:
        simulation.join(member, "g")
    simulation.settle()
    assert not any(simulation.client(member).refused for member in members)


def test_a_group_shares_what_it_gets():
    simulation = world(line(2))
    group_of(simulation, "a", "b")
    simulation.connect("p", "1")
    publish(simulation, "p", *range(1, 11))
    simulation.settle()
    taken = [values(simulation, member) for member in ("a", "b")]
    assert sorted(taken[0] + taken[1]) == list(range(1, 11))
    assert all(taken)


def test_what_a_member_has_not_taken_goes_to_the_others():
    simulation = world(line(2))
    group_of(simulation, "a", "b")
    simulation.durable["a"].is_taking = False
    simulation.connect("p", "1")
    publish(simulation, "p", *range(1, 11))
    simulation.settle()
    assert simulation.durable["a"].waiting
    simulation.disconnect("a")
    simulation.settle()
    assert sorted(values(simulation, "b")) == list(range(1, 11))
    simulation.stores["1"].collect(simulation.now)
    assert status_of(simulation, "1").records == 0


def test_a_group_acknowledges_only_what_has_no_hole():
    simulation = world(line(1))
    group_of(simulation, "a", "b")
    simulation.durable["a"].is_taking = False
    simulation.connect("p", "0")
    publish(simulation, "p", 1, 2, 3, 4)
    simulation.settle()
    assert values(simulation, "b")
    assert status_of(simulation, "0").identities[0].acknowledged == 0


def test_members_of_a_group_are_at_one_broker():
    simulation = world(line(2))
    group_of(simulation, "a")
    simulation.connect("b", "1")
    simulation.join("b", "g")
    assert "are at 0: connect there" in str(simulation.client("b").refused[-1])
    simulation.leave("a", "g")
    simulation.settle()
    simulation.join("b", "g")
    simulation.connect("p", "0")
    publish(simulation, "p", 1)
    simulation.settle()
    assert values(simulation, "b") == [1]


# --- going back -----------------------------------------------------------------------------------


def test_an_identity_goes_back_to_an_epoch():
    simulation = world(line(2))
    subscribed(simulation, "s", "0", "x > 0")
    simulation.connect("p", "1")
    publish(simulation, "p", 1, 2, 3)
    simulation.settle()
    simulation.go_back("s", "log-1-2", 1)
    simulation.settle()
    assert values(simulation, "s") == [1, 2, 3, 2, 3]
    publish(simulation, "p", 4)
    simulation.settle()
    assert values(simulation, "s")[5:] == [4]


def test_an_identity_goes_back_to_a_time():
    simulation = world(line(2))
    subscribed(simulation, "s", "0", "x > 0")
    for broker in ("0", "1"):
        simulation.connect(f"p{broker}", broker)
        publish(simulation, f"p{broker}", 1)
        simulation.settle()
    simulation.advance(1_000_000)
    since = simulation.now
    for broker in ("0", "1"):
        publish(simulation, f"p{broker}", 2)
    simulation.settle()
    from catchment.sim.simulation import BEGINNING

    simulation.go_back("s", since=since + int(BEGINNING.timestamp()) * 1_000_000)
    simulation.settle()
    assert values(simulation, "s") == [1, 1, 2, 2, 2, 2]


def test_going_back_survives_a_crash_of_the_storage():
    simulation = world(line(2))
    subscribed(simulation, "s", "0", "x > 0")
    simulation.connect("p", "1")
    publish(simulation, "p", 1, 2)
    simulation.settle()
    simulation.crash("1")
    simulation.go_back("s", "log-1-2", 0)
    simulation.settle()
    simulation.restart("1")
    simulation.settle()
    assert values(simulation, "s") == [1, 2, 1, 2]


def test_an_identity_is_forgotten_everywhere():
    simulation = world(line(2))
    subscribed(simulation, "s", "0", "x > 0")
    simulation.durable["s"].is_taking = False
    simulation.connect("p", "1")
    publish(simulation, "p", 1)
    simulation.settle()
    simulation.crash("1")
    simulation.forget_identity("s")
    simulation.settle()
    simulation.restart("1")
    simulation.settle()
    for broker in ("0", "1"):
        simulation.stores[broker].collect(simulation.now)
        status = status_of(simulation, broker)
        assert (status.records, status.identities) == (0, ())
        core = simulation.core(broker)
        assert core is not None
        assert not core.leftovers()


def test_a_name_that_was_forgotten_may_subscribe_again():
    simulation = world(line(2))
    subscribed(simulation, "s", "0", "x > 0")
    simulation.forget_identity("s")
    simulation.settle()
    simulation.subscribe_durable("s", "new", Filter("x > 1"))
    simulation.settle()
    simulation.connect("p", "1")
    publish(simulation, "p", 1, 2)
    simulation.settle()
    assert values(simulation, "s") == [2]


# --- relays ---------------------------------------------------------------------------------------


def relayed(simulation: DurableSimulation) -> None:
    simulation.connect("s", "2")
    simulation.subscribe_durable("s", "a", Filter("x > 0"), via="1")
    simulation.settle()
    assert simulation.durable["s"].effective == {"a": ()}
    simulation.connect("p", "0")


def test_a_relay_serves_readers_that_are_never_connected_with_the_publisher():
    simulation = world(line(3))
    relayed(simulation)
    simulation.cut("1", "2")
    publish(simulation, "p", 1, 2)
    simulation.settle()
    simulation.stores["0"].collect(simulation.now)
    assert status_of(simulation, "0").records == 0
    simulation.crash("0")
    simulation.heal("1", "2")
    simulation.settle()
    assert values(simulation, "s") == [1, 2]
    assert simulation.durable["s"].taken[0].subscriptions == ("a",)
    simulation.stores["1"].collect(simulation.now)
    assert status_of(simulation, "1").records == 0


@pytest.mark.parametrize("after_us", range(0, 40_000, 1_700))
def test_a_relay_that_crashes_neither_loses_nor_doubles(after_us):
    simulation = world(line(3), disk=DiskTimes(3_000, 9_000))
    relayed(simulation)
    publish(simulation, "p", 1, 2)
    simulation.advance(after_us)
    simulation.crash("1", is_power_loss=True)
    publish(simulation, "p", 3)
    simulation.advance(5_000)
    simulation.restart("1")
    simulation.settle()
    assert values(simulation, "s") == [1, 2, 3]


def test_what_is_published_at_the_relay_is_served_by_it():
    simulation = world(line(3))
    relayed(simulation)
    simulation.connect("q", "1")
    publish(simulation, "q", 7)
    simulation.settle()
    assert values(simulation, "s") == [7]


def test_a_relay_is_a_broker_with_a_store():
    simulation = world(line(2), storages=("0",))
    simulation.connect("s", "0")
    simulation.subscribe_durable("s", "a", Filter("x > 0"), via="1")
    assert "a relay is a broker with a store" in str(simulation.client("s").refused[-1])


# --- names ----------------------------------------------------------------------------------------


def test_a_durable_identity_is_whoever_connects_under_its_name():
    simulation = world(line(1))
    simulation.connect("s", "0")
    for request in (
        SubscribeDurable("other", "a", Filter("x > 0")),
        CancelDurable("other", "a"),
        SubscribeDurable("@relay/0", "a", Filter("x > 0"), is_group=True),
    ):
        simulation.ask("s", request)
        assert len(simulation.client("s").refused) == 1, request
        simulation.client("s").refused.clear()
    core = simulation.core("0")
    assert core is not None
    assert not core.leftovers()
