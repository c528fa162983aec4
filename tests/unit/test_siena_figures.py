"""Figures 13 to 22 of the SIENA text, step by step: the poset of server 1 and the messages it sends.

The drawings are not in the text: they are rebuilt from captions and prose. The text's unsubscription and the
subscriptions after it are one `Interest` here.
"""

from catchment import Filter
from catchment.routing.messages import Action, Client, LinkUp, Neighbor, Send, Subscribe, Unsubscribe
from catchment.routing.siena.acyclic import AcyclicCore
from catchment.routing.siena.hierarchical import HierarchicalCore
from catchment.routing.siena.hop_by_hop import HopByHopCore
from catchment.routing.siena.messages import Interest

ANY = Filter("airline any")
UA = Filter("airline = 'UA'")
AZ = Filter("airline = 'AZ'")
UA_TO_DENVER = Filter("airline = 'UA', dest = 'DEN'")
UA_FROM_DENVER = Filter("airline = 'UA', orig = 'DEN'")
UA_CHEAP = Filter("airline = 'UA', price < 500")
AZ_CHEAP = Filter("airline = 'AZ', price < 800")

TWO, THREE, FOUR = Neighbor("2"), Neighbor("3"), Neighbor("4")


def subscribed(core: HopByHopCore[Interest], identity: str, filter: Filter) -> list[Action]:
    return core.on_message(Subscribe(identity, str(filter), filter), Client(identity), 0)


def announced(core: HopByHopCore[Interest], neighbor: Neighbor, *filters: Filter) -> list[Action]:
    return core.on_message(Interest(announced=filters), neighbor, 0)


def unsubscribed(core: HopByHopCore[Interest], identity: str, filter: Filter) -> list[Action]:
    return core.on_message(Unsubscribe(identity, filter), Client(identity), 0)


def told(*neighbors: Neighbor, withdrawn: tuple[Filter, ...] = (), announced: tuple[Filter, ...] = ()) -> list[Action]:
    """The same change to several neighbors."""
    return [Send(neighbor, Interest(withdrawn, announced)) for neighbor in neighbors]


def holders(core: HopByHopCore[Interest]) -> dict[str, set[object]]:
    return {str(filter): set(core.interest.subscribers(filter)) for filter in core.interest.poset}


def server_with(*neighbors: Neighbor) -> AcyclicCore:
    core = AcyclicCore("1")
    for neighbor in neighbors:
        assert core.on_message(LinkUp(), neighbor, 0) == []
    return core


def test_figures_13_to_16_hierarchical():
    server = HierarchicalCore("1", master="2")
    assert server.on_message(LinkUp(), TWO, 0) == []
    # Figure 13: a root, forwarded to the master.
    assert subscribed(server, "a", UA) == told(TWO, announced=(UA,))
    # Figure 14: covered, not forwarded.
    assert subscribed(server, "b", UA_TO_DENVER) == []
    assert server.interest.poset.predecessors(UA_TO_DENVER) == (UA,)
    # Figure 15: a root; a leaves what it covers, and airline = UA has no subscriber left.
    assert subscribed(server, "a", ANY) == told(TWO, withdrawn=(UA,), announced=(ANY,))
    assert holders(server) == {str(ANY): {"a"}, str(UA_TO_DENVER): {"b"}}
    assert server.interest.poset.successors(ANY) == (UA_TO_DENVER,)
    # Figure 16: the unsubscription, and the new root.
    assert unsubscribed(server, "a", ANY) == told(TWO, withdrawn=(ANY,), announced=(UA_TO_DENVER,))
    assert holders(server) == {str(UA_TO_DENVER): {"b"}}


def test_a_server_below_is_told_nothing():
    server = HierarchicalCore("1", master="2")
    server.on_message(LinkUp(), TWO, 0)
    server.on_message(LinkUp(), THREE, 0)
    assert announced(server, THREE, UA) == told(TWO, announced=(UA,))
    assert subscribed(server, "a", AZ) == told(TWO, announced=(AZ,))


def test_figures_17_to_19_acyclic_subscription():
    server = server_with(TWO, THREE, FOUR)
    # Figure 17: forwarded to all but where it came from.
    assert announced(server, THREE, ANY) == told(TWO, FOUR, announced=(ANY,))
    # Figure 18: only 3 has not had what covers it.
    assert announced(server, TWO, UA_FROM_DENVER) == told(THREE, announced=(UA_FROM_DENVER,))
    assert server.interest.forwards(UA_FROM_DENVER) == {THREE}
    # Figure 19: its NST is empty now, so 3 hears of it, and leaves the forwards of what it covers.
    assert subscribed(server, "a", ANY) == told(THREE, withdrawn=(UA_FROM_DENVER,), announced=(ANY,))
    assert holders(server) == {str(ANY): {THREE, "a"}, str(UA_FROM_DENVER): {TWO}}
    assert server.interest.forwards(ANY) == {TWO, THREE, FOUR}
    assert server.interest.forwards(UA_FROM_DENVER) == set()


def before_figure_20() -> AcyclicCore:
    """`airline = UA, dest = DEN` has a second predecessor that is forwarded to 3."""
    server = server_with(TWO, THREE, FOUR)
    subscribed(server, "a", UA)
    subscribed(server, "a", AZ)
    announced(server, THREE, UA, AZ_CHEAP)
    subscribed(server, "b", UA_CHEAP)
    subscribed(server, "c", UA_TO_DENVER)
    subscribed(server, "d", Filter("dest = 'DEN'"))
    return server


def test_figures_20_to_22_acyclic_unsubscription():
    server = before_figure_20()
    to_denver = Filter("dest = 'DEN'")
    assert holders(server)[str(UA)] == {"a", THREE}
    assert server.interest.forwards(UA) == {TWO, THREE, FOUR} == server.interest.forwards(AZ)
    assert set(server.interest.poset.predecessors(UA_TO_DENVER)) == {UA, to_denver}
    for covered in (UA_CHEAP, UA_TO_DENVER, AZ_CHEAP):
        assert server.interest.forwards(covered) == set()
    sent = unsubscribed(server, "a", ANY)
    assert sent == [
        *told(TWO, withdrawn=(AZ,), announced=(AZ_CHEAP,)),
        *told(THREE, withdrawn=(AZ, UA), announced=(UA_CHEAP,)),
        *told(FOUR, withdrawn=(AZ,), announced=(AZ_CHEAP,)),
    ]
    # Figure 21: 3 is in the NST of airline = UA; airline = AZ is gone.
    assert holders(server)[str(UA)] == {THREE}
    assert AZ not in server.interest.poset
    # Figure 22: what was uncovered.
    assert server.interest.forwards(UA) == {TWO, FOUR}
    assert server.interest.forwards(UA_CHEAP) == {THREE}
    assert server.interest.forwards(UA_TO_DENVER) == set()
    assert server.interest.forwards(AZ_CHEAP) == {TWO, FOUR}
