"""Filters that are expressions in the matcher: shared nodes, how they are reached, folded values, saved and merged."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from catchment import Filter, Matcher
from catchment.matching import encode
from catchment.matching.bulk import pack_filter, unpack_filter
from catchment.matching.kernels.nodes import LEAF
from catchment.matching.segment import Segment
from catchment.model.values import Value
from catchment.sim.detection_data import detection_rules, process_events

TEXTS = (
    "(x = 1 or y contains 'abc') and not z contains 'q'",
    "not x in (1, 2)",
    "not (s prefix 'a' or s suffix 'b')",
    "(a = 1 or b = 2) and (c = 3 or d glob '*x?z*') or e = 9",
    "not exists(x) and (y = 'k' or y = 'l')",
    "y contains nocase 'ABC' or s = nocase 'K'",
    "not (y suffix nocase 'C' and s any)",
    "x = 1 and y contains 'abc'",
    "true",
    "false",
    "x = 1 and not x = 1",
)
VALUES: dict[str, list[Value]] = {
    "x": [1, 2, 3, 1.0, "1"],
    "y": ["abc", "zABCz", "k", "q", "abC"],
    "z": ["q", "r", 7],
    "s": ["a", "b", "xb", "\u212a", "K"],
    "a": [1, 2],
    "b": [2, 3],
    "c": [3],
    "d": ["wxyz", "xz"],
    "e": [9, 1],
}


def rows(count: int) -> list[dict[str, Value]]:
    rng = np.random.default_rng(1)
    made = []
    for _ in range(count):
        chosen = [name for name in VALUES if rng.random() < 0.6]
        made.append({name: VALUES[name][rng.integers(len(VALUES[name]))] for name in chosen})
    return made


ROWS = rows(300)
FILTERS = {str(i): Filter(text) for i, text in enumerate(TEXTS)}
EXPECTED = [sorted(id for id, filter in FILTERS.items() if filter.matches(row)) for row in ROWS]


def full() -> Matcher:
    matcher = Matcher()
    matcher.add_many(list(FILTERS), list(FILTERS.values()), ["even" if int(id) % 2 == 0 else "odd" for id in FILTERS])
    return matcher


def test_batches_and_single_notifications_match_alike() -> None:
    matcher = full()
    assert [list(ids) for ids in matcher.match_batch(ROWS)] == EXPECTED
    assert [matcher.match(row) for row in ROWS] == EXPECTED
    assert sum(map(len, EXPECTED)) > 500


def test_groups() -> None:
    matcher = full()
    groups = [sorted({"even" if int(id) % 2 == 0 else "odd" for id in ids}) for ids in EXPECTED]
    assert [list(some) for some in matcher.match_groups(ROWS)] == groups


def test_arrow_columns() -> None:
    texts = [{name: value for name, value in row.items() if isinstance(value, str)} for row in ROWS]
    names = sorted({name for row in texts for name in row})
    table = pa.table({name: pa.array([row.get(name) for row in texts], pa.string()) for name in names})
    expected = [sorted(id for id, filter in FILTERS.items() if filter.matches(row)) for row in texts]
    assert [list(ids) for ids in full().match_batch(table)] == expected


def test_added_and_removed_one_by_one_while_matching_goes_on() -> None:
    matcher = Matcher()
    alive: dict[str, Filter] = {}
    rng = np.random.default_rng(2)
    for step in range(300):
        if alive and rng.random() < 0.4:
            id = sorted(alive)[rng.integers(len(alive))]
            matcher.remove(id)
            del alive[id]
        else:
            id = f"{step:03}"
            alive[id] = Filter(TEXTS[rng.integers(len(TEXTS))])
            matcher.add(id, alive[id])
        row = ROWS[step]
        assert matcher.match(row) == sorted(id for id, filter in alive.items() if filter.matches(row))


def test_saved_and_opened_again(tmp_path: Path) -> None:
    full().save(tmp_path / "index")
    opened = Matcher.open(tmp_path / "index")
    assert [list(ids) for ids in opened.match_batch(ROWS)] == EXPECTED
    for id, filter in FILTERS.items():
        assert opened.filter_of(id) == filter


def test_merged_segments_share_nodes() -> None:
    half = len(FILTERS) // 2
    ids, filters = list(FILTERS), list(FILTERS.values())
    parts = [
        Segment.of(ids[start:end], filters[start:end], np.full(end - start, -1, np.int64))
        for start, end in ((0, half), (half, len(ids)), (0, 0))
    ]
    merged = Segment.merged(parts)
    offsets, numbers = merged.match(encode.entries_of_mappings(ROWS), 0, lambda i: ROWS[i])
    found = [merged.ids.sorted(numbers[offsets[i] : offsets[i + 1]]) for i in range(len(ROWS))]
    assert found == EXPECTED
    whole = Segment.of(ids, filters, np.full(len(ids), -1, np.int64))
    assert sorted(merged.source.node_kind) == sorted(whole.source.node_kind)


def test_equal_parts_are_one_node() -> None:
    part = "(x = 1 or y = 'a')"
    segment = Segment.of([1, 2], [Filter(f"{part} and z = {i} or w = {i}") for i in (1, 2)], np.full(2, -1, np.int64))
    constraints = {str(constraint) for number in (0, 1) for constraint in _leaves(segment, number)}
    assert len(constraints) == 6
    # Six leaves, the shared `or`, and an `and` and an `or` of each filter.
    assert len(segment.source.node_kind) == 6 + 1 + 2 + 2
    assert int((segment.source.node_kind == LEAF).sum()) == 6


def _leaves(segment: Segment, number: int) -> list[object]:
    from catchment.model.expression import leaves

    return list(leaves(segment.filter_of(number).expression))


@pytest.mark.parametrize("text", TEXTS)
def test_packed_and_unpacked(text: str) -> None:
    assert unpack_filter(pack_filter(Filter(text))) == Filter(text)


def test_nothing_is_multiplied_out() -> None:
    matcher = Matcher()
    text = " and ".join(f"(a{i} = 1 or b{i} = 1)" for i in range(40))
    matcher.add_many(["f"], [text])
    stats = matcher.stats()
    # One clause of two leads to it.
    assert (stats.constraints, stats.rows) == (80, 2)
    assert matcher.match({f"{'ab'[i % 2]}{i}": 1 for i in range(40)}) == ["f"]
    assert matcher.match({f"{'ab'[i % 2]}{i}": 1 for i in range(39)}) == []


def test_a_filter_is_reached_by_its_rarest_part() -> None:
    matcher = Matcher()
    popular = [f"kind suffix 'powershell' and text contains 'literal{i:03}'" for i in range(200)]
    matcher.add_many(range(200), [f"({text}) or note = 'n{i}'" for i, text in enumerate(popular)])
    (segment,) = matcher._snapshot.segments
    segment.match(encode.entries_of_mappings([{"kind": "powershell", "text": "literal007"}]), 9, lambda _: {})
    scratch = segment._workspaces[-1]._scratch
    assert int((scratch.shared_stamp == scratch.control[0]).sum()) == 1


def test_rules_and_events_like_real_ones() -> None:
    texts = list(detection_rules(300, 3))
    filters = [Filter(text) for text in texts]
    events = [dict(event) for event in process_events(400, 3, texts)]
    matcher = Matcher()
    matcher.add_many(range(len(filters)), filters)
    expected = [[i for i, filter in enumerate(filters) if filter.matches(event)] for event in events]
    assert [sorted(ids) for ids in matcher.match_batch(events)] == expected
    assert sum(map(len, expected)) > 5


def test_an_expression_of_equal_parts_is_a_single_constraint() -> None:
    matcher = Matcher()
    texts = ["x > 1 or x > 1", "x > 1 and x > 1", "y = 2 or (y = 2 and y = 2)", "not (x > 1 and x > 1)"]
    matcher.add_many(texts, [Filter(text) for text in texts])
    rows = [{"x": 2}, {"x": 0}, {"y": 2}, {"y": 3}, {}]
    expected = [sorted(text for text in texts if Filter(text).matches(row)) for row in rows]
    assert [matcher.match(row) for row in rows] == expected
    batch = matcher.match_batch(rows)
    assert [batch[i] for i in range(len(rows))] == expected
