"""A router of F3's content graphs on the three scenarios of its Study 2, beside our matcher and a linear scan.

    ./dev bench content-graph                    all, about ten minutes
    ./dev bench content-graph --scenario traffic --sizes 1,1000,10000
    ./dev bench content-graph --json FILE        for another program; writes no report

One router has ten interfaces. From 1 to 1,000,000 subscriptions arrive at them, all from one seeded stream. Three ways
to find the interfaces that a notification goes to:

content graph   Nodes come with the notification: the edge has found them (that is not the router's time; it is shown
                apart, as "edge"). The router looks up their output labels. "First" is a header that the router meets
                for the first time since a change, "again" is one that it has met: it keeps its answers.
match_groups    `Matcher.match_groups` of this project on the content, the interfaces as groups. It stores equal filters
                once, which the text's SIENA does not.
linear scan     Every subscription is compared, in Python, as cheaply as the scenario allows.

All three must find the same interfaces, and are checked to. Times are processor time, of whole rounds in which the
three take turns. Each figure is the median of the rounds with the least and the greatest. A ratio is the median of the
ratios of the rounds, with the interval that holds the true one with 95 %.

The scenarios (`content_graph_scenarios.py`) are those of the text, with these readings. Baseball has 100 teams: 40 %
of the subscribers want one team, 50 % the games between two, 10 % everything, so there are 5,051 topics. Traffic has 60
exits, and a stretch of the highway wants all stretches that meet it. Attribute-value has six attributes with four
values and a wildcard (0.3): 15,625 topics.
"""

from __future__ import annotations

import argparse
import gc
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.content_graph_scenarios import SCENARIOS, Arrival, Scenario, arrivals
from benchmarks.figures import Figure, write_figures
from benchmarks.ratios import median_interval
from catchment.matching import Matcher
from catchment.routing.content_graph.forwarders import FORWARDERS
from catchment.routing.content_graph.table import ForwardingTable
from catchment.routing.messages import Neighbor

SEED = 1
SIZES = (1, 1_000, 10_000, 100_000, 1_000_000)
ROUNDS = 7
INTERFACES = tuple(Neighbor(f"i{i}") for i in range(10))
NOTIFICATIONS = 2_000
# A linear scan of a million takes long: so many comparisons a round, and no fewer notifications than this.
SCANNED, SCANNED_MIN = 2_000_000, 2
TARGET_US, TARGET_FLAT = 10.0, 1.2
# Flatness is from here to the greatest size.
FLAT_FROM = 1_000
RESULT = Path(__file__).parent / "results" / "content_graph.md"


@dataclass
class Measured:
    """Microseconds in each round, by what was measured; and what does not change from round to round."""

    scenario: str
    size: int
    first_us: list[float]
    again_us: list[float]
    edge_us: list[float]
    groups_us: list[float]
    scan_us: list[float]
    subscription_us: float
    groups_subscription_us: float
    nodes: int
    table_bytes: int
    groups_bytes: int


# --- building -----------------------------------------------------------------------------------


def table_of(some: Sequence[Arrival]) -> tuple[ForwardingTable, float]:
    """A router that has got these subscriptions, and the microseconds for each."""
    table = ForwardingTable(FORWARDERS["labels"])
    start = process_time()
    for now, (node, interface, place) in enumerate(some):
        table.subscribe(node, INTERFACES[interface], now)
        if place is not None:
            table.set_up(node, *place)
    return table, (process_time() - start) / len(some) * 1e6


def matcher_of(scenario: Scenario, some: Sequence[Arrival]) -> tuple[Matcher, float]:
    matcher = Matcher()
    filters = [scenario.filter(topic) for topic in scenario.topics]
    start = process_time()
    for id, (node, interface, _) in enumerate(some):
        matcher.add(id, filters[node], group=interface)
    matcher.prepare(True)
    return matcher, (process_time() - start) / len(some) * 1e6


def deep_bytes(*objects: Any) -> int:
    """The bytes of objects with all that they hold, each once."""
    seen: set[int] = set()
    total, waiting = 0, list(objects)
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        total += sys.getsizeof(each)
        if isinstance(each, dict):
            waiting += [*each.keys(), *each.values()]
        elif isinstance(each, set | tuple | list):
            waiting += each
    return total


# --- measuring ----------------------------------------------------------------------------------


def timed(work: Callable[[], object], count: int) -> float:
    """Microseconds for each of so many."""
    start = process_time()
    work()
    return (process_time() - start) / count * 1e6


def scan(scenario: Scenario, some: Sequence[Arrival], document: Any) -> set[int]:
    topics, matches = scenario.topics, scenario.matches
    return {interface for node, interface, _ in some if matches(topics[node], document)}


def measure(scenario: Scenario, some: Sequence[Arrival], rounds: int) -> tuple[Measured, ForwardingTable]:
    table, subscription_us = table_of(some)
    matcher, groups_subscription_us = matcher_of(scenario, some)
    documents = scenario.documents(NOTIFICATIONS, SEED)
    headers = [scenario.nodes(document, table.graph) for document in documents]
    notifications = [scenario.notification(document) for document in documents]
    scanned = max(SCANNED_MIN, min(NOTIFICATIONS, SCANNED // len(some)))
    check(scenario, some, table, matcher, scanned)
    distinct = list(dict.fromkeys(headers))
    measured = Measured(
        scenario.name, len(some), [], [], [], [], [], subscription_us, groups_subscription_us, len(table.graph), 0, 0
    )
    labels = getattr(table.forwarder, "labels", {})
    measured.table_bytes = deep_bytes(table.graph.parents, table.graph.children, table.subscribers, labels)
    measured.groups_bytes = matcher.stats().bytes
    outputs, groups, graph = table.outputs, matcher.match_groups, table.graph
    works: tuple[tuple[list[float], Callable[[], object], int], ...] = (
        (measured.first_us, lambda: [outputs(header) for header in distinct], len(distinct)),
        (measured.again_us, lambda: [outputs(header) for header in headers], len(headers)),
        (measured.groups_us, lambda: [groups(each) for each in notifications], len(notifications)),
        (measured.scan_us, lambda: [scan(scenario, some, each) for each in documents[:scanned]], scanned),
        (measured.edge_us, lambda: [scenario.nodes(each, graph) for each in documents], len(documents)),
    )
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            table.forwarder.changed()
            for times, work, count in works:
                times.append(timed(work, count))
    finally:
        gc.enable()
    return measured, table


def check(scenario: Scenario, some: Sequence[Arrival], table: ForwardingTable, matcher: Matcher, count: int) -> None:
    """All three find the same interfaces."""
    for document in scenario.documents(NOTIFICATIONS, SEED)[: min(count, 50)]:
        expected = scan(scenario, some, document)
        outputs = table.outputs(scenario.nodes(document, table.graph))
        assert {INTERFACES.index(neighbor) for neighbor, _ in outputs} == expected, document
        assert set(matcher.match_groups(scenario.notification(document))) == expected, document


@dataclass
class Flatness:
    """How much longer a notification takes with the most subscriptions than with FLAT_FROM, in each round."""

    first: list[float]
    again: list[float]


def flatness(scenario: Scenario, small: ForwardingTable, large: ForwardingTable, rounds: int) -> Flatness:
    """The same notifications at both, in turns."""
    documents = scenario.documents(NOTIFICATIONS, SEED)
    headers = [[scenario.nodes(each, table.graph) for each in documents] for table in (small, large)]
    found = Flatness([], [])
    for _ in range(rounds):
        times = [_first_and_again(table, some) for table, some in zip((small, large), headers, strict=True)]
        found.first.append(times[1][0] / times[0][0])
        found.again.append(times[1][1] / times[0][1])
    return found


def _first_and_again(table: ForwardingTable, headers: Sequence[tuple[int, ...]]) -> tuple[float, float]:
    table.forwarder.changed()
    outputs, distinct = table.outputs, list(dict.fromkeys(headers))
    first = timed(lambda: [outputs(header) for header in distinct], len(distinct))
    return first, timed(lambda: [outputs(header) for header in headers], len(headers))


def run(scenario: Scenario, sizes: Sequence[int], rounds: int) -> tuple[list[Measured], Flatness | None]:
    stream = arrivals(scenario, max(sizes), len(INTERFACES), SEED)
    results: list[Measured] = []
    tables: dict[int, ForwardingTable] = {}
    for size in sizes:
        print(f"{scenario.name}, {size:,} subscriptions", file=sys.stderr)
        measured, tables[size] = measure(scenario, stream[:size], rounds)
        results.append(measured)
        print(line_of(measured), flush=True)
        if size not in (FLAT_FROM, max(sizes)):
            del tables[size]
    ends = [size for size in sizes if size >= FLAT_FROM]
    flat = flatness(scenario, tables[ends[0]], tables[ends[-1]], rounds) if len(ends) > 1 else None
    return results, flat


# --- reporting ----------------------------------------------------------------------------------


def spread(values: Sequence[float], form: str = ".2f") -> str:
    return f"{median(values):,{form}} ({min(values):,{form}}–{max(values):,{form}})"


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    return interval([their / our for our, their in zip(ours, theirs, strict=True)])


def line_of(each: Measured) -> str:
    return (
        f"{each.scenario:16} {each.size:>9,}: first {spread(each.first_us)} again {spread(each.again_us)} µs, "
        f"match_groups {spread(each.groups_us)} µs, scan {median(each.scan_us):,.0f} µs, "
        f"{each.subscription_us:.1f} µs a subscription, {each.nodes:,} nodes, {each.table_bytes:,} bytes"
    )


def sections(by_scenario: dict[str, tuple[list[Measured], Flatness | None]], how: str) -> dict[str, str]:
    """For each scenario, its part of the report."""
    made: dict[str, str] = {}
    for name, (results, flat) in by_scenario.items():
        lines = [f"## {name}", "", how, "", *_table(results), ""]
        if flat is not None:
            lines += [
                f"With {results[-1].size:,} subscriptions a notification takes {interval(flat.again)} as long as with "
                f"{FLAT_FROM:,} if the router has met its header, and {interval(flat.first)} if it has not. "
                f"Target: at most {TARGET_FLAT} × and {TARGET_US:g} µs.",
                "",
            ]
        made[name] = "\n".join(lines)
    return made


def report(new: dict[str, str], before: str = "") -> str:
    """The report with these sections. Those of other scenarios stay as they were."""
    assert __doc__ is not None
    how = "One router has" + __doc__.partition("One router has")[2].rstrip()
    old = {part.partition("\n")[0]: f"## {part}" for part in before.split("\n## ")[1:]}
    kept = {name: old.get(name, "").rstrip("\n") + "\n" for name in (scenario.name for scenario in SCENARIOS)}
    parts = [new.get(name, text) for name, text in kept.items() if name in new or text.strip()]
    return "\n".join(["# A router of content graphs", "", how, "", *parts])


def interval(ratios: Sequence[float]) -> str:
    low, high = median_interval(ratios) if len(ratios) >= ROUNDS else (min(ratios), max(ratios))
    return f"{median(ratios):,.2f} × ({low:,.2f}–{high:,.2f})"


def _table(results: Sequence[Measured]) -> list[str]:
    rows = [
        "| subscriptions | first, µs | again, µs | `match_groups`, µs | is | linear scan, µs | is | edge, µs "
        "| a subscription, µs | in the matcher, µs | nodes | table, bytes | matcher, bytes |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for each in results:
        cells = (
            f"{each.size:,}",
            spread(each.first_us),
            spread(each.again_us),
            spread(each.groups_us),
            ratio(each.first_us, each.groups_us),
            spread(each.scan_us, ".0f"),
            ratio(each.first_us, each.scan_us),
            spread(each.edge_us, ".1f"),
            f"{each.subscription_us:.1f}",
            f"{each.groups_subscription_us:.1f}",
            f"{each.nodes:,}",
            f"{each.table_bytes:,}",
            f"{each.groups_bytes:,}",
        )
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def figures_of(each: Measured) -> list[Figure]:
    name = f"{each.scenario}, {each.size:,}"
    return [
        Figure(f"{name}: first µs", is_more_faster=False, values=each.first_us),
        Figure(f"{name}: again µs", is_more_faster=False, values=each.again_us),
        Figure(f"{name}: match_groups µs", is_more_faster=False, values=each.groups_us),
        Figure(f"{name}: a subscription, µs", is_more_faster=False, values=[each.subscription_us]),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", choices=[scenario.name for scenario in SCENARIOS], action="append")
    parser.add_argument("--sizes", type=lambda text: tuple(map(int, text.split(","))), default=SIZES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--no-write", action="store_true")
    given = parser.parse_args()
    chosen = [scenario for scenario in SCENARIOS if given.scenario is None or scenario.name in given.scenario]
    by_scenario = {scenario.name: run(scenario, given.sizes, given.rounds) for scenario in chosen}
    if given.json:
        results = [each for some, _ in by_scenario.values() for each in some]
        write_figures(given.json, [figure for each in results for figure in figures_of(each)])
    elif not given.no_write:
        command = " ".join(["./dev bench content-graph", *sys.argv[1:]])
        how = f"`{command}`, seed {SEED}, {given.rounds} rounds, {platform.machine()}."
        before = RESULT.read_text("utf-8") if RESULT.exists() else ""
        RESULT.write_text(report(sections(by_scenario, how), before), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
