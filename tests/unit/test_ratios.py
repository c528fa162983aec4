"""The verdicts of `./dev bench compare`, on made-up samples."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.figures import Figure, read_figures, write_figures
from benchmarks.ratios import ROUNDS_MIN, Comparison, compare_figure, median_interval, table


def compared(a: Sequence[float], b: Sequence[float], is_more_faster: bool = True) -> Comparison:
    return compare_figure(Figure("it", is_more_faster, a), Figure("it", is_more_faster, b))


def noisy(rng: random.Random, level: float, count: int, spread: float) -> list[float]:
    return [level * rng.uniform(1 - spread, 1 + spread) for _ in range(count)]


@pytest.mark.parametrize(
    ("count", "k"),
    # Of the sign test's published table: with n values the k-th from either end, 95 %.
    [(6, 1), (8, 1), (9, 2), (11, 2), (12, 3), (15, 4), (20, 6), (25, 8)],
)
def test_the_interval_is_that_of_the_sign_test(count: int, k: int) -> None:
    values = list(range(1, count + 1))
    random.Random(1).shuffle(values)
    assert median_interval(values) == (k, count + 1 - k)


def test_too_few_rounds_have_no_interval() -> None:
    assert median_interval(range(ROUNDS_MIN)) == (0, ROUNDS_MIN - 1)
    with pytest.raises(ValueError, match="5 rounds are too few"):
        median_interval(range(ROUNDS_MIN - 1))


def test_one_is_faster_if_it_is_in_every_round_though_the_machine_changes_between_rounds() -> None:
    machine = [100, 40, 90, 35, 95, 100]
    assert compared(machine, [x * 1.05 for x in machine]).verdict == "faster"
    assert compared(machine, [x * 0.95 for x in machine]).verdict == "slower"


def test_for_times_less_is_faster() -> None:
    machine = [5.0, 9.0, 4.0, 7.0, 8.0, 6.0]
    half = compared(machine, [x / 2 for x in machine], is_more_faster=False)
    assert (half.verdict, half.ratio, half.low, half.high) == ("faster", 0.5, 0.5, 0.5)
    assert compared(machine, [x * 2 for x in machine], is_more_faster=False).verdict == "slower"


def test_a_difference_within_the_noise_is_none() -> None:
    assert compared([100] * 6, [130, 125, 120, 118, 116, 99]).verdict == "no difference"
    assert compared([100] * 6, [130, 125, 120, 118, 116, 102]).verdict == "faster"


def test_a_difference_that_layout_alone_makes_is_none() -> None:
    assert compared([1000] * 6, [1005] * 6).verdict == "no difference"
    assert compared([1000] * 6, [1015] * 6).verdict == "faster"


def test_the_same_twice_seldom_differs_and_a_tenth_is_mostly_seen() -> None:
    rng = random.Random(7)
    same = [compared(noisy(rng, 100, 8, 0.05), noisy(rng, 100, 8, 0.05)).verdict for _ in range(1000)]
    more = [compared(noisy(rng, 100, 8, 0.05), noisy(rng, 110, 8, 0.05)).verdict for _ in range(1000)]
    # At 8 rounds the interval misses once in 128, on either side.
    assert 1000 - same.count("no difference") <= 20
    assert more.count("faster") >= 800
    assert more.count("slower") == 0


def test_figures_are_read_as_they_were_written(tmp_path: Path) -> None:
    figures = [Figure("a", True, [1.5, 2.0]), Figure("b, ö", False, [0.25])]
    write_figures(tmp_path / "figures.json", figures)
    assert read_figures(tmp_path / "figures.json") == figures


def test_the_table_has_a_line_for_each_figure() -> None:
    lines = table([compared([2000] * 6, [3000] * 6), compared([1.0] * 6, [1.0] * 6)])
    assert [line.split() for line in lines[1:]] == [
        ["it", "2,000", "3,000", "1.500", "1.500–1.500", "faster"],
        ["it", "1", "1", "1.000", "1.000–1.000", "no", "difference"],
    ]
