"""One filter for several: what a broker wants itself and what its children want, as it is sent upstream (§3.4).

A filter is a list of *parts* of which one must match. The composite is made in three steps:

- **Duplicates.** Of parts that are equal, one is kept; of parts of which one covers the other, the wider.
- **Minimization.** A few parts that name the same attributes are brought into normal form together, which knows more
  than parts: `t < 0` and `t >= 0` together are `number t any`. It is used if it takes fewer comparisons.
- **Approximation.** If the composite takes more than `comparisons_max` comparisons, a wider one is sent that takes no
  more; at last that is `true`. A short one is approximated by `model/approximation.py`, which measures every step. That
  takes long for a long filter: there operands are dropped as in the text (`model/dropping.py`).

The same parts give the same composite, whichever publisher they are for, so the last composites are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal

from catchment.errors import InputError, LimitError
from catchment.model.approximation import approximated
from catchment.model.dropping import with_operands_dropped, written_comparisons
from catchment.model.expression import Or, positive
from catchment.model.filter import Filter

EVERYTHING: Final = Filter.everything()
NOTHING: Final = Filter.nothing()
# Up to so many parts are compared pair by pair: some milliseconds.
COMPARED_PARTS_MAX: Final = 48
# Up to so many parts are brought into normal form together, and up to so many alternatives approximated by measuring:
# both take up to some tenths of a second.
MINIMIZED_PARTS_MAX: Final = 8
MEASURED_ALTERNATIVES_MAX: Final = 6
MEASURED_COMPARISONS_MAX: Final = 16
# Composites that are kept.
COMPOSITES_MAX: Final = 256


def is_everything(filter: Filter) -> bool:
    """Whether it is the literal `true`."""
    return filter.expression is True


def parts_of(filter: Filter) -> tuple[Filter, ...]:
    """The parts of a filter: it matches what one of them matches."""
    expression = filter.canonical
    if expression is False:
        return ()
    return tuple(map(Filter.of_expression, expression.parts)) if isinstance(expression, Or) else (filter,)


class Composer:
    """Makes composites that take at most `comparisons_max` comparisons."""

    def __init__(self, comparisons_max: int, approximation: Literal["measured", "dropping"] = "measured") -> None:
        if comparisons_max < 1:
            raise InputError(f"comparisons_max is {comparisons_max}: use 1 or more")
        self.comparisons_max = comparisons_max
        self.is_measured = approximation == "measured"
        # Pairs of parts that were compared, since the start.
        self.compared = 0
        self._known: dict[tuple[str, ...], Filter] = {}

    def composite(self, parts: Iterable[Filter]) -> Filter:
        """A filter that matches what one of the parts matches, and perhaps more."""
        by_text = {str(part): part for part in parts}
        # Each part takes a comparison at least, unless parts are joined, which nobody tries with so many.
        if len(by_text) > max(self.comparisons_max, COMPARED_PARTS_MAX):
            return EVERYTHING
        key = tuple(sorted(by_text))
        composite = self._known.get(key)
        if composite is None:
            composite = self._composed([by_text[text] for text in key])
            if len(self._known) >= COMPOSITES_MAX:
                self._known.clear()
            self._known[key] = composite
        return composite

    def _composed(self, parts: Sequence[Filter]) -> Filter:
        groups: dict[frozenset[str], list[Filter]] = {}
        for part in self._without_covered(parts):
            groups.setdefault(part.names, []).append(part)
        try:
            whole = _one_of([_minimized(_one_of(group), len(group)) for group in groups.values()])
        except LimitError:
            # Past FILTER_SIZE_MAX: no broker would take it.
            return EVERYTHING
        return self.within_budget(whole)

    def _without_covered(self, parts: Sequence[Filter]) -> list[Filter]:
        if len(parts) > COMPARED_PARTS_MAX:
            return list(parts)
        kept: list[Filter] = []
        for part in parts:
            self.compared += len(kept)
            if part.is_empty or any(other.covers(part) for other in kept):
                continue
            self.compared += len(kept)
            kept = [other for other in kept if not part.covers(other)]
            kept.append(part)
        return kept

    def within_budget(self, filter: Filter) -> Filter:
        """The filter, or a wider one that takes no more comparisons than allowed."""
        if written_comparisons(filter.expression) <= self.comparisons_max:
            return filter
        if self.is_measured and _is_short(filter):
            filter = approximated(filter, self.comparisons_max)
        # Drops nothing of what is short enough by now.
        return with_operands_dropped(filter, self.comparisons_max)


def _one_of(parts: Sequence[Filter]) -> Filter:
    """The filter that matches what one of the parts matches; LimitError if it is too large."""
    if len(parts) == 1:
        return parts[0]
    return Filter.of_expression(positive(Or(tuple(part.canonical for part in parts)))) if parts else NOTHING


def _minimized(whole: Filter, parts_count: int) -> Filter:
    """The normal form of a composite of few parts, if it takes fewer comparisons."""
    if not 1 < parts_count <= MINIMIZED_PARTS_MAX or not whole.is_normal:
        return whole
    normal = Filter.of_boxes(whole.boxes)
    is_shorter = written_comparisons(normal.expression) < written_comparisons(whole.expression)
    return normal if is_shorter else whole


def _is_short(filter: Filter) -> bool:
    if not filter.is_normal or written_comparisons(filter.expression) > MEASURED_COMPARISONS_MAX:
        return False
    return len(filter.boxes) <= MEASURED_ALTERNATIVES_MAX
