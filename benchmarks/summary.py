"""How large a broker's summary is and how long it takes to match by it, beside the roots of a poset.

    ./dev bench summary                          10 to 1,000,000 subscriptions of T, 1,000 and 10,000 of W1 and W2
    ./dev bench summary --sizes 10 100 --no-write
    ./dev bench summary --sizes 1000000 --append     adds to the table that is there

One broker has so many subscriptions and tells a neighbor. The neighbor matches notifications. "Summary" is the system
`summary`: the bytes by equations (1) and (2) of its text from the actual rows (4 bytes for a number and for an id, a
byte a character), and the bytes of its frames. "Roots" is what `siena general` tells: the filters that no other covers,
and the bytes of that frame; the neighbor has them in our matcher. Both match the same notifications in the same
process, one after the other, each notification alone; the ratio is that of two neighbors in time. Times are in
microseconds of processor time, median of the runs with the least and the greatest.

"Too many" is the share of notifications for which the summary says that the broker may want it, and none of its filters
matches: what over-matching costs. The summary must never miss a match, which is checked.

T   The text's Table 2: 10 attributes, of which a subscription names 2 of 4 arithmetic ones and 3 of 6 strings; half of
    the values are subsumed, by 2 ranges for each arithmetic attribute and 10 prefixes for each string attribute; all
    others are equalities of their own. Of the values of notifications, four in five are subsumed.
W1, W2   as in `./dev bench matching`.

Python's cycle collector is off: with a million subscriptions it would look at the same objects over and over.
Above --roots-max subscriptions the poset takes too long, and all filters stand for the roots.

A second table has the text's model of what propagation costs in a network of 24 brokers.
"""

from __future__ import annotations

import argparse
import gc
import platform
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

from catchment.matching import Matcher
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.model.values import Value
from catchment.routing.poset import Poset
from catchment.routing.siena.messages import Wants
from catchment.routing.summary.merged import MergedSummary
from catchment.routing.summary.model import broadcast_cost, siena_cost, summary_cost
from catchment.routing.summary.received import ReceivedSummary
from catchment.routing.summary.rows import Brokers, PatternRow, RangeRow, demands_of
from catchment.routing.summary.sizes import TextParameters, aacs_bytes, sacs_bytes
from catchment.routing.summary.stream import Incoming, Outgoing
from catchment.sim.benchmark_data import filters, notifications
from catchment.sim.topology import backbone
from catchment.wire.frames import LINK_FRAME_BYTES_MAX, frame

SEED = 1
SIZES = (10, 30, 100, 300, 1_000, 10_000, 100_000, 1_000_000)
OTHERS = (("W1", 1_000), ("W1", 10_000), ("W2", 1_000), ("W2", 10_000))
ROOTS_MAX = 10_000
NOTIFICATIONS = 200
RESULT = Path(__file__).parent / "results" / "summary.md"

# --- the text's workload ------------------------------------------------------------------------

ARITHMETIC, STRINGS, PREFIXES = 4, 6, 10
SUBSUMED_SHARE, PUBLISHED_SUBSUMED_SHARE = 0.5, 0.8
_RANGES = ((100, 200), (300, 400))


def _prefix(i: int) -> str:
    return f"p{i}."


def text_filters(count: int, seed: int) -> list[Filter]:
    rng = random.Random(f"T-s-{seed}")
    return [_text_filter(rng, number) for number in range(count)]


def _text_filter(rng: random.Random, number: int) -> Filter:
    constraints: list[tuple[str, str, Value]] = []
    for i in rng.sample(range(ARITHMETIC), ARITHMETIC // 2):
        low, high = rng.choice(_RANGES)
        if rng.random() >= SUBSUMED_SHARE:
            constraints.append((f"x{i}", "=", 1_000 + number))
        elif rng.random() < 0.5:
            constraints += [(f"x{i}", ">=", low), (f"x{i}", "<=", high)]
        else:
            constraints.append((f"x{i}", "=", rng.randrange(low, high)))
    for i in rng.sample(range(STRINGS), STRINGS // 2):
        prefix = _prefix(rng.randrange(PREFIXES))
        if rng.random() >= SUBSUMED_SHARE:
            constraints.append((f"s{i}", "=", f"word{number:06}"))
        elif rng.random() < 0.5:
            constraints.append((f"s{i}", "prefix", prefix))
        else:
            constraints.append((f"s{i}", "=", f"{prefix}{rng.randrange(10**6):07}"))
    return Filter.of(*constraints)


def text_notifications(count: int, subscriptions: int, seed: int) -> list[Mapping[str, Value]]:
    rng = random.Random(f"T-e-{seed}")
    made: list[Mapping[str, Value]] = []
    for _ in range(count):
        values: dict[str, Value] = {}
        for i in range(ARITHMETIC):
            is_subsumed = rng.random() < PUBLISHED_SUBSUMED_SHARE
            values[f"x{i}"] = (
                rng.randrange(*rng.choice(_RANGES)) if is_subsumed else 1_000 + rng.randrange(subscriptions)
            )
        for i in range(STRINGS):
            is_subsumed = rng.random() < PUBLISHED_SUBSUMED_SHARE
            prefixed = f"{_prefix(rng.randrange(PREFIXES))}{rng.randrange(10**6):07}"
            values[f"s{i}"] = prefixed if is_subsumed else f"word{rng.randrange(subscriptions):06}"
        made.append(values)
    return made


def workload(name: str, size: int) -> tuple[list[Filter], list[Notification]]:
    if name == "T":
        published = text_notifications(NOTIFICATIONS, size, SEED)
        return text_filters(size, SEED), [Notification(values) for values in published]
    return filters(name, size, SEED), [Notification(values) for values in notifications(name, NOTIFICATIONS, SEED)]


# --- measuring ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Told:
    """A broker's summary as a neighbor has it: rows, bytes by the equations and on the wire, seconds to make it."""

    summary: ReceivedSummary
    rows: int
    equation_bytes: float
    wire_bytes: int
    seconds: float


def told(some: Sequence[Filter]) -> Told:
    start = process_time()
    brokers, merged = Brokers(), MergedSummary()
    names = {}
    for number, filter in enumerate(some):
        code = brokers.code("a", number)
        names[code], demands = demands_of(filter)
        merged.add((demand, code) for demand in demands)
    messages = Outgoing(brokers).whole(merged, ["a"], names.__getitem__)
    seconds = process_time() - start
    incoming = Incoming("a", Brokers(), lambda name: True)
    for message in messages:
        incoming.hear(message)
    wire_bytes = sum(len(frame(message, LINK_FRAME_BYTES_MAX)) for message in messages)
    rows = [(row, list(codes)) for row, codes in incoming.summary.rows()]
    return Told(incoming.summary, len(rows), _equation_bytes(rows), wire_bytes, seconds)


def _equation_bytes(rows: Sequence[tuple[object, Sequence[int]]]) -> float:
    text = TextParameters()
    total = 0.0
    for row, codes in rows:
        match row:
            case RangeRow(_, _, low, high):
                is_equality = high == low + 1
                total += aacs_bytes(not is_equality, is_equality, len(codes), text.value_bytes, text.id_bytes)
            case PatternRow(_, pattern):
                total += sacs_bytes(1, len(codes), len(pattern.operand), text.id_bytes)
            case _:
                total += len(codes) * text.id_bytes
    return total


def roots_of(some: Sequence[Filter], roots_max: int) -> Sequence[Filter]:
    return list(Poset(some).roots) if len(some) <= roots_max else list(dict.fromkeys(some))


def matcher_of(some: Sequence[Filter]) -> Matcher:
    matcher = Matcher()
    matcher.add_many(list(range(len(some))), some, ["a"] * len(some))
    matcher.prepare(by_group=True)
    return matcher


@dataclass(frozen=True)
class Times:
    """Microseconds for each notification, run by run; and how many notifications were taken for wanted wrongly."""

    summary: list[float]
    matcher: list[float]
    too_many: int


def timed(summary: ReceivedSummary, matcher: Matcher, published: Sequence[Notification], runs: int) -> Times:
    by_summary, by_matcher = [], []
    for _ in range(runs):
        start = process_time()
        matched = [summary.match(notification.matched) for notification in published]
        middle = process_time()
        groups = [matcher.match_groups(notification) for notification in published]
        end = process_time()
        by_summary.append((middle - start) / len(published) * 1e6)
        by_matcher.append((end - middle) / len(published) * 1e6)
    assert all(ids for ids, group in zip(matched, groups, strict=True) if len(group)), "the summary misses a match"
    too_many = sum(bool(ids) and not len(group) for ids, group in zip(matched, groups, strict=True))
    return Times(by_summary, by_matcher, too_many)


# --- the report ---------------------------------------------------------------------------------

HEADER = (
    "| workload | subscriptions | rows | summary, bytes by (1), (2) | summary, bytes of frames | model (T) "
    "| roots | roots, bytes of frame | roots ÷ summary, frames | match by summary, µs | match roots, µs "
    "| summary ÷ matcher | too many | to make it, µs each |\n"
    "|---|" + "--:|" * 13
)


def spread(values: Sequence[float], digits: int = 0) -> str:
    return f"{median(values):,.{digits}f} ({min(values):,.{digits}f}–{max(values):,.{digits}f})"


def line_of(name: str, size: int, runs: int, roots_max: int) -> str:
    some, published = workload(name, size)
    made = told(some)
    roots = roots_of(some, roots_max)
    # A frame of a million filters is too long to send: its bytes are counted all the same.
    roots_bytes = len(frame(Wants("a", 1, tuple(roots)), 2**32 - 1))
    times = timed(made.summary, matcher_of(roots), published, runs)
    ratios = [mine / its for mine, its in zip(times.summary, times.matcher, strict=True)]
    model = f"{TextParameters().summary_bytes(size, SUBSUMED_SHARE):,.0f}" if name == "T" else "–"
    cells = (
        name,
        f"{size:,}",
        f"{made.rows:,}",
        f"{made.equation_bytes:,.0f}",
        f"{made.wire_bytes:,}",
        model,
        f"{len(roots):,}" + ("" if size <= roots_max else " (all)"),
        f"{roots_bytes:,}",
        f"{roots_bytes / made.wire_bytes:.2f}",
        spread(times.summary, 1),
        spread(times.matcher, 1),
        spread(ratios, 2),
        f"{times.too_many / len(published):.0%}",
        f"{made.seconds / size * 1e6:,.0f}",
    )
    return f"| {' | '.join(cells)} |"


# --- the text's model of a network --------------------------------------------------------------

MODEL_HEADER = (
    "| σ | subsumed | messages, summary | messages, SIENA | bytes, SIENA ÷ summary | bytes, broadcast ÷ summary "
    "| stored, SIENA ÷ summary |\n|--:|--:|--:|--:|--:|--:|--:|"
)
MODEL_ABOUT = (
    "The text's model (`routing/summary/model.py`), with Table 2: what it costs to propagate σ subscriptions of each "
    "of 24 brokers, least–greatest over three backbones (`sim/topology.py`, seeds 1 to 3). The text says: 4 to 8 times "
    "under SIENA, up to three orders of magnitude under broadcast, 2 to 5 times less stored."
)


def model_lines() -> list[str]:
    text = TextParameters()
    networks = [backbone(seed).neighbors() for seed in (1, 2, 3)]
    lines = []
    for subscriptions in (10, 100, 1_000):
        for share in (0.1, 0.5, 0.9):
            ours = [summary_cost(links, subscriptions, share, text) for links in networks]
            siena = [siena_cost(links, subscriptions, share, text) for links in networks]
            broadcast = [broadcast_cost(links, subscriptions, text) for links in networks]
            cells = (
                f"{subscriptions:,}",
                f"{share:.0%}",
                _range([cost.messages for cost in ours], 0),
                _range([cost.messages for cost in siena], 0),
                _range([its.sent_bytes / mine.sent_bytes for its, mine in zip(siena, ours, strict=True)], 1),
                _range([its.sent_bytes / mine.sent_bytes for its, mine in zip(broadcast, ours, strict=True)], 0),
                _range([its.stored_bytes / mine.stored_bytes for its, mine in zip(siena, ours, strict=True)], 1),
            )
            lines.append(f"| {' | '.join(cells)} |")
    return ["", MODEL_ABOUT, "", MODEL_HEADER, *lines]


def _range(values: Sequence[float], digits: int) -> str:
    return f"{min(values):,.{digits}f}–{max(values):,.{digits}f}"


def write(lines: Sequence[str], arguments: Sequence[str], runs: int, *, is_appended: bool) -> None:
    command = " ".join(["./dev bench summary", *arguments])
    about = f"`{command}`, seed {SEED}, {NOTIFICATIONS} notifications, {runs} runs each: median (least–greatest). "
    about += f"Python {platform.python_version()}, {platform.machine()}. "
    about += "The columns are explained in `benchmarks/summary.py`."
    before = RESULT.read_text("utf-8").rstrip("\n").split("\n") if is_appended else ["# Summaries"]
    RESULT.parent.mkdir(exist_ok=True)
    model = [] if is_appended else model_lines()
    RESULT.write_text("\n".join([*before, "", about, "", HEADER, *lines, *model, ""]), "utf-8")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--roots-max", type=int, default=ROOTS_MAX, help="above this, all filters stand for the roots")
    parser.add_argument("--no-write", action="store_true", help=f"leave {RESULT.name} as it is")
    parser.add_argument("--append", action="store_true", help="add to the table, and leave out W1 and W2")
    given = parser.parse_args(arguments)
    start = perf_counter()
    gc.disable()
    print(HEADER)
    cases = [("T", size) for size in given.sizes]
    cases += [case for case in OTHERS if case[1] <= max(given.sizes) and not given.append]
    lines = []
    for name, size in cases:
        lines.append(line_of(name, size, given.runs, given.roots_max))
        print(lines[-1], flush=True)
    if not given.append:
        print(*model_lines(), sep="\n")
    print(f"{perf_counter() - start:,.0f} s")
    if not given.no_write:
        write(lines, arguments, given.runs, is_appended=given.append)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
