"""The Spark session that the jobs expect: workers with our Python, Arrow, UTC, one cache of compiled kernels.

If a session already exists, it is used as it is: whoever made it had reasons. A job raises an error if a setting of
that session would change what the job means (`spark.sql.caseSensitive`, see `schema.refuse_case_twins`). Under
`spark-submit` no session exists yet: then the options given to `spark-submit`, first of all the master, take
precedence over our settings.

With Spark Connect (`sc://host`, with the extra `connect`) the driver runs in the server. The server's workers must have
catchment, and the server, its workers and this process must see the index at the same path. Everything works except
`match_stream`, which writes in the driver: it raises an error. Progress bars show no tasks there.
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
# spark-submit sets this variable for the program that it starts: the port of its Java process.
SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
# How long to wait for a Spark Connect server to answer. Spark's own client would retry for ten minutes.
CONNECT_SECONDS_MAX: Final = 20
# Enough rows to see into how many partitions Spark splits a range by default.
_RANGE_ROWS: Final = 1 << 16

_SETTINGS: Final = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Instants are UTC everywhere; a local zone would only change how Spark prints them, and how it reads CSV dates.
    "spark.sql.session.timeZone": "UTC",
    # Attribute names are any Unicode text: `Price` is not `price`.
    "spark.sql.caseSensitive": "true",
    # Spark assembles rows from all columns of a batch. With a thousand columns, a batch of the default 4096 rows does
    # not fit into the processor's cache.
    "spark.sql.parquet.columnarReaderBatchSize": "1024",
    # Python takes a minute to parse the 64 MB that Spark gives a task by default. With three such tasks on two cores,
    # one core is idle for a third of the time.
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "4m",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
# Switches off Arrow's check of each access to a buffer that came from Python. With many ids a row these checks take a
# third of the time of a match.
ARROW_UNCHECKED: Final = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
# When Java reads a string from Arrow, it stores a reference, and Java's default collector G1 puts a memory fence at
# each such store: a quarter of Java's time with many ids a row. The parallel collector has no such fence.
_COLLECTOR: Final = "-XX:+UseParallelGC"
_OTHER_COLLECTOR: Final = re.compile(r"-XX:\+Use\w+GC\b")
# Variables from which Java takes further options.
_JAVA_VARIABLES: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
_JAVA_SETTINGS: Final = {
    # With hundreds of ids a row this takes less system time than TCP: docs/pipeline.md.
    "spark.python.unix.domain.socket.enabled": "true",
    # With a smaller value Spark adds up the bytes of all columns after every row.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
}
# An error message then leaves out the server's stack trace of a hundred lines.
_CONNECT_SETTINGS: Final = {"spark.sql.connect.serverStacktrace.enabled": "false"}
_LOCAL_CLUSTER: Final = re.compile(r"local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*(\d+)\s*]")
# Only this machine has a reason to connect to a local session.
_LOCAL_SETTINGS: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def spark_session(
    master: str | None = None,
    *,
    name: str = "catchment",
    settings: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> SparkSession:
    """The active session if there is one, or else a new one: on `local[*]`, any master, or `sc://host` (Spark Connect).

    `settings` override ours. `log` is a file for what Java writes to standard error; without it Java writes to the
    standard error of this process. Raises UnavailableError where there is no Java.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    _silence_warnings()
    if remote := _remote(master):
        return _connected(remote, name, settings or {})
    require_java()
    # Otherwise Spark looks for `python3` on the PATH of the worker, which may not have catchment.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    submitted = _submitted_settings()
    chosen_master = master or submitted.get("spark.master") or os.environ.get("MASTER") or LOCAL
    chosen = {"spark.app.name": name} | settings_for(chosen_master) | submitted | dict(settings or {})
    if log is not None:
        _launch_java(chosen_master, chosen, log)
    builder = SparkSession.builder
    for key, value in (chosen | {"spark.master": chosen_master}).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _submitted_settings() -> dict[str, str]:
    """The settings given to spark-submit, if it started this program."""
    if SUBMITTED not in os.environ:
        return {}
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def _launch_java(master: str, settings: Mapping[str, str], log: Path) -> None:
    """Starts Java, unless it is running, with `log` as its standard error. Java itself and Spark's start-up write lines
    there before Spark reads its logging settings, so no setting can silence them."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is None:
        conf = SparkConf(loadDefaults=False).setMaster(master).setAll(list(settings.items()))
        with log.open("ab") as out:
            gateway = launch_gateway(conf, {"stderr": out})  # type: ignore[no-untyped-call]
        SparkContext._ensure_initialized(gateway=gateway)


def settings_for(master: str) -> dict[str, str]:
    """Our settings for a new session on this master. Sets the environment variables that go with them."""
    settings = _SETTINGS | _JAVA_SETTINGS
    options = f"{ARROW_UNCHECKED} {_COLLECTOR}"
    if any(_OTHER_COLLECTOR.search(os.environ.get(name, "")) for name in _JAVA_VARIABLES):
        options = ARROW_UNCHECKED  # Java does not start if two collectors are named
    settings |= {f"spark.{process}.extraJavaOptions": options for process in ("driver", "executor")}
    if class_archive_options := java_options():
        settings["spark.driver.extraJavaOptions"] += f" {class_archive_options}"
    if master.startswith("local"):
        settings |= _LOCAL_SETTINGS
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if cluster := _LOCAL_CLUSTER.fullmatch(master):
        # Scripts in SPARK_HOME start its executors; a pip install does not set that variable. And an executor must not
        # ask for more memory than its worker has.
        os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
        settings["spark.executor.memory"] = f"{cluster[1]}m"
    if cache := numba_cache():
        # For the workers, and for this process and those that it starts from now on.
        os.environ[NUMBA_CACHE] = settings[f"spark.executorEnv.{NUMBA_CACHE}"] = cache
    return settings


def numba_cache() -> str | None:
    """The directory where workers share compiled kernels; None if numba can write beside the sources, its default."""
    if given := os.environ.get(NUMBA_CACHE):
        return given
    sources = Path(__file__).parents[1] / "matching" / "kernels"
    if os.access(sources / "__pycache__" if (sources / "__pycache__").is_dir() else sources, os.W_OK):
        return None
    shared = Path(tempfile.gettempdir()) / f"catchment-numba-{os.getuid()}"
    shared.mkdir(mode=0o700, exist_ok=True)
    return str(shared)


def _remote(master: str | None) -> str | None:
    """The address of the Spark Connect server, if one was named."""
    if master is None and (given := os.environ.get("SPARK_REMOTE")):
        return given
    chosen = master or os.environ.get("MASTER") or LOCAL
    return chosen if chosen.startswith(CONNECT_PREFIX) else None


def _connected(address: str, name: str, settings: Mapping[str, str]) -> SparkSession:
    """A session of Spark Connect. The server's processes run already, so only settings of the session can be chosen."""
    chosen = {key: value for key, value in _SETTINGS.items() if key.startswith("spark.sql.")} | _CONNECT_SETTINGS
    try:
        if address.startswith(CONNECT_PREFIX):
            require_server(address)
        builder = SparkSession.builder.remote(address).appName(name)
        for key, value in (chosen | dict(settings)).items():
            builder = builder.config(key, value)
        return builder.getOrCreate()
    except ImportError as problem:
        raise UnavailableError(
            f"Spark Connect needs more packages: pip install 'catchment[connect]' ({problem})"
        ) from None


def require_server(address: str) -> None:
    """Raises UnavailableError if no Spark Connect server answers at this address."""
    import grpc
    from pyspark.sql.connect.client import DefaultChannelBuilder

    channel = DefaultChannelBuilder(address).toChannel()
    try:
        grpc.channel_ready_future(channel).result(CONNECT_SECONDS_MAX)
    except grpc.FutureTimeoutError:
        raise UnavailableError(
            f"no Spark Connect server answers at {address} within {CONNECT_SECONDS_MAX} seconds: is it running, and is "
            "the port right? (the default is 15002)"
        ) from None
    finally:
        channel.close()


def parallelism(spark: SparkSession) -> int:
    """How many tasks run at once."""
    if not is_remote():
        return spark.sparkContext.defaultParallelism
    # The server does not tell its default parallelism, but it splits a range into that many partitions.
    return spark.range(_RANGE_ROWS).select(F.spark_partition_id()).distinct().count()


def require_java() -> None:
    """Raises UnavailableError where Spark would find no Java."""
    if java_command() is None:
        home = os.environ.get("JAVA_HOME")
        where = f"JAVA_HOME is {home}, where there is none" if home else "there is none on the PATH"
        raise UnavailableError(f"Spark needs Java 17 or newer, and {where}: install a JRE, or set JAVA_HOME to one")


def _silence_warnings() -> None:
    """Ignores warnings of PySpark and pandas about each other: nobody who runs a job can act on them."""
    for category in (DeprecationWarning, FutureWarning, UserWarning):
        warnings.filterwarnings("ignore", category=category, module=r"(pyspark|pandas)\b.*")
