"""Matching: the one matcher, which everything that matches uses. This package imports numba; `import catchment` does
not import this package."""

from catchment.matching.columns import Encoded
from catchment.matching.ids import Id
from catchment.matching.matcher import Matcher
from catchment.matching.matches import Matches
from catchment.matching.stats import Stats

__all__ = ["Encoded", "Id", "Matcher", "Matches", "Stats"]
