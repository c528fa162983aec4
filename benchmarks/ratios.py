"""Whether B is faster than A, from measurements in pairs. Pure functions: `compare` measures.

Each round measures A and B one after the other and gives one ratio B/A: what slows the machine for a while slows both.
The ratio of all rounds is their median. Its interval is that of the sign test, which assumes nothing about the noise
but that rounds are independent. If the true median were outside, nearly all rounds would be on one side of it by
chance; the interval is so wide that this is improbable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from statistics import median

from benchmarks.figures import Figure

CONFIDENCE = 0.95
# With fewer rounds, even a B that is faster in each of them could be so by chance: 2 / 2**5 is more than 1 in 20.
ROUNDS_MIN = 6
# A difference of less than this is none: the length of a path and the layout of memory alone make as much.
DIFFERENCE_MIN = 0.01

FASTER, SLOWER, NO_DIFFERENCE = "faster", "slower", "no difference"


@dataclass(frozen=True)
class Comparison:
    """Of one figure: the medians of A and of B, the median of the ratios B/A, its interval, and the verdict on B."""

    name: str
    a: float
    b: float
    ratio: float
    low: float
    high: float
    verdict: str


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Where the median of what these are a sample of lies, with this confidence.

    It is outside the k least and the k greatest values with the probability that of n tosses of a coin fewer than k
    come up heads, or fewer than k tails. The greatest k with which that is improbable enough is taken.
    """
    count, outside, k = len(values), 0.0, 0
    while (outside := outside + 2 * comb(count, k) / 2**count) <= 1 - confidence:
        k += 1
    if k == 0:
        raise ValueError(f"{count} rounds are too few for a confidence of {confidence:.0%}")
    ordered = sorted(values)
    return ordered[k - 1], ordered[count - k]


def verdict(ratio: float, low: float, high: float, is_more_faster: bool) -> str:
    """Faster or slower only if the interval says on which side of 1 the ratio is, and it is far enough from 1."""
    if low <= 1 <= high or abs(ratio - 1) < DIFFERENCE_MIN:
        return NO_DIFFERENCE
    return FASTER if (ratio > 1) == is_more_faster else SLOWER


def compare_figure(a: Figure, b: Figure) -> Comparison:
    """One value of each in each round."""
    ratios = [after / before for before, after in zip(a.values, b.values, strict=True)]
    ratio, (low, high) = median(ratios), median_interval(ratios)
    said = verdict(ratio, low, high, a.is_more_faster)
    return Comparison(a.name, median(a.values), median(b.values), ratio, low, high, said)


def table(comparisons: Sequence[Comparison]) -> list[str]:
    width = max(len(comparison.name) for comparison in comparisons)
    lines = [f"{'':{width}} {'A':>12} {'B':>12} {'B/A':>7}  {CONFIDENCE:.0%} between  B is"]
    for each in comparisons:
        between = f"{each.low:.3f}–{each.high:.3f}"
        values = f"{_shown(each.a):>12} {_shown(each.b):>12} {each.ratio:7.3f}"
        lines.append(f"{each.name:{width}} {values}  {between:11}  {each.verdict}")
    return lines


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
