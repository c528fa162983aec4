"""Networks of the Grid text, rebuilt: the drawings are not in the text (docs/papers.md).

Figure 2 is four super-super-clusters. In A, super-cluster SC-1 has the clusters a, b and c, and c has the brokers 4, 5
and 6. Every other unit that a test does not look into has one broker for each of its links.
"""

from collections.abc import Iterable

from catchment.routing.grid.core import GridCore
from catchment.routing.grid.messages import GridSettings
from tests.wired_cores import Wired

# By broker, the context.
FIGURE_2 = {
    "4": "A.SC-1.c",
    "5": "A.SC-1.c",
    "6": "A.SC-1.c",
    "a1": "A.SC-1.a",
    "b1": "A.SC-1.b",
    "k1": "A.SC-2.k",
    "g1": "A.SC-3.g",
    "B1": "B.SC-4.l",
    "B2": "B.SC-4.l",
    "C1": "C.SC-7.p",
    "D1": "D.SC-10.w",
}
LINKS_2 = (
    ("4", "6"),
    ("5", "6"),
    ("4", "5"),
    ("4", "b1"),
    ("a1", "b1"),
    ("5", "k1"),
    ("b1", "g1"),
    ("g1", "k1"),
    ("B1", "g1"),
    ("C1", "a1"),
    ("B1", "B2"),
    ("B1", "C1"),
    ("C1", "D1"),
    ("B1", "D1"),
    ("B2", "D1"),
)
A = ("A",)
SC_1, SC_2, SC_3 = ("A", "SC-1"), ("A", "SC-2"), ("A", "SC-3")
CLUSTER_A, CLUSTER_B, CLUSTER_C = (*SC_1, "a"), (*SC_1, "b"), (*SC_1, "c")
FOUR, FIVE, SIX = (*CLUSTER_C, "4"), (*CLUSTER_C, "5"), (*CLUSTER_C, "6")
SSC_B, SSC_C, SSC_D = ("B",), ("C",), ("D",)


def grid(contexts: dict[str, str], links: Iterable[tuple[str, str]]) -> Wired:
    """Brokers with these contexts. Who has no link is there too."""
    wired = Wired(lambda name: GridCore(name, GridSettings(contexts[name])), tuple(links))
    for broker in contexts:
        wired.cores.setdefault(broker, wired.make(broker))
    return wired


def figure_2(*more: tuple[str, str]) -> Wired:
    return grid(FIGURE_2, (*LINKS_2, *more))
