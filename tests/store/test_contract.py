"""What every store does, whatever it is made of."""

import pytest

from catchment.model.cesql import Cesql
from catchment.model.filter import Filter
from catchment.model.notification import Notification
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
from catchment.store.interface import Retention, StoreBrokenError, StoreError
from tests.store.places import acknowledge, record, write_records

MANY = tuple(f"reader-{number:03}" for number in range(70))
SECOND = 1_000_000


def epochs(fetched):
    return [entry.epoch for entry in fetched.entries]


def all_of(store, identity, after=0):
    return store.read(Fetch(identity, after, store.opened().head))


def test_a_new_store_is_empty(place):
    opened = place.open().opened()
    assert (opened.serial, opened.head, opened.anchor) == (0, 0, 0)
    assert not opened.numbers
    assert not opened.durables


def test_everything_is_there_again(place):
    rows = (
        DurableRow("ada", "a", 3, Filter("x > 1 and y = 'é\\u0000'"), by="east", via="relay", is_group=True),
        DurableRow("ada", "b", 4, None, by="east"),
        DurableRow("bob", "a", 1, Cesql("x > 1"), by="west"),
    )
    places = (PlaceRow("ada", 12, "east"), PlaceRow("bob", 2**61, None))
    small = (LastNumber("publisher", 7, 1), Acknowledged("ada", 0), Consumed("other-log", 5))
    with_zero = Notification({"number": 1, "zero": -0.0}, source="s\0", id="é", payload=b"\0")
    store = place.open()
    store.write([Persist(1, (*rows, *places)), Persist(2, (*small, Record(1, with_zero, (("ada", ("a", "b")),), 9)))])
    before, entries = store.opened(), all_of(store, "ada").entries
    store.close()
    again = place.open()
    assert again.opened() == before
    assert before.durables == rows
    assert before.places == places
    assert before.numbers == {"publisher": small[0]}
    assert before.acknowledged == {"ada": 0}
    assert before.consumed == {"other-log": 5}
    assert before.last_due == {"ada": 1}
    assert all_of(again, "ada").entries == entries
    assert entries[0].notification == with_zero
    assert entries[0].ids == ("a", "b")


def test_what_was_written_survives_a_kill(place):
    store = place.open()
    write_records(store, record(1, "ada"), record(2, "bob"))
    before = store.opened()
    place.kill()
    again = place.open()
    assert again.opened() == before
    assert epochs(all_of(again, "bob")) == [2]


def test_serials_and_epochs_follow(place):
    store = place.open()
    write_records(store, record(1, "ada"))
    for wrong in (
        [Persist(1, ())],
        [Persist(3, ())],
        [Persist(2, ()), Persist(2, ())],
        [Persist(2, (record(1, "ada"),))],
        [Persist(2, (record(3, "ada"),))],
    ):
        with pytest.raises(StoreError, match="does not follow"):
            store.write(wrong)
    assert store.opened().serial == 1
    write_records(store, record(2, "ada"))


def test_each_identity_reads_its_own(place):
    store = place.open()
    write_records(store, record(1, "ada"), record(2, "ada", "bob"), record(3, *MANY), record(4, "bob", *MANY))
    assert epochs(all_of(store, "ada")) == [1, 2]
    assert epochs(all_of(store, "bob")) == [2, 4]
    assert epochs(all_of(store, MANY[5])) == [3, 4]
    assert epochs(all_of(store, MANY[5], after=3)) == [4]
    assert all_of(store, "nobody").entries == ()
    assert all_of(store, "ada").upto == 4
    assert all_of(store, "bob").entries[0].ids == ("bob-id",)


def test_reading_ends_at_the_head(place):
    store = place.open()
    write_records(store, record(1, "ada"))
    assert store.read(Fetch("ada", 0, 100)).upto == 1
    assert store.read(Fetch("ada", 1, 100)).upto == 1
    assert store.read(Fetch("ada", 5, 3)).upto == 5


@pytest.mark.parametrize("readers", [("ada",), MANY])
def test_too_much_for_one_answer_comes_in_pieces(place, readers):
    store = place.open()
    write_records(store, *(record(epoch, *readers, payload=b"x" * 100) for epoch in range(1, 41)))
    identity = readers[0]
    assert epochs(store.read(Fetch(identity, 0, 40, entries_max=3))) == [1, 2, 3]
    assert store.read(Fetch(identity, 0, 40, entries_max=3)).upto == 3
    assert epochs(store.read(Fetch(identity, 0, 40, bytes_max=1))) == [1]
    position, seen = 0, []
    while position < 40:
        piece = store.read(Fetch(identity, position, 40, bytes_max=1000))
        assert piece.upto > position
        assert sum(len(entry.notification.packed) for entry in piece.entries) <= 1000
        seen += epochs(piece)
        position = piece.upto
    assert seen == list(range(1, 41))


def test_many_records_between_two_of_an_identity(place):
    store = place.open()
    others = [
        record(epoch, "bob" if epoch % 2 else MANY[0], *MANY[1 : 1 if epoch % 2 else 70]) for epoch in range(2, 1500)
    ]
    write_records(store, record(1, "ada"), *others, record(1500, "ada", "bob"))
    assert epochs(all_of(store, "ada")) == [1, 1500]
    assert len(all_of(store, "bob").entries) == 256


def test_collecting_waits_for_everybody_due(place):
    store = place.open()
    write_records(store, record(1, "ada"), record(2, "ada", "bob"), record(3, "ada"))
    assert store.collect(SECOND).records == 0
    acknowledge(store, "ada", 3)
    assert store.collect(SECOND).records == 2
    opened = store.opened()
    assert (opened.anchor, opened.head) == (1, 3)
    assert epochs(all_of(store, "bob")) == [2]
    assert all_of(store, "ada", after=3).lost == 0
    acknowledge(store, "bob", 2)
    assert store.collect(SECOND).records == 1
    assert store.opened().anchor == 3
    assert store.status().records == 0
    assert store.collect(SECOND).records == 0


def test_wide_records_are_collected(place):
    store = place.open()
    write_records(store, record(1, *MANY), record(2, "ada"), record(3, *MANY))
    for identity in MANY[1:]:
        acknowledge(store, identity, 3)
    assert store.collect(SECOND).records == 0
    acknowledge(store, MANY[0], 1)
    assert store.collect(SECOND).records == 1
    assert store.opened().anchor == 1
    assert epochs(all_of(store, MANY[0], after=1)) == [3]
    acknowledge(store, MANY[0], 3)
    assert store.collect(SECOND).records == 1
    assert store.status().records == 1


def test_epochs_are_never_used_again(place):
    store = place.open()
    write_records(store, record(1, "ada"), record(2, "ada"))
    acknowledge(store, "ada", 2)
    store.collect(SECOND)
    store.close()
    store = place.open()
    assert (store.opened().head, store.opened().anchor) == (2, 2)
    write_records(store, record(3, "ada"))
    assert epochs(all_of(store, "ada", after=2)) == [3]


def test_a_reader_goes_back_to_what_is_retained(place):
    store = place.open(Retention(retain_us=100))
    write_records(store, *(record(epoch, "ada", at=epoch * 10) for epoch in range(1, 6)))
    acknowledge(store, "ada", 5)
    assert store.collect(130).records == 3
    acknowledge(store, "ada", 3)
    assert epochs(all_of(store, "ada", after=3)) == [4, 5]
    assert store.collect(1000).records == 0
    acknowledge(store, "ada", 5)
    assert store.collect(1000).records == 2


def test_a_reader_goes_back_past_what_was_collected_out_of_order(place):
    store = place.open()
    write_records(
        store, record(1, "bob"), record(2, "ada"), record(3, "ada", "bob"), record(4, "ada"), record(5, "bob")
    )
    acknowledge(store, "ada", 4)
    assert store.collect(SECOND).records == 2
    acknowledge(store, "ada", 0)
    read = all_of(store, "ada")
    assert (epochs(read), read.lost) == ([3], 0)


def test_age_drops_and_counts(place):
    store = place.open(Retention(age_us_max=25))
    write_records(store, record(1, "ada", "bob", at=10), record(2, *MANY, "ada", at=20), record(3, "ada", at=30))
    acknowledge(store, "bob", 1)
    collected = store.collect(50)
    assert collected.records == 2
    assert dict(collected.lost) == {"ada": 2, **dict.fromkeys(MANY, 1)}
    read = all_of(store, "ada")
    assert (epochs(read), read.lost) == ([3], 2)
    assert all_of(store, "ada", after=1).lost == 1
    assert all_of(store, "ada", after=2).lost == 0
    assert all_of(store, "bob").lost == 0
    assert all_of(store, MANY[9]).lost == 1
    acknowledge(store, "ada", 3)
    store.collect(50)
    assert {each.identity: each.lost for each in store.status().identities}["ada"] == 2
    assert all_of(store, "ada", after=3).lost == 0


def test_bytes_drop_the_oldest(place):
    store = place.open(Retention(bytes_max=5_000))
    write_records(store, *(record(epoch, "ada", payload=b"x" * 1000) for epoch in range(1, 11)))
    assert store.collect(SECOND).lost == (("ada", 6),)
    assert store.status().bytes <= 5_000
    read = all_of(store, "ada")
    assert (epochs(read), read.lost) == ([7, 8, 9, 10], 6)


def test_lost_ones_are_told_after_a_restart(place):
    store = place.open(Retention(age_us_max=25))
    write_records(store, record(1, "ada", at=10), record(2, "ada", at=10))
    store.collect(50)
    store.close()
    store = place.open()
    read = all_of(store, "ada")
    assert (read.entries, read.lost, read.upto) == ((), 2, 2)
    assert store.opened().last_due == {"ada": 2}


@pytest.mark.parametrize("column", ["hash", "body"])
@pytest.mark.parametrize("readers", [("ada", "bob"), MANY])
def test_a_damaged_record_is_lost_and_told(place, readers, column):
    store = place.open()
    write_records(store, *(record(epoch, *readers) for epoch in range(1, 6)))
    acknowledge(store, readers[1], 3)
    store.close()
    place.damage(3, column)
    store = place.open()
    read = all_of(store, readers[0])
    assert (epochs(read), read.lost) == ([1, 2, 4, 5], 1)
    again = all_of(store, readers[0])
    assert (epochs(again), again.lost) == ([1, 2, 4, 5], 1)
    assert store.status().quarantined == 1
    lost = {each.identity: each.lost for each in store.status().identities}
    assert (lost[readers[0]], lost[readers[1]]) == (1, 0)
    write_records(store, record(6, *readers))
    assert epochs(all_of(store, readers[0], after=3)) == [4, 5, 6]


def test_the_scrub_finds_what_nobody_reads(place):
    store = place.open()
    write_records(store, *(record(epoch, "ada") for epoch in range(1, 11)))
    while store.scrub(100):
        pass
    store.close()
    place.damage(4)
    store = place.open()
    steps = []
    while count := store.scrub(3):
        steps.append(count)
    assert sum(steps) == 10 - (store.status().quarantined == 1 and len(steps) < 4)
    assert store.status().quarantined == 1
    assert all_of(store, "ada").lost == 1


def test_a_forgotten_identity_leaves_nothing(place):
    store = place.open()
    rows = (DurableRow("ada", "a", 1, Filter("x > 1")), DurableRow("bob", "a", 1, Filter("x > 1")))
    store.write([Persist(1, (*rows, PlaceRow("ada", 1, "east"), Acknowledged("ada", 0)))])
    write_records(store, record(1, "ada"), record(2, "ada", "bob"), record(3, "ada", *MANY))
    store.write([Persist(5, (Forgotten("ada"),))])
    opened = store.opened()
    assert (opened.durables, opened.places, opened.acknowledged) == (rows[1:], (), {})
    assert "ada" not in opened.last_due
    assert all_of(store, "ada").entries == ()
    assert store.collect(SECOND).records == 1
    assert "ada" not in [each.identity for each in store.status().identities]
    write_records(store, record(4, "ada"))
    assert epochs(all_of(store, "ada")) == [4]


def test_forgotten_and_back_within_one_write(place):
    store = place.open()
    write_records(store, record(1, "ada"))
    store.write([Persist(2, (record(2, "ada"), Forgotten("ada"), record(3, "ada")))])
    assert epochs(all_of(store, "ada")) == [3]
    store.close()
    assert epochs(all_of(place.open(), "ada")) == [3]


def test_a_record_for_nobody_goes(place):
    store = place.open()
    write_records(store, record(1), record(2, "ada"))
    assert store.collect(SECOND).records == 1
    assert store.opened().anchor == 1


def test_status_counts_what_waits(place):
    store = place.open()
    write_records(store, record(1, "ada", at=5), record(2, "ada", *MANY, at=6), record(3, "ada", at=7))
    acknowledge(store, "ada", 1)
    status = store.status()
    ada = next(each for each in status.identities if each.identity == "ada")
    assert (ada.acknowledged, ada.waiting, ada.oldest, ada.lost) == (1, 2, 6, 0)
    assert (status.records, status.head) == (3, 3)
    assert status.bytes == sum(len(record(epoch).notification.packed) for epoch in (1, 2, 3))


def test_a_closed_store_says_so(place):
    store = place.open()
    store.close()
    with pytest.raises(StoreBrokenError, match="closed"):
        store.opened()
