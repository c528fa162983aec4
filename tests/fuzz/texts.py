"""Texts of filters, patterns, advertisements and CESQL: from a grammar, with shapes that are known to cost much, and
with some characters changed."""

from __future__ import annotations

import random
from collections.abc import Callable

NAMES = ("x", "y", "price", "s", "t", "a0", "a1", "b0", "b1", "$time", "$source", "é", '"odd name"', "")
NUMBERS = ("0", "1", "-1", "8.25", "1e308", "-0.0", "9223372036854775807", "9223372036854775808", "1e999", "0x1")
STRINGS = ("''", "'a'", '"b c"', "'*a?b*'", "'\\\\*'", "'é'", "'\\u0000'", "'" + "q" * 300 + "'", "'", "'%_'")
OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "prefix", "suffix", "contains", "glob", "any", ">*", "*<", "*", "~")
SYMBOLS = ("(", ")", ",", " and ", " or ", "not ", " -> ", "[", "]", " within 5m ", " by ", "\n", "\0", "\U0001f600")

Chance = random.Random


def constraint(chance: Chance) -> str:
    name = chance.choice(NAMES[:9])
    match chance.randrange(8):
        case 0:
            return f"{name} in ({', '.join(chance.choice(NUMBERS[:5]) for _ in range(chance.randint(1, 20)))})"
        case 1:
            return f"exists({name})"
        case 2:
            return f"{name} any"
        case 3 | 4:
            pattern = "".join(chance.choice("ab*?c*") for _ in range(chance.randint(1, 12)))
            operator = chance.choice(("glob", "prefix", "suffix", "contains", "contains nocase"))
            return f"{name} {operator} '{pattern}'"
        case 5:
            return f"{chance.choice(('int', 'float', 'string'))} {name} {chance.choice(OPERATORS[:6])} 3"
    return f"{name} {chance.choice(OPERATORS[:6])} {chance.choice(NUMBERS[:6])}"


def expression(chance: Chance, depth: int) -> str:
    if depth <= 0 or chance.random() < 0.2:
        return constraint(chance)
    parts = [expression(chance, depth - 1) for _ in range(chance.randint(1, 4))]
    text = chance.choice((" and ", " or ", ", ")).join(parts)
    return f"not ({text})" if chance.random() < 0.2 else f"({text})"


def _numbered(part: Callable[[int], str], joined: str, chance: Chance) -> str:
    return joined.join(part(n) for n in range(chance.choice((2, 7, 12, 20, 60, 200))))


def costly(chance: Chance) -> str:
    """Shapes whose normal form, or whose comparison, grows quickly."""
    k = chance.randrange(1_000)
    shapes: tuple[tuple[Callable[[int], str], str], ...] = (
        (lambda n: f"(a{n} > {n + k} or b{n} < {-n - k})", " and "),
        (lambda n: f"(s glob '*{k}x{n}?a*b' or not t glob '?{n}*c?d')", " and "),
        (lambda n: f"not s glob '*a{k}?{n}*b{n}*'", " and "),
        (lambda n: f"s glob '*a{n}?b*c{k % 7}*'", " or "),
        (lambda n: f"s contains nocase 'T{n}{k}'", " or "),
        (lambda n: f"(x > {2 * n} and x < {2 * n + k})", " or "),
        (lambda n: f"(not exists(a{n}) or a{n} = {k})", " and "),
        (lambda n: f"s != 't{n}{k}'", " and "),
        (lambda n: f"(x > {n} and x < {n + k} and y > {-n} and y < {k - n})", " or "),
    )
    part, joined = chance.choice(shapes)
    return _numbered(part, joined, chance)


def cesql(chance: Chance) -> str:
    k = chance.randrange(1_000)
    shapes: tuple[tuple[Callable[[int], str], str], ...] = (
        (lambda n: f"s LIKE '%{k}a{n}_b%'", " XOR "),
        (lambda n: f"(x{n} = {k} OR NOT EXISTS y{n})", " AND "),
        (lambda n: f"LENGTH(s{n}) > {k}", " OR "),
        (lambda n: f"INT(s) + {n} = {k}", " XOR "),
        (lambda n: f"s IN ('{n}', '{k}')", " AND "),
    )
    part, joined = chance.choice(shapes)
    return _numbered(part, joined, chance)


def advertisement(chance: Chance) -> str:
    return ", ".join(constraint(chance) for _ in range(chance.randint(1, 30)))


def pattern(chance: Chance) -> str:
    parts = [f"[{expression(chance, 1)}]" for _ in range(chance.randint(1, 6))]
    return " -> ".join(parts) + chance.choice(("", " within 5m", " by x", " within 10s by s"))


def nested(chance: Chance) -> str:
    depth = chance.choice((10, 63, 64, 65, 1_000, 20_000))
    return "(" * depth + constraint(chance) + ")" * chance.choice((depth, depth - 1))


def changed(text: str, chance: Chance) -> str:
    """The same with a few edits."""
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(text) + 1)
        piece = chance.choice(
            (*NAMES, *NUMBERS, *STRINGS, *OPERATORS, *SYMBOLS, "and", "or", "not", chr(chance.randrange(0xD800)))
        )
        end = at + chance.choice((0, 0, 1, 5))
        text = text[:at] + piece + text[end:]
    return text


def filter_text(chance: Chance) -> str:
    made = chance.choices((costly, lambda c: expression(c, c.randint(0, 4)), nested), (5, 10, 1))[0](chance)
    return changed(made, chance) if chance.random() < 0.3 else made
