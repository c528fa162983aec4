"""Networks drawn with their traffic: each link as thick and dark as what it carried.

Several routing systems are drawn side by side, at the same places and on one scale of colours, so that panels can be
compared. Below them are bars.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

import rustworkx

from catchment.sim.topology import Topology

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

# Names are drawn only where they can be read.
NAMED_BROKERS_MAX: Final = 60
PANELS_ACROSS: Final = 3
_WIDTH_MOST: Final = 6.0

# By title of a measure and name of a system: a value for each seed.
Bars = Mapping[str, Mapping[str, Sequence[float]]]


@dataclass(frozen=True)
class Panel:
    """A network in a picture. `whole` has all links and says where brokers are drawn; those of `topology` are drawn."""

    title: str
    whole: Topology
    topology: Topology
    traffic: Mapping[tuple[str, str], int]


def places(topology: Topology) -> dict[str, tuple[float, float]]:
    """Where to draw each broker; the same network is always drawn alike."""
    graph = rustworkx.PyGraph()
    nodes = dict(zip(topology.brokers, graph.add_nodes_from(list(topology.brokers)), strict=True))
    graph.add_edges_from([(nodes[link.first], nodes[link.second], 1.0 / link.cost) for link in topology.links])
    layout = rustworkx.spring_layout(graph, k=2 / sqrt(len(nodes)), num_iter=200, weight_fn=float, seed=1)
    return {name: (layout[node][0], layout[node][1]) for name, node in nodes.items()}


def draw(panels: Sequence[Panel], path: Path, title: str = "", bars: Bars | None = None) -> None:
    """Writes a picture, PNG or SVG by its name. The same panels give the same file."""
    import matplotlib

    matplotlib.use("svg" if path.suffix == ".svg" else "agg")
    matplotlib.rcParams["svg.hashsalt"] = "catchment"
    import matplotlib.pyplot as plt

    # Four in two rows of two; otherwise rows of three.
    across = 2 if len(panels) == 4 else min(len(panels), PANELS_ACROSS)
    rows = ceil(len(panels) / across)
    each = 9.0 if len(panels) == 1 else 4.6
    heights = [0.78 * each] * rows + ([2.4] if bars else [])
    figure = plt.figure(figsize=(each * across, sum(heights)), layout="constrained")
    parts = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    figure.suptitle(f"{panels[0].title} on {title}" if len(panels) == 1 else title)
    most = max((count for panel in panels for count in panel.traffic.values()), default=0) or 1
    for row in range(rows):
        _draw_row(parts[row], panels[row * across : (row + 1) * across], across, most)
    if bars:
        _draw_bars(parts[-1], bars)
    # Without the date, which would make every file another.
    figure.savefig(path, dpi=120, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


def _draw_row(part: Any, panels: Sequence[Panel], across: int, most: int) -> None:
    """Networks side by side. `most` is what the darkest link of all panels carried."""
    import matplotlib.pyplot as plt
    from matplotlib.colors import Normalize

    axes = part.subplots(1, across, squeeze=False)[0]
    for axis in axes:
        axis.set_axis_off()
    for axis, panel in zip(axes, panels, strict=False):
        _draw_network(axis, panel, most, is_alone=across == 1)
    scale = plt.cm.ScalarMappable(Normalize(0, most), _colours())
    part.colorbar(scale, ax=list(axes), label="messages over a link", shrink=0.6)


def _draw_network(axis: Axes, panel: Panel, most: int, *, is_alone: bool) -> None:
    at, colours = places(panel.whole), _colours()
    for link in sorted(panel.topology.links, key=lambda link: panel.traffic.get((link.first, link.second), 0)):
        share = panel.traffic.get((link.first, link.second), 0) / most
        (x0, y0), (x1, y1) = at[link.first], at[link.second]
        colour = colours(share) if share else "0.85"
        axis.plot([x0, x1], [y0, y1], color=colour, linewidth=0.6 + _WIDTH_MOST * share, zorder=1 + share)
    has_names = len(at) <= NAMED_BROKERS_MAX
    size = (320 if is_alone else 120) if has_names else (24 if is_alone else 8)
    xs, ys = zip(*at.values(), strict=True)
    axis.scatter(xs, ys, s=size, color="white", edgecolors="0.2", zorder=3)
    if has_names:
        for name, (x, y) in at.items():
            axis.annotate(name, (x, y), ha="center", va="center", fontsize=8 if is_alone else 5, zorder=4)
    if not is_alone:
        axis.set_title(panel.title)


def _colours() -> Colormap:
    """From light to dark. The lightest of the map cannot be seen on white."""
    import matplotlib.pyplot as plt
    from matplotlib.colors import ListedColormap

    return ListedColormap([plt.get_cmap("viridis_r")(0.15 + 0.85 * step / 255) for step in range(256)])


def _draw_bars(part: Any, bars: Bars) -> None:
    """For each measure the mean over seeds, with a line from the least to the most."""
    from matplotlib.ticker import MaxNLocator

    axes = part.subplots(1, len(bars), squeeze=False, sharey=True)[0]
    for axis, (title, values_by_system) in zip(axes, bars.items(), strict=True):
        systems = list(values_by_system)
        means = [fmean(values_by_system[system]) for system in systems]
        reach = [
            [mean - min(values_by_system[system]) for system, mean in zip(systems, means, strict=True)],
            [max(values_by_system[system]) - mean for system, mean in zip(systems, means, strict=True)],
        ]
        rows = range(len(systems))
        axis.barh(rows, means, xerr=reach, color="#3b7d8c", error_kw={"linewidth": 1})
        axis.set_yticks(rows, systems)
        axis.invert_yaxis()
        axis.set_title(title, fontsize=10)
        axis.xaxis.set_major_locator(MaxNLocator(4))
        axis.xaxis.set_major_formatter(lambda value, place: f"{value:,.0f}")
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
