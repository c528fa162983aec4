"""Networks of wired cores of the system `summary`, and the text's Figure 7."""

from typing import Any

from catchment.routing.summary.core import SummaryCore
from catchment.routing.summary.messages import SummarySettings
from tests.wired_cores import Wired

# Figure 7, rebuilt from the prose. Names have two digits: "11" would come before "8".
FIGURE_7 = [
    *(("01", "02"), ("02", "05"), ("03", "05"), ("04", "05"), ("05", "06"), ("05", "07")),
    *(("07", "08"), ("08", "09"), ("08", "10"), ("10", "11"), ("11", "12"), ("11", "13")),
]
LINE = [("a", "b"), ("b", "c")]
RING = [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")]


def wired(links: list[tuple[str, str]], **settings: Any) -> Wired:
    """All brokers have these settings."""
    return Wired(lambda name: SummaryCore(name, SummarySettings(**settings)), links)
