"""Who may ask for something and publish under which name: names belong to who uses them first."""

import pytest

from catchment import Advertisement, Filter, Notification
from catchment.errors import BadIdError, BadNumberError, ForeignIdentityError
from catchment.model.names import name_refusal
from catchment.model.pattern import IDENTITY_CODEPOINTS_MAX
from catchment.node import Node
from catchment.routing.messages import (
    Advertise,
    Cancel,
    Client,
    ClientRequest,
    MapIdentity,
    Resume,
    Subscribe,
    Suspend,
    Unadvertise,
    Unsubscribe,
)
from catchment.routing.siena.acyclic import AcyclicCore
from tests.unit.test_node import ALICE, ALL, BOB, Outlet, come, node_of

CAROL, HTTP = Client("carol"), Client("@http")
RESERVED_NAMES = ["@http", "@http/sold", "@", "*", "a\nb", "a\rb", "\x00", "\x1b[2J", "\u2028", "\x85"]


@pytest.fixture
def broker() -> Node:
    return node_of(AcyclicCore("1"))


def refused(broker: Node, client: Client, request: ClientRequest) -> list[type]:
    return [type(refusal.error) for refusal in broker.ask(client, request)]


def requests_for(identity: str) -> list[ClientRequest]:
    offer = Advertisement("x any")
    return [
        Subscribe(identity, "more", ALL),
        Unsubscribe(identity, ALL),
        Cancel(identity, "all"),
        Advertise(identity, offer),
        Unadvertise(identity, offer),
        MapIdentity(identity, "bob"),
        Suspend(identity),
        Resume(identity),
    ]


def published(
    broker: Node, client: Client, x: int = 1, source: str | None = None, seq: int | None = None
) -> list[type]:
    refusals = broker.publish(client, [Notification({"x": x}, source=source, seq=seq)])
    return [type(refusal.error) for refusal in refusals]


# --- identities ---------------------------------------------------------------------------------


@pytest.mark.parametrize("identity", ["alice", "alice's own"])
@pytest.mark.parametrize("place", range(8))
def test_nobody_speaks_for_the_identity_of_another(broker: Node, identity: str, place: int):
    outlet = come(broker)
    come(broker, BOB, wanted=None)
    if identity != "alice":
        assert broker.ask(ALICE, Subscribe(identity, "all", ALL)) == []
    assert refused(broker, BOB, requests_for(identity)[place]) == [ForeignIdentityError]
    assert published(broker, BOB, 7) == []
    # Nothing has changed: whatever Alice wanted is delivered to her.
    deliveries = outlet.taken()
    assert deliveries == [("delivered", 7)] * (1 if identity == "alice" else 2)
    assert broker.totals.refused == 1


@pytest.mark.parametrize("place", range(8))
def test_nobody_speaks_for_a_subscription_over_http(broker: Node, place: int):
    over_http = Client("@http/sold")
    outlet = come(broker, over_http)
    come(broker, BOB, wanted=None)
    assert refused(broker, BOB, requests_for(over_http.name)[place]) == [ForeignIdentityError]
    assert published(broker, BOB, 7) == []
    assert outlet.taken() == [("delivered", 7)]


def test_nothing_is_mapped_to_a_subscription_over_http(broker: Node):
    come(broker, Client("@http/sold"))
    come(broker)
    assert refused(broker, ALICE, MapIdentity("alice", "@http/sold")) == [BadIdError]


def test_owner_and_handler_speak_for_an_identity_that_is_mapped(broker: Node):
    come(broker)
    phone = come(broker, BOB, wanted=None)
    come(broker, CAROL, wanted=None)
    assert broker.ask(ALICE, Subscribe("shared", "all", ALL)) == []
    assert broker.ask(ALICE, MapIdentity("shared", "bob")) == []
    for client in (ALICE, BOB):
        assert broker.ask(client, Suspend("shared")) == []
        assert broker.ask(client, Resume("shared")) == []
        assert published(broker, client, source="shared") == []
    assert phone.taken() == [("delivered", 1)] * 2
    assert refused(broker, CAROL, Suspend("shared")) == [ForeignIdentityError]
    # Only the owner maps it again.
    assert refused(broker, BOB, MapIdentity("shared", "carol")) == [ForeignIdentityError]
    assert broker.ask(ALICE, MapIdentity("shared", "carol")) == []
    assert refused(broker, BOB, Suspend("shared")) == [ForeignIdentityError]


def test_an_owner_that_comes_back_is_the_owner_again(broker: Node):
    come(broker)
    come(broker, BOB, wanted=None)
    assert broker.ask(ALICE, Subscribe("shared", "all", ALL)) == []
    assert broker.ask(ALICE, MapIdentity("shared", "bob")) == []
    broker.client_down(ALICE)
    assert refused(broker, BOB, MapIdentity("shared", "bob")) == [ForeignIdentityError]
    come(broker)
    assert broker.ask(ALICE, MapIdentity("shared", "alice")) == []
    broker.client_down(ALICE)
    # Now it is gone with its handler, and anybody may introduce it.
    assert broker.ask(BOB, Subscribe("shared", "all", ALL)) == []


def test_a_request_that_is_refused_or_ends_nothing_introduces_nobody(broker: Node):
    come(broker)
    assert refused(broker, ALICE, Cancel("nobody", "s")) == [BadIdError]
    for request in (Unsubscribe("nobody", ALL), Unadvertise("nobody", Advertisement("x any")), Resume("nobody")):
        assert broker.ask(ALICE, request) == []
    assert "nobody" not in broker.core.clients
    assert set(broker.core.clients.owned_by(ALICE)) == {"alice"}


def test_nobody_connects_under_an_identity_of_another(broker: Node):
    come(broker)
    assert broker.ask(ALICE, Suspend("bob")) == []
    assert "identity of another client" in broker.access.name_refusal(BOB)
    assert broker.access.name_refusal(ALICE) == broker.access.name_refusal(CAROL) == ""
    broker.client_down(ALICE)
    assert broker.access.name_refusal(BOB) == ""


def test_a_client_keeps_its_name_when_the_handler_of_its_identity_goes(broker: Node):
    come(broker)
    come(broker, BOB, wanted=None)
    come(broker, CAROL, wanted=None)
    assert broker.ask(ALICE, MapIdentity("alice", "bob")) == []
    broker.client_down(BOB)
    assert refused(broker, CAROL, Suspend("alice")) == [ForeignIdentityError]
    assert published(broker, CAROL, source="alice") == [ForeignIdentityError]
    assert broker.ask(ALICE, Subscribe("alice", "again", ALL)) == []


@pytest.mark.parametrize("name", RESERVED_NAMES)
def test_reserved_names_are_refused_as_identities_and_as_sources(broker: Node, name: str):
    come(broker, wanted=None)
    for request in requests_for(name):
        assert refused(broker, ALICE, request) == [BadIdError]
    assert published(broker, ALICE, source=name) == [BadIdError]
    assert name_refusal(name)


def test_a_source_is_not_longer_than_a_name(broker: Node):
    come(broker, wanted=None)
    assert published(broker, ALICE, source="x" * IDENTITY_CODEPOINTS_MAX) == []
    assert published(broker, ALICE, source="x" * (IDENTITY_CODEPOINTS_MAX + 1)) == [BadIdError]
    assert published(broker, ALICE, source="") == [BadIdError]


# --- sources ------------------------------------------------------------------------------------


class Sources(Outlet):
    """Writes down the sources of what is delivered."""

    def deliver(self, delivery):
        self.put.append(delivery.notification.source)


def test_publications_carry_a_name_of_their_publisher(broker: Node):
    reader = Sources()
    broker.client_up(CAROL, "carol", {}, reader)
    assert broker.ask(CAROL, Subscribe("carol", "all", ALL)) == []
    come(broker)
    come(broker, BOB, wanted=None)
    assert broker.ask(ALICE, Suspend("meter")) == []
    reader.taken()
    # A notification without a source gets the name of its publisher.
    assert published(broker, BOB) == published(broker, BOB, source="bob") == published(broker, BOB, source="free") == []
    assert published(broker, ALICE, source="meter") == []
    assert reader.taken() == ["bob", "bob", "free", "meter"]
    for source in ("alice", "carol", "meter"):
        assert published(broker, BOB, source=source) == [ForeignIdentityError]
    assert reader.taken() == []
    assert broker.ask(ALICE, MapIdentity("meter", "bob")) == []
    assert published(broker, BOB, source="meter") == []


def test_a_publication_with_a_foreign_source_is_refused_as_a_whole(broker: Node):
    alice, outlet = come(broker), come(broker, BOB, wanted=None)
    batch = [Notification({"x": 1}), Notification({"x": 2}, source="alice"), Notification({"x": 3})]
    broker.published(BOB, [(1, batch[:1]), (2, batch), (3, batch[2:])])
    assert outlet.taken() == [("answer", 1, []), ("answer", 2, [ForeignIdentityError]), ("answer", 3, [])]
    assert alice.taken() == [("delivered", 1), ("delivered", 3)]
    assert (broker.totals.refused, broker.totals.published) == (3, 2)


def test_http_publishers_use_names_that_nobody_has_or_that_they_were_granted(broker: Node):
    come(broker)
    come(broker, HTTP, wanted=None)
    assert published(broker, HTTP, source="/shop") == []
    assert published(broker, HTTP, source="alice") == [ForeignIdentityError]
    assert refused(broker, ALICE, MapIdentity("not there", "@http")) == [BadIdError]
    come(broker, BOB, wanted=None)
    assert refused(broker, BOB, MapIdentity("alice", "@http")) == [ForeignIdentityError]
    assert broker.ask(ALICE, MapIdentity("alice", "@http")) == []
    assert published(broker, HTTP, source="alice") == []
    # Deliveries stay where they were, and others gain nothing.
    identity = broker.core.clients.get("alice")
    assert identity is not None
    assert identity.client == ALICE
    assert published(broker, BOB, source="alice") == [ForeignIdentityError]
    broker.client_down(ALICE)
    come(broker)
    assert published(broker, HTTP, source="alice") == [ForeignIdentityError]


def test_a_number_that_is_refused_is_answered_with_the_number_to_go_on_after(broker: Node):
    come(broker)
    assert published(broker, ALICE, seq=5) == []
    (refusal,) = broker.publish(ALICE, [Notification({"x": 1}, source="alice", seq=5)])
    assert isinstance(refusal.error, BadNumberError)
    assert refusal.error.after == 5
    assert published(broker, ALICE, seq=2**63 - 1) == [BadNumberError]
    assert published(broker, ALICE, seq=6) == []


def test_a_filter_on_the_source_sees_the_name_that_the_broker_has_set(broker: Node):
    outlet = come(broker, wanted=Filter("$source = 'bob'"))
    come(broker, BOB, wanted=None)
    assert published(broker, BOB, 3) == []
    assert outlet.taken() == [("delivered", 3)]
