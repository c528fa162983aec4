"""The example of detections on Spark: the commands of its page raise its alerts.

Each command is a process of its own: in a session that runs already, Java would look for the files elsewhere.
"""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.detections_example import ALERTS, blocks, commands, copied

pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark

WAIT_S = 300


def run(line: str, directory: Path) -> str:
    """Runs a command line of the page to its end. Returns what it prints."""
    name, *arguments = shlex.split(line)
    programs = {"catchment": [sys.executable, "-m", "catchment"], "python": [sys.executable]}
    command = [*programs.get(name, [name]), *arguments]
    ended = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, timeout=WAIT_S)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_a_file_of_events_raises_the_alerts(tmp_path: Path) -> None:
    directory = copied(tmp_path)
    *_, printed = [run(line, directory) for line in commands("Import the rules") + commands("Match a file of events")]
    ((_, expected),) = [block for block in blocks("Match a file of events") if block[0] == "text"]
    assert printed == expected
    out = directory / "out"
    rule_by_title = {
        rule["title"]: rule["id"] for rule in map(json.loads, (out / "subscriptions.jsonl").read_text().splitlines())
    }
    raised = [(line[:3], rule_by_title[line[15:]]) for line in printed.splitlines()]
    assert raised == ALERTS
    rejects = [json.loads(line) for line in (out / "subscriptions.rejects.jsonl").read_text().splitlines()]
    assert [reject["kind"] for reject in rejects] == ["regular expression"]
