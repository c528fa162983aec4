"""Matching a single notification: workspaces that grow, ids made when first listed, sorting, threads that share."""

import random
import threading
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.errors import InputError
from catchment.matching import Matcher
from catchment.matching.kernels import ids as kids
from catchment.matching.kernels.tables import SubscriptionColumns
from catchment.matching.workspace import ArrayHandles
from catchment.model.cesql import Cesql
from catchment.model.filter import Filter
from catchment.model.notification import NOTIFICATION_ATTRIBUTES_MAX, Notification
from tests import oracle

NONE32, NONE64, NONE8 = np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.uint8)


# --- workspaces ---------------------------------------------------------------------------------


def test_the_output_grows_and_serves_again():
    found = Matcher()
    ids = [f"s{i}" for i in range(5000)]
    found.add_many(ids, [Filter.of(("x", ">=", i)) for i in range(5000)])
    for x in (3, 4999, 1023, 1024, 0, 2047, -1):
        assert found.match({"x": x}) == sorted(ids[: x + 1])


@pytest.mark.parametrize("count", [31, 32, 33, 64, 1000, NOTIFICATION_ATTRIBUTES_MAX])
def test_notifications_of_many_attributes(count):
    found = Matcher()
    found.add_many(["last"], [Filter.of((f"n{count - 1}", "=", count - 1))])
    row = {f"n{i}": i for i in range(count)}
    assert found.match(row) == found.match(Notification(row, seq=1, id="i", source="s")) == ["last"]
    assert found.match({"n0": 7}) == []


def test_too_many_attributes_are_refused_and_leave_no_trace():
    found = Matcher()
    found.add_many(["a"], [Filter("x = 1")])
    with pytest.raises(InputError, match=f"more than {NOTIFICATION_ATTRIBUTES_MAX}"):
        found.match({f"n{i}": i for i in range(NOTIFICATION_ATTRIBUTES_MAX + 5)})
    assert found.match({"x": 1}) == ["a"]


def test_long_texts_are_turned_round():
    found = Matcher()
    found.add_many(["end", "start"], [Filter("s *< 'yx'"), Filter("s >* 'yx'")])
    for length in (10, 4090, 4100, 30_000):
        assert found.match({"s": "z" * length + "yx"}) == ["end"]
        assert found.match({"s": "yx" + "z" * length}) == ["start"]


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("row", [{"x": float("nan")}, {"": 1}, {"x": 2**63}, {1: 2}, {"x": None}, {"x": b"y"}, [1], 3])
def test_what_is_no_notification_is_refused_whoever_looks(row, settled):
    found = Matcher()
    found.add("a", Filter("x = 1"))
    if settled:
        found.add_many(["b"], [Filter("x = 2")])
    with pytest.raises(InputError):
        found.match(row)
    assert found.match({"x": 1}) == ["a"]


def test_filters_that_no_interval_leads_to():
    """Interpreted, this read before the beginning of an empty array."""
    found = Matcher()
    found.add_many(["a"], [Filter("not exists(x) and not exists(y)")])
    assert found.match({"z": 1}) == ["a"]
    assert found.match({"y": 1}) == []


def test_times_in_plain_mappings():
    found = Matcher()
    found.add_many(["a"], [Filter("t > 2026-01-01T00:00:00Z")])
    assert found.match({"t": datetime(2026, 1, 2, tzinfo=UTC)}) == ["a"]
    assert found.match({"t": datetime(2025, 1, 2, tzinfo=UTC)}) == []


def test_handles_are_made_only_of_what_a_kernel_takes():
    with pytest.raises(AssertionError):
        ArrayHandles(SubscriptionColumns(NONE32, NONE32, NONE32, NONE32, NONE8))
    with pytest.raises(AssertionError):
        ArrayHandles(SubscriptionColumns(np.zeros((3, 2), np.int64)[:, 0], NONE32, NONE32, NONE32, NONE8))
    assert ArrayHandles(SubscriptionColumns(NONE64, NONE32, NONE32, NONE32, NONE8)).handles.shape == (5, 3)


# --- ids ----------------------------------------------------------------------------------------


@given(st.integers(1, 3000), st.integers(0, 2000), st.integers())
def test_numbers_are_sorted_by_their_places(most, count, seed):
    rng = np.random.default_rng(abs(seed))
    _assert_sorted(rng.permutation(most), rng.integers(0, most, count))


def test_many_places_take_more_rounds():
    rng = np.random.default_rng(5)
    for most in (1 << 22, (1 << 22) + 1):
        places = np.arange(most)[::-1]
        _assert_sorted(places, np.append(rng.integers(0, most, 3000), (0, most - 1)))


def _assert_sorted(places, numbers):
    places, made = places.astype(np.int32), np.ones(len(places), np.uint8)
    out, spare, counts = np.empty(len(numbers), np.int64), np.empty(len(numbers), np.int64), np.empty(2048, np.int64)
    numbers = numbers.astype(np.int32)
    assert kids.sort_numbers(numbers, len(numbers), places, made, out, spare, counts)
    assert out.tolist() == sorted(numbers.tolist(), key=lambda number: places[number])
    if len(numbers):
        made[numbers[-1]] = 0
        assert not kids.sort_numbers(numbers, len(numbers), places, made, out, spare, counts)


def test_objects_are_made_of_listed_ids_only_and_counted():
    found = Matcher()
    found.add_many([f"s{i:04}" for i in range(1000)], [Filter.of(("x", "=", i % 500)) for i in range(1000)])
    before = found.stats().bytes
    assert len(found.match_batch([{"x": 7}]).ids) == 2
    assert found.stats().bytes == before
    assert found.match({"x": 7}) == ["s0007", "s0507"]
    listed = found.stats().bytes - before
    assert 13 * 1000 + 2 * 50 < listed < 13 * 1000 + 2 * 60
    assert found.match({"x": 7}) == found.match_batch([{"x": 7}])[0] == ["s0007", "s0507"]
    assert found.stats().bytes - before == listed


# --- changes and readers ------------------------------------------------------------------------

_FORMS = ("x = {i}", "x > {i}", "s *< '{i}'", "x = {i} or y = {i}", "s * '{i}' and x < 50")


def _filters(rng, count):
    return [Filter(rng.choice(_FORMS).format(i=rng.randrange(60))) for _ in range(count)]


def _rows(rng, count):
    return [{"x": rng.randrange(60), "y": rng.randrange(60), "s": f"a{rng.randrange(60)}"} for _ in range(count)]


def test_removals_show_at_once_and_later():
    rng = random.Random(3)
    found, filters = Matcher(), _filters(rng, 300)
    living = {f"s{i}": one for i, one in enumerate(filters)}
    found.add_many(list(living), filters)
    for row in _rows(rng, 100):
        assert found.match(row) == sorted(id for id, one in living.items() if oracle.matches(one, row))
        gone = rng.choice(sorted(living))
        found.remove(gone)
        del living[gone]
        assert gone not in found.match(row)


def test_expressions_are_evaluated_for_one_as_for_many(tmp_path):
    rng = random.Random(4)
    texts = [f"x + y > {i} AND s LIKE '%{i % 10}'" for i in range(60)]
    found, filters = Matcher(), _filters(rng, 200)
    found.add_many(list(range(200)), filters)
    found.add_many([f"c{i}" for i in range(60)], [Cesql(text) for text in texts])
    rows = _rows(rng, 50)
    wanted = [
        [i for i, one in enumerate(filters) if oracle.matches(one, row)]
        + sorted(f"c{i}" for i in range(60) if row["x"] + row["y"] > i and row["s"].endswith(str(i % 10)))
        for row in rows
    ]
    found.save(tmp_path / "index")
    for one in (found, Matcher.open(tmp_path / "index")):
        assert [one.match(row) for row in rows] == list(one.match_batch(rows)) == wanted


def test_threads_share_a_matcher_while_it_changes():
    rng = random.Random(6)
    found, filters = Matcher(), _filters(rng, 400)
    found.add_many([f"s{i:03}" for i in range(400)], filters)
    rows, wrong = _rows(rng, 40), []
    steady = [sorted(f"s{i:03}" for i in range(200) if oracle.matches(filters[i], row)) for row in rows]
    ended = threading.Event()

    def read(seed):
        order = random.Random(seed)
        while not ended.is_set():
            i = order.randrange(len(rows))
            listed = found.match(rows[i])
            if [id for id in listed if str(id) < "s200"] != steady[i] or listed != sorted(set(listed), key=str):
                wrong.append((i, listed))

    readers = [threading.Thread(target=read, args=(seed,)) for seed in range(3)]
    for one in readers:
        one.start()
    for _ in range(2):  # removes and adds again what is not steady: segments are rebuilt and merged on the way
        for i in range(200, 400):
            found.remove(f"s{i:03}")
        found.add_many([f"s{i:03}" for i in range(200, 400)], filters[200:])
    ended.set()
    for one in readers:
        one.join()
    assert not wrong
    assert [found.match(row) for row in rows] == [
        sorted(f"s{i:03}" for i in range(400) if oracle.matches(filters[i], row)) for row in rows
    ]


@pytest.mark.parametrize("reverse", [False, True])
def test_the_greatest_int_is_not_the_float_above_it(reverse):
    values = [2**63 - 1, 2.0**63, -(2**63), -(2.0**63), 2.0**64, 2**53 + 1, 2.0**53]
    numbers = list(enumerate(values))
    matcher = Matcher()
    for id, value in reversed(numbers) if reverse else numbers:
        matcher.add(id, Filter.of(("x", "=", value)))
    for value in values:
        wanted = [id for id, other in numbers if other == value]
        assert matcher.match({"x": value}) == wanted
        assert list(matcher.match_batch([{"x": value}])) == [wanted]
