"""`./dev bench broker --routing NAME,…`: live brokers with other routing systems, beside `siena general`.

Systems take turns, run by run. The load is the same as without `--routing`, at one broker and over one link, for 1 and
for 10,000 subscriptions.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.broker_cases import Case
from catchment.routing.systems import DEFAULT_SYSTEM, SYSTEMS, system_named
from catchment.sim.conformance.entries import entry_of
from catchment.sim.topology import line

# What the others are compared with.
REFERENCE = DEFAULT_SYSTEM
ROUTING_CASES = (
    Case("1 subscription", 60_000),
    Case("10,000 subscriptions", 60_000, crowd=10_000),
    Case("1, over a link", 60_000, hops=2),
    Case("10,000, over a link", 60_000, crowd=10_000, hops=2),
)


def systems_of(text: str) -> list[str]:
    """The systems that are named, `all` of those that this can run, and first the one they are compared with."""
    names = list(SYSTEMS) if text == "all" else [name.strip() for name in text.split(",")]
    runnable = [name for name in names if text != "all" or _is_runnable(name)]
    for name in runnable:
        if not _is_runnable(name):
            raise SystemExit(f"{name} needs a network of units, and here is none")
    return list(dict.fromkeys([REFERENCE, *runnable]))


def _is_runnable(name: str) -> bool:
    return not entry_of(system_named(name).name).needs_units


def needs_advertisements(name: str) -> bool:
    return entry_of(name).needs_advertisements


def names_of(hops: int) -> tuple[str, ...]:
    """The names of the brokers of a line. The last has the subscribers."""
    return line(hops).brokers


def options(name: str, hops: int) -> list[list[str]]:
    """For each broker of a line, the options of `catchment serve` that make it run a system."""
    topology = line(hops)
    by_broker = entry_of(name).settings_for(topology, {})
    return [
        ["--routing", name, *_assignments([(key, str(value)) for key, value in by_broker[broker].items()])]
        for broker in topology.brokers
    ]


def _assignments(settings: Sequence[tuple[str, str]]) -> list[str]:
    return [word for key, value in settings for word in ("--set", f"{key}={value}")]
