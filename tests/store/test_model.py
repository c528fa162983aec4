"""Every store does what a slow, obvious one does, whatever it is asked in whatever order, with restarts in between."""

import shutil
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from catchment.model.filter import Filter
from catchment.routing.stored import (
    Acknowledged,
    Consumed,
    DurableRow,
    Fetch,
    Forgotten,
    LastNumber,
    Persist,
    PlaceRow,
    Record,
)
from catchment.store.interface import Retention
from tests.store.conftest import PLACES
from tests.store.model import Model
from tests.store.places import notification, quick_folder

READERS = ("ada", "bob", "eve")
# With these a record is wide.
CROWD = tuple(f"reader-{number:02}" for number in range(65))

retentions = st.builds(
    Retention,
    age_us_max=st.none() | st.integers(5, 50),
    bytes_max=st.none() | st.integers(50, 500),
    retain_us=st.sampled_from((0, 0, 10)),
)
readers = st.sampled_from((*READERS, CROWD[7]))
dues = st.frozensets(st.sampled_from(READERS), max_size=3)
small_writes = st.one_of(
    st.builds(LastNumber, st.sampled_from("pq"), st.integers(0, 99), st.integers(0, 9)),
    st.builds(
        DurableRow,
        st.sampled_from(READERS),
        st.sampled_from("ab"),
        st.integers(1, 9),
        st.none() | st.just(Filter("x > 1")),
    ),
    st.builds(PlaceRow, st.sampled_from(READERS), st.integers(1, 9), st.none() | st.just("east")),
    st.builds(Consumed, st.sampled_from(("log-a", "log-b")), st.integers(0, 99)),
    st.builds(Forgotten, st.sampled_from(READERS)),
)


class StoreAndModel(RuleBasedStateMachine):
    kind = "memory"

    @initialize(retention=retentions)
    def begin(self, retention):
        self.folder = quick_folder()
        self.place = PLACES[self.kind](self.folder / "store")
        self.retention = retention
        self.store = self.place.open(retention)
        self.model = Model(retention)
        self.now = 0
        self.damaged: set[int] = set()

    def teardown(self):
        if hasattr(self, "store"):
            self.store.close()
            self.place.remove()
            shutil.rmtree(self.folder, ignore_errors=True)

    def write(self, *groups):
        batch = [Persist(self.model.serial + number, tuple(group)) for number, group in enumerate(groups, 1)]
        self.store.write(batch)
        self.model.write(batch)

    @rule(groups=st.lists(st.lists(st.tuples(dues, st.sampled_from((False, False, True))) | small_writes, max_size=4)))
    def writes(self, groups):
        head = self.model.head
        made: list[list[Any]] = []
        for group in groups:
            made.append([])
            for each in group:
                if not isinstance(each, tuple):
                    made[-1].append(each)
                    continue
                head += 1
                names = sorted({*each[0], *(CROWD if each[1] else ())})
                due = tuple((name, (f"{name}-{head % 2}",)) for name in names)
                made[-1].append(Record(head, notification(head), due, self.now))
        if made:
            self.write(*made)

    @rule(identity=readers, back=st.integers(0, 6))
    def acknowledges(self, identity, back):
        self.write([Acknowledged(identity, max(0, self.model.head - back))])

    @rule(back=st.integers(0, 3))
    def the_crowd_acknowledges(self, back):
        self.write([Acknowledged(name, max(0, self.model.head - back)) for name in CROWD])

    @rule(duration=st.integers(0, 20))
    def collects(self, duration):
        self.now += duration
        self.find_damage()
        collected = self.store.collect(self.now)
        assert (collected.records, dict(collected.lost)) == self.model.collect(self.now)

    @rule(identity=readers, after=st.integers(0, 40), length=st.integers(0, 40), few=st.booleans())
    def reads(self, identity, after, length, few):
        bounds = (2, 100) if few else (256, 1_000_000)
        fetch = Fetch(identity, min(after, self.model.head), after + length, *bounds)
        self.find_damage()
        assert self.store.read(fetch) == self.model.read(fetch)

    @rule()
    def is_closed_and_opened(self):
        self.store.close()
        self.store = self.place.open(self.retention)

    @rule()
    def is_killed(self):
        self.place.kill()
        self.store = self.place.open(self.retention)

    @precondition(lambda self: self.model.kept)
    @rule(data=st.data())
    def is_damaged(self, data):
        epoch = data.draw(st.sampled_from(sorted(self.model.kept - self.damaged)))
        self.store.close()
        self.place.damage(epoch)
        self.damaged.add(epoch)
        self.store = self.place.open(self.retention)
        self.find_damage()

    def find_damage(self):
        """Scrubs until all damage is found: the model has it at once."""
        # The first pass goes on where one was interrupted.
        for _ in range(2):
            while self.store.scrub(5):
                pass
        for epoch in sorted(self.damaged & self.model.kept):
            self.model.lose(epoch)
        self.damaged.clear()

    @invariant()
    def is_as_the_model(self):
        if not hasattr(self, "store"):
            return
        opened, model = self.store.opened(), self.model
        assert (opened.serial, opened.head, opened.anchor) == (model.serial, model.head, model.anchor)
        assert opened.acknowledged == model.positions
        assert opened.last_due == model.last
        assert list(opened.durables) == [row for _, row in sorted(model.rows("DurableRow").items())]
        assert list(opened.places) == [row for _, row in sorted(model.rows("PlaceRow").items())]
        assert set(opened.numbers.values()) == set(model.rows("LastNumber").values())
        assert opened.consumed == {row.log: row.epoch for row in model.rows("Consumed").values()}
        self.status_is_as_the_model()

    def status_is_as_the_model(self):
        status, model = self.store.status(), self.model
        assert status.records == len(model.kept)
        for each in status.identities:
            name, position = each.identity, model.positions.get(each.identity, 0)
            waiting = sorted(e for identity, e in model.due if identity == name and e > position and e in model.kept)
            oldest = model.records[waiting[0] - 1].at if waiting else None
            assert (each.waiting, each.oldest, each.lost) == (len(waiting), oldest, model.lost.get(name, 0))
        assert {each.identity for each in status.identities} == model.known


@pytest.mark.parametrize("kind", list(PLACES))
def test_stores_do_what_the_model_does(kind, request):
    if kind == "postgres":
        request.getfixturevalue("server")

    class Machine(StoreAndModel):
        pass

    Machine.kind = kind
    Machine.TestCase.settings = settings(
        max_examples=max(10, settings().max_examples // 2), stateful_step_count=30, deadline=None
    )
    Machine.TestCase().runTest()
