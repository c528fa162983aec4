"""What `./dev bench spark` found, as a table with the targets and as a picture."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
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


def spread(runs: Sequence[float]) -> str:
    return f"{median(runs):,.0f} ({min(runs):,.0f}–{max(runs):,.0f})" if len(runs) > 1 else f"{runs[0]:,.0f}"


MATCH_HEADER = (
    "| workload | subscriptions | notifications | ids per notification | `match`, notifications/s | of one process "
    f"with ids, × {CORES} cores | of one process, numbers, × {CORES} cores | `match_counts`/s "
    f"| {' | '.join(f'{name}/s' for name in PEERS)} | times the best SQL |\n"
    "|---|--:|--:|--:|--:|--:|--:|--:|" + "--:|" * (len(PEERS) + 1)
)
FILES_HEADER = (
    "| workload | subscriptions | notifications | ids per notification | `write_matches`, notifications/s | of one "
    f"process, × {CORES} cores | one process/s | `match(…).write.parquet`/s | times that |\n"
    "|---|--:|--:|--:|--:|--:|--:|--:|--:|"
)
COMPILE_HEADER = (
    "| workload | subscriptions | compile, s | without graph and summaries, s | subscriptions/s | distinct filters "
    "| edges | roots | Python driver, MB | Java, driver and executor, MB |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
)


def shares(one: dict[str, Any]) -> tuple[float, float]:
    mine = median(one["spark"])
    return mine / CORES / median(one["process"]["lists"]), mine / CORES / median(one["process"]["numbers"])


def files_share(one: dict[str, Any]) -> float:
    return median(one["files"]["workers"]) / CORES / median(one["files"]["process"])


def best_sql(one: dict[str, Any]) -> float | None:
    return max((peer["rate"] for peer in one["peers"].values()), default=None)


def match_line(one: dict[str, Any]) -> str:
    with_ids, numbers = shares(one)
    best = best_sql(one)
    cells = [
        one["workload"],
        f"{one['size']:,}",
        f"{one['rows']:,}",
        f"{one['matches']:,.1f}",
        f"**{spread(one['spark'])}**",
        f"{with_ids:.2f}",
        f"{numbers:.2f}",
        spread(one["counting"]),
        *(f"{one['peers'][name]['rate']:,.0f}" if name in one["peers"] else "–" for name in PEERS),
        "–" if best is None else f"**{median(one['spark']) / best:,.1f}**",
    ]
    line = f"| {' | '.join(cells)} |"
    if "as_columns" in one:
        columns = one["as_columns"] | {"workload": f"{one['workload']} as columns", "size": one["size"], "peers": {}}
        return f"{line}\n{match_line(columns)}"
    return line


def files_line(one: dict[str, Any]) -> str:
    files = one["files"]
    cells = [
        one["workload"],
        f"{one['size']:,}",
        f"{one['rows']:,}",
        f"{one['matches']:,.1f}",
        f"**{spread(files['workers'])}**",
        f"**{files_share(one):.2f}**",
        spread(files["process"]),
        spread(files["spark"]),
        f"{median(files['workers']) / median(files['spark']):,.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def compile_line(one: dict[str, Any]) -> str:
    counts = one["counts"]
    cells = [
        one["workload"],
        f"{one['size']:,}",
        f"**{one['compile_seconds']:,.1f}**",
        "–" if one.get("bare_seconds") is None else f"{one['bare_seconds']:,.1f}",
        f"{one['size'] / one['compile_seconds']:,.0f}",
        *(f"{counts[name]:,}" if name in counts else "–" for name in ("filters", "edges", "roots")),
        f"{one['driver_bytes'] / 2**20:,.0f}",
        f"{one['jvm_bytes'] / 2**20:,.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def verdicts(cells: Sequence[dict[str, Any]], larger: dict[str, Any] | None, found: dict[str, Any] | None) -> list[str]:
    """What was wanted, and whether it is so."""
    lines = []

    def say(what: str, met: bool, figure: str) -> None:
        lines.append(f"- {what}: {figure}. {'Met.' if met else '**Missed.**'}")

    hundred = [median(one["spark"]) / (best_sql(one) or 1) for one in cells if one["size"] == 100_000 and one["peers"]]
    if hundred:
        say(
            f"at least {SQL_MULTIPLE_TARGET} times the best SQL at 100,000, every workload",
            min(hundred) >= SQL_MULTIPLE_TARGET,
            f"least {min(hundred):,.1f}",
        )
    for what, share in (
        ("files into files, at least {} × cores × one process that does the same", files_share),
        (
            "rows for Spark, at least {} × cores × one process that makes the same lists of ids",
            lambda one: shares(one)[0],
        ),
    ):
        least = min(cells, key=share)
        say(
            what.format(RATE_SHARE_TARGET),
            share(least) >= RATE_SHARE_TARGET,
            f"least {share(least):.2f} ({least['workload']}, {least['size']:,})",
        )
    million = [one["compile_seconds"] for one in cells if one["size"] == 1_000_000]
    if million:
        slowest = max(million)
        say("1M compiled in under 3 minutes", slowest < COMPILE_SECONDS_TARGET, f"slowest {slowest:,.0f} s")
    if larger is not None:
        base = next(one for one in cells if one["size"] == 1_000_000 and one["workload"] == larger["workload"])
        growth = larger["compile_seconds"] / base["compile_seconds"]
        say("4M in under 4.5 times that", growth < COMPILE_GROWTH_TARGET, f"{growth:.2f} times")
    most = max(one["driver_bytes"] for one in [*cells, *([larger] if larger else [])])
    say(
        "driver memory under 2 GB",
        most < DRIVER_BYTES_TARGET,
        f"Python {most / 2**20:,.0f} MB, Java's heap 1 GB at most",
    )
    if found is not None:
        rate = median(found["rates"])
        say(
            "patterns: at least 20,000 matched notifications/s",
            rate >= PATTERN_RATE_TARGET,
            f"{spread(found['rates'])}",
        )
    return lines


def plot(cells: Sequence[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    workloads = list(dict.fromkeys(one["workload"] for one in cells))
    figure, axes = plt.subplots(1, len(workloads), figsize=(4.2 * len(workloads), 4.2), sharey=True, squeeze=False)
    for axis, workload in zip(axes[0], workloads, strict=True):
        mine = [one for one in cells if one["workload"] == workload]
        sizes = [one["size"] for one in mine]
        axis.loglog(sizes, [median(one["spark"]) for one in mine], marker="o", linewidth=2, label="match, Spark")
        axis.loglog(sizes, [median(one["process"]["lists"]) for one in mine], marker="s", label="one process, ids")
        axis.loglog(
            sizes, [median(one["process"]["numbers"]) for one in mine], marker="^", label="one process, numbers"
        )
        for name in PEERS:
            with_peer = [one for one in mine if name in one["peers"]]
            if with_peer:
                rates = [one["peers"][name]["rate"] for one in with_peer]
                axis.loglog([one["size"] for one in with_peer], rates, marker="x", linestyle=":", label=name)
        axis.set(title=workload, xlabel="subscriptions")
        axis.grid(True, which="major", alpha=0.3)
    axes[0][0].set(ylabel="notifications per second")
    axes[0][0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path)


def write_report(
    arguments: Sequence[str],
    cells: Sequence[dict[str, Any]],
    larger: dict[str, Any] | None,
    found: dict[str, Any],
    lines: Sequence[str],
    runs: int,
) -> None:
    command = " ".join(["./dev bench spark", *arguments])
    about = (
        f"`{command}`, seed {SEED}, `local[{CORES}]`, wall time, median of {runs} runs (least–greatest). Python "
        f"{platform.python_version()}, {platform.machine()}. SQL gives pairs of numbers, `match` lists of ids, both "
        "into a sink that keeps nothing; SQL is not run past 100,000. Notifications of W3 are a map of attributes in "
        "Parquet, and an array to SQL; as a thousand columns they are measured once, which counts for no target."
    )
    compiles = [*cells, *([larger] if larger else [])]
    about_patterns = (
        f"Patterns: {found['rows']:,} notifications, each a step of a sequence of three by host, {found['found']:,} "
        f"sequences found, {spread(found['rates'])} notifications/s."
    )
    text = [
        "# Spark",
        "",
        about,
        "",
        *lines,
        "",
        "## Matching",
        "",
        MATCH_HEADER,
        *map(match_line, cells),
        "",
        "![](spark.svg)",
        "",
        "## Files into files",
        "",
        "Parquet into Parquet. One process reads, matches and writes as a worker does; Spark's own writer gets fewer "
        "notifications.",
        "",
        FILES_HEADER,
        *map(files_line, cells),
        "",
        "## Compiling",
        "",
        COMPILE_HEADER,
        *map(compile_line, compiles),
        "",
        "## Patterns",
        "",
        about_patterns,
        "",
    ]
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "spark.md").write_text("\n".join(text), "utf-8")
    everything = {"cells": cells, "larger": larger, "patterns": found}
    (RESULTS / "spark.json").write_text(json.dumps(everything, indent=1) + "\n", "utf-8")
    plot(cells, RESULTS / "spark.svg")
