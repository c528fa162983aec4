"""Standing queries as a kind of subscriptions (F3 §6.4): what a query is, which changes belong to it, who is told."""

from pathlib import Path
from typing import Any

import pytest

from catchment import Filter, Notification
from catchment.errors import InputError, LimitError, ParseError
from catchment.routing.content_graph.preprocessors import Relation, queries
from catchment.routing.content_graph.preprocessors.queries import QUERY_CODEPOINTS_MAX, QueryKind
from catchment.routing.messages import Client, ClientUp, Deliver, Refuse, Subscribe
from catchment.routing.systems import system_named
from catchment.sim.scenarios.notations import read_scenario
from catchment.sim.scenarios.play import play
from catchment.sim.simulation import Simulation
from catchment.sim.topology import line

ROOT = Path(__file__).parents[2]
KIND = QueryKind("relation")
BOB = Client("bob")


def core_with(**settings: Any) -> Any:
    given = {"rendezvous": "1", "preprocessor": {"kind": "queries"}, **settings}
    core = system_named("content graph").core("1", given)
    core.on_message(ClientUp("bob"), BOB, 0)
    return core


def is_told(query: str, **attributes: Any) -> bool:
    """Whether a query belongs to a change of the relation `stock`."""
    document = KIND.document(Notification({"relation": "stock", **attributes}))
    return KIND.matches(KIND.parse(query), document)


# --- texts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("select * from stock", "SELECT * FROM stock"),
        ("SELECT b, a\n FROM shop.stock\n WHERE c > 3;", "SELECT a, b, c FROM shop.stock WHERE c > 3"),
        ("Select `from` From `my stock` Where old.a < 3", "SELECT a, `from` FROM `my stock` WHERE old.a < 3"),
    ],
)
def test_what_a_query_is(text: str, written: str):
    query = KIND.parse(text)
    assert str(query) == written
    assert KIND.parse(written) == query
    assert KIND.read(KIND.written(query)) == query
    assert KIND.read(Filter(str(KIND.written(query)))) == query


@pytest.mark.parametrize(
    ("text", "line", "column", "found"),
    [
        ("", 1, 1, "the end"),
        ("select", 1, 7, "the end"),
        ("select from stock", 1, 8, "'from'"),
        ("select * stock", 1, 10, "'stock'"),
        ("select price as p from stock", 1, 14, "'as'"),
        ("select count(*) from stock", 1, 13, "'('"),
        ("select * from where x = 3", 1, 15, "'where'"),
        ("select * from stock, staff", 1, 20, "','"),
        ("select * from stock group by x", 1, 21, "'group'"),
        ("select * from stock where", 1, 26, "the end"),
        ("select *\nfrom stock\nwhere x >> 3", 3, 10, "'>'"),
        ("select * from stock where x > 3 order by x", 1, 33, "'order'"),
        ("update stock set x = 3", 1, 1, "'update'"),
    ],
)
def test_what_is_no_query_says_where(text: str, line: int, column: int, found: str):
    with pytest.raises(ParseError) as raised:
        KIND.parse(text)
    assert (raised.value.line, raised.value.column) == (line, column)
    assert str(raised.value).startswith("query, line ")
    assert raised.value.found.startswith(found)
    # Another broker that is sent such a filter compares it with attributes.
    assert KIND.read(Filter.of(("query", "=", text))) is None


def test_a_query_is_bounded():
    condition = "x = 1 or " * QUERY_CODEPOINTS_MAX
    with pytest.raises(LimitError, match="QUERY_CODEPOINTS_MAX"):
        KIND.parse(f"SELECT * FROM stock WHERE {condition} x = 2")


# --- changes ------------------------------------------------------------------------------------


def test_a_row_that_comes_or_goes():
    for change in ({"change": "insert"}, {"change": "delete"}, {}):
        assert is_told("SELECT * FROM stock WHERE price > 10", price=11, **change)
        assert not is_told("SELECT * FROM stock WHERE price > 10", price=10, **change)
    assert not is_told("SELECT * FROM staff", price=11)
    # Only an update has been something else before.
    assert not is_told("SELECT * FROM stock WHERE price > 10", price=10, change="insert", **{"old.price": 11})


def test_an_update_changes_the_result_if_a_row_enters_or_leaves_it():
    for old, new in ((9, 11), (11, 9)):
        assert is_told("SELECT place FROM stock WHERE price > 10", change="update", price=new, **{"old.price": old})
    assert not is_told("SELECT place FROM stock WHERE price > 10", change="update", price=3, **{"old.price": 4})


def test_an_update_of_a_row_that_stays_counts_for_queries_that_name_the_column():
    def told(query: str) -> bool:
        return is_told(query, change="update", price=12, size=1, **{"old.size": 2})

    assert told("SELECT * FROM stock")
    assert told("SELECT size FROM stock WHERE price > 10")
    assert told("SELECT price FROM stock WHERE size > 0")
    assert not told("SELECT price FROM stock")
    assert not told("SELECT price FROM stock WHERE price > 10")


def test_an_update_without_old_values_may_have_changed_everything():
    assert is_told("SELECT price FROM stock WHERE price > 10", change="update", price=12)
    assert not is_told("SELECT price FROM stock WHERE price > 10", change="update", price=9)


def test_a_value_that_is_no_longer_there():
    assert is_told("SELECT * FROM stock WHERE price > 10", change="update", **{"old.price": 12})


def test_conditions_may_name_the_change_and_old_values():
    query = "SELECT * FROM stock WHERE change = 'update' and price > old.price"
    with pytest.raises(ParseError, match="column 57"):
        KIND.parse(query)  # a filter compares with values, not with other attributes
    passes = "SELECT * FROM stock WHERE change = 'update' and price >= 100 and old.price < 100"
    assert is_told(passes, change="update", price=101, **{"old.price": 99})
    assert not is_told(passes, change="update", price=102, **{"old.price": 101})
    assert not is_told(passes, change="insert", price=102)


def test_which_query_is_wider():
    def relation(first: str, second: str) -> Relation:
        return KIND.relation(KIND.parse(first), KIND.parse(second))

    every = "SELECT * FROM stock"
    assert relation(every, "SELECT price FROM stock WHERE price > 10") is Relation.WIDER
    assert relation("SELECT size FROM stock WHERE price > 10", every) is Relation.NARROWER
    assert (
        relation("SELECT price FROM stock WHERE price > 3", "SELECT price FROM stock WHERE price > 5") is Relation.WIDER
    )
    # The second is told when the size changes, the first is not.
    assert relation("SELECT price FROM stock", "SELECT price FROM stock WHERE size > 5") is Relation.APART
    assert relation(every, "SELECT * FROM staff") is Relation.APART
    assert (
        relation("SELECT a FROM stock WHERE b > 1", "SELECT b, a FROM stock WHERE not b <= 1 and b any")
        is Relation.SAME
    )


# --- brokers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("filter", "problem"),
    [
        (Filter.of(("query", "=", "SELECT * FROM")), "query, line 1, column 14"),
        (Filter("query = 'SELECT * FROM stock' and price > 3"), "with all conditions after WHERE"),
        (Filter("query = 'SELECT * FROM stock' or price > 3"), "with all conditions after WHERE"),
        (Filter("query any"), "with all conditions after WHERE"),
    ],
)
def test_a_client_is_told_what_is_wrong_with_its_query(filter: Filter, problem: str):
    (refused,) = core_with().on_message(Subscribe("bob", "1", filter), BOB, 0)
    assert isinstance(refused, Refuse)
    assert isinstance(refused.error, InputError)
    assert problem in str(refused.error)


def test_topics_may_be_written_in_other_words():
    core = core_with(topics=["select price from stock where price > 3"])
    for text, is_taken in (
        ("SELECT price FROM stock WHERE price > 3", True),
        ("SELECT `price` FROM stock WHERE not price <= 3 and price any", True),
        ("SELECT price FROM stock", False),
    ):
        actions = core.on_message(Subscribe("bob", text, Filter.of(("query", "=", text))), BOB, 0)
        assert any(isinstance(action, Refuse) for action in actions) is not is_taken


@pytest.mark.parametrize("preprocessing", ["distributed", "central"])
@pytest.mark.parametrize("search", ["matcher", "breadth first"])
def test_who_asks_is_told_of_changes_and_nobody_else(preprocessing: str, search: str):
    preprocessor = {"kind": "queries", "attribute": "table", "search": search}
    settings = {"rendezvous": "1", "preprocessor": preprocessor, "preprocessing": preprocessing}
    simulation = Simulation(line(4), lambda broker: system_named("content graph").core(broker, settings))
    wanted = {
        "all": "query = 'SELECT * FROM stock'",
        "dear": "query = 'SELECT price FROM stock WHERE price > 10'",
        "north": "query = \"SELECT size FROM stock WHERE place = 'north'\"",
        "filter": "price > 10",
    }
    for home, (identity, filter) in enumerate(wanted.items()):
        simulation.connect(identity, str(home))
        simulation.subscribe(identity, "1", Filter(filter))
    simulation.connect("database", "0")
    simulation.settle()
    stock: dict[str, Any] = {"table": "stock", "place": "north", "size": 1}
    changes: list[dict[str, Any]] = [
        {**stock, "n": 1, "change": "insert", "price": 5},
        {**stock, "n": 2, "change": "update", "price": 12, "old.price": 5},
        {**stock, "n": 3, "change": "update", "price": 12, "size": 2, "old.size": 1},
        {**stock, "n": 4, "change": "delete", "price": 12},
        {"n": 5, "table": "staff", "change": "insert", "price": 12},
    ]
    for attributes in changes:
        simulation.publish("database", attributes)
    simulation.settle()
    numbers = {
        identity: [each.notification["n"] for each in simulation.client(identity).received if isinstance(each, Deliver)]
        for identity in wanted
    }
    assert numbers == {"all": [1, 2, 3, 4], "dear": [2, 4], "north": [1, 3, 4], "filter": [2, 3, 4, 5]}
    for identity in wanted:
        simulation.cancel(identity, "1")
    simulation.settle()
    assert [core.leftovers() for core in simulation.cores.values() if core is not None] == [[]] * 4


def test_the_example_delivers_what_filters_deliver(tmp_path: Path):
    """The same in plain filters, for a system that knows nothing of queries."""
    text = (ROOT / "examples" / "simulation" / "stock.toml").read_text("utf-8")
    plain = text.replace('routing = "content graph"', 'routing = "flooding"').replace("preprocessor = ", "# ")
    stock, left = "relation = 'stock'", "change = 'update' and old.price"
    for query, filter in {
        "SELECT * FROM stock": stock,
        "SELECT * FROM stock WHERE price > 10": f"{stock} and (price > 10 or {left} > 10)",
        "SELECT price FROM stock WHERE price > 15": f"{stock} and (price > 15 or {left} > 15)",
        "select place from stock where price <= 5": f"{stock} and (price <= 5 or {left} <= 5)",
        "SELECT * FROM staff WHERE price > 10": f"relation = 'staff' and (price > 10 or {left} > 10)",
    }.items():
        assert f"\"query = '{query}'\"" in plain
        plain = plain.replace(f"\"query = '{query}'\"", f'"{filter}"')
    (tmp_path / "plain.toml").write_text(plain, "utf-8")
    delivered = [
        play(read_scenario(path)).delivered
        for path in (ROOT / "examples/simulation/stock.toml", tmp_path / "plain.toml")
    ]
    assert delivered[0] == delivered[1] > 500


def test_the_page_names_the_bound():
    page = (ROOT / "docs" / "preprocessors.md").read_text("utf-8")
    assert f"`QUERY_CODEPOINTS_MAX` ({queries.QUERY_CODEPOINTS_MAX:,} " in page
