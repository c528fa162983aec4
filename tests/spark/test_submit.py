"""`spark-submit` runs a job on the master and with the settings that it was given, and with ours for the rest."""

import json
import os
import subprocess
import sys

import pytest

from tests.spark import samples

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.slow]

SECONDS_MAX = 600


def submit(*arguments):
    given = ["--master", "local[1]", "--name", "our job", "--conf", "spark.sql.session.timeZone=CET"]
    quick = ["--conf", "spark.ui.enabled=false", "--driver-java-options", samples.quick_java()]
    return subprocess.run(
        [f"{samples.spark_home()}/bin/spark-submit", *given, *quick, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
    )


def test_a_job_is_submitted(tmp_path):
    notifications = samples.some_notifications(50)
    samples.write_inputs(tmp_path, notifications)
    samples.write_index(tmp_path / "index", samples.FILTERS)
    done = submit(samples.PROGRAMS / "submitted.py", tmp_path)
    assert done.returncode == 0, done.stderr[done.stderr.find("Traceback") :][:5_000]
    results = json.loads((tmp_path / "results.json").read_text())
    assert [results[name] for name in ("master", "name", "time zone", "case")] == ["local[1]", "our job", "CET", "true"]
    assert results["match"] == samples.expected_matches(notifications)
    assert results["command"] == 0
    assert "50 notifications" in done.stdout
