"""Broker processes that start in milliseconds: one process imports everything once, and forks each broker from itself.

Each broker is still a process of its own: it runs what `catchment serve` runs, and can be killed. What it writes goes
to a file beside its configuration.

`python -m tests.live.hosts` reads commands from standard input, a JSON array a line, and answers each with a line:

    ["start", "north.toml"]     the process id
    ["end", 4711, 9]            how that process ended after this signal: 0, an exit code, or minus a signal

At the end of its input it ends all that it has started. Two environment variables tell it more; nothing but this reads
them. MUTANT names a mistake to plant in the brokers (`tests/live/mutants.py`). MODULES names modules, each with a
routing system `SYSTEM` that brokers are to know besides those of the registry.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parent.parent.parent
MUTANT = "CATCHMENT_LIVE_MUTANT"
MODULES = "CATCHMENT_LIVE_MODULES"
# Between attempts to connect. Between machines seconds are right; here a whole run takes a few.
RETRY_S_FIRST, RETRY_S_MOST = 0.02, 0.1


class Hosts:
    """Starts and ends broker processes, with a mistake planted in them if one is named, and with the routing systems of
    some modules."""

    def __init__(self, mutant: str | None = None, modules: Iterable[str] = ()) -> None:
        surroundings = {**os.environ, MUTANT: mutant or "", MODULES: " ".join(modules)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.live.hosts"],
            cwd=ROOT,
            env=surroundings,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, config: Path) -> int:
        return self._ask("start", str(config))

    def end(self, process: int, how: signal.Signals) -> int:
        """Returns when it has ended; how it did."""
        return self._ask("end", process, int(how))

    def _ask(self, *command: Any) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


# --- the process that forks ---------------------------------------------------------------------


@contextmanager
def _prepared() -> Iterator[None]:
    """Everything that a broker would do at its start and on its first notification, done once."""
    from catchment.broker import server
    from catchment.matching.matcher import Matcher
    from catchment.model.filter import Filter
    from catchment.routing.systems import added
    from tests.live import mutants

    server.RETRY_S_FIRST, server.RETRY_S_MOST = RETRY_S_FIRST, RETRY_S_MOST
    matcher = Matcher()
    for i, text in enumerate(("place = 'x' and level > 3", "kind >* 'a' or kind in ('b', 'c')", "place any")):
        matcher.add(i, Filter(text))
    matcher.match({"place": "x", "kind": "a", "level": 4.5})
    matcher.match_batch([{"place": "x"}, {"kind": "a"}])
    if planted := os.environ.get(MUTANT):
        mutants.BROKER_MUTANTS[planted]()
    with ExitStack() as stack:
        for module in os.environ.get(MODULES, "").split():
            stack.enter_context(added(import_module(module).SYSTEM))
        # What is there now is never garbage: no broker need look at it, and its pages stay shared.
        gc.freeze()
        yield


def _started(config: str) -> int:
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        log = os.open(f"{config}.log", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for here, there in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(here, there)
        _serve(Path(config))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _serve(config: Path) -> None:
    from catchment.broker.config import read_config
    from catchment.broker.run import run_broker

    run_broker(read_config(config))


def _ended(process: int, number: int) -> int:
    os.kill(process, number)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def main() -> None:
    # Brokers inherit this at their fork: one that is stopped before it handles signals itself ends as if it had nothing
    # to do.
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(0))
    with _prepared():
        _obey()


def _obey() -> None:
    running: set[int] = set()
    for line in sys.stdin:
        match json.loads(line):
            case ["start", str(config)]:
                answer = _started(config)
                running.add(answer)
            case ["end", int(process), int(number)]:
                answer = _ended(process, number)
                running.discard(process)
            case other:
                raise ValueError(f"{other!r} is no command")
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()
    for process in running:
        _ended(process, signal.SIGKILL)


if __name__ == "__main__":
    main()
