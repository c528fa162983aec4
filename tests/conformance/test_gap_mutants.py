"""Mistakes planted in what nodes tell of losses: the suite must find each (`sim/conformance/gap_checker.py`)."""

from typing import Any

import pytest
from msgspec.structs import replace

from catchment.node import Node
from catchment.node.gaps import Gaps, GapTimes, Past
from catchment.routing.messages import Gap, LinkReport, Neighbor, Time
from catchment.sim.conformance import runs
from catchment.sim.conformance.entries import ENTRIES, Run
from catchment.sim.conformance.gap_checker import GapChecker
from tests.conformance.planted import Plant, assert_found

SEEDS = range(1, 9)


def a_gap_is_told_to_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Node, "_tell_gap", lambda self, gap, source: None)


def a_gap_is_not_passed_on(patch: pytest.MonkeyPatch) -> None:
    def only_here(self: Node, gap: Gap, source: Neighbor | None) -> None:
        for state in self.clients.values():
            state.outlet.tell_gap(gap)

    patch.setattr(Node, "_tell_gap", only_here)


def clients_are_not_told(patch: pytest.MonkeyPatch) -> None:
    def only_neighbors(self: Node, gap: Gap, source: Neighbor | None) -> None:
        for neighbor in sorted(self.links):
            if neighbor != source:
                self._tell_neighbor(neighbor, gap)

    patch.setattr(Node, "_tell_gap", only_neighbors)


def a_link_that_fails_is_no_gap(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Gaps, "link_down", lambda self, neighbor, sent, heard, now: None)


def a_gap_ends_when_the_link_is_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(runs, "GAP_TIMES", GapTimes(settle_us=0, transit_us=runs.GAP_TIMES.transit_us))


def a_gap_begins_when_it_is_noticed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(runs, "GAP_TIMES", GapTimes(settle_us=runs.GAP_TIMES.settle_us, transit_us=0))
    patch.setattr(Past, "good_until", lambda self, now: now)


def whoever_has_a_link_for_the_first_time_is_told_a_gap(patch: pytest.MonkeyPatch) -> None:
    on_report = Gaps._on_report

    def crying(self: Gaps, neighbor: Neighbor, past: Past, report: LinkReport, now: Time) -> None:
        on_report(self, neighbor, past, report, now)
        self._tell_all(self._new(neighbor, now, now + 1), neighbor, now)

    patch.setattr(Gaps, "_on_report", crying)


def counts_of_a_process_that_is_gone_count(patch: pytest.MonkeyPatch) -> None:
    """The numbering begins anew, unnoticed: what was not lost by these numbers was not lost."""
    on_report = Gaps._on_report

    def unnoticed(self: Gaps, neighbor: Neighbor, past: Past, report: LinkReport, now: Time) -> None:
        open_gap = past.gap if past.gap is not None and not past.gap.until else None
        on_report(self, neighbor, past, replace(report, known=self.incarnation), now)
        if open_gap is not None and report.sent <= past.heard:
            # It takes back what it has told.
            past.gap = replace(open_gap, revision=open_gap.revision + 2, until=open_gap.since)
            self._tell_all(past.gap, neighbor, now)

    patch.setattr(Gaps, "_on_report", unnoticed)


MISTAKES: list[tuple[Plant, str]] = [
    (a_gap_is_told_to_nobody, "siena acyclic"),
    (a_gap_is_not_passed_on, "siena hybrid"),
    (clients_are_not_told, "siena acyclic"),
    (a_link_that_fails_is_no_gap, "flooding"),
    (a_gap_ends_when_the_link_is_up, "siena general"),
    (a_gap_begins_when_it_is_noticed, "siena acyclic"),
    (whoever_has_a_link_for_the_first_time_is_told_a_gap, "siena acyclic"),
    (counts_of_a_process_that_is_gone_count, "siena acyclic"),
]


@pytest.mark.parametrize(("plant", "entry"), MISTAKES, ids=[plant.__name__ for plant, _ in MISTAKES])
def test_a_planted_mistake_is_found(plant: Plant, entry: str, monkeypatch: pytest.MonkeyPatch):
    assert_found(plant, entry, SEEDS, monkeypatch)


def test_runs_lose_things_and_tell_them(monkeypatch: pytest.MonkeyPatch):
    """Else nothing above would mean anything."""
    checkers: list[Any] = []
    made = GapChecker

    def kept(*given: Any) -> Any:
        checkers.append(made(*given))
        return checkers[-1]

    monkeypatch.setattr(runs, "GapChecker", kept)
    for network in ENTRIES["siena acyclic"].networks:
        assert runs.outcome_of(Run("siena acyclic", network, 1)).violation is None
    assert sum(checker.losses_told for checker in checkers) > 5
