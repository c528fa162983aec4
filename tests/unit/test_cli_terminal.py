"""The command line on a terminal: colours and progress, which nobody sees when the output goes to a file."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from catchment.cli import main


def on_a_terminal(*arguments: str, stdout: int | None = None, **variables: str) -> bytes:
    """Runs a command line on a pseudo-terminal and returns what that showed."""
    return python_on_a_terminal("-m", "catchment", *arguments, stdout=stdout, **variables)


def python_on_a_terminal(*arguments: str, stdout: int | None = None, **variables: str) -> bytes:
    """Runs Python on a pseudo-terminal and returns what that showed. `stdout` redirects standard output elsewhere."""
    controller, terminal = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    with subprocess.Popen(
        [sys.executable, *arguments],
        stdin=terminal,
        stdout=terminal if stdout is None else stdout,
        stderr=terminal,
        env={**environment, "TERM": "xterm-256color", "COLUMNS": "100", **variables},
    ) as child:
        os.close(terminal)
        shown = b"".join(iter(lambda: _read(controller), b""))
        assert child.wait(60) == 0
    os.close(controller)
    return shown


def _read(controller: int) -> bytes:
    try:
        return os.read(controller, 65_536)
    except OSError:  # Linux says so that the other side is closed
        return b""


def test_colours_on_a_terminal_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert b"\x1b[32mAna" in on_a_terminal("demo")
    assert b"\x1b[32m" not in on_a_terminal("demo", NO_COLOR="1")
    assert main(["demo"]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_a_large_file_shows_its_progress_on_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "notifications.jsonl"
    path.write_bytes(b"".join([b'{"x": 1, "y": "' + b"y" * 60_000 + b'"}\n'] * 20))
    shown = on_a_terminal("check", "x = 1", "--against", str(path))
    assert b"100%" in shown
    assert b"20 matched, 0 did not, 0 bad" in shown
    with open(tmp_path / "verdicts", "w+b") as out:
        shown = on_a_terminal("check", "x = 1", "--against", str(path), "--json", stdout=out.fileno())
        out.seek(0)
        documents = [json.loads(line) for line in out]
    assert b"100%" in shown
    assert len(documents) == 22


def test_a_replay_into_a_file_shows_its_rate_on_a_terminal(tmp_path: Path) -> None:
    """Without Spark: the lines of the archive are made up."""
    script = (
        "import sys; from catchment.cli.replay import write_lines;"
        "assert write_lines((f'line {i}' for i in range(300_000)), sys.stdout) == 300_000"
    )
    with open(tmp_path / "replayed", "w+b") as out:
        shown = python_on_a_terminal("-c", script, stdout=out.fileno())
        out.seek(0)
        assert len(out.readlines()) == 300_000
    assert b"notifications" in shown
