"""The command line against real brokers: serve, pub, sub, explain, top, tour."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import pytest

WAIT_S = 60


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "catchment", *arguments]


def run(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), check=False, input=given, capture_output=True, text=True, timeout=WAIT_S)


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.communicate(timeout=WAIT_S)
            finally:
                process.kill()


def line_of(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()


@contextmanager
def broker(*arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    with started("serve", "--listen", "127.0.0.1:0", "--json", "--log", "json", *arguments) as process:
        yield json.loads(line_of(process.stdout))["address"], process


def test_what_is_published_at_one_broker_is_printed_at_another():
    with broker("--name", "north") as (north, _), broker("--name", "south", "--neighbor", north) as (south, process):
        assert "link up" in _log_until(process, "link up")
        with started("sub", "level > 3 and place any", "--url", south, "--count", "3", "--json") as subscriber:
            _until_known(north, 1)
            assert run("pub", "level=5", "place=north", "--url", north).returncode == 0
            lines = '{"level": 7, "place": "x"}\n{"level": 1, "place": "x"}\nno JSON\n{"level": 9.5, "place": "y"}\n'
            published = run("pub", "-", "--url", north, given=lines)
            assert published.returncode == 1
            assert "line 3" in published.stderr
            assert "3 notifications published" in published.stderr
            found = [json.loads(line_of(subscriber.stdout))["notification"]["level"] for _ in range(3)]
            assert found == [5, 7, 9.5]
            assert subscriber.wait(WAIT_S) == 0


def _log_until(process: subprocess.Popen[str], message: str) -> str:
    while line := line_of(process.stderr):
        if json.loads(line)["message"] == message:
            return line
    return ""


def _until_known(address: str, filters: int) -> None:
    """Waits for what a broker knows of the others, by way of `top`."""
    with started("top", "--json", "--every-s", "0.05", "--url", address) as looking:
        while line := line_of(looking.stdout):
            if json.loads(line)["remote_filters"] >= filters:
                return
    pytest.fail(f"{address} did not come to know {filters} filters")


def test_explain_says_which_clause_failed():
    with broker() as (address, _), started("sub", "level > 3", "--url", address, "--as", "ana") as subscriber:
        assert "subscribed" in line_of(subscriber.stderr)
        found = run("explain", "level=2", "--url", address)
        assert "ana s1 does not match: level > 3" in found.stdout
        assert "value 2 is not > 3" in found.stdout
        (told,) = json.loads(run("explain", "level=5", "--url", address, "--json").stdout)
        assert told["matches"] is True


def test_a_publication_that_was_not_advertised_is_refused():
    with broker("--routing", "siena advertising") as (address, _):
        refused = run("pub", "level=2", "--url", address)
        assert refused.returncode == 1
        assert "has not advertised" in refused.stderr
        assert run("pub", "level=2", "--advertise", "level any", "--url", address).returncode == 0


def test_top_shows_a_table():
    with broker("--name", "north") as (address, _):
        found = run("top", "--count", "1", "--every-s", "0.1", "--url", address)
        assert found.returncode == 0
        assert "north" in found.stdout
        assert "subscriptions" in found.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sub", "level >", "--url", "127.0.0.1:1"], "FILTER, column"),
        (["pub", "level", "--url", "127.0.0.1:1"], "write name=value"),
        (["pub", "level=1", "--url", "127.0.0.1:no"], "no address"),
        (["serve", "--routing", "magic"], "there is no routing system 'magic'"),
        (["serve", "nowhere.toml"], "nowhere.toml cannot be read"),
    ],
)
def test_bad_usage(arguments: list[str], message: str):
    found = run(*arguments)
    assert found.returncode in (1, 2)
    assert message in found.stderr
    assert "bug" not in found.stderr


def test_nobody_listens():
    found = run("pub", "level=1", "--url", "127.0.0.1:1")
    assert found.returncode == 1
    assert "cannot connect to 127.0.0.1:1" in found.stderr


def test_the_tour_comes_true():
    found: Any = run("tour", "--headless")
    assert found.returncode == 0, found.stdout + found.stderr
    assert "east is back" in found.stdout
