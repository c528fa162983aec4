"""One scenario, all routing systems: everybody delivers the same. The table of docs/routing.md shows what it costs."""

import pytest

from catchment.errors import InputError
from catchment.routing.systems import SYSTEMS
from catchment.sim.scenarios.measures import Measures
from catchment.sim.scenarios.notations import read_scenario
from catchment.sim.scenarios.play import variants
from tools.compare_systems import NOT_WRITTEN, PAGE, SCENARIO, good_for, measured, rewritten, row, rows_of

AGAIN = "measure again: python tools/compare_systems.py"


@pytest.fixture(scope="module")
def by_system() -> dict[str, Measures]:
    return measured()


def test_every_system_delivers_the_same(by_system: dict[str, Measures]):
    delivered = {name: measures.delivered for name, measures in by_system.items()}
    assert list(delivered) == list(SYSTEMS)
    assert set(delivered.values()) == {delivered["flooding"]}, str(delivered)
    assert delivered["flooding"] > 1_000
    assert {measures.published for measures in by_system.values()} == {480}
    assert not any(measures.refused for measures in by_system.values())


def test_the_page_has_these_figures(by_system: dict[str, Measures]):
    page = PAGE.read_text("utf-8")
    assert f"delivers the same {by_system['flooding'].delivered:,} notifications" in page
    rows = rows_of(page)
    assert list(rows) == list(SYSTEMS), AGAIN
    for system, line in rows.items():
        words = good_for(line)
        assert words != NOT_WRITTEN, f"docs/routing.md: say what {system} is good for"
        assert line == row(system, by_system[system], words), AGAIN


def test_a_new_system_gets_a_row_and_words_are_kept(by_system: dict[str, Measures]):
    page = PAGE.read_text("utf-8")
    again = rewritten(page, {**by_system, "new": by_system["flooding"]})
    lines = again.splitlines()
    assert set(page.splitlines()) <= set(lines)
    (new,) = set(lines) - set(page.splitlines())
    assert new == row("new", by_system["flooding"], NOT_WRITTEN)


def test_all_stands_for_all_systems_and_stands_alone():
    scenario = read_scenario(SCENARIO)
    assert [each.routing for each in variants(scenario, ["all"])] == list(SYSTEMS)
    with pytest.raises(InputError, match="no routing system 'all'"):
        variants(scenario, ["all", "flooding"])
