"""The example of detections with a live broker: the commands of its page raise its alerts."""

import json
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.detections_example import ALERTS, commands, copied
from tests.integration.processes import catchment, done, started


def run(line: str, directory: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Runs a command line of the page to its end. `more` is added to it."""
    line, _, stdin = line.partition(" < ")
    given = (directory / stdin).read_text("utf-8") if stdin else ""
    return done([*program(line), *more], directory, given)


def program(line: str) -> list[str]:
    name, *arguments = shlex.split(line)
    return catchment(*arguments) if name == "catchment" else [name, *arguments]


def next_json(process: subprocess.Popen[str]) -> dict[str, object]:
    assert process.stdout is not None
    document: dict[str, object] = json.loads(process.stdout.readline())
    return document


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A copy of the example with its rules imported, as the page does it."""
    place = copied(tmp_path)
    for line in commands("Import the rules"):
        ended = run(line, place)
        assert ended.returncode == 0, ended.stderr
    assert "A download from a bare address: regular expression" in ended.stderr
    assert "4 rules imported" in ended.stdout
    return place


def test_a_broker_raises_the_alerts(directory: Path) -> None:
    serve, sub, pub = commands("Match events as they happen")
    # The page uses the port that is the default. Here another broker may have it.
    with started([*program(serve), "--listen", "127.0.0.1:0", "--json"], directory) as broker:
        url = ("--url", str(next_json(broker)["address"]))
        with started([*program(sub), *url], directory) as subscriber:
            wait_for_subscriptions(url)
            published = run(pub, directory, *url)
            assert (published.returncode, published.stderr) == (0, "13 notifications published\n")
            raised: list[tuple[str, str]] = []
            while len(raised) < len(ALERTS):
                delivery = next_json(subscriber)
                raised += [(delivery["notification"]["$id"], rule) for rule in sorted(delivery["subscriptions"])]  # type: ignore[index,call-overload]
            assert raised == ALERTS


def wait_for_subscriptions(url: Sequence[str]) -> None:
    """Waits, with `top`, until the broker has the four subscriptions."""
    with started(catchment("top", "--json", "--every-s", "0.05", *url)) as top:
        while next_json(top)["subscriptions"] != 4:
            pass
