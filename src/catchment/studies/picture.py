"""A network drawn with its traffic: each link as thick and dark as what it carried."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from pathlib import Path
from typing import Final

import rustworkx

from catchment.sim.topology import Topology

# Names are drawn only where they can be read.
NAMED_BROKERS_MAX: Final = 60
_WIDTH_MOST: Final = 6.0


def places(topology: Topology) -> dict[str, tuple[float, float]]:
    """Where to draw each broker; the same network is always drawn alike."""
    graph = rustworkx.PyGraph()
    nodes = dict(zip(topology.brokers, graph.add_nodes_from(list(topology.brokers)), strict=True))
    graph.add_edges_from([(nodes[link.one], nodes[link.other], 1.0 / link.cost) for link in topology.links])
    layout = rustworkx.spring_layout(graph, k=2 / sqrt(len(nodes)), num_iter=200, weight_fn=float, seed=1)
    return {name: (layout[node][0], layout[node][1]) for name, node in nodes.items()}


def draw(topology: Topology, traffic: Mapping[tuple[str, str], int], path: Path, title: str = "") -> None:
    """Writes a picture, PNG or SVG by its name."""
    import matplotlib

    matplotlib.use("svg" if path.suffix == ".svg" else "agg")
    import matplotlib.pyplot as plt
    from matplotlib.colors import Normalize

    at = places(topology)
    most = max(traffic.values(), default=0) or 1
    figure, axis = plt.subplots(figsize=(9, 7))
    for link in sorted(topology.links, key=lambda link: traffic.get((link.one, link.other), 0)):
        share = traffic.get((link.one, link.other), 0) / most
        (x0, y0), (x1, y1) = at[link.one], at[link.other]
        colour = plt.cm.viridis_r(0.15 + 0.85 * share) if share else "0.85"
        axis.plot([x0, x1], [y0, y1], color=colour, linewidth=0.6 + _WIDTH_MOST * share, zorder=1 + share)
    size = 320 if len(at) <= NAMED_BROKERS_MAX else 24
    across, down = zip(*at.values(), strict=True)
    axis.scatter(across, down, s=size, color="white", edgecolors="0.2", zorder=3)
    if len(at) <= NAMED_BROKERS_MAX:
        for name, (x, y) in at.items():
            axis.annotate(name, (x, y), ha="center", va="center", fontsize=8, zorder=4)
    axis.set_title(title or f"{len(at):,} brokers")
    axis.set_axis_off()
    scale = plt.cm.ScalarMappable(Normalize(0, most), "viridis_r")
    figure.colorbar(scale, ax=axis, label="messages", shrink=0.6)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
