"""The scenarios of `./dev bench content-graph`: what it measures must be what the text describes, and agree."""

import random
from pathlib import Path

import pytest

from benchmarks import content_graph
from benchmarks.content_graph import SEED, check, line_of, matcher_of, measure, report, run, sections, table_of
from benchmarks.content_graph_scenarios import SCENARIOS, Scenario, arrivals

ROOT = Path(__file__).parents[2]
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


@pytest.mark.parametrize(("name", "topics"), [("baseball", 5_051), ("traffic", 1_830), ("attribute-value", 15_625)])
def test_topics(name: str, topics: int):
    scenario = BY_NAME[name]
    assert len(scenario.topics) == len(set(scenario.topics)) == len(scenario.numbers) == topics
    rng = random.Random(1)
    assert all(scenario.draw_topic(rng) in scenario.numbers for _ in range(200))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=list(BY_NAME))
def test_relations_agree_with_matching(scenario: Scenario):
    """By comparing with all topics: what a document belongs to, and that a wider topic has it too."""
    rng = random.Random(2)
    for _ in range(5):
        document = scenario.draw_document(rng)
        matching = [topic for topic in scenario.topics if scenario.matches(topic, document)]
        assert sorted(map(str, scenario.matching(document))) == sorted(map(str, matching))
        for topic in rng.sample(matching, 3):
            wider, narrower = set(scenario.wider(topic)), set(scenario.narrower(topic))
            assert topic not in wider | narrower
            assert wider <= set(matching)
            assert all(topic in set(scenario.narrower(each)) for each in sorted(wider, key=str)[:2])
            assert all(topic in set(scenario.wider(each)) for each in sorted(narrower, key=str)[:2])


@pytest.mark.parametrize("scenario", SCENARIOS, ids=list(BY_NAME))
def test_filters_say_the_same(scenario: Scenario):
    rng = random.Random(3)
    for _ in range(200):
        topic, document = scenario.draw_topic(rng), scenario.draw_document(rng)
        filter, notification = scenario.filter(topic), scenario.notification(document)
        assert filter.matches(notification) == scenario.matches(topic, document)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=list(BY_NAME))
def test_all_three_ways_find_the_same(scenario: Scenario):
    some = arrivals(scenario, 200, 10, SEED)
    table, _ = table_of(some)
    check(scenario, some, table, matcher_of(scenario, some)[0], 20)
    assert arrivals(scenario, 100, 10, SEED) == some[:100]


def test_the_report_keeps_the_sections_of_other_scenarios(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(content_graph, "NOTIFICATIONS", 20)
    monkeypatch.setattr(content_graph, "FLAT_FROM", 10)
    results = run(BY_NAME["baseball"], (1, 10, 30), 2)
    assert line_of(results[0][0]).startswith("baseball                 1: first")
    first = report(sections({"baseball": results}, "the first command"))
    assert "With 30 subscriptions a notification takes" in first
    traffic = sections({"traffic": results}, "the second command")
    both = report(traffic, first)
    assert [line for line in both.splitlines() if line.startswith("## ")] == ["## baseball", "## traffic"]
    assert "the first command" in both
    assert report(traffic, both) == both


def test_measuring_checks_the_answers(monkeypatch: pytest.MonkeyPatch):
    """A way that finds other interfaces is not measured."""
    scenario = BY_NAME["baseball"]
    monkeypatch.setattr(scenario, "nodes", lambda document, graph: ())
    with pytest.raises(AssertionError):
        measure(scenario, arrivals(scenario, 200, 10, SEED), 1)


def test_a_name_with_a_dash_is_a_benchmark():
    assert 'name="${name//-/_}"' in (ROOT / "dev").read_text("utf-8")
    assert (ROOT / "benchmarks" / "content_graph.py").is_file()
