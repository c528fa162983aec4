"""What `./dev bench spark` found, as a table with the targets and as a picture."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.spark_peers import PEERS

SEED = 1
CORES = 2
RESULTS = Path(__file__).parent / "results"

RATE_SHARE_TARGET = 0.6
SQL_MULTIPLE_TARGET = 10
COMPILE_SECONDS_TARGET = 180
COMPILE_GROWTH_TARGET = 4.5
DRIVER_BYTES_TARGET = 2 << 30
PATTERN_RATE_TARGET = 20_000

PARTS = ("patterns", "compiling", "matching")
# What the largest is compared with.
LARGER_OF = ("W2", 1_000_000)


def spread(runs: Sequence[float]) -> str:
    return f"{median(runs):,.0f} ({min(runs):,.0f}–{max(runs):,.0f})" if len(runs) > 1 else f"{runs[0]:,.0f}"


MATCH_HEADER = (
    "| workload | subscriptions | notifications | ids per notification | `match`, notifications/s | of one process "
    f"with ids, × {CORES} cores | of one with ids as views, × {CORES} | of one, numbers, × {CORES} "
    "| `match` where Spark reads the files/s | of one process with ids, × "
    f"{CORES} | `match_counts`/s | {' | '.join(f'{name}/s' for name in PEERS)} | times the best SQL |\n"
    "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|" + "--:|" * (len(PEERS) + 1)
)
FILES_HEADER = (
    "| workload | subscriptions | notifications | ids per notification | `write_matches`, notifications/s | of one "
    f"process, × {CORES} cores | of one process that makes lists of ids and writes nothing, × {CORES} cores "
    "| one process/s | `match(…).write.parquet`/s | times that |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
)
COMPILE_HEADER = (
    "| workload | subscriptions | compile, s | without graph and summaries, s | subscriptions/s | distinct filters "
    "| edges | roots | Python driver, MB | Java, driver and executor, MB |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
)


def share(cell: dict[str, Any], mine: str = "spark", of: str = "lists") -> float:
    """What each core gives on Spark, of what one process gives: the median of runs that were neighbors in time."""
    return float(median(a / CORES / b for a, b in zip(cell[mine], cell["process"][of], strict=True)))


def files_share(cell: dict[str, Any]) -> float:
    return float(median(cell["files"]["workers"]) / CORES / median(cell["files"]["process"]))


def best_sql(cell: dict[str, Any]) -> float | None:
    return max((peer["rate"] for peer in cell["peers"].values()), default=None)


def match_line(cell: dict[str, Any]) -> str:
    best = best_sql(cell)
    texts = [
        cell["workload"],
        f"{cell['size']:,}",
        f"{cell['rows']:,}",
        f"{cell['matches']:,.1f}",
        f"**{spread(cell['spark'])}**",
        f"**{share(cell):.2f}**",
        f"{share(cell, of='views'):.2f}",
        f"{share(cell, of='numbers'):.2f}",
        spread(cell["usual"]),
        f"{share(cell, 'usual'):.2f}",
        spread(cell["counting"]),
        *(f"{cell['peers'][name]['rate']:,.0f}" if name in cell["peers"] else "–" for name in PEERS),
        "–" if best is None else f"**{median(cell['spark']) / best:,.1f}**",
    ]
    line = f"| {' | '.join(texts)} |"
    if "as_columns" in cell:
        columns = cell["as_columns"] | {"workload": f"{cell['workload']} as columns", "size": cell["size"], "peers": {}}
        return f"{line}\n{match_line(columns)}"
    return line


def files_line(cell: dict[str, Any]) -> str:
    files = cell["files"]
    texts = [
        cell["workload"],
        f"{cell['size']:,}",
        f"{cell['rows']:,}",
        f"{cell['matches']:,.1f}",
        f"**{spread(files['workers'])}**",
        f"**{files_share(cell):.2f}**",
        f"{median(files['workers']) / CORES / median(cell['process']['lists']):.2f}",
        spread(files["process"]),
        spread(files["spark"]),
        f"{median(files['workers']) / median(files['spark']):,.1f}",
    ]
    return f"| {' | '.join(texts)} |"


def compile_line(cell: dict[str, Any]) -> str:
    counts = cell["counts"]
    texts = [
        cell["workload"],
        f"{cell['size']:,}",
        f"**{cell['compile_seconds']:,.1f}**",
        "–" if cell.get("bare_seconds") is None else f"{cell['bare_seconds']:,.1f}",
        f"{cell['size'] / cell['compile_seconds']:,.0f}",
        *(f"{counts[name]:,}" if name in counts else "–" for name in ("filters", "edges", "roots")),
        f"{cell['driver_bytes'] / 2**20:,.0f}",
        f"{cell['jvm_bytes'] / 2**20:,.0f}",
    ]
    return f"| {' | '.join(texts)} |"


def name_of(cell: dict[str, Any]) -> str:
    return f"{cell['workload']}, {cell['size']:,}"


@dataclass
class Verdicts:
    """What was wanted, and whether it is so."""

    lines: list[str] = field(default_factory=list)

    def say(self, what: str, met: bool, figure: str) -> None:
        self.lines.append(f"- {what}: {figure}. {'Met.' if met else '**Missed.**'}")

    def matching(self, cells: Sequence[dict[str, Any]]) -> None:
        hundred = [
            median(cell["spark"]) / (best_sql(cell) or 1) for cell in cells if cell["size"] == 100_000 and cell["peers"]
        ]
        if hundred:
            self.say(
                f"at least {SQL_MULTIPLE_TARGET} times the best SQL at 100,000, every workload",
                min(hundred) >= SQL_MULTIPLE_TARGET,
                f"least {min(hundred):,.1f}",
            )
        self._least(cells, "files into files, at least {} × cores × one process that does the same", files_share)
        self._least(cells, "rows for Spark, at least {} × cores × one process that makes lists of ids too", share)
        least = min(cells, key=lambda cell: share(cell, "usual"))
        self.lines.append(
            f"- the same rows where Spark has to read the files: least {share(least, 'usual'):.2f} ({name_of(least)})"
        )

    def _least(self, cells: Sequence[dict[str, Any]], what: str, share: Callable[[dict[str, Any]], float]) -> None:
        least = min(cells, key=share)
        is_met = share(least) >= RATE_SHARE_TARGET
        self.say(what.format(RATE_SHARE_TARGET), is_met, f"least {share(least):.2f} ({name_of(least)})")

    def compiling(self, cells: Sequence[dict[str, Any]]) -> None:
        million = [cell["compile_seconds"] for cell in cells if cell["size"] == 1_000_000]
        if million:
            slowest = max(million)
            self.say("1M compiled in under 3 minutes", slowest < COMPILE_SECONDS_TARGET, f"slowest {slowest:,.0f} s")
        took = {(cell["workload"], cell["size"]): cell["compile_seconds"] for cell in cells}
        for (_, size), seconds in took.items():
            if size > LARGER_OF[1]:
                growth = seconds / took[LARGER_OF]
                self.say(f"{size:,} in under 4.5 times that", growth < COMPILE_GROWTH_TARGET, f"{growth:.2f} times")
        most = max(cell["driver_bytes"] for cell in cells)
        self.say(
            "driver memory under 2 GB",
            most < DRIVER_BYTES_TARGET,
            f"Python {most / 2**20:,.0f} MB, Java's heap 1 GB at most",
        )

    def patterns(self, part: dict[str, Any]) -> None:
        self.say(
            "patterns: at least 20,000 matched notifications/s",
            median(part["rates"]) >= PATTERN_RATE_TARGET,
            f"{spread(part['rates'])}",
        )


class Results:
    """What each part found last; that of others is kept from before."""

    def __init__(self, command: str, is_kept: bool) -> None:
        self._command, self._is_kept = command, is_kept
        before = RESULTS / "spark.json"
        self._parts: dict[str, dict[str, Any]] = json.loads(before.read_text("utf-8")) if before.exists() else {}
        self._measured: set[str] = set()

    def say(self, part: str, figures: dict[str, Any]) -> None:
        """What a part has found so far."""
        self._measured.add(part)
        self._parts[part] = figures | {"command": self._command}
        if part == "patterns":
            print(f"patterns: {spread(figures['rates'])}", flush=True)
        else:
            lines = (compile_line,) if part == "compiling" else (match_line, files_line)
            print(*(line(figures["cells"][-1]) for line in lines), sep="\n", flush=True)
        if self._is_kept:
            self.write()

    def verdicts(self, only_measured: bool = True) -> list[str]:
        verdicts = Verdicts()
        parts = {name: part for name, part in self._parts.items() if name in self._measured or not only_measured}
        if "matching" in parts:
            verdicts.matching(parts["matching"]["cells"])
        if "compiling" in parts:
            verdicts.compiling(parts["compiling"]["cells"])
        if "patterns" in parts:
            verdicts.patterns(parts["patterns"])
        return verdicts.lines

    def write(self) -> None:
        parts = self._parts
        text = ["# Spark", "", _ABOUT, "", *self.verdicts(only_measured=False)]
        if "matching" in parts:
            text += _matching(parts["matching"])
        if "compiling" in parts:
            text += ["", "## Compiling", "", f"`{parts['compiling']['command']}`.", "", COMPILE_HEADER]
            text += map(compile_line, parts["compiling"]["cells"])
        if "patterns" in parts:
            text += ["", "## Patterns", "", _patterns(parts["patterns"])]
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "spark.md").write_text("\n".join([*text, ""]), "utf-8")
        (RESULTS / "spark.json").write_text(json.dumps(parts, indent=1) + "\n", "utf-8")
        if "matching" in parts:
            plot(parts["matching"]["cells"], RESULTS / "spark.svg")


_ABOUT = (
    f"Seed {SEED}, `local[{CORES}]`, wall time, Python {platform.python_version()}, {platform.machine()}. Each part "
    "says by which command it was measured; of several runs the median (least–greatest)."
)


def _matching(part: dict[str, Any]) -> list[str]:
    about = (
        f"`{part['command']}`, {part['runs']} runs, in turns, after some seconds that are not counted, in which Java "
        "compiles what it runs; a share is the median of those of neighboring runs. SQL gives pairs of numbers, "
        "`match` lists of ids, both into a sink that keeps nothing; SQL is not run past 100,000. The files are such as "
        "workers read themselves (docs/pipeline.md); what `match` does with rows that Spark has to read is measured "
        "too. Notifications of W3 are a map of attributes in Parquet, and an array to SQL; as a thousand columns they "
        "are measured once, which counts for no target."
    )
    files = (
        "Parquet into Parquet, in the same run. One process reads, matches and writes as a worker does; Spark's own "
        "writer gets fewer notifications."
    )
    cells = part["cells"]
    return [
        *("", "## Matching", "", about, "", MATCH_HEADER, *map(match_line, cells), "", "![](spark.svg)"),
        *("", "## Files into files", "", files, "", FILES_HEADER, *map(files_line, cells)),
    ]


def _patterns(part: dict[str, Any]) -> str:
    return (
        f"`{part['command']}`: {part['rows']:,} notifications, each a step of a sequence of three by host, "
        f"{part['found']:,} sequences found, {spread(part['rates'])} notifications/s."
    )


def plot(cells: Sequence[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    workloads = list(dict.fromkeys(cell["workload"] for cell in cells))
    figure, axes = plt.subplots(1, len(workloads), figsize=(4.2 * len(workloads), 4.2), sharey=True, squeeze=False)
    for axis, workload in zip(axes[0], workloads, strict=True):
        mine = [cell for cell in cells if cell["workload"] == workload]
        sizes = [cell["size"] for cell in mine]
        axis.loglog(sizes, [median(cell["spark"]) for cell in mine], marker="o", linewidth=2, label="match, Spark")
        axis.loglog(sizes, [median(cell["process"]["lists"]) for cell in mine], marker="s", label="one process, ids")
        axis.loglog(
            sizes, [median(cell["process"]["numbers"]) for cell in mine], marker="^", label="one process, numbers"
        )
        for name in PEERS:
            with_peer = [cell for cell in mine if name in cell["peers"]]
            if with_peer:
                rates = [cell["peers"][name]["rate"] for cell in with_peer]
                axis.loglog([cell["size"] for cell in with_peer], rates, marker="x", linestyle=":", label=name)
        axis.set(title=workload, xlabel="subscriptions")
        axis.grid(True, which="major", alpha=0.3)
    axes[0][0].set(ylabel="notifications per second")
    axes[0][0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path)
