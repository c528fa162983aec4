"""`spark-submit` runs a job: on the master and with the settings that it was told, and otherwise with ours."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark import given as made

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.slow]

SECONDS_MAX = 600


def submit(*arguments):
    told = ["--master", "local[1]", "--name", "told", "--conf", "spark.sql.session.timeZone=CET"]
    quick = ["--conf", "spark.ui.enabled=false", "--driver-java-options", made.quick_java()]
    return subprocess.run(
        [f"{made.spark_home()}/bin/spark-submit", *told, *quick, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
    )


def test_a_job_is_submitted(tmp_path):
    given = made.some(50)
    made.write(tmp_path, given)
    made.write_index(tmp_path / "index", made.FILTERS)
    done = submit(Path(__file__).with_name("submitted.py"), tmp_path)
    assert done.returncode == 0, done.stderr[done.stderr.find("Traceback") :][:5_000]
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["master"], found["name"], found["time zone"], found["case"]) == ("local[1]", "told", "CET", "true")
    assert found["match"] == made.matches(given)
    assert found["command"] == 0
    assert "50 notifications" in done.stdout
