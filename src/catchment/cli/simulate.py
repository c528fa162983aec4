"""`catchment simulate`: plays a scenario and prints what it measured."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from catchment.cli.options import JsonFlag
from catchment.cli.terminal import BadUsage, console
from catchment.errors import InputError

if TYPE_CHECKING:
    from catchment.sim.scenarios.play import Measures
    from catchment.sim.scenarios.scenario import Scenario

SCENARIO_HELP: Final = (
    "A file with a scenario: TOML, or the notation of SIENA's Figure 25 or of filter propagation's Figure 4.2."
)
MERGING_HELP: Final = (
    "How brokers merge the filters they send over a link: none, perfect, or a number such as 0.3: the largest share "
    "of a merged filter that nobody asked for."
)
BATCH_HELP: Final = "How long changes of filters wait, to go over a link together."


def simulate(
    scenario: Annotated[str, Parameter(help=SCENARIO_HELP)],
    /,
    *,
    core: Annotated[str | None, Parameter(help="The routing system. Default: the scenario's.", metavar="NAME")] = None,
    seed: Annotated[int | None, Parameter(help="The random seed. Default: the scenario's.")] = None,
    merging: Annotated[str | None, Parameter(help=MERGING_HELP, metavar="HOW")] = None,
    batch_ms: Annotated[float | None, Parameter(help=BATCH_HELP, metavar="MILLISECONDS")] = None,
    picture: Annotated[
        str | None, Parameter(help="Draw the network with its traffic: a file name in .svg or .png.", metavar="FILE")
    ] = None,
    as_json: JsonFlag = False,
) -> int:
    """Play a scenario on simulated brokers and measure it. The same seed gives the same run."""
    options = {"core": core, "seed": seed, "merging": merging, "batch_ms": batch_ms}
    changes = {name: value for name, value in options.items() if value is not None}
    return run_simulate(scenario, changes, picture, as_json)


def run_simulate(scenario: str, changes: dict[str, Any], picture: str | None, as_json: bool) -> int:
    """Plays the scenario of a file. `changes` replace what the file says."""
    from catchment.sim.scenarios.notations import read_scenario
    from catchment.sim.scenarios.scenario import merging_share

    path = Path(scenario)
    try:
        chosen = read_scenario(path)
        if "merging" in changes:
            changes = {**changes, "merging": merging_share(_number_or_word(changes["merging"]))}
        chosen = replace(chosen, **changes)
        # A network that cannot be made is the caller's mistake too: find it before the run begins.
        chosen.topology(path.parent)
    except InputError as problem:
        raise BadUsage(str(problem)) from None
    measures = _played(chosen, path.parent)
    if picture is not None:
        from catchment.studies.picture import draw

        draw(chosen.topology(path.parent), measures.links, Path(picture), f"{chosen.core} on {chosen.network}")
    if as_json:
        print(json.dumps(_to_json(chosen, measures)))
    else:
        _print_measures(chosen, measures, picture)
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


def _to_json(scenario: Scenario, measures: Measures) -> dict[str, object]:
    links = [{"between": list(brokers), "messages": count} for brokers, count in measures.links.items()]
    return {
        "core": scenario.core,
        "network": scenario.network,
        "seed": scenario.seed,
        **{name: value for name, value in asdict(measures).items() if name != "links"},
        "cost_total": measures.cost_total,
        "links": links,
    }


def _print_measures(scenario: Scenario, measures: Measures, picture: str | None) -> None:
    from rich.table import Table

    out = console()
    out.print(f"{scenario.core} on {scenario.network}, seed {scenario.seed}: {measures.simulated_s:,.1f} s simulated")
    messages = Table("messages between brokers", "number", "bytes", "cost", box=None, pad_edge=False)
    for column in messages.columns[1:]:
        column.justify = "right"
    for name, count in measures.messages.items():
        messages.add_row(name, f"{count:,}", f"{measures.bytes[name]:,}", f"{measures.cost[name]:,}")
    out.print(messages)
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
