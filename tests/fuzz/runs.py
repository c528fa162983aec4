"""Runs of the fuzzer: each from its seed. What goes wrong is an exception, an error in a log, a filter over its budget,
or memory that grows."""

from __future__ import annotations

import asyncio
import logging
import resource
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fuzz import filters
from tests.fuzz.frames import Fuzzer
from tests.fuzz.requests import HttpFuzzer

# By kind, how many a run makes, and how many a soak makes.
SIZES = {"frames": 5_000, "filters": 200, "requests": 250}
SOAK_COUNTS = {"frames": 1_000_000, "filters": 100_000, "requests": 50_000}
# The beginning of what was tried last. All of it comes again from the seed.
SHOWN_MAX = 400
# After its first runs of a kind a process may grow by so much: answers are cached.
SETTLING_RUNS = 10
GROWTH_BYTES_MAX = 64 * 1_048_576

_resident_after: dict[str, tuple[int, int]] = {}


@dataclass(frozen=True)
class FuzzRun:
    kind: str
    seed: int
    count: int = 0

    def __str__(self) -> str:
        return f"./dev soak --fuzz {self.kind} --seed {self.seed}"


@dataclass(frozen=True)
class FuzzOutcome:
    run: FuzzRun
    violation: str | None = None

    def __str__(self) -> str:
        return f"{self.run}\n{self.violation}"


class Errors(logging.Handler):
    """What was logged as an error: a bug that somebody has caught."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        trace = "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else ""
        self.messages.append(f"{record.name}: {record.getMessage()}\n{trace}")


def runs_of(counts: dict[str, int], first_seed: int) -> list[FuzzRun]:
    """As many runs of each kind as make so many frames, filters and requests."""
    return [
        FuzzRun(kind, seed, SIZES[kind])
        for kind, count in counts.items()
        for seed in range(first_seed, first_seed + -(-count // SIZES[kind]))
    ]


def outcome_of(run: FuzzRun) -> FuzzOutcome:
    count = run.count or SIZES[run.kind]
    last: list[Any] = [0, None]
    errors = Errors()
    logging.getLogger().addHandler(errors)
    ours = logging.getLogger("catchment")
    level = ours.level
    ours.setLevel(logging.ERROR)
    try:
        if run.kind == "filters":
            _exhausted(filters.fuzzed(run.seed, count), last)
        else:
            asyncio.run(_played(run, count, last, errors))
    except BaseException as problem:  # also what a bug may raise that is no Exception
        if isinstance(problem, KeyboardInterrupt | SystemExit):
            raise
        return FuzzOutcome(run, f"number {last[0]}: {_shown(last[1])}\n{traceback.format_exc()}")
    finally:
        logging.getLogger().removeHandler(errors)
        ours.setLevel(level)  # tests that come after this one read the log
    if errors.messages:
        return FuzzOutcome(run, f"number {last[0]} or before it: {_shown(last[1])}\n{errors.messages[0]}")
    return FuzzOutcome(run, _growth(run.kind))


def _exhausted(tries: Iterator[Any], last: list[Any]) -> None:
    for number, tried in enumerate(tries, 1):
        last[:] = number, tried


async def _played(run: FuzzRun, count: int, last: list[Any], errors: Errors) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: errors.messages.append(_told(context)))
    played: Any = Fuzzer(run.seed).frames(count) if run.kind == "frames" else HttpFuzzer(run.seed).requests(count)
    number = 0
    async for tried in played:
        number += 1
        last[:] = number, tried
        if errors.messages:
            break


def _told(context: dict[str, Any]) -> str:
    problem = context.get("exception")
    trace = "".join(traceback.format_exception(problem)) if problem is not None else ""
    return f"{context['message']}\n{trace}"


def _shown(tried: object) -> str:
    return repr(tried[:SHOWN_MAX]) if isinstance(tried, bytes) else str(tried)[:SHOWN_MAX]


def _growth(kind: str) -> str | None:
    """Whether this process has grown since its first runs of a kind."""
    runs, first = _resident_after.get(kind, (0, 0))
    now = resident()
    _resident_after[kind] = (runs + 1, now if runs < SETTLING_RUNS else first)
    if runs >= SETTLING_RUNS and now - first > GROWTH_BYTES_MAX:
        return f"the resident size has grown from {first:,} to {now:,} bytes in {runs} runs of this process"
    return None


def resident() -> int:
    try:
        return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024
