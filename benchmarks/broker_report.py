"""The table, the plot and the profile of `./dev bench broker`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from benchmarks.broker_cases import PROFILED, Case, Result
from benchmarks.broker_profile import Profile
from benchmarks.figures import Figure

RESULTS = Path(__file__).resolve().parent / "results"
# A publisher that sent this much slower than it should has not measured half load: it is said.
KEPT_MIN = 0.95

HOW = """\
Of each the median, the least and the most in brackets; p99 is of all deliveries, from the first, at half of the
measured rate, and worst is the slowest of them in any run. Brokers took turns, on two cores that broker, publisher and
subscribers share, with Python clients. Times mean little; ratios are to compare."""


def write_report(results: Sequence[Result], profile: Profile, command: str) -> None:
    RESULTS.mkdir(exist_ok=True)
    cases = list(dict.fromkeys(result.case for result in results))
    rows = [
        "# A live broker under load",
        "",
        f"`{command}`, runs of each: {max(len(result.rates) for result in results)}.",
        HOW,
        "",
        "| case | broker | notifications/s | deliveries/s | p50 ms | p99 ms | worst ms | Catchment is |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
        *(f"| {' | '.join(row)} |" for case in cases for row in _rows(results, case)),
        "",
        "![Notifications a second](broker.svg)",
        "",
        "## Where the broker's time goes",
        "",
        f"{PROFILED.name.capitalize()}, full load; a run of its own, because looking makes it slower.",
        "",
        *profile_lines(profile),
        "",
    ]
    (RESULTS / "broker.md").write_text("\n".join(rows), "utf-8")
    _plot(results, [case.name for case in cases])


def write_routing(results: Sequence[Result], command: str, reference: str) -> None:
    """The table of routing systems."""
    RESULTS.mkdir(exist_ok=True)
    cases = list(dict.fromkeys(result.case for result in results))
    rows = [
        "# Live brokers with different routing systems",
        "",
        f"`{command}`, runs of each: {max(len(result.rates) for result in results)}.",
        HOW,
        "",
        f"| case | routing system | notifications/s | p50 ms | p99 ms | worst ms | `{reference}` is |",
        "|---|---|--:|--:|--:|--:|--:|",
        *(
            f"| {name} | `{peer}` | {' | '.join((rate, *latency))} |"
            for case in cases
            for name, peer, rate, _, *latency in _rows(results, case, reference)
        ),
        "",
    ]
    (RESULTS / "broker_routing.md").write_text("\n".join(rows), "utf-8")


def lines_of(results: Sequence[Result], case: Case, reference: str = "Catchment") -> Iterator[str]:
    """Those of one case, for a terminal. Ratios are of `reference` to the others."""
    for name, peer, rate, deliveries, p50, p99, worst, ratio in _rows(results, case, reference):
        delivered = f"{deliveries:>9}/s delivered" if case.fan_out > 1 else ""
        yield f"{name:22} {peer:10} {rate:>28}/s {delivered} p50 {p50} p99 {p99} worst {worst} ms {ratio}"


def figures_of(result: Result) -> Iterator[Figure]:
    """Those of one broker in one case, for another program."""
    name = f"{result.case.name}, {result.peer}"
    yield Figure(f"{name}: notifications/s", is_more_faster=True, values=result.rates)
    yield Figure(f"{name}: p50 ms", is_more_faster=False, values=result.p50s_ms)
    yield Figure(f"{name}: p99 ms", is_more_faster=False, values=result.p99s_ms)


def _rows(results: Sequence[Result], case: Case, reference: str = "Catchment") -> Iterator[tuple[str, ...]]:
    mine = [result for result in results if result.case == case]
    ours = next((result for result in mine if result.peer == reference), None)
    for result in mine:
        p99 = _spread(result.p99s_ms, ".2f") + (
            "" if result.kept >= KEPT_MIN else f", at {result.kept:.0%} of half load"
        )
        p99 += f", {result.missed:,} dropped" if result.missed else ""
        ratio = "" if ours in (None, result) else f"{_spread(result.ratios(ours), ',.2f')} × as fast"
        delivered = f"{result.rate * case.fan_out:,.0f}"
        latency = f"{median(result.p50s_ms):.2f}", p99, f"{result.worst_ms:.1f}"
        yield case.name, result.peer, _spread(result.rates, ",.0f"), delivered, *latency, ratio


def _spread(values: Sequence[float], form: str) -> str:
    if len(values) == 1:
        return f"{values[0]:{form}}"
    return f"{median(values):{form}} ({min(values):{form}}–{max(values):{form}})"


def profile_lines(profile: Profile) -> list[str]:
    return [
        f"By {profile.how}.",
        "",
        "| layer | share |",
        "|---|--:|",
        *(f"| {name} | {share:.0%} |" for name, share in profile.layers),
        "",
        "| function, without what it calls | share |",
        "|---|--:|",
        *(f"| `{name}` | {share:.0%} |" for name, share in profile.functions),
    ]


def _plot(results: Sequence[Result], cases: Sequence[str]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    peers = list(dict.fromkeys(result.peer for result in results))
    figure, axes = plt.subplots(figsize=(9, 4.5))
    width = 0.8 / len(peers)
    for place, peer in enumerate(peers):
        mine = {result.case.name: result for result in results if result.peer == peer}
        at = [i + place * width for i, case in enumerate(cases) if case in mine]
        rates = [mine[case].rate for case in cases if case in mine]
        axes.bar(at, rates, width, label=peer)
    axes.set_yscale("log")
    axes.set_ylabel("notifications/s")
    axes.set_xticks([i + 0.4 - width / 2 for i in range(len(cases))], cases, fontsize=8)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(RESULTS / "broker.svg", metadata={"Date": None})
    plt.close(figure)
