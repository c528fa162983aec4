"""`catchment check --against`: each notification of a JSON Lines file, judged.

A line that is no notification is a bad line: reported with its number and reason, and passed over.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final

from catchment.cli.subjects import Judge, Report
from catchment.cli.terminal import EXIT_FAILED, BadUsage, complain, console
from catchment.errors import CatchmentError, ParseError
from catchment.model.notification import NOTIFICATION_JSON_CHARACTERS_MAX, Notification

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.text import Text

# The longest line held in memory: the longest notification, every character of it four bytes.
LINE_BYTES_MAX: Final = 4 * NOTIFICATION_JSON_CHARACTERS_MAX
# A smaller file is done before a bar can be read.
PROGRESS_BYTES_MIN: Final = 1_000_000
# On a terminal with a bar, verdicts are printed this many at a time: the bar is drawn anew after each print.
PRINTED_LINES_MIN: Final = 200

STANDARD_INPUT: Final = "-"
VERDICTS: Final = {"match": "green", "no match": "yellow", "bad line": "bold red"}


@dataclass(frozen=True, slots=True)
class Source:
    """An opened file of notifications; `size` is 0 where it has none."""

    name: str
    stream: BinaryIO
    size: int


@contextmanager
def opened(path: str) -> Iterator[Source]:
    if path == STANDARD_INPUT:
        if sys.stdin is None:
            raise BadUsage("--against -: standard input is closed")
        yield Source("standard input", sys.stdin.buffer, 0)
        return
    try:
        stream = open(path, "rb")  # noqa: SIM115  # closed below; only opening it may be bad usage
    except (OSError, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else problem
        raise BadUsage(
            f"--against {path}: {reason}\ngive a file with one JSON object on each line, or - for standard input"
        ) from None
    with stream:
        found = os.fstat(stream.fileno())
        yield Source(path, stream, found.st_size if stat.S_ISREG(found.st_mode) else 0)


# --- reading ------------------------------------------------------------------------------------


def lines_of(stream: BinaryIO) -> Iterator[bytes | None]:
    """The lines; None for one past LINE_BYTES_MAX, of which the rest is skipped."""
    while line := stream.readline(LINE_BYTES_MAX + 1):
        if len(line) <= LINE_BYTES_MAX or line.endswith(b"\n"):
            yield line
        else:
            while line and not line.endswith(b"\n"):
                line = stream.readline(LINE_BYTES_MAX)
            yield None


def notification_of(line: bytes | None) -> Notification:
    """The notification on a line; CatchmentError says why there is none."""
    if line is None:
        raise CatchmentError(f"longer than {LINE_BYTES_MAX:,} bytes")
    try:
        return Notification.parse(line.rstrip(b"\r\n").decode("utf-8"))
    except UnicodeDecodeError as problem:
        raise CatchmentError(f"byte {problem.start + 1} is 0x{line[problem.start]:02x}: not UTF-8") from None
    except ParseError as problem:
        # Its own line number would be 1 always, beside the real one.
        raise CatchmentError(f"column {problem.column}: not JSON: found {problem.found}") from None


# --- judging ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verdict:
    """On one line of the file."""

    line: int
    word: str
    reason: str = ""
    details: Callable[[], Report] = dict

    def to_json(self) -> Report:
        found: Report = {"line": self.line, "verdict": self.word}
        if self.reason:
            found["reason"] = self.reason
        return found | self.details()

    def __str__(self) -> str:
        return f"{self.line:>6}  {self.word:<8}  {self.reason}".rstrip()

    def to_text(self) -> Text:
        from rich.text import Text

        return Text.assemble((f"{self.line:>6}  ", "dim"), (f"{self.word:<8}  ", VERDICTS[self.word]), self.reason)


def verdict_on(subject: Judge, number: int, line: bytes | None) -> Verdict:
    try:
        judgement = subject.judge(notification_of(line))
    except CatchmentError as problem:
        return Verdict(number, "bad line", str(problem))
    except RecursionError:  # JSON just shallow enough to parse may be too deep to be quoted in a complaint
        return Verdict(number, "bad line", "nesting too deep: a notification is a flat JSON object")
    return Verdict(number, "match" if judgement.matched else "no match", judgement.reason, judgement.details)


def run_against(subject: Judge, source: Source, as_json: bool) -> int:
    counts = dict.fromkeys(VERDICTS, 0)
    with _printer(source, as_json) as printer:
        for number, line in enumerate(lines_of(source.stream), 1):
            if number == 1 and line is not None:
                line = line.removeprefix(b"\xef\xbb\xbf")  # noqa: PLW2901  # some editors mark UTF-8 so
            if line is None or line.strip():
                verdict = verdict_on(subject, number, line)
                counts[verdict.word] += 1
                printer.put(verdict)
            printer.advance(len(line or b""))
    return _summary(Counter(counts), source, as_json)


def _summary(counts: Counter[str], source: Source, as_json: bool) -> int:
    matched, unmatched, bad = (counts[word] for word in VERDICTS)
    if as_json:
        print(json.dumps({"summary": {"matched": matched, "not_matched": unmatched, "bad": bad}}))
    else:
        print(f"{matched:,} matched, {unmatched:,} did not, {bad:,} bad")
    sys.stdout.flush()
    if bad:
        lines = "1 bad line" if bad == 1 else f"{bad:,} bad lines"
        return complain(f"{lines} in {source.name}: each must be one JSON object, a notification", EXIT_FAILED)
    return 0


# --- printing -----------------------------------------------------------------------------------


class _Printer:
    """Verdicts on standard output; with a progress bar where there is one to see."""

    def __init__(self, as_json: bool, live: bool, progress: Progress | None) -> None:
        self._as_json, self._live, self._progress = as_json, live, progress
        self._out = console()
        self._is_plain = not self._out.is_terminal
        self._waiting: list[Text] = []

    def put(self, verdict: Verdict) -> None:
        if self._as_json:
            sys.stdout.write(json.dumps(verdict.to_json(), allow_nan=False) + "\n")
        elif self._is_plain:
            sys.stdout.write(f"{verdict}\n")
        else:
            self._waiting.append(verdict.to_text())
            if self._progress is None or len(self._waiting) >= PRINTED_LINES_MIN:
                self.flush()
        if self._live:
            sys.stdout.flush()

    def advance(self, size: int) -> None:
        if self._progress is not None:
            self._progress.advance(self._progress.task_ids[0], size)

    def flush(self) -> None:
        from rich.text import Text

        if self._waiting:
            # Through the console that draws the bar, which then moves down.
            shown = self._out if self._progress is None else self._progress.console
            shown.print(Text("\n").join(self._waiting), soft_wrap=True)
            self._waiting.clear()


@contextmanager
def _printer(source: Source, as_json: bool) -> Iterator[_Printer]:
    live = source.name == "standard input"  # someone may be typing, or following a log
    progress = _progress(source.size, as_json)
    if progress is None:
        yield _Printer(as_json, live, None)
        return
    with progress:
        progress.add_task(source.name, total=source.size)
        printer = _Printer(as_json, live, progress)
        yield printer
        printer.flush()


def _progress(size: int, as_json: bool) -> Progress | None:
    shown, out = console(stderr=True), console()
    if size < PROGRESS_BYTES_MIN or not shown.is_terminal or (as_json and out.is_terminal):
        return None
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    # Verdicts that go to the same terminal must pass through the same console.
    drawn = out if out.is_terminal else shown
    return Progress(*columns, console=drawn, transient=True, redirect_stdout=False, redirect_stderr=False)
