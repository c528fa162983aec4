"""The Spark session of a command. If Spark does not start, the error says why."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from catchment.cli.terminal import TRACEBACK_VARIABLE, status
from catchment.errors import UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Running tasks report their rows with each heartbeat. Spark's default, ten seconds, is too slow for a progress bar.
_SETTINGS: Final = {"spark.executor.heartbeatInterval": "1s"}
# The last lines of Java's log usually hold the reason.
_LOG_LINES_SHOWN: Final = 5


def session(master: str | None) -> SparkSession:
    """Starts Spark, or takes the session that runs. UnavailableError says what is missing."""
    with status("starting Spark"):
        from catchment.pipeline.session import spark_session

        log = _java_log()
        try:
            return spark_session(master, settings=_SETTINGS, log=log)
        except UnavailableError:
            raise
        except Exception as problem:  # the errors of py4j, Spark and grpc have no common base class
            reason = (str(problem).splitlines() or [type(problem).__name__])[0]
            log_tail = "" if log is None else _tail(log)
            raise UnavailableError(
                f"Spark does not start with master {master or 'local[*]'}: {reason}{log_tail}\n"
                f"check --master and the Java installation; {TRACEBACK_VARIABLE}=1 shows all that Java writes"
            ) from None
        finally:
            if log is not None:
                # Java keeps the file open and goes on writing. Without a name the file is gone when Java ends.
                log.unlink(missing_ok=True)


def _java_log() -> Path | None:
    """A file for what Java writes, which only helps to find a bug. With CATCHMENT_TRACEBACK Java writes to the
    terminal instead."""
    if os.environ.get(TRACEBACK_VARIABLE):
        return None
    handle, path = tempfile.mkstemp(prefix="catchment-java-", suffix=".log")
    os.close(handle)
    return Path(path)


def _tail(log: Path) -> str:
    lines = log.read_text("utf-8", "replace").splitlines()[-_LOG_LINES_SHOWN:]
    return "".join(f"\n  {line}" for line in lines)
