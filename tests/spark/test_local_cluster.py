"""On `local-cluster`, where executors are processes of their own, all is as in this process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark import given as made

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.slow]

SECONDS_MAX = 600


def test_all_is_as_in_this_process(tmp_path):
    """One test, so that the program runs once wherever tests are spread over processes."""
    given = made.some(300)
    made.write(tmp_path, given)
    program = [sys.executable, str(Path(__file__).with_name("local_cluster.py")), str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stderr[done.stderr.find("Traceback") :][:5_000]
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["executors"], found["shards"]) == (2, 3)
    for how in ("match", "write", "scattered", "stream"):
        assert found[how] == made.matches(given), how
    for how in ("detect", "detect stream"):
        assert found[how] == made.sequences(given), how
