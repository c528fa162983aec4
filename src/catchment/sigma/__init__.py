"""Sigma rules as filters: reads rules in YAML and writes filters of our language that match the same events.

A Sigma rule describes events of logs. Its `detection` section has named *selections*, which compare fields with values,
and a `condition`, which joins selections. Here a field is an attribute and an event is a notification. The filter keeps
the structure that the author of the rule wrote; nothing is multiplied out.

`values` reads one field and its values with their modifiers; `conditions` reads conditions; `expressions` holds what
both make and writes it as text; `rules` reads files. A rule that no filter can say exactly raises Inexpressible.
"""

from catchment.sigma.expressions import Inexpressible, LetterCase
from catchment.sigma.rules import FILE_BYTES_MAX, ImportedRule, RejectedRule, RuleReader, filter_of

__all__ = [
    "FILE_BYTES_MAX",
    "ImportedRule",
    "Inexpressible",
    "LetterCase",
    "RejectedRule",
    "RuleReader",
    "filter_of",
]
