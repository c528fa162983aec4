"""The centralized baseline, message by message and on a simulated network."""

from catchment import Filter, Notification, Pattern
from catchment.routing.baselines.centralized import CentralizedCore, Registry
from catchment.routing.baselines.messages import AddressedHeader, Registration
from catchment.routing.core import Table
from catchment.routing.messages import (
    Cancel,
    Client,
    ClientDown,
    Deliver,
    Forward,
    LinkUp,
    Neighbor,
    Refuse,
    Routed,
    Send,
    Subscribe,
    Unsubscribe,
)
from catchment.routing.parts.link_states import Links
from catchment.sim.conformance.entries import ENTRIES
from catchment.sim.conformance.ideals.baselines import centralized_tables
from catchment.sim.simulation import Simulation
from catchment.sim.topology import line, ring

WIDE, NARROW = Filter("x > 0"), Filter("x > 5")
ALICE, BOB = Client("alice"), Client("bob")
CENTER, RELAY, LEAF = Neighbor("0"), Neighbor("1"), Neighbor("2")


def relay() -> CentralizedCore:
    """The middle of a line of three: 0, the center, is on one side, 2 on the other."""
    core = CentralizedCore("1", "0")
    for neighbor in (CENTER, LEAF):
        core.on_message(LinkUp(), neighbor, 1)
        core.on_message(Links(neighbor.name, 1, (("1", 1),)), neighbor, 1)
    return core


def center() -> CentralizedCore:
    core = CentralizedCore("0", "0")
    core.on_message(LinkUp(), RELAY, 1)
    core.on_message(Links("1", 1, (("0", 1), ("2", 1))), RELAY, 1)
    core.on_message(Links("2", 1, (("1", 1),)), RELAY, 1)
    return core


def copy_of(notification: Notification, hops: int, addressee: tuple[str, str] | None = None) -> Routed:
    return Routed(notification, AddressedHeader(hops, addressee))


def requests(action: object) -> tuple[object, ...]:
    assert isinstance(action, Send)
    assert action.interface == CENTER
    assert isinstance(action.message, Registration)
    return action.message.requests


def test_each_request_is_carried_to_the_center():
    core = relay()
    for id, filter in (("1", WIDE), ("2", NARROW)):
        (sent,) = core.on_message(Subscribe("alice", id, filter), ALICE, 2)
        assert requests(sent) == (Subscribe("alice", id, filter),)
    # Another client's, of the same: carried too.
    (sent,) = core.on_message(Subscribe("bob", "1", WIDE), BOB, 2)
    assert requests(sent) == (Subscribe("bob", "1", WIDE),)
    (sent,) = core.on_message(Unsubscribe("alice", WIDE), ALICE, 2)
    assert requests(sent) == (Cancel("alice", "1"), Cancel("alice", "2"))
    (sent,) = core.on_message(ClientDown(), BOB, 2)
    assert requests(sent) == (Cancel("bob", "1"),)


def test_a_refused_request_is_not_carried():
    (refused,) = relay().on_message(Cancel("alice", "1"), ALICE, 2)
    assert isinstance(refused, Refuse)


def test_a_relay_passes_on_what_is_not_for_it():
    core = relay()
    core.on_message(Subscribe("alice", "1", WIDE), ALICE, 2)
    notification = Notification({"x": 1}, source="p", seq=1)
    up = core.on_notifications([copy_of(notification, 1)], LEAF, 3)
    assert up == [Forward(CENTER, (copy_of(notification, 2),), is_relayed=True)]
    down = core.on_notifications([copy_of(notification, 3, ("2", "bob"))], CENTER, 3)
    assert down == [Forward(LEAF, (copy_of(notification, 4, ("2", "bob")),), is_relayed=True)]
    here = core.on_notifications([copy_of(notification, 3, ("1", "alice"))], CENTER, 3)
    assert here == [Deliver(ALICE, "alice", notification, ("1",))]


def test_a_copy_is_for_one_client():
    core = relay()
    core.on_message(Subscribe("alice", "1", WIDE), ALICE, 2)
    core.on_message(Subscribe("bob", "1", WIDE), BOB, 2)
    unnumbered = Notification({"x": 1})
    here = core.on_notifications([copy_of(unnumbered, 3, ("1", "bob"))], CENTER, 3)
    assert here == [Deliver(BOB, "bob", unnumbered, ("1",))]


def test_the_center_makes_a_copy_for_each_client_that_wants_it():
    core = center()
    core.on_message(Subscribe("carol", "1", WIDE), Client("carol"), 2)
    subscribed = (Subscribe("alice", "1", WIDE), Subscribe("alice", "2", NARROW), Subscribe("bob", "1", WIDE))
    assert core.on_message(Registration("2", 1, 1, True, subscribed), RELAY, 2) == []
    notification = Notification({"x": 7}, source="p", seq=1)
    delivered, *forwarded = core.on_notifications([copy_of(notification, 1)], RELAY, 3)
    assert isinstance(delivered, Deliver)
    assert delivered.identity == "carol"
    copies = [copy_of(notification, 2, ("2", identity)) for identity in ("alice", "bob")]
    assert forwarded == [Forward(RELAY, (copy,)) for copy in copies]
    assert len(core.registry.matcher) == 4


def test_what_does_not_follow_is_left_until_all_is_stated_anew():
    registry = Registry()
    registry.enter(Registration("2", 5, 1, True, (Subscribe("alice", "1", WIDE),)))
    registry.enter(Registration("2", 5, 3, False, (Cancel("alice", "1"),)))
    assert registry.of("2") == [("alice", "1")]
    registry.enter(Registration("2", 5, 4, True, (Subscribe("bob", "1", Pattern("[x > 1] -> [x > 2]")),)))
    assert registry.of("2") == [("bob", "1")]
    registry.enter(Registration("2", 5, 3, True, ()))
    assert registry.of("2") == [("bob", "1")]
    assert registry.wanting([Notification({"x": 2}), Notification({"x": 1})]) == [[("2", "bob")], []]
    # A broker that has lost its memory begins anew, with later links.
    registry.enter(Registration("2", 6, 1, True, ()))
    assert registry.of("2") == []


def test_links_that_are_not_on_the_path_say_nothing_about_it():
    core = relay()
    core.on_message(Subscribe("alice", "1", WIDE), ALICE, 2)
    assert core.on_message(Links("2", 2, (("1", 1), ("3", 1))), LEAF, 3) == [
        Send(CENTER, Links("2", 2, (("1", 1), ("3", 1))))
    ]
    again = core.on_message(Links("0", 2, (("1", 1),)), CENTER, 3)
    assert again[0] == Send(LEAF, Links("0", 2, (("1", 1),)))
    assert requests(again[1]) == (Subscribe("alice", "1", WIDE),)


def test_the_publishers_broker_sends_and_those_between_relay():
    core, notification = relay(), Notification({"x": 1}, source="alice", seq=1)
    core.on_message(Subscribe("alice", "1", WIDE), ALICE, 2)
    assert core.on_notifications([Routed(notification)], ALICE, 3) == [Forward(CENTER, (copy_of(notification, 1),))]


def test_a_core_says_what_it_holds():
    core = center()
    core.on_message(Subscribe("carol", "1", WIDE), Client("carol"), 2)
    core.on_message(Registration("2", 1, 1, True, (Subscribe("alice", "1", Pattern("[x > 1] -> [x > 2]")),)), RELAY, 2)
    tables = core.inspect().tables
    assert tables == (Table("@clients", 1, 5), Table("0", 1, 5), Table("2", 2, len("[x > 1] -> [x > 2]")))
    assert core.leftovers() == [
        "1 subscriptions of clients",
        "subscription 1 of carol at 0",
        "subscription 1 of alice at 2",
    ]
    core.on_message(Registration("2", 1, 2, False, (Cancel("alice", "1"),)), RELAY, 3)
    core.on_message(ClientDown(), Client("carol"), 3)
    assert core.inspect().tables == ()
    assert core.leftovers() == []


def test_nothing_works_without_the_center_until_it_is_back():
    simulation = Simulation(line(3), ENTRIES["centralized"].make_core(line(3)))
    for identity in ("alice", "bob"):
        simulation.connect(identity, "2")
    simulation.subscribe("alice", "1", WIDE)
    counts = []
    for step in ("settle", "crash", "restart"):
        simulation.settle() if step == "settle" else getattr(simulation, step)("0")
        simulation.settle()
        simulation.publish("bob", {"x": 1})
        simulation.settle()
        counts.append(len(simulation.clients["alice"].received))
    assert counts == [1, 1, 2]


def test_another_way_is_found_to_the_center():
    simulation = Simulation(ring(6), ENTRIES["centralized"].make_core(ring(6)))
    simulation.connect("alice", "1")
    simulation.subscribe("alice", "1", WIDE)
    simulation.connect("bob", "3")
    simulation.settle()
    simulation.cut("0", "1")
    simulation.cancel("alice", "1")
    simulation.subscribe("alice", "2", NARROW)
    simulation.settle()
    assert list(centralized_tables(simulation)) == []
    simulation.publish("bob", {"x": 7})
    simulation.settle()
    assert [action.subscriptions for action in simulation.clients["alice"].received if isinstance(action, Deliver)] == [
        ("2",)
    ]
