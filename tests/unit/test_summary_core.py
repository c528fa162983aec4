"""The system `summary`, message by message: Example 3 of the text, Algorithm 2, exact undo, schemas, settings."""

import pytest

from catchment import Filter
from catchment.errors import InputError
from catchment.routing.messages import Client, ClientDown, Neighbor
from catchment.routing.summary.messages import Summarized, SummaryChange, WalkHeader, WeighedLinks
from catchment.routing.summary.rows import PatternRow
from catchment.routing.systems import system_named
from tests.summary_networks import FIGURE_7, LINE, RING, wired
from tests.wired_cores import Wired


def names(*numbers: int) -> set[str]:
    return {f"{number:02}" for number in numbers}


def known(network: Wired) -> dict[str, set[str]]:
    return {name: set(core.propagation.known()) for name, core in network.cores.items()}


def links(message: object) -> bool:
    return isinstance(message, WeighedLinks)


def summaries(network: Wired) -> list[tuple[str, str, set[str]]]:
    """Who has sent a summary to whom, of which brokers, in order."""
    said = [(here, there) for here, there, message in network.said if not links(message)]
    return [
        (here, there, set(network.cores[there].propagation.received()[here].merged_brokers)) for here, there in said
    ]


@pytest.fixture(scope="module")
def figure_7() -> Wired:
    """Each broker has a subscription to its own number; then one period passes."""
    network = wired(FIGURE_7, period_ms=1_000.0)
    for broker in network.cores:
        network.subscribe(broker, "1", f"to_{broker} = true")
    network.let_timers_fire()
    return network


# --- Example 3 ----------------------------------------------------------------------------------


def test_example_3_takes_ten_messages(figure_7: Wired):
    sent: list[tuple[int, int, tuple[int, ...]]] = [
        (1, 2, (1,)),
        (3, 5, (3,)),
        (4, 5, (4,)),
        (6, 5, (6,)),
        (9, 8, (9,)),
        (12, 11, (12,)),
        (13, 11, (13,)),
    ]
    sent += [(2, 5, (1, 2)), (7, 8, (7,)), (10, 8, (10,))]
    assert summaries(figure_7) == [(f"{here:02}", f"{there:02}", names(*merged)) for here, there, merged in sent]


def test_example_3_known_brokers(figure_7: Wired):
    expected = {f"{number:02}": names(number) for number in range(1, 14)}
    expected |= {"05": names(1, 2, 3, 4, 5, 6), "08": names(7, 8, 9, 10), "11": names(11, 12, 13), "02": names(1, 2)}
    assert known(figure_7) == expected


def test_example_3_walk(figure_7: Wired):
    figure_7.copies.clear()
    figure_7.delivered.clear()
    notification = figure_7.publish("01", {"to_04": True, "to_08": True, "to_13": True})
    assert sorted(figure_7.delivered) == [(broker, notification) for broker in ("04", "08", "13")]
    walked = [(routed.header.to, routed.header.checked) for _, _, routed, relayed in figure_7.copies if not relayed]
    lists = {to: set(checked) for to, checked in walked if checked is not None}
    assert lists == {"05": names(1), "08": names(*range(1, 7)), "11": names(*range(1, 11))}
    assert [to for to, checked in walked if checked is None] == ["04", "13"]
    # Five logical messages, and eight on links: three of them were relayed by 2, 7 and 10.
    assert (len(walked), len(figure_7.copies)) == (5, 8)
    relays = [here for here, _, _, relayed in figure_7.copies if relayed]
    assert relays == ["02", "07", "10"]
    # Brokers 3 and 6 are in the merged summary of 5, and nothing was sent to them.
    assert not {there for _, there, _, _ in figure_7.copies} & {"03", "06"}


def test_the_owner_gets_the_ids_that_match(figure_7: Wired):
    figure_7.copies.clear()
    figure_7.publish("05", {"to_04": True})
    told = [routed.header for _, _, routed, _ in figure_7.copies if routed.header.checked is None]
    assert told == [WalkHeader(1, "04", None, (0,))]


def test_iterations_without_a_broker_cost_nothing(figure_7: Wired):
    """Nobody has degree 4. A second period without changes has no message, and no timer is left."""
    assert figure_7.timers == {}
    before = len(figure_7.said)
    figure_7.subscribe("12", "2", "x > 1")
    assert idle_timers(figure_7) == {"12": False}
    figure_7.let_timers_fire()
    assert [(here, there) for here, there, _ in figure_7.said[before:]] == [("12", "11")]
    figure_7.cancel("12", "2")
    figure_7.let_timers_fire()


def test_a_period_takes_lower_degrees_first():
    network = wired(FIGURE_7, period_ms=1_000.0)
    network.let_timers_fire()
    before = len(network.said)
    network.subscribe("02", "1", "x > 1")
    network.subscribe("01", "1", "x > 2")
    at = {broker: timer.at for (broker, _), timer in network.timers.items()}
    # One slot for each degree up to 5, and one more before the next period.
    slot = 1_000_000 // 7
    assert {broker: time % 1_000_000 for broker, time in at.items()} == {"01": slot, "02": 2 * slot}
    network.let_timers_fire()
    assert [(here, there) for here, there, _ in network.said[before:]] == [("01", "02"), ("02", "05")]


def idle_timers(network: Wired) -> dict[str, bool]:
    """The brokers that will propagate, and whether their timer is idle."""
    return {broker: timer.is_idle for (broker, name), timer in network.timers.items() if name == "propagate"}


def test_the_text_sends_in_every_period():
    """By an idle timer, while nothing has changed; by one that is not idle, while a change waits."""
    network = wired(LINE, period_ms=100.0, sends="always")
    assert set(idle_timers(network).values()) == {False}
    network.fire_timers_until(100_000)
    assert idle_timers(network) == {"a": True, "c": True}
    network.said.clear()
    network.fire_timers_until(400_000)
    assert [(here, there) for here, there, _ in network.said] == [("a", "b"), ("c", "b")] * 3
    network.subscribe("c", "1", "x > 1")
    assert idle_timers(network) == {"a": True, "c": False}
    network.said.clear()
    network.fire_timers_until(500_000)
    assert [type(message) for _, _, message in network.said] == [Summarized, Summarized]
    assert len(network.cores["b"].rows_of("c")) == 1
    assert network.refused == []


# --- Algorithm 2 --------------------------------------------------------------------------------


def test_what_equals_send_is_known_and_not_passed_on():
    network = wired(RING)
    # All have degree 2, and each sends to the neighbor whose name comes first.
    ups = {name: str(core.propagation.up) for name, core in network.cores.items()}
    assert ups == {"a": "b", "b": "a", "c": "b", "d": "a"}
    assert known(network) == {"a": {"a", "b", "d"}, "b": {"a", "b", "c"}, "c": {"c"}, "d": {"d"}}
    network.said.clear()
    network.subscribe("d", "1", "x > 1")
    # d tells a, and a tells nobody.
    assert [(here, there) for here, there, _ in network.said] == [("d", "a")]


def test_merged_brokers_shrinks_after_a_cut():
    network = wired([("a", "b"), ("b", "c"), ("c", "d"), ("c", "e")])
    network.subscribe("a", "1", "x > 1")
    for i in range(3):
        network.subscribe("b", str(i), f"y = {i}")
    assert known(network)["c"] == {"a", "b", "c", "d", "e"}
    network.said.clear()
    network.link_down("a", "b")
    assert known(network)["c"] == {"b", "c", "d", "e"}
    assert network.cores["c"].propagation.received()["b"].merged_brokers == {"b"}
    assert len(network.cores["c"].rows_of("b")) == 3
    # By a change of rows and of Merged_Brokers, not by a new summary.
    (change,) = [message for here, there, message in network.said if (here, there) == ("b", "c") and not links(message)]
    assert isinstance(change, SummaryChange)
    assert len(change.left) == 1
    network.link_up("a", "b")
    assert known(network)["c"] == {"a", "b", "c", "d", "e"}
    assert len(network.cores["c"].rows_of("b")) == 4


def test_who_gets_another_up_ends_what_it_sent():
    network = wired([("a", "b"), ("b", "c"), ("b", "d"), ("c", "d")])
    network.subscribe("a", "1", "x > 1")
    assert network.cores["b"].propagation.received()["a"].merged_brokers == {"a"}
    # a has three links now, and b too: they are equals, and a sends to b as before.
    network.link_up("a", "c")
    network.link_up("a", "d")
    ups = {name: core.propagation.up for name, core in network.cores.items()}
    assert ups == {"a": Neighbor("b"), "b": Neighbor("a"), "c": Neighbor("a"), "d": Neighbor("a")}
    network.link_down("a", "b")
    network.link_down("c", "d")
    # All have degree 2: a sends to c, and the rows that it sent to b are gone.
    assert str(network.cores["a"].propagation.up) == "c"
    assert network.cores["c"].propagation.received()["a"].merged_brokers == {"a"}
    assert "a" not in network.cores["b"].propagation.received()
    assert network.refused == []


def test_a_virtual_degree_takes_load_off_a_hub():
    visits = {}
    for what, network in (("plain", wired(FIGURE_7)), ("relieved", wired(FIGURE_7, degree={"05": 2}))):
        network.subscribe("03", "1", "x > 1")
        network.publish("01", {"x": 2})
        visits[what] = [routed.header.to for _, _, routed, relayed in network.copies if not relayed]
        assert [broker for broker, _ in network.delivered] == ["03"]
        assert network.refused == []
    assert visits == {"plain": ["05", "03", "08", "11"], "relieved": ["08", "11", "07", "05", "03"]}
    # All brokers compute with the same degree.
    assert {core.propagation.degrees.of("05") for core in network.cores.values()} == {2}


# --- undo ---------------------------------------------------------------------------------------


def symbol_rows(network: Wired, at: str, neighbor: str) -> dict[tuple[str, str], list[str]]:
    rows = network.cores[at].rows_of(neighbor).items()
    return {
        (row.pattern.operator, row.pattern.operand): sorted(owner for owner, _ in ids)
        for row, ids in rows
        if isinstance(row, PatternRow)
    }


@pytest.mark.parametrize("sends", ["differences", "wholes"])
def test_what_a_wide_row_absorbed_comes_back_in_merged_summaries(sends: str):
    """Figure 5's rule and its undo, two brokers away."""
    network = wired([("a", "b"), ("b", "c"), ("c", "d"), ("c", "e")], sends=sends)
    network.subscribe("b", "1", "symbol = 'microsoft'")
    network.subscribe("b", "2", "symbol = 'micronet'")
    network.subscribe("a", "1", "symbol glob 'm*t'")
    assert symbol_rows(network, "c", "b") == {("glob", "m*t"): ["a", "b", "b"]}
    network.cancel("a", "1")
    assert symbol_rows(network, "c", "b") == {("=", "microsoft"): ["b"], ("=", "micronet"): ["b"]}
    network.cancel("b", "1")
    network.cancel("b", "2")
    assert network.cores["c"].leftovers() == []


def test_a_join_of_ranges_is_undone():
    network = wired(LINE)
    network.subscribe("a", "1", "x > 1 and x < 5")
    network.subscribe("a", "2", "x > 7 and x < 9")
    assert len(network.cores["b"].rows_of("a")) == 2
    network.subscribe("a", "3", "x > 4 and x < 8")
    assert [sorted(number for _, number in ids) for ids in network.cores["b"].rows_of("a").values()] == [[0, 1, 2]]
    network.cancel("a", "3")
    rows = network.cores["b"].rows_of("a").values()
    assert sorted(sorted(number for _, number in ids) for ids in rows) == [[0], [1]]


def test_a_change_sends_only_the_ids_that_change():
    network = wired(LINE)
    for i in range(10):
        network.subscribe("a", str(i), "symbol = 'OTE' and price > 8")
    network.said.clear()
    network.subscribe("a", "new", "symbol = 'OTE' and price > 9")
    ((here, there, change),) = network.said
    assert (here, there) == ("a", "b")
    assert isinstance(change, SummaryChange)
    (pattern,), (row,) = change.announced.patterns, change.announced.ranges
    assert (pattern.operand, pattern.ids, row.ids) == ("OTE", ((0, (10,)),), ((0, (10,)),))
    assert (change.withdrawn.ranges, change.withdrawn.patterns) == ((), ())
    network.said.clear()
    network.cancel("a", "new")
    ((_, _, back),) = network.said
    assert (back.withdrawn, back.announced.ranges) == (change.announced, ())


def test_clients_that_leave_take_their_rows_along():
    network = wired(LINE)
    network.subscribe("a", "1", "x > 1")
    network.cores["a"].on_message(ClientDown(), Client("a"), 2)
    assert network.cores["a"].leftovers() == []


# --- schemas ------------------------------------------------------------------------------------


def test_schemas_differ_and_grow():
    """a and c number attributes in another order, and b a third way; new ones come later."""
    network = wired([("a", "b"), ("b", "c"), ("b", "d")])
    network.subscribe("a", "1", "p = 1 and q = 2")
    network.subscribe("c", "1", "q = 2 and r = 3")
    network.subscribe("d", "1", "r = 3 and s = 4")
    network.subscribe("a", "2", "s = 4 and t = 5 and p = 1")
    for attributes, owners in (
        ({"p": 1, "q": 2}, ["a"]),
        ({"q": 2, "r": 3}, ["c"]),
        ({"q": 2, "r": 3, "s": 4}, ["c", "d"]),
        ({"p": 1, "s": 4}, []),
        ({"p": 1, "s": 4, "t": 5}, ["a"]),
    ):
        network.delivered.clear()
        network.copies.clear()
        network.publish("b", attributes)
        assert sorted(broker for broker, _ in network.delivered) == owners
        told = sorted(routed.header.to for _, _, routed, _ in network.copies if routed.header.checked is None)
        assert told == owners


def test_many_attributes_make_long_ids():
    network = wired(LINE)
    for i in range(40):
        network.subscribe("a", str(i), f"x{i} = 1")
    change = [message for _, there, message in network.said if there == "b" and isinstance(message, SummaryChange)][-1]
    ((bits, _),) = change.ids
    assert (len(bits), int.from_bytes(bits, "big")) == (5, 1 << 39)
    network.publish("b", {"x39": 1})
    assert [broker for broker, _ in network.delivered] == ["a"]


# --- subsumption and settings -------------------------------------------------------------------


def test_subsumption_summarizes_roots_alone():
    for subsumes, count in ((False, 3), (True, 2)):
        network = wired(LINE, subsumes=subsumes)
        for i, text in enumerate(("x > 1", "x > 5", "y = 1")):
            network.subscribe("a", str(i), text)
        assert len(network.cores["b"].propagation.received()["a"]) == count
        network.publish("c", {"x": 9})
        assert [broker for broker, _ in network.delivered] == ["a"]
        network.cancel("a", "0")
        assert {str(filter) for filter in network.cores["a"].own.numbered.values()} == {"x > 5", "y = 1"}
        network.publish("c", {"x": 9})
        assert len(network.delivered) == 2


def test_a_whole_summary_may_come_in_parts(monkeypatch: pytest.MonkeyPatch):
    network = wired([("a", "b"), ("b", "c")])
    for i in range(30):
        network.subscribe("a", str(i), f"symbol = 's{i}' and x > {i}")
    monkeypatch.setattr("catchment.routing.summary.stream.MESSAGE_BYTES", 400)
    network.link_down("a", "b")
    network.said.clear()
    network.link_up("a", "b")
    parts = [message for here, _, message in network.said if here == "a" and hasattr(message, "ids")]
    assert isinstance(parts[0], Summarized)
    assert len(parts) > 3
    # Until the last part, nobody may take a for examined.
    with_brokers = [bool(getattr(part, "merged", getattr(part, "joined", ()))) for part in parts]
    assert with_brokers == [False] * (len(parts) - 1) + [True]
    network.publish("c", {"symbol": "s7", "x": 99})
    assert [broker for broker, _ in network.delivered] == ["a"]
    assert network.refused == []


def test_bad_settings_are_refused():
    system = system_named("summary")
    for given, message in (
        ({"period_ms": -1.0}, "period_ms of summary"),
        ({"degree": 0}, "degree of summary"),
        ({"degree": {"b": 0}}, "degree of summary"),
        ({"sends": "much"}, "settings of summary"),
        ({"sends": "always"}, '"always" needs a period'),
        ({"hops": 3}, "settings of summary"),
    ):
        with pytest.raises(InputError, match=message):
            system.core("a", given)
    assert system.core("a", {"degree": 3, "period_ms": 10}).inspect().tables == ()


def test_filters_that_name_the_envelope_are_matched_by_it():
    network = wired(LINE)
    network.subscribe("a", "1", "$source = 'pb'")
    network.publish("b", {"x": 1})
    network.publish("c", {"x": 1})
    assert [broker for broker, _ in network.delivered] == ["a"]
    assert Filter("$source = 'pb'").matches(network.delivered[0][1])
