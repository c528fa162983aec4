"""On `local-cluster`, where executors are processes of their own, all results are those of this process."""

import json
import subprocess
import sys

import pytest

from tests.spark import samples

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.slow]

SECONDS_MAX = 600


def test_results_are_those_of_this_process(tmp_path):
    """One test, so that the program runs once, however tests are spread over processes."""
    notifications = samples.some_notifications(300)
    samples.write_inputs(tmp_path, notifications)
    program = [sys.executable, str(samples.PROGRAMS / "local_cluster.py"), str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stderr[done.stderr.find("Traceback") :][:5_000]
    results = json.loads((tmp_path / "results.json").read_text())
    assert (results["executors"], results["shards"]) == (2, 3)
    for job in ("match", "write", "scattered", "stream"):
        assert results[job] == samples.expected_matches(notifications), job
    for job in ("detect", "detect stream"):
        assert results[job] == samples.expected_sequences(notifications), job
