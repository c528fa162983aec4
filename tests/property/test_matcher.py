"""The matcher equals the oracle: every operator and type, adds and removes interleaved, in every form of input."""

import math
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.matching import Matcher, index, matcher
from catchment.model.conjunction import Conjunction
from catchment.model.expression import And, Not, Or
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from tests import oracle
from tests import strategies as ours


@pytest.fixture(autouse=True, params=["leaves of 16", "leaves of 1"])
def sizes(request, monkeypatch):
    """Small trees reach every kind of node only where leaves are small."""
    if request.param == "leaves of 1":
        monkeypatch.setattr(index, "LEAF_ROWS", 1)
        monkeypatch.setattr(index, "SCAN_EDGES", 0)
        monkeypatch.setattr(index, "SHARED_ROWS_MIN", 2)


@st.composite
def cases(draw):
    """Expressions, and notifications close to what they say."""
    expressions = draw(st.lists(ours.expressions(ours.constraints, 4), min_size=1, max_size=12))
    notifications = draw(
        st.lists(st.sampled_from(expressions).flatmap(ours.near) | ours.notifications, min_size=1, max_size=4)
    )
    return expressions, notifications


def expected(expressions, notification):
    values = notification.matched if isinstance(notification, Notification) else notification
    return [i for i, one in expressions.items() if oracle.truth(one, values) is True]


def matcher_of(expressions):
    found = Matcher()
    found.add_many(list(expressions), [Filter.of_expression(one) for one in expressions.values()])
    return found


@given(cases())
def test_matches_what_the_oracle_matches(case):
    expressions, notifications = dict(enumerate(case[0])), case[1]
    found = matcher_of(expressions)
    wanted = [expected(expressions, one) for one in notifications]
    assert list(found.match_batch(notifications)) == wanted
    assert [found.match(one) for one in notifications] == wanted


@st.composite
def conjunction_cases(draw):
    """Constraints as people write them, several on one name and redundant ones too."""
    name = st.sampled_from(("x", "y", "$seq"))
    listed = draw(st.lists(st.lists(ours.constraints_on(name), max_size=4), min_size=1, max_size=8))
    expressions = [And(tuple(found)) for found in listed]
    return listed, draw(st.lists(st.sampled_from(expressions).flatmap(ours.near), min_size=1, max_size=4))


@given(conjunction_cases())
def test_conjunctions_need_no_normal_form(case):
    listed, notifications = case
    as_written, as_filters = Matcher(), Matcher()
    as_written.add_many(list(range(len(listed))), [Conjunction(tuple(found)) for found in listed])
    as_filters.add_many(list(range(len(listed))), [Filter.of(*found) for found in listed])
    for one in notifications:
        wanted = [i for i, found in enumerate(listed) if all(oracle.holds(c, one) is True for c in found)]
        assert as_written.match(one) == as_filters.match(one) == wanted


@given(cases(), st.data())
def test_changes_interleaved(case, data):
    expressions, notifications = case
    found, living = Matcher(), {}
    for i, expression in enumerate(expressions):
        form = data.draw(st.sampled_from(("add", "add_many", "settle")))
        if form == "add":
            found.add(i, Filter.of_expression(expression))
        else:
            found.add_many([i], [Filter.of_expression(expression)])
        living[i] = expression
        if data.draw(st.booleans()):
            gone = data.draw(st.sampled_from(sorted(living)))
            found.remove(gone)
            del living[gone]
        if data.draw(st.booleans()):
            found.prepare()
        one = data.draw(st.sampled_from(notifications))
        assert found.match(one) == expected(living, one)
        assert list(found.match_batch([one, one])) == [expected(living, one)] * 2
    assert len(found) == len(living)


@given(cases())
def test_saved_and_opened(case):
    expressions, notifications = dict(enumerate(case[0])), case[1]
    found = matcher_of(expressions)
    with tempfile.TemporaryDirectory() as directory:
        found.save(Path(directory) / "index")
        opened = Matcher.open(Path(directory) / "index")
        wanted = [expected(expressions, one) for one in notifications]
        assert [opened.match(one) for one in notifications] == wanted
        assert list(opened.match_batch(notifications)) == wanted
        assert list(opened.match_batch([])) == []


@given(cases(), st.lists(st.integers(0, 3), min_size=12, max_size=12))
def test_groups_with_a_match(case, groups):
    expressions, notifications = dict(enumerate(case[0])), case[1]
    found = Matcher()
    filters = [Filter.of_expression(one) for one in expressions.values()]
    found.add_many(list(expressions), filters, groups[: len(filters)])
    for one in notifications:
        wanted = sorted({groups[i] for i in expected(expressions, one)})
        assert found.match_groups(one) == wanted


@given(cases())
def test_explains_what_it_matches(case):
    expressions, notifications = dict(enumerate(case[0])), case[1]
    found = matcher_of(expressions)
    for one in notifications:
        matching = found.match(one)
        for i in expressions:
            assert found.explain(one, i).matched == (i in matching)


def _failing(expression, values, wanted=True):
    """How many constraints of an expression would have to hold besides, at least."""
    if isinstance(expression, bool):
        return 0 if expression is wanted else math.inf
    if isinstance(expression, Not):
        return _failing(expression.inner, values, not wanted)
    if isinstance(expression, And | Or):
        join = sum if isinstance(expression, And) is wanted else min
        return join([_failing(part, values, wanted) for part in expression.parts])
    if not wanted and expression.operator == "any":
        return math.inf
    return 0 if oracle.holds(expression, values) is wanted else 1


def _constraints(expression):
    if isinstance(expression, Not):
        return _constraints(expression.inner)
    if isinstance(expression, And | Or):
        return [each for part in expression.parts for each in _constraints(part)]
    return [] if isinstance(expression, bool) else [expression]


@given(cases())
def test_near_misses_are_one_clause_short(case):
    expressions, notifications = dict(enumerate(case[0])), case[1]
    matcher = matcher_of(expressions)
    # A constraint that stands twice is one clause to the index, where both are parts of one `and`.
    told_apart = {i for i, each in expressions.items() if len(set(_constraints(each))) == len(_constraints(each))}
    for notification in notifications:
        values = notification.matched if isinstance(notification, Notification) else notification
        near = [i for i in sorted(told_apart) if _failing(expressions[i], values) == 1]
        assert [i for i, _ in matcher.nearest(notification, 100) if i in told_apart] == near


def _arrow(rows):
    """Columns of one type each: the first type seen under a name decides, other values are left out."""
    types: dict[str, type] = {}
    for row in rows:
        for name, value in row.items():
            types.setdefault(name, type(value))
    kept = [{name: value for name, value in row.items() if type(value) is types[name]} for row in rows]
    arrow_types = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    columns = {
        name: pa.array([row.get(name) for row in kept], arrow_types.get(kind, pa.timestamp("us", "UTC")))
        for name, kind in types.items()
    }
    return kept, columns


@given(cases(), st.integers(0, 2))
def test_arrow_columns_match_as_their_rows(case, form):
    expressions = dict(enumerate(case[0]))
    rows = [dict(one.matched) if isinstance(one, Notification) else one for one in case[1]]
    kept, columns = _arrow([row for row in rows if row])
    if not columns:
        return
    table = pa.table(columns)
    if form == 1:
        strings = [i for i, column in enumerate(table.columns) if pa.types.is_string(column.type)]
        for i in strings:
            table = table.set_column(i, table.schema.names[i], table.column(i).dictionary_encode())
    elif form == 2:
        table = pa.concat_tables([table, table]).slice(1)
        kept = (kept + kept)[1:]
    found = matcher_of(expressions)
    assert list(found.match_batch(table)) == [expected(expressions, row) for row in kept]


def _random_filter(rng):
    """A filter that shares values with many others, so that trees grow deep."""
    parts = []
    for name in rng.sample("abcdef", rng.randint(1, 4)):
        kind = rng.randrange(12)
        word = "".join(rng.choice("xyz") for _ in range(rng.randint(1, 3)))
        number = rng.choice((rng.randrange(20), rng.randrange(40) / 2))
        parts.append(
            (name, rng.choice(("=", "=", "<", "<=", ">", ">=", "!=")), number)
            if kind < 5
            else (name, rng.choice(("=", "=", "prefix", "suffix", "substring", "<", ">=", "!=")), word)
            if kind < 9
            else (name, "glob", rng.choice(("*", "x*", "?")) + word + rng.choice(("*", "", "*z")))
            if kind == 9
            else (name, "in", rng.sample(range(20), 3))
            if kind == 10
            else (name, rng.choice(("any", "absent")))
        )
    return Filter.of(*parts)


def _random_notification(rng):
    make = (
        lambda: rng.randrange(20),
        lambda: rng.randrange(40) / 2,
        lambda: "".join(rng.choice("xyz") for _ in range(rng.randint(0, 5))),
    )
    return {name: rng.choice(make)() for name in "abcdef" if rng.random() < 0.7}


@pytest.mark.parametrize("seed", range(4))
def test_many_alike(seed, monkeypatch):
    monkeypatch.setattr(matcher, "PENDING_MAX", 16)
    monkeypatch.setattr(matcher, "MERGED_INLINE_MAX", 0 if seed % 2 else 1000)
    rng = random.Random(seed)
    found, living = Matcher(), {}
    for i in range(600):
        living[f"s{i}"] = _random_filter(rng)
        found.add(f"s{i}", living[f"s{i}"])
        if i % 3 == 2:
            gone = rng.choice(list(living))
            found.remove(gone)
            del living[gone]
        if i % 150 == 149:
            found.settled()
    notifications = [_random_notification(rng) for _ in range(60)]
    wanted = [sorted(id for id, one in living.items() if oracle.matches(one, row)) for row in notifications]
    assert list(found.match_batch(notifications)) == wanted
    assert [found.match(row) for row in notifications] == wanted


@pytest.mark.slow
def test_interpreted_kernels_agree():
    """The same tests, and those of one notification, with NUMBA_DISABLE_JIT=1. Numpy then checks bounds, too."""
    here = Path(__file__)
    one = here.parent.parent / "unit" / "test_matcher_single.py"
    chosen = "oracle_matches or interleaved or arrow or groups or opened or test_matcher_single"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", str(here), str(one), "-q", "-x", "-p", "no:cacheprovider", "-k", chosen],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1", "HYPOTHESIS_PROFILE": "check"},
        cwd=here.parent.parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
