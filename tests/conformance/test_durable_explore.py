"""Every interleaving of a small world (`sim/explore/`): under a minute of what `./dev explore durable` walks at length.
Mistakes planted in the protocol are found, each by the shortest path."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from catchment.routing.durable import spans
from catchment.routing.durable.sending import Sending
from catchment.routing.durable.serving import Serving
from catchment.routing.durable.spans import Verdict
from catchment.routing.durable.storage import Storage
from catchment.routing.messages import Deliver
from catchment.routing.stored import Record
from catchment.sim.explore.copying import Folding, copied
from catchment.sim.explore.disk import Disk
from catchment.sim.explore.parts import Bounds
from catchment.sim.explore.search import NOTHING_FAILS, SHORT, Exploration, explored
from catchment.sim.explore.steps import possible
from catchment.sim.explore.world import beginning

Plant = Callable[[pytest.MonkeyPatch], None]
# Enough for each mistake: most are found after some hundred.
STATES_MAX = 6_000


@pytest.mark.parametrize("exploration", SHORT, ids=str)
def test_nothing_is_wrong_in_any_state(exploration: Exploration):
    result = explored(exploration, states_max=exploration.states_max)
    assert result.violation is None, str(result)
    assert result.is_complete or result.states == exploration.states_max
    assert result.states > 1_000


# --- planted mistakes ---------------------------------------------------------------------------


def kept_before_it_is_stored(patch: pytest.MonkeyPatch) -> None:
    """1"""
    patch.setattr(Storage, "kept", lambda self, source: self.last(source))


def sent_before_it_is_stored(patch: pytest.MonkeyPatch) -> None:
    """2"""
    appended = Sending.appended

    def eager(self: Any, record: Any) -> None:
        appended(self, record)
        self.raise_head(record.epoch, 0)

    patch.setattr(Sending, "appended", eager)


def only_up_to_the_last_entry(patch: pytest.MonkeyPatch) -> None:
    """4"""
    share = Serving.share

    def short(self: Any, storage: str, log: str, part: Any, entries: Any) -> Any:
        result = share(self, storage, log, part, entries)
        served = self.get(part.identity)
        if served is not None and part.entries and (given := served.logs.get(log)) is not None:
            given.position = min(given.position, max(entries[place][0] for place, _ in part.entries))
        return result

    patch.setattr(Serving, "share", short)


def a_gap_is_accepted(patch: pytest.MonkeyPatch) -> None:
    """5"""
    verdict = spans.verdict

    def blind(position: int, after: int | None, upto: int) -> Verdict:
        return verdict(position, None, upto)

    patch.setattr("catchment.routing.durable.serving.verdict", blind)


def what_is_known_is_taken_again(patch: pytest.MonkeyPatch) -> None:
    """6"""

    def forgetful(position: int, after: int | None, upto: int) -> Verdict:
        return Verdict.GAP if after is not None and after > position else Verdict.TAKE

    take = Serving._take

    def again(self: Any, served: Any, log: str, given: Any, part: Any, entries: Any) -> Any:
        given.position = min(given.position, part.after)
        return take(self, served, log, given, part, entries)

    patch.setattr("catchment.routing.durable.serving.verdict", forgetful)
    patch.setattr(Serving, "_take", again)


def acknowledged_when_given(patch: pytest.MonkeyPatch) -> None:
    """7"""
    share = Serving.share

    def hasty(self: Any, storage: str, log: str, part: Any, entries: Any) -> Any:
        actions, at = share(self, storage, log, part, entries)
        served = self.get(part.identity)
        if served is not None and any(isinstance(action, Deliver) for action in actions):
            given = served.logs[log]
            at = replace(self._at(served, log, given), position=given.position)
        return actions, at

    patch.setattr(Serving, "share", hasty)


def old_sessions_are_obeyed(patch: pytest.MonkeyPatch) -> None:
    """8"""
    at = Sending.at

    def lax(self: Any, identity: str, session: int, position: int, again: bool, now: int) -> bool:
        flow = self.get(identity)
        return at(self, identity, session if flow is None else flow.session, position, again, now)

    patch.setattr(Sending, "at", lax)


def the_table_is_not_stored(patch: pytest.MonkeyPatch) -> None:
    """10"""
    subscribed = Storage.subscribed

    def forgetful(self: Any, row: Any) -> Any:
        result = subscribed(self, row)
        self._writes.remove(row)
        return result

    patch.setattr(Storage, "subscribed", forgetful)


def the_head_is_that_from_before_the_crash(patch: pytest.MonkeyPatch) -> None:
    """11"""
    crash, opened = Disk.crash, Disk.opened

    def remembering(self: Any, kept: int) -> None:
        lost = [write for persist in self.written[kept:] for write in persist.writes if isinstance(write, Record)]
        crash(self, kept)
        self.log = self.log.partition(" ")[0] + " " * len(lost)

    def wrong(self: Any) -> Any:
        right = opened(self)
        lost = len(right.log) - len(right.log.rstrip())
        return replace(right, log=right.log.rstrip(), head=right.head + lost)

    patch.setattr(Disk, "crash", remembering)
    patch.setattr(Disk, "opened", wrong)


def nobody_is_asked_again(patch: pytest.MonkeyPatch) -> None:
    """15"""
    patch.setattr(Sending, "retry_timer", lambda self, now: [])


def what_publications_follow_is_not_checked(patch: pytest.MonkeyPatch) -> None:
    """17"""
    accept = Storage.accept
    patch.setattr(
        Storage, "accept", lambda self, source, after, notifications: accept(self, source, None, notifications)
    )


def a_publisher_leaves_before_it_is_settled(patch: pytest.MonkeyPatch) -> None:
    """18"""
    patch.setattr(Storage, "is_settled", lambda self, source: self.kept(source) == self.last(source))


def the_window_stays_full_when_it_begins_anew(patch: pytest.MonkeyPatch) -> None:
    """24"""
    begin = Sending._begin

    def full(self: Any, flow: Any, now: int) -> None:
        window = list(flow.window)
        broker, flow.broker = flow.broker, None
        begin(self, flow, now)
        flow.broker = broker
        flow.window.extend(window)
        self._pump(flow, now)

    patch.setattr(Sending, "_begin", full)


def some(is_silent: bool = False, **bounds: int) -> Exploration:
    return Exploration(replace(NOTHING_FAILS, **bounds), is_silent)


MISTAKES: list[tuple[Plant, Exploration]] = [
    (kept_before_it_is_stored, some(partial_syncs=1)),
    (sent_before_it_is_stored, some()),
    (only_up_to_the_last_entry, some(is_silent=True)),
    (a_gap_is_accepted, some(losses=1, early_timers=1)),
    (what_is_known_is_taken_again, some(doublings=1)),
    (acknowledged_when_given, some()),
    (old_sessions_are_obeyed, some(moves=1, stale_takes=1)),
    (the_table_is_not_stored, some(crashes=1)),
    (the_head_is_that_from_before_the_crash, some(crashes=1)),
    (nobody_is_asked_again, some(losses=1)),
    (what_publications_follow_is_not_checked, some(publisher_moves=1, losses=1)),
    (a_publisher_leaves_before_it_is_settled, some()),
    (the_window_stays_full_when_it_begins_anew, some(losses=1)),
]


@pytest.mark.parametrize(("plant", "exploration"), MISTAKES, ids=[plant.__name__ for plant, _ in MISTAKES])
def test_a_planted_mistake_is_found(plant: Plant, exploration: Exploration, monkeypatch: pytest.MonkeyPatch):
    plant(monkeypatch)
    result = explored(exploration, states_max=STATES_MAX)
    assert result.violation is not None, str(result)


# --- the explorer itself ------------------------------------------------------------------------


def test_a_copy_shares_nothing_that_changes():
    world = beginning(Bounds(), is_silent=False)
    broker = world.brokers["A"]
    twin = copied(broker)
    assert twin.core is not broker.core
    before = broker.digested()
    twin.digest = None
    assert twin.digested() == before
    after = world.copied()
    after.publish()
    assert broker.digested() == before
    assert after.digest() != world.digest()


def test_a_copied_method_belongs_to_the_copy():
    class Counter:
        def __init__(self) -> None:
            self.count = 0
            self.more = self.add
            self.least = lambda: self.count

        def add(self) -> None:
            self.count += 1

    counter = Counter()
    twin = copied(counter)
    twin.more()
    assert (counter.count, twin.count, twin.least(), counter.least()) == (0, 1, 1, 0)


def test_numbers_that_are_relative_fold():
    class Clock:
        def __init__(self, at: int, cache: int) -> None:
            self.at, self.cache = at, cache

    folding = Folding(frozenset({"Clock.cache"}), frozenset({"Clock.at"}))
    assert folding.digest(Clock(7, 1), 5) == folding.digest(Clock(9, 2), 7)
    assert folding.digest(Clock(7, 1), 5) != folding.digest(Clock(7, 1), 6)


def test_steps_respect_the_bounds():
    world = beginning(NOTHING_FAILS, is_silent=False)
    assert [step.what for step in possible(world)] == ["publish"]
    assert {step.what for step in possible(beginning(Bounds(), is_silent=False))} >= {"publish", "crash", "leave"}
