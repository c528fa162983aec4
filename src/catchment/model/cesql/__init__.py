"""CESQL, the CloudEvents SQL expression language 1.0.0: the second dialect of filters."""

from catchment.model.cesql.dialect import CESQL_DEPTH_MAX, CESQL_TEXT_CODEPOINTS_MAX, Cesql, Evaluation
from catchment.model.cesql.values import CesqlFault, ErrorKind

__all__ = ["CESQL_DEPTH_MAX", "CESQL_TEXT_CODEPOINTS_MAX", "Cesql", "CesqlFault", "ErrorKind", "Evaluation"]
