"""Mistakes planted in durable delivery: runs with durable clients find each. Those of the protocol itself are in
`test_durable_explore.py`, those of the stores in `tests/store/`."""

from typing import Any

import pytest
from msgspec.structs import replace

from catchment.routing.durable.core import DurableCore
from catchment.routing.durable.effects import Effects
from catchment.routing.durable.messages import TakeEffect
from catchment.routing.durable.places import Places
from catchment.routing.durable.reach import Paths
from catchment.routing.durable.sending import Sending
from catchment.routing.durable.storage import Storage
from catchment.routing.durable.table import Table
from catchment.routing.messages import ClientUp
from catchment.routing.stored import Entry, Fetched
from catchment.sim.conformance.durable.runs import durable_outcome_of, durable_runs
from catchment.store import memory
from tests.conformance.planted import Plant

RUNS = 300


def due_is_found_anew_when_it_is_read(patch: pytest.MonkeyPatch) -> None:
    """3"""
    on_message = DurableCore.on_message

    def recomputing(self: Any, message: Any, source: Any, now: int) -> Any:
        if isinstance(message, Fetched):
            dues = self.table.due([entry.notification for entry in message.entries])
            now_due = [dict(due).get(message.identity, ()) for due in dues]
            pairs = zip(message.entries, now_due, strict=True)
            entries = tuple(Entry(entry.epoch, entry.notification, ids) for entry, ids in pairs if ids)
            message = replace(message, entries=entries)
        return on_message(self, message, source, now)

    patch.setattr(DurableCore, "on_message", recomputing)


def who_moves_states_old_filters_anew(patch: pytest.MonkeyPatch) -> None:
    """9"""
    on_message = DurableCore.on_message

    def restating(self: Any, message: Any, source: Any, now: int) -> Any:
        actions = on_message(self, message, source, now)
        if isinstance(message, ClientUp):
            for row in list(self.table.rows_of(message.identity).values()):
                newer = replace(row, version=max(row.version + 1, now), by=self.name)
                actions = [*actions, *self._subscriptions._apply(newer, None, now)]
            actions = self._finished(actions, now)
        return actions

    patch.setattr(DurableCore, "on_message", restating)


def what_only_the_absent_are_due_is_collected(patch: pytest.MonkeyPatch) -> None:
    """13"""
    waiting_for = memory._State._waiting_for

    def connected(self: Any, record: Any) -> list[str]:
        return [each for each in waiting_for(self, record) if (row := self.places.get(each)) and row.broker is not None]

    patch.setattr(memory._State, "_waiting_for", connected)


def a_new_log_is_not_noticed(patch: pytest.MonkeyPatch) -> None:
    """16"""
    patch.setattr(Places, "told_lost", lambda self, storage, log: [])
    patch.setattr(Paths, "lost_by", lambda self, log: "")


def effective_when_the_first_storage_knows(patch: pytest.MonkeyPatch) -> None:
    """19"""

    def hasty(self: Any, storages: Any, reached: Any) -> list[TakeEffect]:
        done = {key: waiting for key, waiting in self._waiting.items() if waiting.knowers}
        for key in done:
            del self._waiting[key]
        return [TakeEffect(each.client, identity, id, ()) for (identity, id), each in done.items()]

    patch.setattr(Effects, "effective", hasty)


def edits_are_not_applied(patch: pytest.MonkeyPatch) -> None:
    apply = Table.apply
    patch.setattr(Table, "apply", lambda self, row: self.row(row.identity, row.id) is None and apply(self, row))


def confirmed_before_it_is_stored(patch: pytest.MonkeyPatch) -> None:
    """1, also where publications are offered"""
    patch.setattr(Storage, "kept", lambda self, source: self.last(source))


def the_window_has_no_bound(patch: pytest.MonkeyPatch) -> None:
    pump = Sending._pump

    def wide(self: Any, flow: Any, now: int) -> None:
        flow.window.clear()
        pump(self, flow, now)

    patch.setattr(Sending, "_pump", wide)


def repeated_publications_are_routed_again(patch: pytest.MonkeyPatch) -> None:
    accept = Storage.accept

    def lax(self: Any, source: str, after: Any, notifications: Any) -> Any:
        said, fresh = accept(self, source, after, notifications)
        return said, notifications if fresh else fresh

    patch.setattr(Storage, "accept", lax)


MISTAKES: list[Plant] = [
    due_is_found_anew_when_it_is_read,
    who_moves_states_old_filters_anew,
    what_only_the_absent_are_due_is_collected,
    a_new_log_is_not_noticed,
    effective_when_the_first_storage_knows,
    edits_are_not_applied,
    confirmed_before_it_is_stored,
    the_window_has_no_bound,
    repeated_publications_are_routed_again,
]


@pytest.mark.parametrize("plant", MISTAKES, ids=[plant.__name__ for plant in MISTAKES])
def test_a_planted_mistake_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch):
    plant(monkeypatch)
    outcomes = (durable_outcome_of(run, shrink=False) for run in durable_runs(RUNS, is_short=True))
    if all(outcome.violation is None for outcome in outcomes):
        pytest.fail(f"{plant.__name__} was not found in {RUNS} runs")
