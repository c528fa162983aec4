"""CESQL against a slow evaluator written from the specification, and its filter against its matches."""

from __future__ import annotations

import contextlib
import json
import pickle
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from catchment.errors import CatchmentError, LimitError, ParseError
from catchment.model import automaton, strings
from catchment.model.budget import steps_used
from catchment.model.cesql import Cesql, implied
from catchment.model.cesql.implied import implied_boxes
from catchment.model.cesql.parser import parsed
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from tests.cesql_grammar import parsed_by_rules
from tests.cesql_oracle import ARITHMETIC, FUNCTIONS, ORDER, evaluated, text_of

# --- generators ---------------------------------------------------------------------------------

NAMES = ["a", "b", "c", "1d", "id"]
LOGIC = ["AND", "OR", "XOR"]
EQUALITY = ["=", "!="]
OPERATORS = [*LOGIC, *EQUALITY, *ORDER, *ARITHMETIC]
# Values that casts confuse with one another.
STRINGS = [
    "", "a", "A", "ab", "b", "true", "TRUE", "tRue", "false", "False", "0", "-0", "00", "5", "+5", "-5", "05", "0005",
    "+00005", " 5", "5.0", "1", "12", "-12", "1.5", "1e+16", "-0.5", "2147483647", "2147483648", "-2147483648",
    "-2147483649", "4294967296", "2018-04-26T14:48:09Z", "2018-04-26T14:48:09.500000Z", "2018-04-26T14:48:09+02:00",
    "true ", "é", "it's", 'say "so"', "%", "_", "a%", "*", "?", "x\\y", "٥",
]  # fmt: skip
INTEGERS = [0, 1, -1, 2, 5, 6, 10, 12, -5, -12, 120, 2**31 - 1, -(2**31), -(2**31) + 1]
WIDE = [2**31, -(2**31) - 1, 2**32, 12 * 10**9, 2**63 - 1, -(2**63)]
FLOATS = [0.0, 1.0, 1.5, 5.0, -0.5, 12.25, 1e16, 1e-7, -1.5e300]
TIMES = [
    datetime(2018, 4, 26, 14, 48, 9, tzinfo=UTC),
    datetime(2018, 4, 26, 14, 48, 9, 500_000, tzinfo=UTC),
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
]
PATTERNS = [
    "", "%", "_", "a%", "%a", "%a%", "a_", "_b", "5%", "%5", "1_", "_2%", "12%", "-%", "-1%", "+%", "tr%", "%e", "true",
    "5", "2018-%", "2018-04-26T14:48:09%", "%Z", "1%6", "%.5", "\\%", "a\\%", "\\_%", "x\\y", "%\\\\", "____", "0%",
]  # fmt: skip

scalars = st.one_of(st.sampled_from(STRINGS), st.sampled_from(INTEGERS), st.booleans())
literals = st.tuples(st.just("literal"), scalars | st.integers(-(2**31), 2**31 - 1))
attribute_nodes = st.tuples(st.just("attribute"), st.sampled_from(NAMES))
exists_nodes = st.tuples(st.just("exists"), st.sampled_from([*NAMES, "source"]))
attribute_values = st.one_of(
    scalars,
    st.sampled_from(WIDE),
    st.sampled_from(FLOATS),
    st.sampled_from(TIMES),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda number: number + 0.0),
    st.datetimes(timezones=st.just(UTC)).map(lambda time: time.replace(fold=0)),
    st.text(st.sampled_from("+-0123456789"), max_size=6),
)
notifications = st.dictionaries(st.sampled_from(NAMES), attribute_values)


def grown(inner: Any) -> Any:
    lists = st.lists(inner, min_size=1, max_size=3)
    calls = st.sampled_from([*FUNCTIONS, ("NOSUCH", 1), ("ABS", 2), ("CONCAT_WS", 0)]).flatmap(
        lambda key: st.tuples(st.just("call"), st.just(key[0]), st.lists(inner, min_size=key[1], max_size=key[1]))
    )
    return st.one_of(
        st.tuples(st.just("binary"), st.sampled_from(OPERATORS), inner, inner),
        st.tuples(st.just("not"), inner),
        st.tuples(st.just("minus"), inner),
        st.tuples(st.just("like"), inner, st.sampled_from(PATTERNS)),
        st.tuples(st.just("in"), inner, lists),
        calls,
    )


expressions = st.recursive(st.one_of(literals, attribute_nodes, exists_nodes), grown, max_leaves=12)


# --- evaluation ---------------------------------------------------------------------------------


@given(expressions, notifications)
def test_evaluation_is_what_the_specification_says(node: Any, attributes: dict[str, Any]) -> None:
    found = Cesql(text_of(node)).evaluate(attributes)
    value, errors = evaluated(node, attributes)
    assert (type(found.value), found.value, [fault.kind for fault in found.errors]) == (type(value), value, errors)
    assert found.error == (errors[0] if errors else None)


@given(expressions, notifications)
def test_an_expression_matches_when_it_is_true_without_error(node: Any, attributes: dict[str, Any]) -> None:
    value, errors = evaluated(node, attributes)
    assert Cesql(text_of(node)).matches(attributes) == (value is True and not errors)


@given(expressions, notifications)
def test_a_notification_and_its_mapping_are_the_same_to_an_expression(node: Any, attributes: dict[str, Any]) -> None:
    expression = Cesql(text_of(node))
    assert expression.evaluate(Notification(attributes)) == expression.evaluate(attributes)


LEVELS = [["*", "/", "%"], ["+", "-"], [*EQUALITY, *ORDER], LOGIC]


def by_precedence(operands: list[Any], operators: list[str]) -> Any:
    """Level by level, each from the left."""
    for level in LEVELS:
        at = 0
        while at < len(operators):
            if operators[at] in level:
                operands[at : at + 2] = [("binary", operators[at], operands[at], operands[at + 1])]
                del operators[at]
            else:
                at += 1
    return operands[0]


@given(st.data(), st.lists(st.sampled_from(OPERATORS), min_size=1, max_size=8), notifications)
def test_precedence_without_parentheses(data: st.DataObject, operators: list[str], attributes: dict[str, Any]) -> None:
    operands = [data.draw(literals | attribute_nodes) for _ in range(len(operators) + 1)]
    parts = [text_of(operands[0])]
    for operator, operand in zip(operators, operands[1:], strict=True):
        parts += [data.draw(st.sampled_from([operator, operator.lower()])), text_of(operand)]
    node = by_precedence(list(operands), list(operators))
    found = Cesql(" ".join(parts)).evaluate(attributes)
    value, errors = evaluated(node, attributes)
    assert (type(found.value), found.value, [fault.kind for fault in found.errors]) == (type(value), value, errors)


# --- text ---------------------------------------------------------------------------------------


@given(expressions, notifications)
def test_what_prints_parses_to_the_same(node: Any, attributes: dict[str, Any]) -> None:
    expression = Cesql(text_of(node))
    again = Cesql(str(expression))
    assert again == expression
    assert str(again) == str(expression)
    assert hash(again) == hash(expression)
    assert again.evaluate(attributes) == expression.evaluate(attributes)
    assert Cesql.from_json(json.loads(json.dumps(expression.to_json()))) == expression
    assert pickle.loads(pickle.dumps(expression)) == expression


@given(st.text(st.characters(exclude_categories=["Cs"])), st.sampled_from("'\""))
def test_a_string_literal_is_its_text(text: str, quote: str) -> None:
    literal = quote + re.sub(r"\\*$", "", text.replace("\\" + quote, "").replace(quote, "")) + quote
    expression = Cesql(literal)
    assert expression.evaluate({}).value == literal[1:-1]
    assert Cesql(str(expression)) == expression


TOKENS = [
    "AND", "or", "NOT", "not", "LIKE", "IN", "EXISTS", "TRUE", "a", "b1", "1", "-1", "+2", "-", "+", "*", "/", "%",
    "=", "!=", "<>", "<", "(", ")", ",", "'x'", '"y"', "'", '"', "\\", "ABS(", "F_(", "_", "!", "\n", "é", "\0", "K",
]  # fmt: skip


@given(
    st.one_of(
        st.text(), st.lists(st.sampled_from(TOKENS)).map(" ".join), st.lists(st.sampled_from(TOKENS)).map("".join)
    )
)
@example("\ud800")
@example("((" * 200 + "1" + "))" * 200)
def test_any_text_is_an_expression_or_a_typed_error(text: str) -> None:
    with contextlib.suppress(CatchmentError):
        expression = Cesql(text)
        expression.evaluate({})
        assert Cesql(str(expression)) == expression


def read(parse: Any, text: str) -> Any:
    """What a parser makes of a text: an expression, or where it fails and what it says."""
    try:
        return parse(text)
    except ParseError as problem:
        return problem.line, problem.column, problem.found, problem.expected
    except LimitError as problem:
        return problem.limit


@given(
    st.one_of(
        expressions.map(text_of),
        st.tuples(expressions.map(text_of), st.sampled_from(TOKENS), st.integers(0, 200)).map(
            lambda drawn: drawn[0][: drawn[2]] + drawn[1] + drawn[0][drawn[2] :]
        ),
        st.lists(st.sampled_from(TOKENS), max_size=12).map(" ".join),
        st.lists(st.sampled_from(TOKENS), max_size=12).map("".join),
        st.text(max_size=12),
    )
)
@example("F(+ 5)")
@example("EXISTS 5 -5")
@example("a LIKE -5")
@example("a NOT -5")
@example("- 2147483648")
@example("-2147483648 -2147483648")
@example("a OR a = a + a * (NOT - a NOT LIKE 'x' IN (1, f(), 2)")
def test_the_parser_agrees_with_the_rules_of_the_grammar(text: str) -> None:
    assume("\ud800" not in text)  # that is looked for before parsing
    assert read(parsed, text) == read(parsed_by_rules, text)


# --- the filter ---------------------------------------------------------------------------------


@given(expressions, st.lists(notifications, min_size=1, max_size=4))
def test_the_filter_holds_whenever_the_expression_matches(node: Any, several: list[dict[str, Any]]) -> None:
    expression = Cesql(text_of(node))
    for attributes in several:
        if expression.matches(attributes):
            assert expression.filter.matches(Notification(attributes))


def conditions(constants: Any) -> Any:
    """Tests of one attribute, in all the ways that become constraints."""
    viewed = attribute_nodes | st.tuples(
        st.just("call"), st.sampled_from(["INT", "BOOL", "STRING"]), st.tuples(attribute_nodes)
    )
    constant = st.tuples(st.just("literal"), constants)
    comparisons = st.sampled_from([*EQUALITY, *ORDER])
    return st.one_of(
        st.tuples(st.just("binary"), comparisons, viewed, constant),
        st.tuples(st.just("binary"), comparisons, constant, viewed),
        st.tuples(st.just("in"), viewed, st.lists(constant, min_size=1, max_size=4)),
        st.tuples(st.just("like"), viewed, st.sampled_from(PATTERNS)),
        st.tuples(st.just("call"), st.sampled_from(["IS_INT", "IS_BOOL"]), st.tuples(attribute_nodes)),
        viewed,
        exists_nodes,
    )


def logic(leaves: Any, size: int) -> Any:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.tuples(st.just("binary"), st.sampled_from(LOGIC), inner, inner), st.tuples(st.just("not"), inner)
        ),
        max_leaves=size,
    )


@given(logic(conditions(scalars), 6), st.lists(notifications, min_size=1, max_size=6))
def test_the_filter_of_conditions_is_sound(node: Any, several: list[dict[str, Any]]) -> None:
    expression = Cesql(text_of(node))
    for attributes in several:
        if expression.matches(attributes):
            assert expression.filter.matches(Notification(attributes))


@given(st.data(), conditions(scalars))
def test_the_filter_of_one_condition_holds_for_every_value(data: st.DataObject, node: Any) -> None:
    """Every value of every pool, so that no cast is missed."""
    for condition in (node, ("not", node)):
        expression = Cesql(text_of(condition))
        for value in [*STRINGS, *INTEGERS, *WIDE, *FLOATS, *TIMES, True, False]:
            attributes = dict.fromkeys(NAMES, value)
            if expression.matches(attributes):
                assert expression.filter.matches(Notification(attributes)), value


def is_within_limits(expression: Cesql) -> bool:
    """Whether the filter is what it would be with all the steps in the world."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(implied, "CESQL_FILTER_STEPS_MAX", 10**9)
        try:
            unlimited = Filter.of_boxes(implied_boxes(expression.root))
        except LimitError:
            return False
    return expression.filter == unlimited


# Neither a number nor a time nor a boolean has such a text, so nothing is lost in casts.
WORDS = ["x", "xy", "yx", "x%", "it's", "", "é", "xyz"]
words = st.tuples(st.just("literal"), st.sampled_from(WORDS))
exact_conditions = st.one_of(
    st.tuples(st.just("binary"), st.sampled_from(EQUALITY), attribute_nodes, words),
    st.tuples(
        st.just("binary"), st.sampled_from(EQUALITY), attribute_nodes, st.tuples(st.just("literal"), st.booleans())
    ),
    st.tuples(st.just("in"), attribute_nodes, st.lists(words, min_size=1, max_size=3)),
    st.tuples(st.just("like"), attribute_nodes, st.sampled_from(["x%", "%x", "%x%", "x_", "_x%y", "%"])),
    st.tuples(st.just("call"), st.just("IS_BOOL"), st.tuples(attribute_nodes)),
    exists_nodes,
)


@given(
    logic(exact_conditions, 4),
    st.lists(
        st.dictionaries(st.sampled_from(NAMES), attribute_values | st.sampled_from(WORDS)), min_size=1, max_size=6
    ),
)
def test_the_filter_is_exact_where_no_number_is_read_from_a_string(node: Any, several: list[dict[str, Any]]) -> None:
    expression = Cesql(text_of(node))
    assume(is_within_limits(expression))
    for attributes in several:
        assert expression.filter.matches(Notification(attributes)) == expression.matches(attributes)


numbers = st.tuples(st.just("literal"), st.sampled_from(INTEGERS) | st.integers(-20, 20))
number_conditions = st.one_of(
    st.tuples(st.just("binary"), st.sampled_from([*EQUALITY, *ORDER]), attribute_nodes, numbers),
    st.tuples(st.just("binary"), st.sampled_from([*EQUALITY, *ORDER]), numbers, attribute_nodes),
    st.tuples(st.just("in"), attribute_nodes, st.lists(numbers, min_size=1, max_size=3)),
)
not_strings = st.one_of(
    st.sampled_from([*INTEGERS, *WIDE]), st.booleans(), st.integers(-20, 20), st.sampled_from([*FLOATS, *TIMES])
)


@given(
    logic(number_conditions, 3),
    st.lists(st.dictionaries(st.sampled_from(NAMES), not_strings), min_size=1, max_size=6),
)
def test_the_filter_is_exact_for_numbers(node: Any, several: list[dict[str, Any]]) -> None:
    expression = Cesql(text_of(node))
    assume(is_within_limits(expression))
    for attributes in several:
        assert expression.filter.matches(Notification(attributes)) == expression.matches(attributes)


@given(
    st.sampled_from(["a", "a LIKE '{}%'", "a LIKE '{}'", "a = '{}'"]),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 20),
)
def test_the_filter_is_exact_for_integers_by_their_digits(form: str, number: int, digits: int) -> None:
    expression = Cesql(form.format(str(number)[:digits]))
    for value in (number, number // 10, number // 1000, -number if number > -(2**63) else 0, 0, 7):
        assert expression.filter.matches({"a": value}) == expression.matches({"a": value})


@given(st.datetimes(), st.sampled_from([4, 5, 7, 8, 10, 11, 13, 14, 16, 17, 19]))
def test_the_filter_is_exact_for_times_by_their_start(moment: datetime, length: int) -> None:
    time = moment.replace(tzinfo=UTC, fold=0)
    expression = Cesql(f"a LIKE '{time.isoformat()[:length]}%'")
    for value in (time, time.replace(microsecond=0), time.replace(second=0), time.replace(month=1, day=1)):
        assert expression.filter.matches({"a": value}) == expression.matches({"a": value})


@given(expressions)
def test_the_filter_round_trips_like_any_other(node: Any) -> None:
    found = Cesql(text_of(node)).filter
    assert Filter.from_json(found.to_json()) == found


@contextlib.contextmanager
def steps_max(steps: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(implied, "CESQL_FILTER_STEPS_MAX", steps)
        yield


# Patterns that need automata: an answer about them takes many steps, so budgets end within one.
A = ("attribute", "a")
hard_likes = st.tuples(
    st.just("like"),
    st.sampled_from([A, ("attribute", "b")]),
    st.sampled_from(["%a_b%", "%c_d%", "%e%_f%", "a%b_c", "%xy%z", "x%_y"]),
)


@given(logic(hard_likes | conditions(scalars), 8), st.sampled_from((0, 100, 300, 1_000, 3_000, 6_000)))
@example(("not", ("binary", "AND", ("call", "IS_BOOL", [A]), ("like", A, "%a_b%"))), 200)
def test_steps_do_not_depend_on_what_was_asked_before(node: Any, steps: int) -> None:
    counts = []
    for was_asked in (False, True, False):
        automaton.some_string.cache_clear()  # type: ignore[attr-defined]
        strings.of_pieces.cache_clear()  # type: ignore[attr-defined]
        if was_asked:
            # Somebody with a larger budget has found more answers, and they are kept.
            with steps_max(100_000):
                _ = Cesql(text_of(node)).filter
        with steps_max(steps):
            before = steps_used()
            routed = Cesql(text_of(node)).filter
        counts.append((steps_used() - before, str(routed)))
    assert counts[0] == counts[1] == counts[2]


@given(st.datetimes(), st.integers(-840, 840))
def test_a_time_keeps_its_zone(moment: datetime, minutes: int) -> None:
    time = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)), fold=0)
    assume(datetime(2, 1, 1, tzinfo=UTC) < time < datetime(9998, 1, 1, tzinfo=UTC))
    text = Cesql("time").evaluate({"time": time}).value
    assert isinstance(text, str)
    assert datetime.fromisoformat(text) == time
    assert text.endswith("Z") == (minutes == 0)
