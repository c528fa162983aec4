"""The oracle of CESQL: expressions as nested tuples, evaluated by the book."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

ZEROS: dict[type, Any] = {bool: False, int: 0, str: ""}
REQUIRED = ("specversion", "id", "source", "type")
Result = tuple[Any, list[str]]


def cast(value: Any, wanted: type) -> Result:
    if type(value) is wanted:
        return value, []
    if wanted is str:
        return str(value).lower() if isinstance(value, bool) else str(value), []
    if not isinstance(value, str):
        return wanted(value), []
    if wanted is bool:
        return value.lower() == "true", [] if value.lower() in ("true", "false") else ["cast"]
    if re.fullmatch("[+-]?[0-9]+", value) and -(2**31) <= int(value) < 2**31:
        return int(value), []
    return 0, ["cast"]


def seen(value: Any) -> Any:
    if isinstance(value, datetime):
        return re.sub(r"\+00:00$", "Z", value.isoformat())
    if isinstance(value, float) or (type(value) is int and not -(2**31) <= value < 2**31):
        return repr(value)
    return value


def number(value: int) -> Result:
    return (value, []) if -(2**31) <= value < 2**31 else (0, ["math"])


def divided(x: int, y: int) -> int:
    return int(f"{'-' if (x < 0) != (y < 0) else ''}{abs(x) // abs(y)}")


ARITHMETIC = {
    "+": lambda x, y: number(x + y),
    "-": lambda x, y: number(x - y),
    "*": lambda x, y: number(x * y),
    "/": lambda x, y: number(divided(x, y)) if y else (0, ["math"]),
    "%": lambda x, y: number(x - y * divided(x, y)) if y else (0, ["math"]),
}
ORDER = {
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
    ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y,
}


def binary(operator: str, left: Result, right: Any) -> Result:
    """`right` is a function: AND and OR may not want it."""
    if operator in ("AND", "OR"):
        value, errors = left if left[1] else cast(left[0], bool)
        if (not errors and value) is (operator == "OR"):  # with errors it counts as false
            return operator == "OR", errors
        other, other_errors = right()
        if not errors and not other_errors:
            other, other_errors = cast(other, bool)
        errors = errors + other_errors
        return (False if errors else other), errors
    other, other_errors = right()
    errors = left[1] + other_errors
    zero: Any = 0 if operator in ARITHMETIC else False
    if errors:
        return zero, errors
    wanted = bool if operator == "XOR" else int if operator in ARITHMETIC or operator in ORDER else type(other)
    (x, x_errors), (y, y_errors) = cast(left[0], wanted), cast(other, wanted)
    if x_errors or y_errors:
        return zero, x_errors + y_errors
    if operator in ARITHMETIC:
        return ARITHMETIC[operator](x, y)
    return ORDER[operator](x, y) if operator in ORDER else (x == y) == (operator == "="), []


def like(text: str, pattern: str) -> bool:
    parts = re.findall(r"\\[%_]|(?s:.)", pattern)
    return bool(re.fullmatch("".join({"%": ".*", "_": "."}.get(p, re.escape(p[-1])) for p in parts), text, re.DOTALL))


def substring(text: str, start: int, length: int = 2**31 - 1) -> Result:
    if not -len(text) <= start <= len(text) or length < 0:
        return "", ["functionEvaluation"]
    if start == 0:
        return "", []
    return text[start - 1 if start > 0 else len(text) + start :][:length], []


FUNCTIONS: dict[tuple[str, int], tuple[list[Any], type, Any]] = {
    ("LENGTH", 1): ([str], int, lambda x: (len(x), [])),
    ("CONCAT", 0): ([], str, lambda: ("", [])),
    ("CONCAT", 2): ([str, str], str, lambda x, y: (x + y, [])),
    ("CONCAT_WS", 1): ([str], str, lambda d: ("", [])),
    ("CONCAT_WS", 3): ([str, str, str], str, lambda d, x, y: (x + d + y, [])),
    ("LOWER", 1): ([str], str, lambda x: (x.lower(), [])),
    ("UPPER", 1): ([str], str, lambda x: (x.upper(), [])),
    ("TRIM", 1): ([str], str, lambda x: (x.strip(" \t\n"), [])),
    ("LEFT", 2): ([str, int], str, lambda x, n: (x, ["functionEvaluation"]) if n < 0 else (x[:n], [])),
    ("RIGHT", 2): ([str, int], str, lambda x, n: (x, ["functionEvaluation"]) if n < 0 else (x[len(x[n:]) :], [])),
    ("SUBSTRING", 2): ([str, int], str, substring),
    ("SUBSTRING", 3): ([str, int, int], str, substring),
    ("ABS", 1): ([int], int, lambda x: (2**31 - 1, ["math"]) if x == -(2**31) else (abs(x), [])),
    ("INT", 1): ([None], int, lambda x: cast(x, int)),
    ("BOOL", 1): ([None], bool, lambda x: cast(x, bool)),
    ("STRING", 1): ([None], str, lambda x: cast(x, str)),
    ("IS_INT", 1): ([None], bool, lambda x: (not cast(x, int)[1], [])),
    ("IS_BOOL", 1): ([None], bool, lambda x: (not cast(x, bool)[1], [])),
}


def called(name: str, arguments: list[Any], attributes: dict[str, Any]) -> Result:
    if (name, len(arguments)) not in FUNCTIONS:
        return False, ["missingFunction"]
    parameters, returns, compute = FUNCTIONS[name, len(arguments)]
    results = [evaluated(argument, attributes) for argument in arguments]
    errors = [error for result in results for error in result[1]]
    if not errors:
        results = [
            (result[0], []) if wanted is None else cast(result[0], wanted)
            for result, wanted in zip(results, parameters, strict=True)
        ]
        errors = [error for result in results for error in result[1]]
    return (ZEROS[returns], errors) if errors else compute(*(result[0] for result in results))


def contained(operand: Any, elements: list[Any], attributes: dict[str, Any]) -> Result:
    value, errors = evaluated(operand, attributes)
    if errors:
        return False, errors
    for element in elements:
        other, other_errors = evaluated(element, attributes)
        if not other_errors:
            other, other_errors = cast(other, type(value))
        errors = errors + other_errors
        if not other_errors and other == value:
            return not errors, errors
    return False, errors


def evaluated(node: Any, attributes: dict[str, Any]) -> Result:
    match node:
        case ("literal", value):
            return value, []
        case ("attribute", name):
            return (seen(attributes[name]), []) if name in attributes else (False, ["missingAttribute"])
        case ("exists", name):
            return name in attributes or name in REQUIRED, []
        case ("minus", operand):
            return binary("-", (0, []), lambda: evaluated(operand, attributes))
        case ("not", operand):
            value, errors = evaluated(operand, attributes)
            value, errors = (value, errors) if errors else cast(value, bool)
            return not errors and not value, errors
        case ("like", operand, pattern):
            value, errors = evaluated(operand, attributes)
            return not errors and like(cast(value, str)[0], pattern), errors
        case ("in", operand, elements):
            return contained(operand, elements, attributes)
        case ("call", name, arguments):
            return called(name, arguments, attributes)
        case ("binary", operator, left, right):
            return binary(operator, evaluated(left, attributes), lambda: evaluated(right, attributes))
    raise AssertionError(node)


def text_of(node: Any) -> str:
    """With all the parentheses there can be."""
    match node:
        case ("literal", str(value)):
            return "'" + value.replace("'", "\\'") + "'"
        case ("literal", value) | ("attribute", value):
            return str(value)
        case ("exists", name):
            return f"EXISTS {name}"
        case ("minus", operand):
            return f"-({text_of(operand)})"
        case ("not", operand):
            return f"NOT ({text_of(operand)})"
        case ("like", operand, pattern):
            return f"({text_of(operand)}) LIKE {text_of(('literal', pattern))}"
        case ("in", operand, elements):
            return f"({text_of(operand)}) IN ({', '.join(map(text_of, elements))})"
        case ("call", name, arguments):
            return f"{name}({', '.join(map(text_of, arguments))})"
        case ("binary", operator, left, right):
            return f"({text_of(left)}) {operator} ({text_of(right)})"
    raise AssertionError(node)
