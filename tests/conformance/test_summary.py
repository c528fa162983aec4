"""Mistakes planted in the system `summary`: each must be found."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from catchment.routing.messages import LinkDown
from catchment.routing.summary.core import SummaryCore
from catchment.routing.summary.degrees import Degrees
from catchment.routing.summary.maintained import MaintainedAacs, MaintainedSacs
from catchment.routing.summary.merged import MergedSummary
from catchment.routing.summary.own import OwnSubscriptions
from catchment.routing.summary.propagation import Propagation
from catchment.routing.summary.received import ReceivedSummary
from catchment.routing.summary.stream import Incoming, Outgoing, _Reading
from tests.conformance.planted import Plant, assert_found
from tests.unit import test_summary_core as steps
from tests.unit import test_summary_walk as walks

# --- planted mistakes ---------------------------------------------------------------------------


def what_equals_send_is_passed_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Degrees, "is_lower", lambda self, neighbor: self.of(neighbor.name) <= self.of(self._links.name))


def the_list_is_ignored(patch: pytest.MonkeyPatch) -> None:
    plan = SummaryCore._plan
    patch.setattr(SummaryCore, "_plan", lambda self, checked: plan(self, checked)._replace(examined=frozenset()))


def the_list_is_not_taken_along(patch: pytest.MonkeyPatch) -> None:
    """A walk forgets where it has been, until it has gone too far."""
    plan = SummaryCore._plan
    patch.setattr(SummaryCore, "_plan", lambda self, checked: plan(self, checked)._replace(checked=(self.name,)))


def an_id_is_kept_on_removal(patch: pytest.MonkeyPatch) -> None:
    flushed = OwnSubscriptions._flushed

    def keeping(self: Any) -> Any:
        change = flushed(self)
        change.gone.clear()
        return change

    patch.setattr(OwnSubscriptions, "_flushed", keeping)


def the_schema_is_not_mapped(patch: pytest.MonkeyPatch) -> None:
    """Attributes get the receiver's numbers of the same place."""
    names = _Reading.names

    def unmapped(self: Any, bits: bytes) -> Any:
        return frozenset(sorted(self._attributes)[: len(names(self, bits))])

    patch.setattr(_Reading, "names", unmapped)


def brokers_are_not_mapped(patch: pytest.MonkeyPatch) -> None:
    def unmapped(self: Any, ids: Any) -> Any:
        return [self._brokers.code_of(broker, number) for broker, numbers in ids for number in numbers]

    patch.setattr(_Reading, "codes", unmapped)


def merged_brokers_only_grows(patch: pytest.MonkeyPatch) -> None:
    merged_after = Incoming._merged_after
    patch.setattr(
        Incoming,
        "_merged_after",
        lambda self, message, brokers: merged_after(self, replace(message, left=()), brokers),
    )


def a_relay_delivers(patch: pytest.MonkeyPatch) -> None:
    on_notifications = SummaryCore.on_notifications

    def delivering(self: Any, batch: Any, source: Any, now: int) -> Any:
        passing = [each.notification for each in batch if getattr(each.header, "to", self.name) != self.name]
        return [*self.clients.due(passing, now), *on_notifications(self, batch, source, now)]

    patch.setattr(SummaryCore, "on_notifications", delivering)


def removal_leaves_the_wide_row(patch: pytest.MonkeyPatch) -> None:
    remove = MaintainedAacs.remove

    def lazy(self: Any, demand: Any) -> None:
        row = self.row_of(demand)
        members = self._rows[row[0]][1]
        if len(members) == 1:
            remove(self, demand)
        else:
            members.remove(demand)

    patch.setattr(MaintainedAacs, "remove", lazy)


def what_was_absorbed_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MaintainedSacs, "_later_covered", lambda self, pattern: [])


def a_neighbor_that_is_gone_is_remembered(patch: pytest.MonkeyPatch) -> None:
    on_message = SummaryCore.on_message

    def deaf(self: Any, message: Any, source: Any, now: int) -> Any:
        if isinstance(message, LinkDown):
            return self.links.down(source, now)
        return on_message(self, message, source, now)

    patch.setattr(SummaryCore, "on_message", deaf)


def the_old_receiver_is_not_told(patch: pytest.MonkeyPatch) -> None:
    flushed = Propagation._flushed

    def silent(self: Any) -> Any:
        before = self.up
        actions = flushed(self)
        return [action for action in actions if getattr(action, "interface", None) != before or before == self.up]

    patch.setattr(Propagation, "_flushed", silent)


def a_walk_ends_too_early(patch: pytest.MonkeyPatch) -> None:
    """Brokers without subscriptions are taken as examined: they may have summaries of others."""
    next_broker = Degrees.next_broker
    patch.setattr(
        Degrees,
        "next_broker",
        lambda self, checked, choice: None if len(checked) > 2 else next_broker(self, checked, choice),
    )


def an_id_needs_one_attribute_less(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Outgoing, "_bits", lambda self, names: b"")


def a_row_that_covers_it_takes_no_id(patch: pytest.MonkeyPatch) -> None:
    count = MergedSummary._count

    def narrow(self: Any, row: Any, code: int, step: int) -> None:
        if step < 0 or not self._rows.get(row):
            count(self, row, code, step)

    patch.setattr(MergedSummary, "_count", narrow)


def only_strings_are_counted(patch: pytest.MonkeyPatch) -> None:
    satisfied = ReceivedSummary._satisfied
    patch.setattr(
        ReceivedSummary,
        "_satisfied",
        lambda self, name, value: satisfied(self, name, value) if isinstance(value, str) else iter(()),
    )


def a_change_waits_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Propagation, "_waits", lambda self: self.degrees.up() != self.up)


MUTANTS: list[tuple[str, Plant]] = [
    ("summary", what_equals_send_is_passed_on),
    ("summary", the_list_is_not_taken_along),
    ("summary", an_id_is_kept_on_removal),
    ("summary", the_schema_is_not_mapped),
    ("summary", brokers_are_not_mapped),
    ("summary", merged_brokers_only_grows),
    ("summary", removal_leaves_the_wide_row),
    ("summary", what_was_absorbed_is_forgotten),
    ("summary", a_neighbor_that_is_gone_is_remembered),
    ("summary", the_old_receiver_is_not_told),
    ("summary", a_walk_ends_too_early),
    ("summary", an_id_needs_one_attribute_less),
    ("summary", a_row_that_covers_it_takes_no_id),
    ("summary", only_strings_are_counted),
    ("summary periodic", a_change_waits_for_ever),
    ("summary subsuming", an_id_is_kept_on_removal),
]


@pytest.mark.parametrize(("entry", "plant"), MUTANTS, ids=[f"{entry}-{plant.__name__}" for entry, plant in MUTANTS])
def test_is_found(entry: str, plant: Plant, monkeypatch: pytest.MonkeyPatch):
    assert_found(plant, entry, range(4), monkeypatch)


# Clients see nothing of these, because their broker delivers nothing twice: tests that look at each copy find them.
SEEN_IN_STEPS: list[tuple[Plant, Callable[[], None]]] = [
    (the_list_is_ignored, walks.test_who_is_on_the_list_is_not_told_again),
    (a_relay_delivers, walks.test_a_relay_neither_matches_nor_delivers),
    (what_equals_send_is_passed_on, steps.test_what_equals_send_is_known_and_not_passed_on),
    (merged_brokers_only_grows, steps.test_merged_brokers_shrinks_after_a_cut),
    (removal_leaves_the_wide_row, steps.test_a_join_of_ranges_is_undone),
    (an_id_needs_one_attribute_less, steps.test_schemas_differ_and_grow),
]


@pytest.mark.parametrize(("plant", "test"), SEEN_IN_STEPS, ids=[plant.__name__ for plant, _ in SEEN_IN_STEPS])
def test_is_found_step_by_step(plant: Plant, test: Callable[[], None], monkeypatch: pytest.MonkeyPatch):
    test()
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        test()
