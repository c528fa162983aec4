"""Durable delivery, rule by rule, in small worlds: brokers on a simulated network, with stores and clients."""

import pytest

from catchment.model.filter import Filter
from catchment.sim.topology import line, ring
from tests.unit.durable_world import SLOW_DISK, publish, received_values, status_of, subscribed, values, world

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
