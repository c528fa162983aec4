"""The archive of Java's classes: Java uses it, and starts without it if it does not fit."""

import shlex
import subprocess

import pytest

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.slow]

from catchment.pipeline import class_archive, session  # noqa: E402


def java(*options):
    """Whether Java starts, and what it prints."""
    command = [class_archive.java_command(), *options, "-version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """A directory with a space in its name: Spark splits options at spaces."""
    directory = tmp_path / "a cache"
    directory.mkdir()
    monkeypatch.setenv(class_archive.CACHE, str(directory))
    return directory


def driver_options():
    return session.settings_for("local[2]")["spark.driver.extraJavaOptions"]


def test_sessions_use_the_archive_if_there_is_one(cache):
    assert "SharedArchiveFile" not in driver_options()
    class_archive.archive_path().write_bytes(b"")
    assert f'-XX:SharedArchiveFile="{class_archive.archive_path()}"' in driver_options()
    assert "SharedArchiveFile" not in session.settings_for("local[2]")["spark.executor.extraJavaOptions"]


def test_another_java_has_another_archive(cache, monkeypatch, tmp_path):
    before = class_archive.archive_path()
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert class_archive.archive_path() != before


def test_the_archive_is_in_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.delenv(class_archive.CACHE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert class_archive.archive_path().parent == tmp_path / "catchment"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert class_archive.archive_path().parent == tmp_path / ".cache" / "catchment"


def test_java_starts_without_an_archive_that_does_not_fit(cache):
    class_archive.archive_path().write_bytes(b"no archive at all")
    options = shlex.split(class_archive.java_options())
    is_started, printed = java(*options)
    assert is_started
    assert "archive" not in printed
    # With this option Java would not start, so it does notice.
    assert not java(*options, "-Xshare:on")[0]


def test_java_uses_the_archive_that_was_made(spark):
    if not class_archive.archive_path().exists():
        pytest.skip("there is no archive: catchment warm makes one, and ./dev test does so before its tests")
    options = shlex.split(class_archive.java_options())
    jars = spark._jvm.java.lang.System.getProperty("java.class.path")
    is_started, printed = java(*options, "-Xshare:on", "-cp", jars)
    assert is_started, printed


def test_no_archive_is_made_while_spark_runs(spark, run, cache):
    code, out, err = run("warm", "--json")
    assert (code, out) == (1, "")
    assert "Spark is running" in err
    assert list(cache.iterdir()) == []
