r"""LIKE patterns (§3.4.3): `%` is any run of characters, `_` any single character; `\` before either makes it literal.

Any other backslash stands for itself. A pattern becomes a glob (`globs.py`), like every pattern of the model. Globs
never backtrack, and the filter that an expression implies can use the same glob.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from catchment.model.globs import glob

_TOKEN: Final = re.compile(r"\\[%_]|[\s\S]")
_WILDCARDS: Final = {"%": "*", "_": "?"}
# So many tests are cached: expressions share their patterns.
_TESTS_MAX: Final = 65_536


def glob_pattern(like: str) -> str:
    """The glob pattern of the same meaning."""
    return "".join(_WILDCARDS.get(token) or _literal(token[-1]) for token in _TOKEN.findall(like))


def _literal(character: str) -> str:
    return "\\" + character if character in "*?\\" else character


@lru_cache(_TESTS_MAX)
def like_test(like: str) -> Callable[[str], bool]:
    """A function that says whether a text matches the pattern; LimitError if the pattern is too long."""
    compiled = glob(glob_pattern(like))
    operator, operand = compiled.simplest_operator
    match operator:
        case "=":
            return operand.__eq__
        case "prefix":
            return lambda text: text.startswith(operand)
        case "suffix":
            return lambda text: text.endswith(operand)
        case "substring":
            return lambda text: operand in text
        case _:
            return compiled.matches
