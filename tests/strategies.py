"""Hypothesis generators for our domain.

Two families. The wide ones reach every operator, type, boundary and Unicode corner. The small ones draw
operands from domains so small that `oracle.assignments(SMALL…)` holds a witness for whatever can be
said: there `covers` and `overlaps` must be exactly what enumeration says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import product

from hypothesis import strategies as st

from catchment.model.advertisement import Advertisement
from catchment.model.cesql import Cesql
from catchment.model.constraint import Constraint, Kind, constraint
from catchment.model.filter import Filter
from catchment.model.language import And, Expression, Not, Or
from catchment.model.notification import Notification
from catchment.model.pattern import Pattern, Subscription
from catchment.model.values import INT_MAX, INT_MIN, Value

# --- wide ---------------------------------------------------------------------------------------

# Letters that fold in unusual ways: to a character of another length in UTF-8, several to one, or not at all.
CASED = "aAbBkK\u212aſsSßẞσςΣİıiIǄǅǆᾈᾀÅå\u212bΘϴ𐐀𐐨"
EDGE_STRINGS = (
    "",
    "Ab",
    "aB",
    "ẞ",
    "\u212aK",
    "\0",
    "a",
    "A",
    "é",
    "e\u0301",
    "ß",
    "\ud7ff",
    "\ue000",
    "\uffff",
    "\U0001f600",
    "\U0010ffff",
    "\U0010ffff\U0010ffff",
    "a*b?c\\",
    "'\"`\\\n\t\r",
    "and",
    "$time",
    "日本語",
    "\u2028",
    "\x7f",
)
EDGE_INTS = (0, 1, -1, 2**31, -(2**31), 2**53, 2**53 + 1, -(2**53) - 1, INT_MAX, INT_MIN, INT_MAX - 1, INT_MIN + 1)
EDGE_FLOATS = (
    0.0,
    0.1,
    -0.5,
    float(2**53),
    float(2**63),
    -float(2**63),
    1e-320,
    5e-324,
    1.7976931348623157e308,
    -1.7976931348623157e308,
    math.nextafter(1.0, 2.0),
    1e22,
)
EDGE_TIMES = (
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(2026, 3, 29, 1, 30, tzinfo=UTC),
)

texts = (
    st.sampled_from(EDGE_STRINGS)
    | st.text(CASED, max_size=3)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
)
ints = st.sampled_from(EDGE_INTS) | st.integers(-10, 10) | st.integers(INT_MIN, INT_MAX)
floats = (
    st.sampled_from(EDGE_FLOATS)
    | st.integers(-10, 10).map(float)
    | st.floats(allow_nan=False, allow_infinity=False).map(lambda found: found + 0.0)
)
numbers = ints | floats
bools = st.booleans()
times = st.sampled_from(EDGE_TIMES) | st.datetimes(timezones=st.just(UTC))
values = texts | ints | floats | bools | times
names = st.sampled_from(
    ("x", "y", "price", "time", "int", "and", "a.b", "with space", "é", "ünï", "`", "$seq", "$time")
)
attribute_names = names.filter(lambda name: not name.startswith("$")) | texts.filter(
    lambda text: bool(text) and not text.startswith("$")
)
globs = st.lists(st.sampled_from(("*", "?", "a", "b", "B", "ſ", "\\*", "\\\\", "é", "\0")), max_size=6).map("".join)

ORDERED = ("=", "!=", "<", "<=", ">", ">=")
TEXT_OPERATORS = (
    *("= nocase", "!= nocase"),
    *(
        f"{negation}{operator}{case}"
        for negation in ("", "not ")
        for operator in ("prefix", "suffix", "substring")
        for case in ("", " nocase")
    ),
)
GLOB_OPERATORS = ("glob", "not glob", "glob nocase", "not glob nocase")
MEMBERSHIP = st.sampled_from(("in", "in", "not in"))
MEMBERSHIP_NOCASE = st.sampled_from(("in nocase", "not in nocase"))


def constraints_on(name: st.SearchStrategy[str]) -> st.SearchStrategy[Constraint]:
    numeric_kind = st.sampled_from((None, Kind.INT, Kind.FLOAT))
    return st.one_of(
        st.builds(constraint, name, st.sampled_from(ORDERED), texts),
        st.builds(constraint, name, st.sampled_from(ORDERED), numbers, numeric_kind),
        st.builds(constraint, name, st.sampled_from(ORDERED), times),
        st.builds(constraint, name, st.sampled_from(("=", "!=")), bools),
        st.builds(constraint, name, st.sampled_from(TEXT_OPERATORS), texts),
        st.builds(constraint, name, st.sampled_from(GLOB_OPERATORS), globs),
        st.builds(constraint, name, MEMBERSHIP, st.lists(numbers, min_size=1, max_size=4), numeric_kind),
        *(
            st.builds(constraint, name, MEMBERSHIP, st.lists(kind, min_size=1, max_size=4))
            for kind in (texts, bools, times)
        ),
        st.builds(constraint, name, MEMBERSHIP_NOCASE, st.lists(texts, min_size=1, max_size=4)),
        st.builds(constraint, name, st.just("any"), st.none(), st.sampled_from(tuple(Kind))),
        st.builds(constraint, name, st.just("absent")),
    )


constraints = constraints_on(names)


def expressions(leaves: st.SearchStrategy[Constraint], max_leaves: int = 6) -> st.SearchStrategy[Expression]:
    """Any nesting of and, or, not."""
    return st.recursive(
        leaves | st.booleans(),
        lambda inner: st.one_of(
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: And(tuple(parts))),
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: Or(tuple(parts))),
            inner.map(Not),
        ),
        max_leaves=max_leaves,
    )


@st.composite
def deep_expressions(draw: st.DrawFn, leaves: st.SearchStrategy[Constraint], depth: int = 6) -> Expression:
    """Nested to just this depth: at each level `not`, or `and` or `or` with other parts that nest less."""
    if not depth:
        return draw(leaves | st.booleans())
    inner = draw(deep_expressions(leaves, depth - 1))
    kind = draw(st.sampled_from((And, Or, And, Or, Not)))
    if kind is Not:
        return Not(inner)
    others = draw(st.lists(expressions(leaves, 2), min_size=1, max_size=2))
    at = draw(st.integers(0, len(others)))
    parts = (*others[:at], inner, *others[at:])
    return And(parts) if kind is And else Or(parts)


filters = (expressions(constraints) | deep_expressions(constraints)).map(Filter.of_expression)
# What posets, graphs and neighbors hold.
routed_filters = filters.map(lambda filter: filter.routed)
advertisements = st.lists(constraints.filter(lambda one: one.operator != "absent"), min_size=1, max_size=5).map(
    lambda found: Advertisement.of(*found)
)
durations = st.timedeltas(timedelta(microseconds=1), timedelta(days=3650))
patterns = st.builds(
    lambda found, within, by: Pattern.of(*found, within=within, by=by),
    st.lists(filters, min_size=1, max_size=4),
    st.none() | durations,
    st.lists(attribute_names, max_size=2, unique=True),
)
identities = texts.filter(bool)
subscriptions = st.builds(
    Subscription, identities, identities, filters | patterns | st.just(Cesql("a = 'b' OR LENGTH(c) > 3"))
)
notifications = st.builds(
    lambda attributes, fields, payload: Notification(attributes, **fields, payload=payload),
    st.dictionaries(attribute_names, values, max_size=6),
    st.fixed_dictionaries({}, optional={"id": texts, "source": texts, "time": times, "seq": ints}),
    st.binary(max_size=8),
)


@st.composite
def near(draw: st.DrawFn, expression: Expression) -> dict[str, Value]:
    """Values likely to decide an expression: its operands, their neighbors, other types, absence."""
    found: dict[str, Value] = {}
    for one in _leaves(expression):
        operands: Sequence[object] = one.value if isinstance(one.value, tuple) else (one.value,)
        close = [value for operand in operands for value in _neighbors(operand)]
        value = draw(st.sampled_from(close) | values | st.none()) if close else draw(values | st.none())
        if value is not None:
            found[one.name] = value
    return found


def _leaves(expression: Expression) -> list[Constraint]:
    match expression:
        case Constraint():
            return [expression]
        case Not(inner):
            return _leaves(inner)
        case And(parts) | Or(parts):
            return [leaf for part in parts for leaf in _leaves(part)]
        case _:
            return []


def _neighbors(operand: object) -> list[Value]:
    if isinstance(operand, bool):
        return [operand, not operand, int(operand)]
    if isinstance(operand, int | float):
        return _near_number(operand)
    if isinstance(operand, str):
        cases = [operand.upper(), operand.lower(), operand.swapcase(), operand.casefold()]
        return [operand, operand + "\0", operand + "a", "a" + operand, operand[:-1], operand[1:], *cases]
    if isinstance(operand, datetime):
        tick = timedelta(microseconds=1)
        later = [operand + tick] if operand < EDGE_TIMES[1] else []
        return [operand, *later, *([operand - tick] if operand > EDGE_TIMES[0] else [])]
    return []


def _near_number(operand: int | float) -> list[Value]:
    close = float(operand)
    floats = [close, math.nextafter(close, math.inf), math.nextafter(close, -math.inf)]
    ints = [math.floor(operand) + step for step in (-1, 0, 1)]
    near: list[Value] = [number + 0.0 for number in floats if math.isfinite(number)]
    return near + [number for number in ints if INT_MIN <= number <= INT_MAX]


# --- small: operands and domains in which enumeration decides -----------------------------------

# Operands use b and c; the domain has a character below, between and above, and is longer than any operand.
small_texts = st.text("bc", max_size=2)
SMALL_STRINGS = tuple("".join(found) for size in range(6) for found in product("abcd", repeat=size))
FEW_STRINGS = tuple("".join(found) for size in range(3) for found in product("abcd", repeat=size))
small_numbers = st.integers(-1, 2) | st.sampled_from((-0.5, 0.5, 1.0, 1.5))
SMALL_NUMBERS: tuple[Value, ...] = (
    *range(-3, 5),
    *(found + 0.0 for half in range(-4, 7) for found in (half / 2, *_neighbors(half / 2)[1:3])),  # type: ignore[operator]
)
SMALL_TIMES = tuple(EDGE_TIMES[2] + timedelta(microseconds=step) for step in range(-2, 4))
small_times = st.sampled_from(SMALL_TIMES[1:-1])
# Operands use b and B; a character lies below each, between and above them.
cased_texts = st.text("bB", max_size=2)
cased_globs = st.lists(st.sampled_from(("*", "?", "b", "B")), max_size=3).map("".join)
CASED_STRINGS = tuple("".join(letters) for size in range(6) for letters in product("ABab~", repeat=size))
small_globs = st.lists(st.sampled_from(("*", "?", "b", "c")), max_size=4).map("".join)


def small_string_constraints(name: str = "s") -> st.SearchStrategy[Constraint]:
    return st.one_of(
        st.builds(constraint, st.just(name), st.sampled_from(ORDERED), small_texts),
        st.builds(
            constraint,
            st.just(name),
            st.sampled_from(("prefix", "suffix", "substring", "not prefix", "not suffix", "not substring")),
            small_texts,
        ),
        st.builds(constraint, st.just(name), st.sampled_from(("glob", "not glob")), small_globs),
        st.builds(constraint, st.just(name), MEMBERSHIP, st.lists(small_texts, min_size=1, max_size=3)),
        st.builds(constraint, st.just(name), st.just("any"), st.none(), st.just(Kind.STRING)),
    )


def cased_constraints(name: str = "s") -> st.SearchStrategy[Constraint]:
    """On a string, with case and without: operands of B and b, in the domain CASED_STRINGS."""
    return st.one_of(
        st.builds(constraint, st.just(name), st.sampled_from((*ORDERED, *TEXT_OPERATORS)), cased_texts),
        st.builds(constraint, st.just(name), st.sampled_from(GLOB_OPERATORS), cased_globs),
        st.builds(constraint, st.just(name), MEMBERSHIP, st.lists(cased_texts, min_size=1, max_size=3)),
        st.builds(constraint, st.just(name), MEMBERSHIP_NOCASE, st.lists(cased_texts, min_size=1, max_size=3)),
    )


def opaque_constraints(name: st.SearchStrategy[str]) -> st.SearchStrategy[Constraint]:
    """Regular expressions that Python and RE2 read alike, and blocks of addresses; values in OPAQUE_DOMAIN."""
    return st.one_of(
        st.builds(constraint, name, st.sampled_from(("matches", "not matches")), regexes),
        st.builds(constraint, name, st.sampled_from(("cidr", "not cidr")), st.sampled_from(BLOCKS)),
    )


_regex_atoms = st.sampled_from(("a", "b", "ab", "1", r"\.", ".", "[ab]", "[^a]", "[]a]", r"\d", r"\w", r"\x61", "^"))
regexes = st.recursive(
    st.lists(_regex_atoms, min_size=1, max_size=4).map("".join),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("|".join),
        st.tuples(inner, inner).map("".join),
        st.tuples(st.sampled_from(("", "?:", "?P<n>")), inner).map(lambda pair: f"({pair[0]}{pair[1]})"),
        st.tuples(_regex_atoms.filter(lambda atom: atom != "^"), st.sampled_from("*+?")).map("".join),
        st.tuples(_regex_atoms.filter(lambda atom: atom != "^"), st.sampled_from(("{2}", "{0,1}", "*?"))).map("".join),
        inner.map(lambda pattern: f"(?i:{pattern})"),
    ),
    max_leaves=4,
).filter(lambda pattern: pattern.count("?P<n>") < 2)
BLOCKS = ("10.0.0.0/8", "10.1.0.0/16", "10.0.0.0/9", "10.1.2.3", "10.1.2.2/31", "0.0.0.0/0", "11.0.0.0/8")
OPAQUE_STRINGS = (
    *("".join(letters) for count in range(4) for letters in product("ab1.", repeat=count)),
    *("10.1.2.3", "10.1.2.2", "10.200.0.1", "11.1.1.1", "10.1.2", "10.01.2.3", "10.1.2.256", "::1", "A", "aB", "x\ny"),
)
OPAQUE_DOMAIN: dict[str, tuple[Value | None, ...]] = {"s": (None, *OPAQUE_STRINGS, 0)}


def small_scalar_constraints(name: st.SearchStrategy[str]) -> st.SearchStrategy[Constraint]:
    numeric_kind = st.sampled_from((None, Kind.INT, Kind.FLOAT))
    return st.one_of(
        st.builds(constraint, name, st.sampled_from(ORDERED), small_numbers, numeric_kind),
        st.builds(constraint, name, MEMBERSHIP, st.lists(small_numbers, min_size=1, max_size=3), numeric_kind),
        st.builds(constraint, name, st.sampled_from(ORDERED), small_times),
        st.builds(constraint, name, st.sampled_from(("=", "!=")), bools),
        st.builds(
            constraint, name, st.sampled_from(("=", "!=", ">", "prefix", "substring")), st.text("bc", max_size=1)
        ),
        st.builds(constraint, name, st.just("any"), st.none(), st.sampled_from(tuple(Kind))),
        st.builds(constraint, name, st.just("absent")),
    )


SCALARS: tuple[Value | None, ...] = (None, *SMALL_NUMBERS, *SMALL_TIMES, True, False, *FEW_STRINGS)
CASED_DOMAIN: dict[str, tuple[Value | None, ...]] = {"s": (None, *CASED_STRINGS, 0)}
SMALL_STRING_DOMAIN: dict[str, tuple[Value | None, ...]] = {"s": (None, *SMALL_STRINGS, 0)}
SMALL_SCALAR_DOMAIN: dict[str, tuple[Value | None, ...]] = {"x": SCALARS}
# Two attributes: a thinner domain each, still with a witness for every region of the operands above.
_THIN: tuple[Value | None, ...] = (
    None,
    *range(-2, 4),
    *(half / 2 for half in range(-3, 6)),
    True,
    False,
    "b",
    EDGE_TIMES[2],
)
SMALL_PAIR_DOMAIN: dict[str, tuple[Value | None, ...]] = {"x": _THIN, "y": _THIN}


def small_pair_constraints() -> st.SearchStrategy[Constraint]:
    name = st.sampled_from(("x", "y"))
    return st.one_of(
        st.builds(constraint, name, st.sampled_from(ORDERED), st.integers(-1, 2)),
        st.builds(constraint, name, st.sampled_from(ORDERED), st.integers(-1, 2), st.just(Kind.INT)),
        st.builds(constraint, name, st.just("in"), st.lists(st.integers(-1, 2), min_size=1, max_size=3)),
        st.builds(constraint, name, st.just("any")),
        st.builds(constraint, name, st.just("absent")),
        st.builds(constraint, name, st.just("="), st.just(True)),
    )


def filters_of(leaves: st.SearchStrategy[Constraint], max_leaves: int = 5) -> st.SearchStrategy[Filter]:
    return expressions(leaves, max_leaves).map(Filter.of_expression)


small_string_filters = filters_of(small_string_constraints(), 4)
cased_filters = filters_of(cased_constraints(), 3)
small_scalar_filters = filters_of(small_scalar_constraints(st.just("x")))
small_pair_filters = filters_of(small_pair_constraints())
