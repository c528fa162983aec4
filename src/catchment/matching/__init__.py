"""Matching: compiled filters, one matcher for everything. Importing it brings numba; `import catchment` does not."""

from catchment.matching.columns import Encoded
from catchment.matching.ids import Id
from catchment.matching.matcher import Matcher
from catchment.matching.matches import Matches
from catchment.matching.stats import Stats

__all__ = ["Encoded", "Id", "Matcher", "Matches", "Stats"]
