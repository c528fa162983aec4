"""The Spark session that the jobs expect: workers with our Python, Arrow, UTC, one cache of compiled kernels.

A session that is there already is taken as it is: whoever made it knows why. Jobs say so where one of its settings
would change what they mean (`spark.sql.caseSensitive`, see `schema.refuse_case_twins`). Under `spark-submit` there is
none yet: what it was told, the master first, goes before what we would choose.

On Spark Connect (`sc://host`, with the extra `connect`) the driver is the server's: its workers must have catchment,
and it, they and we must see the index at one path. All works but `match_stream`, which writes in the driver and says
that it cannot. Bars of progress show no tasks there.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.utils import is_remote

from catchment.errors import UnavailableError
from catchment.pipeline.class_archive import java_command, java_options

LOCAL: Final = "local[*]"
CONNECT_PREFIX: Final = "sc://"
NUMBA_CACHE: Final = "NUMBA_CACHE_DIR"
# Where spark-submit started this program, the port of the Java that it started before.
SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
# A server that does not answer at all: Spark's own client would go on asking for ten minutes.
CONNECT_SECONDS_MAX: Final = 20
# Rows that are enough to show into how many partitions Spark cuts what nobody said more about.
_SPREAD_ROWS: Final = 1 << 16

_SETTINGS: Final = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Instants are UTC everywhere; a local zone would only change how they print, and CSV dates.
    "spark.sql.session.timeZone": "UTC",
    # Attribute names are any Unicode text: `Price` is not `price`.
    "spark.sql.caseSensitive": "true",
    # Rows are put together from all columns of a batch: of a thousand columns, four times as many rows fit no cache.
    "spark.sql.parquet.columnarReaderBatchSize": "1024",
    # Parsing takes Python a minute for as many bytes as Spark finds right for a task: three such tasks keep one of two
    # cores waiting a third of the time.
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "4m",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
# Arrow checks each access that Spark makes to what comes from Python: a third of the time of a match with many ids.
ARROW_UNCHECKED: Final = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
# Reading a string of Arrow's stores a reference, for which G1 has a fence: a quarter of Java's time with many ids.
_COLLECTOR: Final = "-XX:+UseParallelGC"
_OTHER_COLLECTOR: Final = re.compile(r"-XX:\+Use\w+GC\b")
# Where Java takes options from besides.
_JAVA_VARIABLES: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
_JAVA_SETTINGS: Final = {
    # Hundreds of ids a row take less of the system's time so than through TCP: docs/pipeline.md.
    "spark.python.unix.domain.socket.enabled": "true",
    # Less than this, and Spark adds up the bytes of all columns at every row.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
}
# A failure says what failed, without the hundred lines of where in the server.
_CONNECT_SETTINGS: Final = {"spark.sql.connect.serverStacktrace.enabled": "false"}
_LOCAL_CLUSTER: Final = re.compile(r"local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*(\d+)\s*]")
# Nobody but this machine has a reason to talk to a local session.
_LOCAL_SETTINGS: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def spark_session(
    master: str | None = None,
    *,
    name: str = "catchment",
    settings: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> SparkSession:
    """The active session if there is one, or a new one: `local[*]`, or any master, or `sc://host` (Spark Connect).

    `settings` come last, so they win. `log` is a file for what Java writes to standard error, which it otherwise
    shares with us. UnavailableError where there is no Java to run it with.
    """
    found = SparkSession.getActiveSession()
    if found is not None:
        return found
    _quiet()
    if remote := _remote(master):
        return _connected(remote, name, settings or {})
    _require_java()
    # Spark looks for `python3` on the PATH of the worker, which is not where catchment is installed.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    submitted = _submitted()
    chosen = master or submitted.get("spark.master") or os.environ.get("MASTER") or LOCAL
    wanted = {"spark.app.name": name} | _settings(chosen) | submitted | dict(settings or {})
    if log is not None:
        _launch(chosen, wanted, log)
    builder = SparkSession.builder
    for key, value in (wanted | {"spark.master": chosen}).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _submitted() -> dict[str, str]:
    """What spark-submit was told, if it started this program."""
    if SUBMITTED not in os.environ:
        return {}
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def _launch(master: str, settings: Mapping[str, str], log: Path) -> None:
    """Starts Java, unless it runs, with a standard error of its own: before Spark reads how to log, Java itself and
    Spark's start-up write lines there that no setting silences."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is None:
        conf = SparkConf(loadDefaults=False).setMaster(master).setAll(list(settings.items()))
        with log.open("ab") as out:
            gateway = launch_gateway(conf, {"stderr": out})  # type: ignore[no-untyped-call]
        SparkContext._ensure_initialized(gateway=gateway)


def _settings(master: str) -> dict[str, str]:
    found = _SETTINGS | _JAVA_SETTINGS
    options = f"{ARROW_UNCHECKED} {_COLLECTOR}"
    if any(_OTHER_COLLECTOR.search(os.environ.get(name, "")) for name in _JAVA_VARIABLES):
        options = ARROW_UNCHECKED  # Java does not start if it is told two
    found |= {f"spark.{process}.extraJavaOptions": options for process in ("driver", "executor")}
    if classes := java_options():
        found["spark.driver.extraJavaOptions"] += f" {classes}"
    if master.startswith("local"):
        found |= _LOCAL_SETTINGS
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if cluster := _LOCAL_CLUSTER.fullmatch(master):
        # Its executors are started by scripts of Spark's home, which a pip install does not say, and must fit.
        os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
        found["spark.executor.memory"] = f"{cluster[1]}m"
    if cache := numba_cache():
        # For the workers, and for this process and what it starts from now on.
        os.environ[NUMBA_CACHE] = found[f"spark.executorEnv.{NUMBA_CACHE}"] = cache
    return found


def numba_cache() -> str | None:
    """Where workers share compiled kernels; None where that is beside the sources, which is already warm."""
    if given := os.environ.get(NUMBA_CACHE):
        return given
    beside = Path(__file__).parents[1] / "matching" / "kernels"
    if os.access(beside / "__pycache__" if (beside / "__pycache__").is_dir() else beside, os.W_OK):
        return None
    shared = Path(tempfile.gettempdir()) / f"catchment-numba-{os.getuid()}"
    shared.mkdir(mode=0o700, exist_ok=True)
    return str(shared)


def _remote(master: str | None) -> str | None:
    """The address of Spark Connect, where that is asked for."""
    if master is None and (given := os.environ.get("SPARK_REMOTE")):
        return given
    chosen = master or os.environ.get("MASTER") or LOCAL
    return chosen if chosen.startswith(CONNECT_PREFIX) else None


def _connected(address: str, name: str, settings: Mapping[str, str]) -> SparkSession:
    """On Spark Connect the server's workers are what they are: only settings of the session can be asked for."""
    asked = {key: value for key, value in _SETTINGS.items() if key.startswith("spark.sql.")} | _CONNECT_SETTINGS
    try:
        if address.startswith(CONNECT_PREFIX):
            _require_server(address)
        builder = SparkSession.builder.remote(address).appName(name)
        for key, value in (asked | dict(settings)).items():
            builder = builder.config(key, value)
        return builder.getOrCreate()
    except ImportError as problem:
        raise UnavailableError(
            f"Spark Connect needs more packages: pip install 'catchment[connect]' ({problem})"
        ) from None


def _require_server(address: str) -> None:
    import grpc
    from pyspark.sql.connect.client import DefaultChannelBuilder

    channel = DefaultChannelBuilder(address).toChannel()
    try:
        grpc.channel_ready_future(channel).result(CONNECT_SECONDS_MAX)
    except grpc.FutureTimeoutError:
        raise UnavailableError(
            f"no Spark Connect server answers at {address} within {CONNECT_SECONDS_MAX} seconds: is it started, and is "
            "the port right? (15002 unless it was told another)"
        ) from None
    finally:
        channel.close()


def parallelism(spark: SparkSession) -> int:
    """How many tasks run at once."""
    if not is_remote():
        return spark.sparkContext.defaultParallelism
    # The context is the server's, and says nothing. But it cuts a range by that number.
    return spark.range(_SPREAD_ROWS).select(F.spark_partition_id()).distinct().count()


def _require_java() -> None:
    if java_command() is None:
        home = os.environ.get("JAVA_HOME")
        place = f"JAVA_HOME is {home}, where there is none" if home else "there is none on the PATH"
        raise UnavailableError(f"Spark needs Java 17 or newer, and {place}: install a JRE, or set JAVA_HOME to one")


def _quiet() -> None:
    """Warnings of PySpark and pandas about each other, which nobody who runs a job can act on."""
    for category in (DeprecationWarning, FutureWarning, UserWarning):
        warnings.filterwarnings("ignore", category=category, module=r"(pyspark|pandas)\b.*")
