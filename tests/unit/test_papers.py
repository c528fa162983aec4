"""The tables, figures and examples of the texts, as they print them; and docs/papers.md, which says where they are."""

import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from catchment import Advertisement, Filter, Notification, Pattern
from catchment.model.approximation import approximated
from catchment.model.measure import Distribution, even
from catchment.model.merging import imperfect_merge, perfect_merge, perfectly_merged
from catchment.model.monitor import Monitor

DATE = datetime(1998, 3, 4, 2, 40, 3, tzinfo=UTC)

# --- SIENA --------------------------------------------------------------------------------------

FIGURE_2 = Notification(
    {
        "class": "finance/exchanges/stock",
        "date": datetime(1998, 3, 4, 18, 43, 37, tzinfo=UTC),
        "exchange": "NYSE",
        "symbol": "DIS",
        "prior": 105.25,
        "change": -4.0,
        "earn": 2.04,
    }
)
FIGURE_3 = Filter('string class >* "finance/exchanges/", exchange = "NYSE", symbol = "DIS", float change > 0')


def test_figure_3_wants_increases_only() -> None:
    assert not FIGURE_3.matches(FIGURE_2)
    assert FIGURE_3.matches(Notification({**FIGURE_2, "change": 4.0}))


@pytest.mark.parametrize(
    ("subscription", "notification", "matches"),
    [
        ("what = 'alarm'", {"what": "alarm", "date": DATE}, True),
        ("what = 'alarm', int level > 3", {"what": "alarm", "date": DATE}, False),
        ("what = 'alarm', int level > 3, int level < 7", {"what": "alarm", "level": 10}, False),
        ("what = 'alarm', int level > 3, int level < 7", {"what": "alarm", "level": 5}, True),
    ],
)
def test_table_3(subscription: str, notification: dict[str, object], matches: bool) -> None:
    assert Filter(subscription).matches(Notification(notification)) is matches


@pytest.mark.parametrize(
    ("notification", "matches"),
    [
        ({"what": "alarm"}, True),
        ({"what": "alarm", "date": DATE}, False),
        ({"what": "login", "username": "carzanig"}, True),
        ({"what": "logout", "username": "carzanig"}, False),
    ],
)
def test_table_4(notification: dict[str, object], matches: bool) -> None:
    advertisement = Advertisement("what = 'alarm', what = 'login', string username any")
    assert advertisement.matches(Notification(notification)) is matches


def test_section_3_4_the_first_a_then_the_first_b_published_after_it() -> None:
    """B4 A3 A1 B2 A5 B6 A7 B8 in match order gives A3·B6, then A7·B8."""
    monitor = Monitor(Pattern("kind = 'A' -> kind = 'B'"))
    sequences = []
    for matched, name in enumerate(["B4", "A3", "A1", "B2", "A5", "B6", "A7", "B8"], start=1):
        notification = Notification({"kind": name[0]}, time=DATE + timedelta(seconds=int(name[1])))
        for sequence in monitor.on_notification(notification, DATE + timedelta(seconds=matched)):
            sequences.append([f"{match.notification['kind']}{(match.published - DATE).seconds}" for match in sequence])
    assert sequences == [["A3", "B6"], ["A7", "B8"]]


def test_section_3_7_relations() -> None:
    assert Filter("price > 100").covers(Filter("price > 200"))
    assert not Filter("price > 200").covers(Filter("price > 100"))
    assert Advertisement("what = 'alarm', level any").covers(Advertisement("what = 'alarm', level > 3"))
    assert not Advertisement("what = 'alarm'").covers(Advertisement("what = 'alarm', level > 3"))
    assert Advertisement("what = 'alarm', level any").overlaps(Filter("level > 3"))
    assert not Advertisement("what = 'alarm'").overlaps(Filter("level > 3"))
    assert Filter("a = 1, b = 2") == Filter("b = 2 and a = 1")


def test_section_3_8_unsubscribing_cancels_what_is_covered_and_only_that() -> None:
    """[price > 200] does not touch [price > 100]; [change > 0] cancels [change > 10] too."""
    held = [Filter("price > 100"), Filter("change > 10"), Filter("change > 0")]

    def left(unsubscribed: Filter) -> list[Filter]:
        return [filter for filter in held if not unsubscribed.covers(filter)]

    assert left(Filter("price > 200")) == held
    assert left(Filter("change > 0")) == [Filter("price > 100")]
    wide, narrow = Pattern("a > 0 -> b > 0"), Pattern("a > 1 -> b = 3")
    assert wide.covers(narrow)
    assert not narrow.covers(wide)
    assert not wide.covers(Pattern("a > 1 -> b = 3 -> c = 1"))


def test_section_5_3_1_perfect_merge() -> None:
    alarms = [Filter("int alarm = 1"), Filter("int alarm > 2"), Filter("int alarm = 2")]
    assert perfectly_merged(alarms) == [Filter("int alarm > 0")]


def test_a_union_that_takes_more_alternatives_is_no_perfect_merge() -> None:
    assert perfect_merge(Filter("x < 1"), Filter("x > 5")) is None
    assert perfectly_merged([Filter("x < 1"), Filter("x > 5")]) == [Filter("x < 1"), Filter("x > 5")]


def test_what_is_published_at_the_same_instant_is_not_in_sequence() -> None:
    monitor = Monitor(Pattern("kind = 'A' -> kind = 'B'"))
    for kind in "AB":
        assert monitor.on_notification(Notification({"kind": kind}, time=DATE), DATE) == []


def test_section_5_3_2_imperfect_merge_and_its_price() -> None:
    merge = imperfect_merge([Filter("x > 200"), Filter("x < 100")], Distribution({"x": even(0.0, 300.0)}))
    assert merge.filter == Filter("number x any")
    assert merge.filter.matches({"x": 150})
    assert merge.false_positive_share == pytest.approx(1 / 3)


# --- filter propagation -------------------------------------------------------------------------

TABLE_3_1 = Notification(
    {
        "symbol": "HPQ",
        "exchange": "NYSE",
        "price": 22.4,
        "change": 7,
        "when": datetime(2003, 3, 27, 20, 47, tzinfo=UTC),
    }
)


@pytest.mark.parametrize(
    "expression",
    [
        "when >= 2003-03-26 and change >= 5",
        '(symbol = "HPQ" or symbol = "MSFT") and price >= 20.0',
        'symbol = "HPQ" and (price >= 30.0 or change >= 5)',
    ],
)
def test_section_3_2_2_expressions_hold_for_table_3_1(expression: str) -> None:
    assert Filter(expression).matches(TABLE_3_1)


def test_section_3_2_2_negation_distributes() -> None:
    """The text prints the negation of b >= 10 as b > 10; it is b < 10."""
    wanted = Filter("(a >= 5 and b <= 5) or (a <= 2 and b >= 10)")
    unwanted = Filter("not ((a >= 5 and b <= 5) or (a <= 2 and b >= 10))")
    assert unwanted == Filter("(a < 5 or b > 5) and (a > 2 or b < 10)")
    assert not wanted.overlaps(unwanted)


def test_section_3_4_optimization() -> None:
    assert Filter("temperature < 0 or temperature >= 0").comparisons == 1


def test_section_3_4_approximation_widens_step_by_step() -> None:
    original = Filter("(a >= 5 and b <= 5) or (a <= 2 and b >= 10)")
    even_spread = Distribution({"a": even(0, 10), "b": even(0, 20)})
    steps = [approximated(original, most, even_spread) for most in (4, 3, 2)]
    assert [filter.comparisons for filter in steps] == [4, 3, 2]
    assert all(wide.covers(narrow) for narrow, wide in pairwise(steps))
    # What the text arrives at lets through 0.78 of evenly spread notifications; the better choice 0.48.
    of_the_text = Filter("a >= 5 or b >= 10")
    assert of_the_text.covers(original)
    assert even_spread.share(steps[2].boxes) < even_spread.share(of_the_text.boxes)


# --- docs/papers.md -----------------------------------------------------------------------------

ROOT = Path(__file__).parents[2]


def paper_rows() -> list[list[str]]:
    """The cells of all tables of the page: section, what, modules, tests."""
    lines = (ROOT / "docs" / "papers.md").read_text("utf-8").splitlines()
    rows = [line for line in lines if line.startswith("|") and not line.startswith(("|---", "| section |"))]
    return [[cell.strip() for cell in row.strip().strip("|").split("|")] for row in rows]


@pytest.mark.parametrize("row", paper_rows(), ids=lambda row: row[0])
def test_a_row_names_modules_and_tests_that_exist(row: list[str]) -> None:
    _, _, modules, tests = row
    for cell, directory in ((modules, ROOT / "src" / "catchment"), (tests, ROOT / "tests")):
        names = cell.split(", ")
        assert all(re.fullmatch(r"`[\w/]+(\.py|/)`", name) for name in names), cell
        missing = [name for name in names if not (directory / name.strip("`")).exists()]
        assert not missing
