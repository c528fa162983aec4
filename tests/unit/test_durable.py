"""Durable delivery, rule by rule, in small worlds: brokers on a simulated network, with stores and clients."""

from typing import Any

import pytest

from catchment.model.filter import Filter
from catchment.routing.durable.messages import BETWEEN_STORAGES, CancelDurable, SubscribeDurable
from catchment.routing.messages import Deliver
from catchment.routing.systems import system_named
from catchment.sim.durable import Durability, DurableSimulation
from catchment.sim.stores import DiskTimes
from catchment.sim.topology import Topology, line, ring
from catchment.store.interface import StoreStatus
from catchment.wire.messages import between_brokers

SLOW_DISK = DiskTimes(10_000, 10_000)


def world(topology: Topology, storages: tuple[str, ...] | None = None, **options) -> DurableSimulation:
    system = system_named("siena general")
    make = system.maker()
    language = between_brokers((*system.messages, *BETWEEN_STORAGES), system.header)
    disk = options.pop("disk", DiskTimes())
    durability = Durability(storages=storages, disk=disk, **options)
    simulation = DurableSimulation(
        topology,
        lambda name: make(name, system.settings_of({})),
        durability,
        language=language,
        occurrences_max=200_000,
    )
    simulation.settle()
    return simulation


def subscribed(simulation: DurableSimulation, identity: str, broker: str, *filters: str) -> None:
    simulation.connect(identity, broker)
    for id, text in enumerate(filters):
        simulation.subscribe_durable(identity, str(id), Filter(text))
    simulation.settle()
    assert not simulation.client(identity).refused


def status_of(simulation: DurableSimulation, broker: str) -> StoreStatus:
    store = simulation.stores[broker].store
    assert store is not None
    return store.status()


def values(simulation: DurableSimulation, identity: str) -> list[Any]:
    """What the application has taken, in order."""
    return [got.notification["x"] for got in simulation.durable_client(identity).taken]


def received_values(simulation: DurableSimulation, identity: str) -> list[Any]:
    """What a transient subscriber was delivered."""
    return [each.notification["x"] for each in simulation.client(identity).received if isinstance(each, Deliver)]


def publish(simulation: DurableSimulation, identity: str, *xs: int) -> None:
    for x in xs:
        simulation.publish_stored(identity, {"x": x})


# --- publishing -----------------------------------------------------------------------------------


def test_a_publication_is_confirmed_only_when_it_is_stored():
    simulation = world(line(1), disk=SLOW_DISK)
    simulation.connect("p", "0")
    simulation.settle()
    publish(simulation, "p", 1)
    simulation.advance(9_999)
    assert [confirm.seq for confirm in simulation.durable["p"].confirms] == []
    simulation.advance(1)
    assert [confirm.seq for confirm in simulation.durable["p"].confirms] == [1]


def test_nothing_is_delivered_before_it_is_stored():
    simulation = world(line(1), disk=SLOW_DISK)
    subscribed(simulation, "s", "0", "x > 0")
    simulation.connect("p", "0")
    publish(simulation, "p", 1)
    simulation.advance(9_999)
    assert not simulation.durable["s"].waiting
    simulation.settle()
    assert values(simulation, "s") == [1]


def test_what_is_not_confirmed_is_published_again_and_stored_once():
    simulation = world(line(1), disk=SLOW_DISK)
    subscribed(simulation, "s", "0", "x > 0")
    simulation.connect("p", "0")
    publish(simulation, "p", 1, 2)
    simulation.advance(5_000)
    simulation.crash("0")
    simulation.restart("0")
    simulation.settle()
    assert values(simulation, "s") == [1, 2]
    assert not simulation.durable["p"].unkept


@pytest.mark.parametrize("is_power_loss", [False, True])
def test_what_was_confirmed_survives(is_power_loss):
    simulation = world(line(1))
    subscribed(simulation, "s", "0", "x > 0")
    simulation.disconnect("s")
    simulation.connect("p", "0")
    publish(simulation, "p", 1, 2, 3)
    simulation.settle()
    assert not simulation.durable["p"].unkept
    simulation.crash("0", is_power_loss)
    simulation.restart("0")
    simulation.connect("s", "0")
    simulation.settle()
    assert values(simulation, "s") == [1, 2, 3]


def test_publications_that_nobody_waits_for_are_kept_too():
    simulation = world(line(1))
    subscribed(simulation, "s", "0", "x > 0")
    simulation.disconnect("s")
    simulation.connect("p", "0")
    for x in (0, 1, 2):
        simulation.publish("p", {"x": x})
    simulation.settle()
    simulation.connect("s", "0")
    simulation.settle()
    assert values(simulation, "s") == [1, 2]


def test_transient_subscribers_get_stored_publications_at_once_and_once():
    simulation = world(line(2), disk=SLOW_DISK)
    simulation.connect("t", "1")
    simulation.subscribe("t", "a", Filter("x > 0"))
    simulation.connect("p", "0")
    simulation.settle()
    publish(simulation, "p", 1)
    simulation.advance(2_000)
    assert received_values(simulation, "t") == [1]
    # The connection is lost before it is confirmed: it is published again.
    simulation.connect("p", "0")
    simulation.settle()
    assert not simulation.durable["p"].unkept
    assert len(simulation.client("t").received) == 1


def test_a_broker_without_a_store_offers_publications_to_the_nearest():
    simulation = world(line(4), storages=("1", "3"))
    subscribed(simulation, "s", "0", "x > 0")
    simulation.connect("p", "0")
    publish(simulation, "p", 1, 2)
    simulation.settle()
    assert values(simulation, "s") == [1, 2]
    assert {confirm.storage for confirm in simulation.durable["p"].confirms} == {"1"}


def test_an_offer_that_is_lost_is_made_again():
    simulation = world(line(3), storages=("2",))
    subscribed(simulation, "s", "2", "x > 0")
    simulation.connect("p", "0")
    publish(simulation, "p", 1)
    simulation.advance(1_500)  # Between broker 1 and the storage.
    simulation.cut("1", "2")
    simulation.advance(50_000)
    publish(simulation, "p", 2)
    simulation.heal("1", "2")
    simulation.settle()
    assert values(simulation, "s") == [1, 2]
    assert not simulation.durable["p"].unkept


def test_a_publisher_keeps_its_storage_until_everything_is_taken():
    simulation = world(line(2))
    subscribed(simulation, "s", "0", "x > 0")
    simulation.durable["s"].is_taking = False
    simulation.connect("p", "0")
    publish(simulation, "p", 1)
    simulation.settle()
    simulation.connect("p", "1")
    publish(simulation, "p", 2)
    simulation.settle()
    assert {confirm.storage for confirm in simulation.durable["p"].confirms} == {"0"}
    simulation.take_all("s")
    simulation.settle()
    # It hears that all is taken when it connects, and goes to the storage of its broker the time after that.
    simulation.connect("p", "1")
    simulation.settle()
    simulation.connect("p", "1")
    publish(simulation, "p", 3)
    simulation.settle()
    simulation.take_all("s")
    assert values(simulation, "s") == [1, 2, 3]
    assert simulation.durable["p"].confirms[-1].storage == "1"


def test_a_publisher_whose_storage_is_gone_waits():
    simulation = world(line(2))
    subscribed(simulation, "s", "1", "x > 0")
    simulation.durable["s"].is_taking = False
    simulation.connect("p", "0")
    publish(simulation, "p", 1)
    simulation.settle()
    simulation.crash("0")
    simulation.connect("p", "1")
    publish(simulation, "p", 2)
    simulation.advance(20_000)
    assert "cannot be reached" in str(simulation.client("p").refused[-1])
    simulation.restart("0")
    simulation.durable["s"].is_taking = True
    simulation.take_all("s")
    simulation.settle()
    assert values(simulation, "s") == [1, 2]


# --- subscribing ----------------------------------------------------------------------------------


def test_a_subscription_takes_effect_when_all_storages_have_stored_it():
    simulation = world(line(3), disk=SLOW_DISK)
    simulation.connect("s", "0")
    simulation.subscribe_durable("s", "a", Filter("x > 0"))
    # Two links to the last storage, its disk, two links back.
    simulation.advance(13_999)
    assert "a" not in simulation.durable["s"].effective
    simulation.advance(1)
    assert simulation.durable["s"].effective == {"a": ()}


def test_storages_that_cannot_be_reached_are_missing_and_learn_it_later():
    simulation = world(line(3))
    simulation.cut("1", "2")
    simulation.settle()
    subscribed(simulation, "s", "0", "x > 0")
    assert simulation.durable["s"].effective == {"0": ("2",)}
    simulation.heal("1", "2")
    simulation.settle()
    simulation.connect("p", "2")
    publish(simulation, "p", 1)
    simulation.settle()
    assert values(simulation, "s") == [1]


def test_an_edit_keeps_the_cursor():
    simulation = world(line(1))
    subscribed(simulation, "s", "0", "x < 5")
    simulation.disconnect("s")
    simulation.connect("p", "0")
    publish(simulation, "p", 1, 7)
    simulation.settle()
    simulation.connect("s", "0")
    simulation.durable["s"].is_taking = False
    simulation.subscribe_durable("s", "0", Filter("x > 5"))
    simulation.settle()
    publish(simulation, "p", 2, 8)
    simulation.settle()
    simulation.take_all("s")
    assert values(simulation, "s") == [1, 8]


def test_what_was_published_before_a_cancellation_is_delivered():
    simulation = world(line(1))
    subscribed(simulation, "s", "0", "x > 0")
    simulation.durable["s"].is_taking = False
    simulation.connect("p", "0")
    publish(simulation, "p", 1)
    simulation.settle()
    simulation.cancel_durable("s", "0")
    simulation.settle()
    publish(simulation, "p", 2)
    simulation.settle()
    simulation.take_all("s")
    assert values(simulation, "s") == [1]
    assert simulation.durable["s"].effective == {"0": ()}


def test_a_cancelled_subscription_does_not_come_back_with_a_storage_that_was_away():
    simulation = world(line(2))
    subscribed(simulation, "s", "0", "x > 0")
    simulation.crash("1")
    simulation.settle()
    simulation.cancel_durable("s", "0")
    simulation.settle()
    simulation.restart("1")
    simulation.settle()
    assert all(core is not None and not core.leftovers() for core in simulation.cores.values())


def test_subscriptions_are_all_durable_or_none():
    simulation = world(line(1))
    subscribed(simulation, "s", "0", "x > 0")
    simulation.subscribe("s", "other", Filter("x > 0"))
    assert "all of an identity are, or none" in str(simulation.client("s").refused[-1])
    simulation.connect("t", "0")
    simulation.subscribe("t", "a", Filter("x > 0"))
    simulation.subscribe_durable("t", "b", Filter("x > 0"))
    assert "all of an identity are, or none" in str(simulation.client("t").refused[-1])


def test_without_a_store_nothing_is_durable():
    simulation = world(line(2), storages=())
    simulation.connect("s", "0")
    simulation.subscribe_durable("s", "a", Filter("x > 0"))
    assert "no broker of this network has a store" in str(simulation.client("s").refused[-1])


# --- reading --------------------------------------------------------------------------------------


def test_a_reader_roams_while_its_last_broker_is_dead():
    simulation = world(ring(4))
    subscribed(simulation, "s", "1", "x > 0")
    simulation.connect("p", "3")
    publish(simulation, "p", 1, 2)
    simulation.settle()
    simulation.crash("1")
    publish(simulation, "p", 3)
    simulation.connect("s", "2")
    simulation.settle()
    assert values(simulation, "s") == [1, 2, 3]


def test_what_was_given_and_not_taken_comes_again():
    simulation = world(line(2))
    subscribed(simulation, "s", "0", "x > 0")
    simulation.durable["s"].is_taking = False
    simulation.connect("p", "1")
    publish(simulation, "p", 1, 2)
    simulation.settle()
    assert len(simulation.durable["s"].waiting) == 2
    simulation.connect("s", "1")
    simulation.durable["s"].is_taking = True
    simulation.take_all("s")
    simulation.settle()
    assert values(simulation, "s") == [1, 2]


def test_a_client_that_forgets_gets_what_is_not_acknowledged():
    simulation = world(line(1))
    subscribed(simulation, "s", "0", "x > 0")
    simulation.connect("p", "0")
    publish(simulation, "p", 1)
    simulation.settle()
    simulation.durable["s"].is_taking = False
    publish(simulation, "p", 2)
    simulation.settle()
    simulation.disconnect("s")
    simulation.forget("s")
    simulation.durable["s"].is_taking = True
    simulation.connect("s", "0")
    simulation.settle()
    assert values(simulation, "s") == [1, 2]


def test_a_reader_that_takes_nothing_is_sent_no_more_than_a_window():
    simulation = world(line(2))
    subscribed(simulation, "s", "0", "x > 0")
    simulation.durable["s"].is_taking = False
    simulation.connect("p", "1")
    publish(simulation, "p", *range(1, 601))
    simulation.settle()
    assert len(simulation.durable["s"].waiting) == 256
    simulation.durable["s"].is_taking = True
    simulation.take_all("s")
    simulation.settle()
    assert values(simulation, "s") == list(range(1, 601))


def test_a_client_that_is_behind_loses_nothing():
    simulation = world(line(1))
    subscribed(simulation, "s", "0", "x > 0")
    simulation.fall_behind("s")
    simulation.connect("p", "0")
    publish(simulation, "p", 1, 2)
    simulation.settle()
    assert values(simulation, "s") == [1, 2]
    assert simulation.client("s").missed == 0


def test_a_lost_span_is_asked_for():
    simulation = world(line(3))
    subscribed(simulation, "s", "0", "x > 0")
    simulation.connect("p", "2")
    publish(simulation, "p", 1)
    simulation.settle()
    publish(simulation, "p", 2)
    store = simulation.stores["2"]
    while not any(entry.epoch == 2 for entry in _read(store)):
        simulation.advance(100)
    simulation.cut("0", "1")  # The span is on its way.
    simulation.heal("0", "1")
    publish(simulation, "p", 3)
    simulation.settle()
    assert values(simulation, "s") == [1, 2, 3]


def _read(store):
    from catchment.routing.stored import Fetch

    return store.store.read(Fetch("s", 0, 100)).entries


def test_an_identity_is_served_where_it_connected_last():
    simulation = world(line(3))
    subscribed(simulation, "s", "0", "x > 0")
    simulation.cut("0", "1")
    simulation.settle()
    # Broker 0 does not hear that its client is elsewhere now.
    simulation.client("s").home = None
    simulation.client("s").is_connected = False
    simulation.connect("s", "2")
    simulation.heal("0", "1")
    simulation.settle()
    core = simulation.core("0")
    assert core is not None
    assert core.table.place("s").broker == "2"
    simulation.connect("p", "0")
    publish(simulation, "p", 1)
    simulation.settle()
    assert values(simulation, "s") == [1]


def test_a_new_log_is_told():
    simulation = world(line(2))
    subscribed(simulation, "s", "0", "x > 0")
    simulation.connect("p", "1")
    publish(simulation, "p", 1)
    simulation.settle()
    simulation.crash("1")
    simulation.lose_disk("1")
    simulation.restart("1")
    simulation.settle()
    assert [(lost.storage, lost.log) for lost in simulation.durable["s"].lost_logs] == [("1", "log-1-2")]
    # A client that comes later, with a position in the log that is gone, is told too.
    simulation.connect("s", "0")
    assert len(simulation.durable["s"].lost_logs) == 2


def test_a_client_that_knows_more_than_the_storage_raises_an_alarm():
    simulation = world(line(1))
    subscribed(simulation, "s", "0", "x > 0")
    simulation.durable["s"].positions["log-0-1"] = 100
    simulation.connect("s", "0")
    simulation.settle()
    core = simulation.core("0")
    assert core is not None
    assert "records are lost" in core.alarms[0]


# --- stores ---------------------------------------------------------------------------------------


def test_a_full_store_refuses_what_durable_identities_are_due():
    simulation = world(line(1))
    subscribed(simulation, "s", "0", "x > 0")
    simulation.connect("t", "0")
    simulation.subscribe("t", "a", Filter("x any"))
    simulation.connect("p", "0")
    simulation.stores["0"].disk.fill()
    publish(simulation, "p", 1)
    simulation.advance(30_000)
    assert "takes nothing now" in str(simulation.client("p").refused[-1])
    simulation.connect("q", "0")
    assert simulation.publish("q", {"x": 5}) is not None
    assert "takes nothing now" in str(simulation.client("q").refused[-1])
    simulation.publish("q", {"x": -5})
    assert received_values(simulation, "t")[-1] == -5
    simulation.stores["0"].disk.free()
    simulation.advance(500_000)
    simulation.settle()
    assert values(simulation, "s") == [1]
    assert not simulation.durable["p"].unkept


def test_a_broken_store_is_down_until_the_broker_starts_again():
    simulation = world(line(1))
    subscribed(simulation, "s", "0", "x > 0")
    simulation.connect("p", "0")
    simulation.stores["0"].disk.fail()
    publish(simulation, "p", 1)
    simulation.advance(100_000)
    assert simulation.durable["p"].unkept
    simulation.crash("0")
    simulation.stores["0"].disk.repair()
    simulation.restart("0")
    simulation.settle()
    assert values(simulation, "s") == [1]


def test_records_are_collected_when_everybody_has_taken_them():
    simulation = world(line(1))
    subscribed(simulation, "s", "0", "x > 0")
    subscribed(simulation, "t", "0", "x > 1")
    simulation.disconnect("t")
    simulation.connect("p", "0")
    publish(simulation, "p", 1, 2, 3)
    simulation.settle()
    simulation.stores["0"].collect(simulation.now)
    assert status_of(simulation, "0").records == 2
    simulation.connect("t", "0")
    simulation.settle()
    simulation.stores["0"].collect(simulation.now)
    assert status_of(simulation, "0").records == 0
    assert values(simulation, "t") == [2, 3]


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
