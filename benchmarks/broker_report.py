"""The table and the plot of `./dev bench broker`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"


def write_report(results: list[dict[str, Any]], command: str, runs: int) -> None:
    RESULTS.mkdir(exist_ok=True)
    cases = list(dict.fromkeys(one["case"] for one in results))
    rows = [
        "# A live broker under load",
        "",
        f"`{command}`, runs of each: {runs}. The median, least and most in brackets; every peer in the same run, on",
        "two cores that broker, publisher and subscribers share, with Python clients. Times mean little; ratios are to",
        "compare. Latency is at half of the measured rate; p99 of all, and of all but the first fifth.",
        "",
        "| case | broker | notifications/s | deliveries/s | p50 ms | p99 ms | p99 ms, later | Catchment is |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for case in cases:
        ours = next((one["rate"] for one in results if one["case"] == case and one["peer"] == "Catchment"), None)
        for one in (one for one in results if one["case"] == case):
            ratio = "" if ours is None or one["peer"] == "Catchment" else f"{ours / one['rate']:,.2f} × as fast"
            rows.append(
                f"| {case} | {one['peer']} | {one['rate']:,.0f} ({one['least']:,.0f}–{one['most']:,.0f}) "
                f"| {one['rate'] * one['fan_out']:,.0f} | {one['p50_ms']:.2f} | {one['p99_ms']:.2f} "
                f"| {one['later_p99_ms']:.2f} | {ratio} |"
            )
    rows += ["", "![Notifications a second](broker.svg)", ""]
    (RESULTS / "broker.md").write_text("\n".join(rows), "utf-8")
    _plot(results, cases)


def _plot(results: list[dict[str, Any]], cases: list[str]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    peers = list(dict.fromkeys(one["peer"] for one in results))
    figure, axes = plt.subplots(figsize=(9, 4.5))
    width = 0.8 / len(peers)
    for place, peer in enumerate(peers):
        mine = {one["case"]: one for one in results if one["peer"] == peer}
        at = [i + place * width for i, case in enumerate(cases) if case in mine]
        rates = [mine[case]["rate"] for case in cases if case in mine]
        axes.bar(at, rates, width, label=peer)
    axes.set_yscale("log")
    axes.set_ylabel("notifications/s")
    axes.set_xticks([i + 0.4 - width / 2 for i in range(len(cases))], cases, fontsize=8)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(RESULTS / "broker.svg", metadata={"Date": None})
    plt.close(figure)
