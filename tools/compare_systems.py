"""Measure all routing systems on one scenario for docs/routing.md: `python tools/compare_systems.py`.

It plays examples/simulation/all-systems.toml on every system of the registry, and writes the figures into the table of
the page that begins with `| compared system | over links |`. The last column says in words what a system is good for:
it is kept. A system that is new gets a row with NOT_WRITTEN there: write that sentence yourself. A test compares the
table with the registry and with the figures.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from catchment.sim.scenarios.measures import Measures
from catchment.sim.scenarios.notations import read_scenario
from catchment.sim.scenarios.play import ALL_SYSTEMS, play_ready, variants
from catchment.sim.scenarios.ready import ready_run

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "routing.md"
SCENARIO: Final = ROOT / "examples" / "simulation" / "all-systems.toml"
TITLES: Final = ("compared system", "over links", "control", "bytes", "largest table", "mean hops", "good for")
NOT_WRITTEN: Final = "…"
_TABLE: Final = re.compile(
    r"^" + re.escape(f"| {' | '.join(TITLES)} |") + r"\n\|[-|]+\|\n(?P<rows>(?:\|.*\n)*)", re.MULTILINE
)


def measured() -> dict[str, Measures]:
    """What each system of the registry came to."""
    runs = [ready_run(scenario, SCENARIO.parent) for scenario in variants(read_scenario(SCENARIO), [ALL_SYSTEMS])]
    return {run.scenario.routing: play_ready(run)[0] for run in runs}


def row(system: str, measures: Measures, good_for: str) -> str:
    """A row of the table."""
    hops = "-" if measures.hops_mean is None else f"{measures.hops_mean:.2f}"
    figures = (
        f"{measures.notifications.link:,}",
        f"{sum(measures.control.values()):,}",
        f"{measures.bytes:,}",
        f"{measures.tables.filters.largest:,}",
        hops,
    )
    return f"| {' | '.join((f'`{system}`', *figures, good_for))} |"


def rows_of(page: str) -> dict[str, str]:
    """The rows of the table on the page, by system."""
    table = _TABLE.search(page)
    assert table is not None, f"docs/routing.md has no table with the titles {', '.join(TITLES)}"
    rows = table["rows"].splitlines()
    return {line.split("|")[1].strip().strip("`"): line for line in rows}


def good_for(line: str) -> str:
    """The last column of a row."""
    return line.split("|")[-2].strip()


def rewritten(page: str, by_system: dict[str, Measures]) -> str:
    """The page with these figures."""
    before = rows_of(page)
    words = {system: good_for(before[system]) if system in before else NOT_WRITTEN for system in by_system}
    rows = "".join(row(system, measures, words[system]) + "\n" for system, measures in by_system.items())
    return _TABLE.sub(lambda table: table[0][: table.start("rows") - table.start()] + rows, page)


def main() -> None:
    page = PAGE.read_text("utf-8")
    by_system = measured()
    PAGE.write_text(rewritten(page, by_system), "utf-8")
    new = sorted(by_system.keys() - rows_of(page).keys())
    print("docs/routing.md", *(f"(say what {system} is good for)" for system in new))


if __name__ == "__main__":
    main()
