"""Imported filters against the meaning of Sigma rules: rules and events are invented, and the oracle decides."""

import base64
from typing import Any

import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from catchment.model.filter import Filter
from catchment.sigma import ImportedRule, LetterCase, RuleReader
from tests import sigma_oracle

# Letters in both cases, characters that mean something in values, and dashes that windash knows.
CHARACTERS = "aAbB-/\\*? \u2013_"
TEXT_FIELDS = ("A", "B", "C")
texts = st.text(CHARACTERS, max_size=5)
numbers = st.integers(-2, 2)

text_modifiers = st.sampled_from(
    ("", "|contains", "|startswith", "|endswith", "|contains|all", "|endswith|all", "|neq", "|neq|all", "|windash")
)
text_keys = st.builds(str.__add__, st.sampled_from(TEXT_FIELDS), text_modifiers)
number_keys = st.sampled_from(("N", "N|lt", "N|lte", "N|gt", "N|gte", "N|neq"))
encoded_keys = st.sampled_from(("A|base64|contains", "A|base64offset|contains", "B|wide|base64offset|contains"))
fields = st.one_of(
    st.tuples(text_keys, texts | st.lists(texts, min_size=1, max_size=2)),
    st.tuples(number_keys, numbers),
    st.tuples(st.just("N"), st.lists(numbers, min_size=1, max_size=3)),
    st.tuples(st.sampled_from(("A|exists", "N|exists")), st.booleans()),
    st.tuples(st.sampled_from(("A", "B", "N")), st.none()),
    st.tuples(encoded_keys, st.just("ab")),
)
maps = st.lists(fields, min_size=1, max_size=2).map(dict)
selections = maps | st.lists(maps, min_size=1, max_size=2)

NAMES = ("sel_a", "sel_b", "filter_a", "_other")
conditions = st.recursive(
    st.sampled_from((*NAMES, "1 of sel_*", "all of sel_*", "any of *_a", "1 of them", "all of them")),
    lambda inner: st.one_of(
        inner.map("not {}".format),
        st.tuples(inner, inner).map("{0[0]} and {0[1]}".format),
        st.tuples(inner, inner).map("{0[0]} or {0[1]}".format),
        inner.map("({})".format),
    ),
    max_leaves=3,
)
rules = st.builds(
    lambda parts, condition: {"detection": dict(zip(NAMES, parts, strict=True)) | {"condition": condition}},
    st.tuples(*[selections] * len(NAMES)),
    conditions | st.lists(conditions, min_size=1, max_size=2),
)
encoded = st.tuples(st.binary(max_size=3), st.binary(max_size=3)).map(
    lambda around: base64.b64encode(around[0] + b"ab" + around[1]).decode()
)
events = st.fixed_dictionaries({}, optional={**dict.fromkeys(TEXT_FIELDS, texts | encoded), "N": numbers})


def rule(selection: object, filter: object, condition: str) -> dict[str, Any]:
    return {"detection": {"sel_a": selection, "filter_a": filter, "condition": condition}}


def filter_of(rule: dict[str, Any]) -> Filter:
    """The filter that the rule becomes, by way of a file."""
    content = yaml.safe_dump(rule, allow_unicode=True, sort_keys=False).encode()
    (imported,) = RuleReader(LetterCase.LOWER).read("rule.yml", content)
    assert isinstance(imported, ImportedRule), imported
    return Filter(imported.filter)


def lowered(event: dict[str, str | int]) -> dict[str, str | int]:
    return {name: value.lower() if isinstance(value, str) else value for name, value in event.items()}


@given(rules, st.lists(events, min_size=1, max_size=6))
@example(
    rule({"A": "a"}, {"A|contains": "b", "B|contains": "a"}, "not filter_a"),
    [{}, {"A": "b"}, {"B": "a"}, {"A": "b", "B": "a"}, {"A": "a", "B": "b"}],
)
@example(
    rule({"A": "a", "B|neq": "b"}, {"B": "c"}, "sel_a and not (filter_a or not sel_a)"),
    [{"A": "a"}, {"A": "A", "B": "B"}, {"A": "a", "B": "c"}, {"B": "d"}],
)
@example(
    rule([{"A": "a"}, {"B": "b"}], {"A|contains": "b"}, "sel_a and not filter_a"),
    [{"B": "b"}, {"A": "a"}, {"A": "b", "B": "b"}, {"A": "a", "B": "b"}],
)
@example(rule({"B": "b"}, {"A|contains": "b"}, "sel_a and not filter_a"), [{"B": "b"}, {"A": "b", "B": "b"}])
def test_an_imported_filter_matches_what_the_rule_matches(rule: dict[str, Any], events: list[dict[str, Any]]) -> None:
    filter = filter_of(rule)
    for event in events:
        assert filter.matches(lowered(event)) == sigma_oracle.matches(rule, event), event


value_keys = st.sampled_from(("A", "A|contains", "A|startswith", "A|endswith", "A|windash", "A|windash|contains"))


@given(texts, value_keys, st.lists(texts, min_size=1))
@example("\\*a", "A", ["*a", "\\a", "a"])
@example("\\\\*a", "A", ["\\a", "\\xa", "*a"])
@example("-a", "A|windash", ["-a", "/A", "\u2013a", "_a"])
def test_a_value_matches_as_in_sigma(value: str, key: str, candidates: list[str]) -> None:
    whole = rule({key: value}, {}, "sel_a")
    filter = filter_of(whole)
    for text in [*candidates, value, value.replace("\\", ""), value.replace("-", "/")]:
        assert filter.matches({"A": text.lower()}) == sigma_oracle.matches(whole, {"A": text}), text


@given(st.binary(min_size=1, max_size=6), st.binary(max_size=4), st.binary(max_size=4))
def test_base64_is_found_wherever_it_begins(value: bytes, before: bytes, after: bytes) -> None:
    word = value.hex()
    filter = filter_of(rule({"A|base64offset|contains": word}, {}, "sel_a"))
    assert filter.matches({"A": base64.b64encode(before + word.encode() + after).decode().lower()})
