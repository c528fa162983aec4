"""Preprocessors of content graphs: documents, hierarchies, what settings make of them, and what clients get."""

import re
from pathlib import Path
from typing import Any

import pytest

from catchment import Filter, Notification
from catchment.broker.config import read_config
from catchment.errors import InputError
from catchment.routing.content_graph.preprocessors import Relation
from catchment.routing.content_graph.preprocessors import attribute_values as documents
from catchment.routing.content_graph.preprocessors.attribute_values import JsonKind, RssKind, XmlKind
from catchment.routing.content_graph.preprocessors.hierarchies import ClassKind, Hierarchy, KeywordKind, hierarchy_of
from catchment.routing.content_graph.preprocessors.kinds import KindPreprocessor
from catchment.routing.content_graph.preprocessors.making import KINDS, kind_of
from catchment.routing.content_graph.preprocessors.ranges import RangeKind
from catchment.routing.content_graph.preprocessors.reading import BREADTH_FIRST, ReadKind
from catchment.routing.content_graph.preprocessors.searches import Range
from catchment.routing.content_graph.settings import PreprocessorSettings
from catchment.routing.messages import Deliver
from catchment.routing.systems import system_named
from catchment.sim.scenarios.notations import read_scenario
from catchment.sim.scenarios.play import play
from catchment.sim.simulation import Simulation
from catchment.sim.topology import line

JSON = b'{"team": "Boston", "score": {"runs": 5, "final": true}, "tags": ["home", "night"], "none": null}'
RSS = b"""<?xml version="1.0"?><rss version="2.0"><channel><title>News</title>
<item lang="en"><title>Rates &amp; markets</title><category>Business</category><category>World</category>
<guid isPermaLink="false">17</guid></item>
<item><category>Arts</category></item></channel></rss>"""


def pairs(kind: ReadKind[Any, Any], payload: bytes, **attributes: Any) -> set[tuple[str, Any]]:
    return {(name, value) for name, _, value in kind.document(Notification(attributes, payload=payload))}


# --- documents ----------------------------------------------------------------------------------


def test_a_document_in_json():
    assert pairs(JsonKind(), JSON, feed="games") == {
        ("feed", "games"),
        ("team", "Boston"),
        ("score.runs", 5),
        ("score.final", True),
        ("tags", "home"),
        ("tags", "night"),
    }


def test_a_document_in_xml():
    text = b'<game id="7"><team>Boston</team><score><runs final="yes">5</runs></score></game>'
    found = pairs(XmlKind(), text)
    assert {("id", "7"), ("id", 7.0), ("team", "Boston"), ("score.runs", "5"), ("score.runs.final", "yes")} <= found
    assert XmlKind().matches(XmlKind().parse("<game><score><runs>5</runs></score></game>"), _document(XmlKind(), text))


def _document(kind: ReadKind[Any, Any], payload: bytes) -> Any:
    return kind.document(Notification({}, payload=payload))


def test_news_in_rss():
    """§3.5.4: a template that names a topic area, and items with one or several of them."""
    kind = RssKind()
    assert pairs(kind, RSS) >= {("category", "Business"), ("category", "World"), ("title", "Rates & markets")}
    assert ("category", "Arts") not in pairs(kind, RSS)
    business = kind.parse("<item><category>Business</category></item>")
    arts = kind.parse("<rss><channel><item><category>Arts</category></item></channel></rss>")
    assert kind.written(business) == Filter("category = 'Business'")
    assert [kind.matches(each, _document(kind, RSS)) for each in (business, arts)] == [True, False]
    dated = kind.parse("<item><category>Business</category><guid>17</guid></item>")
    assert kind.relation(business, dated) is Relation.WIDER
    assert kind.matches(dated, _document(kind, RSS))


BILLION_LAUGHS = b"""<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;">]><x><team>&b;</team></x>"""


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (JsonKind(), b"no json"),
        (JsonKind(), b"[1, 2]"),
        (JsonKind(), b"\xff\xfe"),
        (JsonKind(), b'{"a":' * 100_000),
        (JsonKind(), b'{"a":' * 80 + b"1" + b"}" * 80),
        (XmlKind(), b"<a><b></a>"),
        (XmlKind(), b"<a>" * 1_000 + b"</a>" * 1_000),
        (XmlKind(), BILLION_LAUGHS),
        (XmlKind(), b'<!DOCTYPE x SYSTEM "file:///etc/passwd"><x/>'),
        (RssKind(), b"<rss><channel/></rss>"),
        (JsonKind(), b"[" + b"1," * 20_000 + b"1]"),
        (JsonKind(), b'{"a": [' + b"1," * 20_000 + b"1]}"),
        (JsonKind(), b'{"a": "' + b"x" * documents.DOCUMENT_BYTES_MAX + b'"}'),
    ],
    ids=range(13),
)
def test_what_is_no_document_counts_for_its_attributes(kind: ReadKind[Any, Any], payload: bytes):
    assert pairs(kind, payload, feed="games") == {("feed", "games")}


@pytest.mark.parametrize(
    ("kind", "text", "problem"),
    [
        (JsonKind(), "no json", "no JSON"),
        (JsonKind(), '"text"', "an object with names"),
        (JsonKind(), '{"a": [1, 2]}', "2 values of 'a'"),
        (XmlKind(), "<a><b></a>", "no XML"),
        (XmlKind(), BILLION_LAUGHS.decode(), "document type"),
        (RssKind(), "<a/>", "no element 'item'"),
        (RangeKind("exit"), "12..5", "no range"),
        (RangeKind("exit"), "nan", "no range"),
        (RangeKind("exit"), " ", "no range"),
        (KeywordKind("topic", Hierarchy({})), " ", "not empty"),
    ],
)
def test_subscriptions_that_are_none(kind: ReadKind[Any, Any], text: str, problem: str):
    with pytest.raises(InputError, match=problem):
        kind.parse(text)


# --- ranges, hierarchies ------------------------------------------------------------------------


def test_ranges():
    kind = RangeKind("exit", "from", "to")
    assert [kind.parse(text) for text in ("5..12", "5..", "..12", "5")] == [
        Range(5, 12),
        Range(5, float("inf")),
        Range(float("-inf"), 12),
        Range(5, 5),
    ]
    assert kind.written(Range(5, 12)) == Filter("exit >= 5 and exit <= 12")
    assert kind.document(Notification({"from": 8, "to": 3})) == Range(3, 8)
    for attributes in ({"from": 3}, {"from": True, "to": 3}, {"from": "3", "to": 4}, {"exit": 3}):
        assert kind.document(Notification(attributes)) is None


def test_figure_3_22_by_classes_and_a_hierarchy_of_python_classes():
    class Game: ...

    class League(Game): ...

    class Night(Game): ...

    class Final(League, Night): ...

    kind = ClassKind("class", hierarchy_of(Game))
    assert kind.relation("Game", "Final") is Relation.WIDER
    assert kind.relation("League", "Night") is Relation.APART
    assert kind.matches("Night", kind.document(Notification({"class": "Final"})))
    preprocessor = KindPreprocessor(kind)
    for node, name in enumerate(("Game", "Final", "Night")):
        preprocessor.add(node, kind.written(name))
    # A node comes between others, as "Boston or New York" does in the figure.
    assert preprocessor.add(3, kind.written("League")) == (3, (0,), (1,))
    assert preprocessor.graph.parents[1] == {2, 3}


@pytest.mark.parametrize("above", [{"a": ("a",)}, {"a": ("b",), "b": ("a",)}, {"a": ("b",), "b": ("c",), "c": ("b",)}])
def test_a_hierarchy_has_no_circles(above: dict[str, tuple[str, ...]]):
    with pytest.raises(InputError, match="above itself"):
        Hierarchy(above)


def test_a_deep_hierarchy():
    hierarchy = Hierarchy({str(i): (str(i + 1),) for i in range(2_000)})
    assert len(hierarchy.at_or_above("0")) == 2_001


# --- settings -----------------------------------------------------------------------------------


class Length(ReadKind[int, int]):
    """A kind of an application: `size = 5` wants texts of at least five letters."""

    def parse(self, text: str) -> int:
        return int(text)

    def relation(self, first: int, second: int) -> Relation:
        if first == second:
            return Relation.SAME
        return Relation.WIDER if first < second else Relation.NARROWER

    def matches(self, subscription: int, notification: int) -> bool:
        return notification >= subscription

    def read(self, filter: Filter) -> int | None:
        constraint: Any = filter.canonical
        return constraint.value if getattr(constraint, "name", None) == "size" else None

    def written(self, subscription: int) -> Filter:
        return Filter.of(("size", "=", subscription))

    def document(self, notification: Notification) -> int:
        return len(str(notification.matched.get("text", "")))


NO_KIND = 5


def core_with(preprocessor: dict[str, Any], **more: Any) -> Any:
    return system_named("content graph").core("0", {"rendezvous": "0", "preprocessor": preprocessor, **more})


@pytest.mark.parametrize(
    ("preprocessor", "problem"),
    [
        ({"kind": "yaml"}, "Invalid enum value 'yaml'"),
        ({"kind": "json", "search": "guessing"}, "Invalid enum value 'guessing'"),
        ({"kind": "keywords", "attribute": "topic", "search": "hash"}, "no search 'hash': use one of index, breadth"),
        ({"kind": "range"}, "has no attribute"),
        ({"kind": "keywords", "attribute": "topic", "above": {"a": ["a"]}}, "'a' stands above itself"),
        ({"kind": "application"}, "has no name: write module:attribute"),
        ({"kind": "application", "name": "nothing"}, "there is no colon"),
        ({"kind": "application", "name": "no.such.module:Kind"}, "No module named"),
        ({"kind": "application", "name": f"{__name__}:Missing"}, "no attribute 'Missing'"),
        ({"kind": "application", "name": f"{__name__}:NO_KIND"}, "derive it from ReadKind"),
        ({"kind": "classes", "attribute": "class", "name": f"{__name__}:NO_KIND"}, "is no class"),
    ],
)
def test_settings_that_are_wrong(preprocessor: dict[str, Any], problem: str):
    with pytest.raises(InputError, match=problem):
        core_with(preprocessor)


def test_topics_of_a_static_graph_are_written_as_the_kind_writes_them():
    core = core_with({"kind": "rss"}, topics=["<item><category>Arts</category></item>"])
    assert core.namespaces.default.topics == (Filter("category = 'Arts'"),)
    with pytest.raises(InputError, match="no XML"):
        core_with({"kind": "rss"}, topics=["category = 'Arts'"])


# --- in a network -------------------------------------------------------------------------------

TEAMS = {"boston": ["american"], "american": ["baseball"], "cubs": ["baseball"]}
# The preprocessor, what the client subscribes to, and the notifications it should get and should not.
CASES: dict[str, tuple[dict[str, Any], str, list[dict[str, Any]], list[dict[str, Any]]]] = {
    "json": ({"kind": "json"}, "team = 'Boston'", [{"payload": JSON}], [{"payload": b"{}"}]),
    "xml": ({"kind": "xml"}, "runs = 5", [{"payload": b"<a><runs>5</runs></a>"}], [{"payload": b"<a/>"}]),
    "rss": ({"kind": "rss"}, "category = 'World'", [{"payload": RSS}], [{"payload": b"<item/>"}]),
    "range": (
        {"kind": "range", "attribute": "exit", "low": "from", "high": "to"},
        "exit >= 5 and exit <= 12",
        [{"from": 1, "to": 5}, {"from": 8, "to": 9}],
        [{"from": 1, "to": 4}, {"exit": 7}],
    ),
    "keywords": (
        {"kind": "keywords", "attribute": "topic", "above": TEAMS},
        "topic = 'baseball'",
        [{"topic": "boston"}, {"topic": "chess, cubs"}],
        [{"topic": "chess"}],
    ),
    "classes": (
        {"kind": "classes", "attribute": "class", "above": TEAMS},
        "class = 'american'",
        [{"class": "boston"}, {"class": "american"}],
        [{"class": "boston, american"}, {"class": "cubs"}],
    ),
    "queries": (
        {"kind": "queries"},
        "query = 'SELECT * FROM games WHERE runs > 3'",
        [{"relation": "games", "runs": 4}],
        [{"relation": "games", "runs": 3}, {"relation": "news", "runs": 4}],
    ),
    "types": (
        {"kind": "classes", "attribute": "type", "name": f"{__name__}:Vehicle"},
        "type = 'Car'",
        [{"type": "Car"}, {"type": "Amphibian"}],
        [{"type": "Vehicle"}, {"type": "Boat"}],
    ),
    "application": (
        {"kind": "application", "name": f"{__name__}:Length"},
        "size = 5",
        [{"text": "longer"}],
        [{"text": "no"}],
    ),
}


class Vehicle:
    """A type of messages with its subtypes (§6.4: an interface by types, as in DACE)."""


class Car(Vehicle): ...


class Boat(Vehicle): ...


class Amphibian(Car, Boat): ...


@pytest.mark.parametrize("preprocessing", ["distributed", "central"])
@pytest.mark.parametrize("case", CASES)
def test_clients_get_what_the_kind_says(case: str, preprocessing: str):
    """And a filter that the kind cannot read is served as everywhere: it wants all that has an `n` above 0."""
    preprocessor, wanted, fitting, others = CASES[case]
    settings = {"rendezvous": "1", "preprocessor": preprocessor, "preprocessing": preprocessing}
    simulation = Simulation(line(4), lambda broker: system_named("content graph").core(broker, settings))
    for identity, home, filter in (("alice", "3", wanted), ("bob", "2", "n > 0")):
        simulation.connect(identity, home)
        simulation.subscribe(identity, "1", Filter(filter))
    simulation.connect("publisher", "0")
    simulation.settle()
    for n, given in enumerate([*others, *fitting], start=1):
        attributes = {name: value for name, value in given.items() if name != "payload"}
        simulation.publish("publisher", {**attributes, "n": n}, payload=given.get("payload", b""))
    simulation.settle()
    numbers = {
        name: [each.notification["n"] for each in client.received if isinstance(each, Deliver)]
        for name, client in simulation.clients.items()
    }
    total = len(others) + len(fitting)
    assert numbers["alice"] == list(range(len(others) + 1, total + 1))
    assert numbers["bob"] == list(range(1, total + 1))
    for identity in ("alice", "bob"):
        simulation.cancel(identity, "1")
    simulation.settle()
    assert [core.leftovers() for core in simulation.cores.values() if core is not None] == [[]] * 4


# --- the page -----------------------------------------------------------------------------------

PAGE = (Path(__file__).parents[2] / "docs" / "preprocessors.md").read_text("utf-8")


def test_the_configuration_of_the_page_is_read(tmp_path: Path):
    (text,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "broker.toml").write_text(text, "utf-8")
    core: Any = read_config(tmp_path / "broker.toml").make_core().inner
    kinds = {name: type(place.router.copy.tagger).__name__ for name, place in core.places.items()}
    assert kinds == {"news": "KindTagger", "games": "KindTagger", "traffic": "KindTagger", "default": "FilterTagger"}


def test_the_page_names_every_kind_search_setting_and_bound():
    for kind in KINDS:
        assert f"| `{kind}` |" in PAGE
    made = [kind_of(PreprocessorSettings(kind=kind, attribute="a")) for kind in ("json", "range", "keywords")]
    searches = {name for kind in made if kind is not None for name in (*kind.searches(), BREADTH_FIRST)}
    assert all(f"| `{search}` |" in PAGE for search in searches)
    assert all(f"`{name}`" in PAGE for name in PreprocessorSettings.__struct_fields__)
    for name in ("DOCUMENT_BYTES_MAX", "DOCUMENT_DEPTH_MAX", "DOCUMENT_PAIRS_MAX"):
        assert re.search(rf"`{name}` \({getattr(documents, name):,}[ )]", PAGE)


def test_the_example_delivers_what_filters_on_both_ends_deliver(tmp_path: Path):
    """Stretches that meet, written for a system that knows nothing of them."""
    text = (Path(__file__).parents[2] / "examples" / "simulation" / "traffic.toml").read_text("utf-8")
    plain = text.replace('routing = "content graph"', 'routing = "flooding"').replace("preprocessor = ", "# ")
    for stretch, ends in {
        "exit >= 5 and exit <= 12": "from <= 12 and to >= 5",
        "exit >= 1 and exit <= 2": "from <= 2 and to >= 1",
        "exit = 8": "from <= 8 and to >= 8",
        "exit >= 10": "to >= 10",
        "exit <= 6": "from <= 6",
    }.items():
        assert f'"{stretch}"' in plain
        plain = plain.replace(f'"{stretch}"', f'"{ends}"')
    delivered = []
    for name, scenario in (("stretches", text), ("plain", plain)):
        # A stretch may be told from either end: from 7 to 6. Filters on both ends do not know that.
        fixed = scenario.replace("to = { one_of = [6,", "to = { one_of = [7,")
        (tmp_path / f"{name}.toml").write_text(fixed, "utf-8")
        delivered.append(play(read_scenario(tmp_path / f"{name}.toml")).delivered)
    assert delivered[0] == delivered[1] > 1_000
