"""A schema that only grows: what archives and streams write is fitted to the columns that they wrote before.

An attribute keeps the columns that it has. The first type of an attribute has the column of its name. A type that comes
later gets a column of its own, `name:type`.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, StringType, StructField, StructType

from catchment.model.values import Type
from catchment.pipeline.schema import ENVELOPE_FIELDS, PAYLOAD, SPARK_TYPES, attributes_of, col

_ENVELOPE: Final = StructType(list(ENVELOPE_FIELDS))
_TYPE_NAMES: Final = frozenset(kind.value for kind in Type)


def empty_schema() -> StructType:
    """The schema before anything was written: the envelope alone."""
    return StructType(list(ENVELOPE_FIELDS))


def fitted(given: StructType, known: StructType) -> tuple[list[Column], StructType]:
    """The given columns, named and typed to fit the known schema; and that schema with those that are new."""
    fields = {field.name: field for field in known}
    columns = []
    for field in given:
        target = _target(field, fields)
        fields.setdefault(target.name, target)
        columns.append(_cast(field, target.dataType).alias(target.name))
    return columns, StructType(list(fields.values()))


def _target(field: StructField, known: dict[str, StructField]) -> StructField:
    """The column that a given column is written to."""
    if field.name == PAYLOAD:
        return _ENVELOPE[PAYLOAD]
    (attribute,) = attributes_of(StructType([field]))
    stored, name = SPARK_TYPES[attribute.type], attribute.name
    is_first_type = name not in known or known[name].dataType == stored
    return StructField(name if is_first_type and not _ends_in_type(name) else f"{name}:{attribute.type}", stored)


def _ends_in_type(name: str) -> bool:
    return name.rpartition(":")[2] in _TYPE_NAMES


def _cast(field: StructField, stored: DataType) -> Column:
    column = col(field.name)
    if field.name == PAYLOAD and isinstance(field.dataType, StringType):
        return F.unbase64(column)  # a payload may come as base64 text
    return column if field.dataType == stored else column.cast(stored)
