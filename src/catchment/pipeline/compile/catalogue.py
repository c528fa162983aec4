"""The catalogue: the table of all subscriptions of a version of an index, with the status and note of each.

`filter` is canonical text. `conjunction` is the filter in the packed form that the index reads, a conjunction or an
expression; it is null for CESQL, for a filter with an opaque constraint (the index holds a wider filter for both), and
for a subscription that is not live. `note` says what a subscription is to
`other`, the id of another subscription of the same subscriber.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from catchment.matching.bulk import unpack_filter
from catchment.model.cesql import Cesql
from catchment.model.filter import Filter
from catchment.pipeline.index import LIVE
from catchment.pipeline.schema import SUBSCRIPTIONS

# Statuses, besides LIVE: a filter that nothing can match, and a subscription whose time is over.
CONTRADICTORY, EXPIRED = "contradictory", "expired"
# Notes: equal to `other`, covered by `other`, not compared because the subscriber has too many filters or the filter
# too many constraints.
DUPLICATE, REDUNDANT, UNCHECKED = "duplicate", "redundant", "unchecked"
STATUSES: Final = (LIVE, CONTRADICTORY, EXPIRED)
NOTES: Final = (DUPLICATE, REDUNDANT, UNCHECKED)
CATCHMENT, CESQL = "catchment", "cesql"
DIALECTS: Final = (CATCHMENT, CESQL)

CATALOGUE: Final = StructType(
    [
        *SUBSCRIPTIONS.fields,
        StructField("conjunction", BinaryType()),
        StructField("status", StringType()),
        StructField("note", StringType()),
        StructField("other", StringType()),
    ]
)
COLUMNS_WITHOUT_NOTE: Final = tuple(name for name in CATALOGUE.names if name not in ("note", "other"))


def loaded_filter(text: str, conjunction: bytes | None, dialect: str) -> Filter | Cesql:
    """The filter of a row of the catalogue; from its packed form if it has one, which spares the parsing."""
    if conjunction is not None:
        return unpack_filter(conjunction)
    return filter_of(text, dialect)


def filter_of(text: str, dialect: str) -> Filter | Cesql:
    return Cesql(text) if dialect == CESQL else Filter(text)
