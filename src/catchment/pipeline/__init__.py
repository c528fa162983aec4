"""Bulk work on Spark: subscriptions compiled to a memory-mapped index, notifications matched against it.

Every job is a function from DataFrames to a DataFrame; schemas are declared, rows travel as Arrow batches, and
nothing of unbounded size comes to the driver. `docs/pipeline.md` has the picture.
"""

from __future__ import annotations

from catchment.errors import UnavailableError

try:
    import pyspark  # noqa: F401  # only to say what is missing in words that help
except ModuleNotFoundError:
    raise UnavailableError("this needs PySpark, which is not installed: pip install 'catchment[spark]'") from None

from catchment.pipeline.archive.dry_run import dry_run
from catchment.pipeline.archive.write import archive, compact, replay
from catchment.pipeline.compile.jobs import (
    add_subscriptions,
    change_subscriptions,
    compile_subscriptions,
    remove_subscriptions,
)
from catchment.pipeline.index import Index, open_index
from catchment.pipeline.inputs import Input, read_notifications, read_subscriptions
from catchment.pipeline.match.explain import match_explained
from catchment.pipeline.match.scattered import match_scattered
from catchment.pipeline.match.worker import match, match_counts, match_pairs, unmatched
from catchment.pipeline.match.write import Written, write_matches
from catchment.pipeline.patterns import detect
from catchment.pipeline.session import spark_session
from catchment.pipeline.stream.dataframe import stream_notifications
from catchment.pipeline.stream.files import NotificationFiles
from catchment.pipeline.stream.jobs import match_stream, read_stream_output
from catchment.pipeline.worker_garbage import leave_loaded_alone

leave_loaded_alone()

__all__ = [
    "Index",
    "Input",
    "NotificationFiles",
    "Written",
    "add_subscriptions",
    "archive",
    "change_subscriptions",
    "compact",
    "compile_subscriptions",
    "detect",
    "dry_run",
    "match",
    "match_counts",
    "match_explained",
    "match_pairs",
    "match_scattered",
    "match_stream",
    "open_index",
    "read_notifications",
    "read_stream_output",
    "read_subscriptions",
    "remove_subscriptions",
    "replay",
    "spark_session",
    "stream_notifications",
    "unmatched",
    "write_matches",
]
