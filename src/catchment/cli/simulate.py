"""`catchment simulate`: plays a scenario on one routing system or several, and prints what it measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from catchment.cli.options import JsonFlag
from catchment.cli.terminal import BadUsage, console
from catchment.errors import InputError, UnavailableError, shown

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.table import Table

    from catchment.sim.scenarios.measures import Measures
    from catchment.sim.scenarios.ready import ReadyRun
    from catchment.sim.scenarios.records import Recorder

SCENARIO_HELP: Final = (
    "A file with a scenario: TOML, or the notation of SIENA's Figure 25 or of filter propagation's Figure 4.2."
)
ROUTING_HELP: Final = (
    "The routing systems, to be compared on the same clients and publications. Default: the scenario's. "
    "`all` stands for all systems. A name that does not exist is answered with all names."
)
SET_HELP: Final = (
    "A setting of the routing system, as in batch_ms=20; may be repeated. With several systems, those that have the "
    "setting get it."
)
PICTURE_HELP: Final = "Draw the network with its traffic, for each system: a file name in .svg or .png."
DUMP_HELP: Final = (
    "Write the routing tables of propagation or dvmrp, beside the ideal ones, as JSON Lines: at the times dump_at_s of "
    "the scenario, or at the end."
)
TRACE_HELP: Final = "Write what each broker was told and what it did, as JSON Lines. A long run makes a large file."
PICTURE_ENDINGS: Final = (".svg", ".png")
# Up to so many runs, each is a column of the table; more are rows.
COLUMNS_MAX: Final = 5
# No table is as wide as this.
WIDTH_MOST: Final = 1_000


def simulate(
    scenario: Annotated[str, Parameter(help=SCENARIO_HELP)],
    /,
    *,
    routing: Annotated[list[str] | None, Parameter(help=ROUTING_HELP, metavar="NAME,…", negative="")] = None,
    seed: Annotated[
        list[str] | None,
        Parameter(help="The random seeds, a run for each. Default: the scenario's.", metavar="N,…", negative=""),
    ] = None,
    assignments: Annotated[
        list[str] | None, Parameter(name="--set", help=SET_HELP, metavar="NAME=VALUE", negative="")
    ] = None,
    picture: Annotated[str | None, Parameter(help=PICTURE_HELP, metavar="FILE")] = None,
    dump: Annotated[str | None, Parameter(help=DUMP_HELP, metavar="FILE")] = None,
    trace: Annotated[str | None, Parameter(help=TRACE_HELP, metavar="FILE")] = None,
    as_json: JsonFlag = False,
) -> int:
    """Play a scenario on simulated brokers and measure it. The same seed gives the same run."""
    from catchment.sim.scenarios.records import Recorder

    target = None if picture is None else _picture_path(picture)
    runs = _ready(Path(scenario), _parts(routing), _seeds(_parts(seed)), assignments or [])
    if dump is not None:
        _check_dumps(runs)
    with ExitStack() as files:
        recorder = Recorder(*(None if path is None else _rows_into(files, path) for path in (dump, trace)))
        outcomes = _played(runs, recorder)
    if target is not None:
        _draw(outcomes, target)
    if as_json:
        print(json.dumps({"runs": [outcome.as_json() for outcome in outcomes]}))
    else:
        _print(outcomes, picture)
    return 0


@dataclass(frozen=True)
class _Outcome:
    """A run that was played."""

    run: ReadyRun
    measures: Measures
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        from catchment.sim.scenarios.play import as_json

        return as_json(self.run, self.measures, self.notes)


# --- arguments ----------------------------------------------------------------------------------


def _parts(texts: Sequence[str] | None) -> list[str]:
    """`a,b` and `c` are a, b and c."""
    return [part.strip() for text in texts or () for part in text.split(",") if part.strip()]


def _seeds(texts: Sequence[str]) -> list[int]:
    try:
        return [int(text) for text in texts]
    except ValueError:
        raise BadUsage(f"--seed {shown(','.join(texts))}: write whole numbers, as in 1,2,3") from None


def _picture_path(picture: str) -> Path:
    """Where to draw. What is wrong with that is found before anything is played."""
    path = Path(picture)
    if path.suffix not in PICTURE_ENDINGS:
        raise BadUsage(f"--picture {shown(picture)}: the name ends in {' or '.join(PICTURE_ENDINGS)}")
    if not path.parent.is_dir():
        raise BadUsage(f"--picture {shown(picture)}: there is no directory {shown(str(path.parent))}")
    return path


def _check_dumps(runs: Sequence[ReadyRun]) -> None:
    from catchment.sim.scenarios.records import has_tables_by_publisher

    for run in runs:
        if not has_tables_by_publisher(run.make_core(run.topology.brokers[0])):
            raise BadUsage(f"--dump: {run.scenario.routing} has no tables by publisher: use propagation or dvmrp")


def _rows_into(files: ExitStack, path: str) -> Callable[[dict[str, Any]], None]:
    """What writes rows into a file, which is closed with `files`."""
    try:
        file = files.enter_context(Path(path).open("w", encoding="utf-8"))  # noqa: SIM115 (closed with `files`)
    except OSError as problem:
        raise BadUsage(f"{shown(path)} cannot be written: {problem.strerror}") from None
    return lambda row: print(json.dumps(row), file=file)


def _ready(path: Path, routings: Sequence[str], seeds: Sequence[int], assignments: Sequence[str]) -> list[ReadyRun]:
    """The runs. What is wrong with a scenario is the caller's mistake, and found before anything is played."""
    from catchment.sim.scenarios.notations import read_scenario
    from catchment.sim.scenarios.play import variants
    from catchment.sim.scenarios.ready import ready_run

    try:
        variations = variants(read_scenario(path), routings, seeds, assignments)
        return [ready_run(variation, path.parent) for variation in variations]
    except InputError as problem:
        raise BadUsage(str(problem)) from None


# --- playing ------------------------------------------------------------------------------------


def _played(runs: Sequence[ReadyRun], recorder: Recorder) -> list[_Outcome]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    errors = console(stderr=True)
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as progress:
        return [_played_with_bar(run, recorder, progress) for run in runs]


def _played_with_bar(run: ReadyRun, recorder: Recorder, progress: Progress) -> _Outcome:
    from catchment.sim.scenarios.play import play_ready

    task = progress.add_task(f"{run.scenario.routing}, seed {run.scenario.seed}: publications", total=None)

    def report(done: int, total: int) -> None:
        # A bar has few steps, a run may have millions.
        if done == total or done % max(1, total // 200) == 0:
            progress.update(task, completed=done, total=total)

    measures, notes = play_ready(run, report, recorder)
    return _Outcome(run, measures, notes)


def _draw(outcomes: Sequence[_Outcome], path: Path) -> None:
    """A panel for each system, of its first seed; bars for all seeds."""
    try:
        from catchment.studies.picture import Panel, draw
    except ImportError as problem:
        raise UnavailableError(f"pictures need {problem.name}: install catchment[studies]") from None
    panels: dict[str, Panel] = {}
    bars: dict[str, dict[str, list[float]]] = {"cost": {}, "bytes": {}, "filters in the largest table": {}}
    for outcome in outcomes:
        run, measures, routing = outcome.run, outcome.measures, outcome.run.scenario.routing
        traffic = {load.between: load.messages for load in measures.links}
        panels.setdefault(routing, Panel(routing, run.whole, run.topology, traffic))
        values = (measures.cost, measures.bytes, measures.tables.filters.largest)
        for series, value in zip(bars.values(), values, strict=True):
            series.setdefault(routing, []).append(value)
    first = outcomes[0].run.scenario
    draw(list(panels.values()), path, f"{first.network}, seed {first.seed}", bars if len(panels) > 1 else {})


# --- printing -----------------------------------------------------------------------------------


def _print(outcomes: Sequence[_Outcome], picture: str | None) -> None:
    from rich.measure import Measurement

    out = console()
    first = outcomes[0].run.scenario
    if len(outcomes) == 1:
        simulated_s = outcomes[0].measures.simulated_s
        out.print(f"{first.routing} on {first.network}, seed {first.seed}: {simulated_s:,.1f} s simulated")
    else:
        out.print(f"{len(outcomes)} runs on {first.network}")
    table = _by_columns(outcomes) if len(outcomes) <= COLUMNS_MAX else _by_rows(outcomes)
    # A number that is cut off is worse than a line that is too long.
    needed = Measurement.get(out, out.options.update(max_width=WIDTH_MOST), table).maximum
    out.width = max(out.width, needed)
    out.print(table)
    for note in dict.fromkeys(note for outcome in outcomes for note in outcome.notes):
        out.print(note, soft_wrap=True)
    if picture is not None:
        out.print(f"drawn: {picture}")


def _by_columns(outcomes: Sequence[_Outcome]) -> Table:
    """A row for each measure, a column for each run."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=len(outcomes) > 1)
    table.add_column("", no_wrap=True)
    has_seeds = len({outcome.run.scenario.seed for outcome in outcomes}) > 1
    for outcome in outcomes:
        scenario = outcome.run.scenario
        title = f"{scenario.routing}\nseed {scenario.seed}" if has_seeds else scenario.routing
        table.add_column(_stacked(title), justify="right", no_wrap=True)
    # Each system has messages of its own.
    names = sorted({name for outcome in outcomes for name in outcome.measures.control})
    columns = [_lines(outcome.measures, names) for outcome in outcomes]
    for label in columns[0]:
        values = [column[label] for column in columns]
        if label not in _SHOWN_IF_ANY or set(values) != {"0"}:
            table.add_row(label, *values)
    return table


# Rows that say nothing as long as they are 0.
_SHOWN_IF_ANY: Final = ("refused", "  caused by traffic", "  caused by idle timers")


def _lines(measures: Measures, control_names: Sequence[str]) -> dict[str, str]:
    latency, convergence, work = measures.latency_ms, measures.convergence_ms, measures.work
    return {
        "published": f"{measures.published:,}",
        "delivered": f"{measures.delivered:,}",
        "refused": f"{measures.refused:,}",
        "notifications over links": f"{measures.notifications.link:,}",
        "  without relays": f"{measures.notifications.logical:,}",
        "control messages": f"{sum(measures.control.values()):,}",
        **{f"  {name}": f"{measures.control.get(name, 0):,}" for name in control_names},
        "  caused by changes": f"{measures.control_caused['change']:,}",
        "  caused by traffic": f"{measures.control_caused['traffic']:,}",
        "  caused by idle timers": f"{measures.control_caused['idle']:,}",
        "bytes": f"{measures.bytes:,}",
        "cost": f"{measures.cost:,}",
        "largest table, filters": f"{measures.tables.filters.largest:,}",
        "  all tables": f"{measures.tables.filters.total:,}",
        "largest table, bytes": f"{measures.tables.bytes.largest:,}",
        "  all tables, bytes": f"{measures.tables.bytes.total:,}",
        "hops to a subscriber, mean": _number(measures.hops_mean, 2),
        "latency, mean": _number(None if latency is None else latency.mean, 1, " ms"),
        "  99th percentile": _number(None if latency is None else latency.p99, 1, " ms"),
        "convergence, mean": _number(None if convergence is None else convergence.mean, 1, " ms"),
        "  longest": _number(None if convergence is None else convergence.most, 1, " ms"),
        "false positives": f"{measures.false_positives:,}",
        "notifications matched": f"{work.matched:,}",
        "  for each published": _number(work.matched_per_notification, 2),
        "filters compared": f"{work.compared:,}",
    }


def _stacked(title: str) -> str:
    """A title over a narrow column: each word on a line of its own, but a seed is one word."""
    return title.replace(" ", "\n").replace("seed\n", "seed ")


def _number(value: float | None, digits: int, unit: str = "") -> str:
    return "-" if value is None else f"{value:,.{digits}f}{unit}"


def _by_rows(outcomes: Sequence[_Outcome]) -> Table:
    """A row for each run, and the measures that matter most."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("routing", no_wrap=True)
    titles = (
        "seed", "delivered", "over links", "control", "bytes", "cost", "largest table", "mean hops", "false positives",
    )  # fmt: skip
    for title in titles:
        table.add_column(_stacked(title), justify="right", no_wrap=True)
    for outcome in outcomes:
        scenario, measures = outcome.run.scenario, outcome.measures
        table.add_row(
            scenario.routing,
            str(scenario.seed),
            f"{measures.delivered:,}",
            f"{measures.notifications.link:,}",
            f"{sum(measures.control.values()):,}",
            f"{measures.bytes:,}",
            f"{measures.cost:,}",
            f"{measures.tables.filters.largest:,}",
            _number(measures.hops_mean, 2),
            f"{measures.false_positives:,}",
        )
    return table
