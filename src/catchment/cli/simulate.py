"""`catchment simulate`: plays a scenario and prints what it measured."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catchment.cli.terminal import BadUsage, console
from catchment.errors import InputError

if TYPE_CHECKING:
    from catchment.sim.scenarios.play import Measures
    from catchment.sim.scenarios.scenario import Scenario


def run_simulate(scenario: str, changes: dict[str, Any], picture: str | None, as_json: bool) -> int:
    """`changes` stand in for what the scenario says."""
    from catchment.sim.scenarios.notations import read_scenario
    from catchment.sim.scenarios.scenario import merging_share

    path = Path(scenario)
    try:
        found = read_scenario(path)
        if "merging" in changes:
            changes = {**changes, "merging": merging_share(_number_or_word(changes["merging"]))}
        found = replace(found, **changes)
        found.topology(path.parent)
    except InputError as problem:
        raise BadUsage(str(problem)) from None
    measures = _played(found, path.parent)
    if picture is not None:
        from catchment.studies.picture import draw

        draw(found.topology(path.parent), measures.links, Path(picture), f"{found.core} on {found.network}")
    if as_json:
        print(json.dumps(_as_json(found, measures)))
    else:
        _print(found, measures, picture)
    return 0


def _number_or_word(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text


def _played(scenario: Scenario, directory: Path) -> Measures:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from catchment.sim.scenarios.play import play

    columns = (TextColumn("publications"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)
        return play(scenario, directory, lambda done, total: progress.update(task, completed=done, total=total))


def _as_json(scenario: Scenario, measures: Measures) -> dict[str, object]:
    links = [{"between": list(pair), "messages": count} for pair, count in measures.links.items()]
    return {
        "core": scenario.core,
        "network": scenario.network,
        "seed": scenario.seed,
        **{name: value for name, value in asdict(measures).items() if name != "links"},
        "cost_total": measures.cost_total,
        "links": links,
    }


def _print(scenario: Scenario, measures: Measures, picture: str | None) -> None:
    from rich.table import Table

    out = console()
    out.print(f"{scenario.core} on {scenario.network}, seed {scenario.seed}: {measures.simulated_s:,.1f} s simulated")
    kinds = Table("messages between brokers", "number", "bytes", "cost", box=None, pad_edge=False)
    for column in kinds.columns[1:]:
        column.justify = "right"
    for kind, count in measures.messages.items():
        kinds.add_row(kind, f"{count:,}", f"{measures.bytes[kind]:,}", f"{measures.cost[kind]:,}")
    out.print(kinds)
    lines = {
        "published": f"{measures.published:,}",
        "delivered": f"{measures.delivered:,}",
        "refused": f"{measures.refused:,}",
        "total cost": f"{measures.cost_total:,}",
        "latency, mean": f"{measures.latency_ms_mean:,.1f} ms",
        "latency, 99th percentile": f"{measures.latency_ms_p99:,.1f} ms",
        "hops to a subscriber, mean": f"{measures.hops_mean:,.2f}",
        "convergence, mean": f"{measures.convergence_ms_mean:,.1f} ms",
        "convergence, longest": f"{measures.convergence_ms_most:,.1f} ms",
        "false positives": f"{measures.false_positives:,}",
        "control messages a delivery": f"{measures.control_share:.3f}",
        "filters in the largest table": f"{measures.table_filters_most:,}",
    }
    width = max(map(len, lines))
    for name, value in lines.items():
        out.print(f"{name:<{width}}  {value}")
    if picture is not None:
        out.print(f"drawn: {picture}")
