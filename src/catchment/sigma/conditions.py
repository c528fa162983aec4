"""Conditions of Sigma rules: `selection and not 1 of filter_*`.

    condition = conjunction { "or" conjunction }
    conjunction = negation { "and" negation }
    negation = "not" negation | "(" condition ")" | quantity "of" names | name
    quantity = "1" | "any" | "all"
    names = "them" | a name in which * stands for any run of characters

`them` means all selections whose names do not begin with an underscore.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from catchment.errors import shown
from catchment.sigma.expressions import Expression, Inexpressible, all_of, any_of, negation_of

# Each parenthesis and each `not` is a call inside a call.
CONDITION_DEPTH_MAX: Final = 64

_TOKEN: Final = re.compile(r"[()|]|[^\s()|]+")
_QUANTITIES: Final = {"1": any_of, "any": any_of, "all": all_of}


def condition_expression(text: str, names: Sequence[str], selected: Callable[[str], Expression]) -> Expression:
    """What a condition says. `names` are all selections, and `selected` gives what one of them says."""
    tokens = _TOKEN.findall(text)
    if "|" in tokens:
        aggregation = text[text.index("|") :].strip()
        raise Inexpressible("aggregation", f"{shown(aggregation)} looks at several events together")
    return _Parser(text, tokens, names, selected).whole()


class _Parser:
    def __init__(
        self, text: str, tokens: list[str], names: Sequence[str], selected: Callable[[str], Expression]
    ) -> None:
        self._text, self._tokens, self._names, self._selected = text, tokens, names, selected
        self._place = 0

    def whole(self) -> Expression:
        expression = self._condition(0)
        if self._peek():
            self._fail(f"{shown(self._peek())} does not fit there")
        return expression

    def _condition(self, depth: int) -> Expression:
        parts = [self._conjunction(depth)]
        while self._take("or"):
            parts.append(self._conjunction(depth))
        return any_of(parts)

    def _conjunction(self, depth: int) -> Expression:
        parts = [self._negation(depth)]
        while self._take("and"):
            parts.append(self._negation(depth))
        return all_of(parts)

    def _negation(self, depth: int) -> Expression:
        if depth > CONDITION_DEPTH_MAX:
            raise Inexpressible("size", f"its condition is more than {CONDITION_DEPTH_MAX} deep")
        if self._take("not"):
            return negation_of(self._negation(depth + 1))
        if self._take("("):
            inner = self._condition(depth + 1)
            if not self._take(")"):
                self._fail("a parenthesis is not closed")
            return inner
        return self._selection()

    def _selection(self) -> Expression:
        word = self._peek()
        self._place += 1
        if self._take("of"):
            return self._quantified(word)
        if word not in self._names:
            self._fail(f"there is no selection {shown(word)}" if word else "it ends too early")
        return self._selected(word)

    def _quantified(self, quantity: str) -> Expression:
        join = _QUANTITIES.get(quantity.lower())
        if join is None:
            self._fail(f"{shown(quantity)} of: Sigma has 1 of, any of and all of")
        pattern = self._peek()
        self._place += 1
        names = _matching(pattern, self._names)
        if not names:
            self._fail(f"no selection is named {shown(pattern)}" if pattern else "it ends too early")
        return join([self._selected(name) for name in names])

    def _peek(self) -> str:
        """The next word, or nothing at the end."""
        return self._tokens[self._place] if self._place < len(self._tokens) else ""

    def _take(self, word: str) -> bool:
        """Whether the next word is this one, in any case of letters. If so, it is used up."""
        if self._peek().lower() != word:
            return False
        self._place += 1
        return True

    def _fail(self, why: str) -> NoReturn:
        raise Inexpressible("bad rule", f"condition {shown(self._text)}: {why}")


def _matching(pattern: str, names: Sequence[str]) -> list[str]:
    if pattern.lower() == "them":
        return [name for name in names if not name.startswith("_")]
    regex = ".*".join(map(re.escape, pattern.split("*")))
    return [name for name in names if re.fullmatch(regex, name, re.DOTALL)]
