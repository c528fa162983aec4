"""Programs that run beside a test."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

# A program that takes so long waits for what does not come, also on a busy machine.
WAIT_S = 60.0


def catchment(*arguments: str) -> list[str]:
    """A command of Catchment, as a program of its own."""
    return [sys.executable, "-m", "catchment", *arguments]


def done(command: Sequence[str], directory: Path | None = None, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Runs a command to its end."""
    return subprocess.run(
        command, cwd=directory, input=stdin, capture_output=True, text=True, check=False, timeout=WAIT_S
    )


@contextmanager
def started(command: Sequence[str], directory: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    """A command that runs until the block ends."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=directory, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.communicate(timeout=WAIT_S)
            finally:
                process.kill()
