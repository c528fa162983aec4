"""Bulk work on Spark: compile subscriptions to a memory-mapped index, and match notifications against it.

Every job is a function from DataFrames to a DataFrame. Schemas are declared, rows travel as Arrow batches, and
nothing of unbounded size comes to the driver. `docs/pipeline.md` has the picture.

    compile/  match/  stream/  archive/  graph/   the stages; the docstring of each package says what is inside
    patterns  monitors                            sequences of notifications, in a batch or a stream
    session  class_archive  worker_garbage        Spark itself: its settings, its start, its Python workers
    inputs  decoders  tables  bad_rows            reading files and tables, and why a row is rejected
    schema  growing_schema  rows                  notifications as columns, and back
    index  paths                                  the index on disk, and paths as Spark takes them
"""

from __future__ import annotations

from catchment.errors import UnavailableError

try:
    import pyspark  # noqa: F401  # only to name the missing package in words that help
except ModuleNotFoundError:
    raise UnavailableError("this needs PySpark, which is not installed: pip install 'catchment[spark]'") from None

# `match` and `archive` are functions here, and also packages inside this one. Python binds a package to its parent when
# it first loads it, and never again. The imports below load the package first and bind the function second, so the name
# stays the function, whatever a program imports before or after (tests/spark/test_imports.py). Hence a function that
# shares its name with a package must be imported here, not on demand.
from catchment.pipeline.archive.dry_run import dry_run
from catchment.pipeline.archive.read import archived, lines, replay
from catchment.pipeline.archive.write import archive, compact
from catchment.pipeline.compile.jobs import (
    add_subscriptions,
    change_subscriptions,
    compile_subscriptions,
    remove_subscriptions,
)
from catchment.pipeline.index import Index, open_index
from catchment.pipeline.inputs import Input, read_notifications, read_subscriptions
from catchment.pipeline.match.explain import match_explained
from catchment.pipeline.match.jobs import match, match_counts, match_pairs, unmatched
from catchment.pipeline.match.scattered import match_scattered
from catchment.pipeline.match.write import Written, write_matches
from catchment.pipeline.patterns import detect
from catchment.pipeline.session import spark_session
from catchment.pipeline.stream.dataframe import stream_notifications
from catchment.pipeline.stream.files import NotificationFiles
from catchment.pipeline.stream.jobs import match_stream, read_stream_output
from catchment.pipeline.worker_garbage import freeze_loaded_objects

freeze_loaded_objects()

__all__ = [
    "Index",
    "Input",
    "NotificationFiles",
    "Written",
    "add_subscriptions",
    "archive",
    "archived",
    "change_subscriptions",
    "compact",
    "compile_subscriptions",
    "detect",
    "dry_run",
    "lines",
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
