"""W5: filters like real detection rules, and notifications like process-creation events.

    ./dev bench detections                            500, 3,000 and 100,000 filters, beside a naive loop and duckdb
    ./dev bench detections --sizes 500 --no-write

Rates are of processor time of one core, median of the runs with the least and the greatest. *Load* is from texts to an
index: parsing, packing, building. Matching begins with a list of dictionaries, as an application has them. The naive
loop asks every filter of every notification. duckdb has the notifications as a table and each filter as a condition of
one query; past PEERS_MAX filters one notification takes the peers most of a second. All must find the same matches.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from time import process_time
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.matching import RESULTS, Rate, measured
from catchment.matching import Matcher
from catchment.model.constraint import Constraint
from catchment.model.expression import And, Expression, Not, Or
from catchment.model.filter import Filter
from catchment.sim.detection_data import detection_rules, process_events

SEED = 7
SIZES = (500, 3_000, 100_000)
EVENTS = 4_000
PEERS_MAX = 3_000
COMPARED = 100
# Notifications a second to reach, and filters loaded a second.
TARGETS = {3_000: 60_000, 100_000: 10_000}
LOAD_TARGET, BYTES_TARGET = 20_000, 2_000


class Naive:
    """Every filter for every notification."""

    def __init__(self, filters: Sequence[Filter]) -> None:
        self._filters = filters

    def match(self, events: Sequence[dict[str, Any]]) -> list[list[int]]:
        return [[i for i, filter in enumerate(self._filters) if filter.matches(event)] for event in events]


class Duckdb:
    """Every filter a condition of one query over all notifications."""

    def __init__(self, filters: Sequence[Filter]) -> None:
        self._conditions = [condition(filter.expression) for filter in filters]
        self._names = sorted({name for filter in filters for name in filter.names})

    def match(self, events: Sequence[dict[str, Any]]) -> list[list[int]]:
        import duckdb
        import pyarrow as pa

        names = sorted({*self._names, *(name for event in events for name in event)})
        table = pa.table({name: pa.array([_text(event.get(name)) for event in events], pa.string()) for name in names})
        table = table.append_column("#", pa.array(range(len(events))))
        connection = duckdb.connect()
        connection.execute("SET threads = 1")
        connection.register("events", table)
        matches: list[list[int]] = [[] for _ in events]
        for i, where in enumerate(self._conditions):
            for (row,) in connection.execute(f'SELECT "#" FROM events WHERE {where}').fetchall():
                matches[row].append(i)
        return matches


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def condition(expression: Expression) -> str:
    """A filter as SQL: its three-valued logic is the same."""
    match expression:
        case bool():
            return str(expression).upper()
        case Not(inner):
            return f"NOT ({condition(inner)})"
        case And(parts):
            return "(" + " AND ".join(map(condition, parts)) + ")"
        case Or(parts):
            return "(" + " OR ".join(map(condition, parts)) + ")"
        case Constraint():
            return _comparison(expression)


def _comparison(constraint: Constraint) -> str:
    name = '"' + constraint.name.replace('"', '""') + '"'
    if constraint.operator == "absent":
        return f"{name} IS NULL"
    if constraint.operator == "any":
        return f"{name} IS NOT NULL"
    values = constraint.value if isinstance(constraint.value, tuple) else (constraint.value,)
    texts = ["'" + str(value).replace("'", "''") + "'" for value in values]
    match constraint.operator:
        case "in":
            return f"{name} IN ({', '.join(texts)})"
        case "prefix":
            return f"starts_with({name}, {texts[0]})"
        case "suffix":
            return f"ends_with({name}, {texts[0]})"
        case "substring":
            return f"contains({name}, {texts[0]})"
        case "glob":
            return f"{name} LIKE {_like(str(constraint.value))} ESCAPE '\\'"
        case _:
            return f"{name} {constraint.operator} {texts[0]}"


def _like(glob: str) -> str:
    text, characters = "", iter(glob)
    for character in characters:
        if character == "\\":
            escaped = next(characters)
            text += "\\" + escaped if escaped in "%_\\" else escaped
        else:
            text += {"*": "%", "?": "_", "%": "\\%", "_": "\\_"}.get(character, character)
    return "'" + text.replace("'", "''") + "'"


def cell(size: int, runs: int) -> dict[str, Any]:
    """All figures at one size."""
    texts = list(detection_rules(size, SEED))
    events = [dict(event) for event in process_events(EVENTS, SEED, texts)]
    start = process_time()
    filters = [Filter(text) for text in texts]
    parsed = process_time()
    matcher = Matcher()
    matcher.add_many(range(size), filters)
    built = process_time()
    rates = {"Catchment": measured(matcher.match_batch, events, runs)}
    matches = [sorted(ids) for ids in matcher.match_batch(events)]
    if size <= PEERS_MAX:
        for name, peer in (("naive", Naive(filters)), ("duckdb", Duckdb(filters))):
            assert peer.match(events[:COMPARED]) == matches[:COMPARED], f"{name} disagrees"
            rates[name] = measured(peer.match, events, runs)
    return {
        "size": size,
        "parse_per_s": size / (parsed - start),
        "load_per_s": size / (built - start),
        "bytes": matcher.stats().bytes_per_subscription,
        "matches": sum(map(len, matches)) / len(events),
        "rates": {name: rate.runs for name, rate in rates.items()},
    }


HEADER = (
    "| filters | matches per notification | notifications/s | target | × naive | × duckdb | texts parsed/s | loaded/s "
    "| bytes each |\n|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
)


def line(found: dict[str, Any]) -> str:
    rates = {name: Rate(tuple(runs)) for name, runs in found["rates"].items()}
    ours = rates["Catchment"]
    times = [f"{ours.middle / rates[name].middle:,.0f}" if name in rates else "–" for name in ("naive", "duckdb")]
    target = f"{TARGETS[found['size']]:,}" if found["size"] in TARGETS else "–"
    cells = [f"{found['size']:,}", f"{found['matches']:.2f}", str(ours), target, *times]
    cells += [f"{found['parse_per_s']:,.0f}", f"{found['load_per_s']:,.0f}", f"{found['bytes']:,.0f}"]
    return f"| {' | '.join(cells)} |"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--no-write", action="store_true", help="leave the files in results as they are")
    given = parser.parse_args(arguments)
    cell(64, 1)  # compiles, or loads what is compiled
    print(HEADER)
    cells = []
    for size in given.sizes:
        cells.append(cell(size, given.runs))
        print(line(cells[-1]), flush=True)
    if not given.no_write:
        command = " ".join(["./dev bench detections", *arguments])
        about = f"`{command}`, seed {SEED}, median of {given.runs} runs (least–greatest) of one core's processor time. "
        about += f"Python {platform.python_version()}, {platform.machine()}. Targets: {LOAD_TARGET:,} filters loaded a "
        about += f"second, {BYTES_TARGET:,} bytes each at the most."
        text = "\n".join(["# Filters like detection rules (W5)", "", about, "", HEADER, *map(line, cells), ""])
        (RESULTS / "detections.md").write_text(text, "utf-8")
        (RESULTS / "detections.json").write_text(json.dumps(cells, indent=1) + "\n", "utf-8")
    missed = [one for one in cells if Rate(tuple(one["rates"]["Catchment"])).middle < TARGETS.get(one["size"], 0)]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
