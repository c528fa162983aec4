"""Workload W5: its streams do not drift, and its rules have the shapes of real ones."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from catchment.model.filter import Filter
from catchment.sim.detection_data import (
    COMMAND_CHARACTERS_MAX,
    COMMAND_CHARACTERS_MIN,
    detection_rules,
    process_events,
)

REAL_RULES = Path(__file__).parents[3] / "shared" / "sigma" / "filters.jsonl"

# Of the first 1,000 items with seed 1, as Python writes them.
RULES_CHECKSUM = "acf56eebf256e583"
EVENTS_CHECKSUM = "97dfa8717805dcbb"

LEAF = re.compile(r'(`[^`]*`|[\w.]+) (contains|suffix|prefix|glob|=) ("(?:[^"\\]|\\.)*"|-?\d+)|exists\(([\w.]+)\)')
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
# A rule with more is one of its kind, and would hide all others in an average.
LEAVES_MAX = 500


@dataclass
class Shapes:
    """What is counted in a set of rules."""

    leaves: list[int]
    operators: Counter[str]
    names: Counter[str]
    leaf_rules: Counter[str]
    negated: int
    with_or: int
    characters: list[int]

    def share(self, counted: Counter[str], key: str) -> float:
        return counted[key] / counted.total()

    def quantile(self, share: float) -> int:
        return sorted(self.leaves)[int(share * (len(self.leaves) - 1))]


def shapes(texts: Sequence[str]) -> Shapes:
    counted = Shapes([], Counter(), Counter(), Counter(), 0, 0, [])
    for text in texts:
        leaves = [
            (name.strip("`") or absent, operator or "exists", literal)
            for name, operator, literal, absent in LEAF.findall(text)
        ]
        if not 0 < len(leaves) <= LEAVES_MAX:
            continue
        structure = STRING.sub("", text)
        counted.leaves.append(len(leaves))
        counted.operators.update(operator for _, operator, _ in leaves)
        counted.names.update(name for name, _, _ in leaves)
        counted.leaf_rules.update({" ".join(leaf) for leaf in leaves})
        counted.negated += bool(re.search(r"\bnot (?!exists)", structure))
        counted.with_or += bool(re.search(r"\bor\b", structure))
        counted.characters += [len(literal) - 2 for _, operator, literal in leaves if operator == "contains"]
    return counted


@pytest.fixture(scope="module")
def real() -> Shapes:
    if not REAL_RULES.is_file():
        pytest.skip("the real rules are not beside this repository")
    return shapes([json.loads(line)["filter"] for line in REAL_RULES.read_text("utf-8").splitlines()])


@pytest.fixture(scope="module")
def ours() -> Shapes:
    return shapes(detection_rules(3_000))


def checksum(items: object) -> str:
    return hashlib.sha256(repr(items).encode()).hexdigest()[:16]


def test_streams_do_not_drift() -> None:
    rules = detection_rules(1_000)
    assert checksum(rules) == RULES_CHECKSUM
    assert checksum(process_events(1_000, rules=rules)) == EVENTS_CHECKSUM


def test_sizes_are_prefixes_of_one_stream() -> None:
    rules = detection_rules(50)
    assert detection_rules(10) == rules[:10]
    assert detection_rules(10, seed=2) != rules[:10]
    events = process_events(50, rules=rules)
    assert process_events(10, rules=rules) == events[:10]
    assert process_events(10, seed=2, rules=rules) != events[:10]
    assert process_events(10) != events[:10]


def test_rules_are_filters() -> None:
    for text in detection_rules(300):
        # Normal forms of long rules take long to make, and nothing here needs them.
        if len(text) < 250:
            filter = Filter(text)
            assert not filter.is_empty
            assert filter.names <= {name.strip("`") or absent for name, _, _, absent in LEAF.findall(text)}
        assert all(literal == literal.lower() for _, _, literal, _ in LEAF.findall(text))


def test_events_are_like_those_of_processes() -> None:
    rules = detection_rules(500)
    for event in process_events(500, rules=rules):
        assert len(event) == 16
        assert {name for name, value in event.items() if isinstance(value, int)} == {
            "EventID", "ProcessId", "ParentProcessId", "TerminalSessionId",
        }  # fmt: skip
        assert COMMAND_CHARACTERS_MIN <= len(str(event["CommandLine"])) <= COMMAND_CHARACTERS_MAX
        assert all(value == value.lower() for value in event.values() if isinstance(value, str))


def test_few_events_match_and_not_none() -> None:
    short = [text for text in detection_rules(300) if len(text) < 150]
    filters = [Filter(text) for text in short]
    events = process_events(200, rules=short)
    matched = sum(any(filter.matches(event) for filter in filters) for event in events)
    assert 2 <= matched <= 40


def test_rules_have_the_sizes_of_real_ones(ours: Shapes, real: Shapes) -> None:
    for share in (0.1, 0.25, 0.5, 0.75, 0.9, 0.95):
        assert ours.quantile(share) == pytest.approx(real.quantile(share), rel=0.25, abs=1)
    assert sum(ours.leaves) / len(ours.leaves) == pytest.approx(sum(real.leaves) / len(real.leaves), rel=0.2)


def test_rules_have_the_structure_of_real_ones(ours: Shapes, real: Shapes) -> None:
    assert ours.negated / len(ours.leaves) == pytest.approx(real.negated / len(real.leaves), abs=0.05)
    assert ours.with_or / len(ours.leaves) == pytest.approx(real.with_or / len(real.leaves), abs=0.08)


def test_rules_use_operators_and_attributes_as_real_ones_do(ours: Shapes, real: Shapes) -> None:
    for operator in ("contains", "suffix", "prefix", "glob", "=", "exists"):
        wanted = real.share(real.operators, operator)
        assert ours.share(ours.operators, operator) == pytest.approx(wanted, abs=0.04)
    for name, _ in real.names.most_common(12):
        assert ours.share(ours.names, name) == pytest.approx(real.share(real.names, name), abs=0.06)


def test_rules_share_popular_leaves_as_real_ones_do(ours: Shapes, real: Shapes) -> None:
    few = shapes(detection_rules(len(real.leaves)))
    assert len(few.leaf_rules) / few.leaf_rules.total() == pytest.approx(
        len(real.leaf_rules) / real.leaf_rules.total(), abs=0.06
    )
    # The most popular leaves are in as many rules, rank by rank.
    for (_, ours_count), (_, real_count) in zip(
        ours.leaf_rules.most_common(8), real.leaf_rules.most_common(8), strict=True
    ):
        assert ours_count / len(ours.leaves) == pytest.approx(real_count / len(real.leaves), abs=0.02)
    assert sorted(ours.characters)[len(ours.characters) // 2] == pytest.approx(
        sorted(real.characters)[len(real.characters) // 2], abs=4
    )
