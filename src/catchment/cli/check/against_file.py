"""`catchment check --against`: a verdict on each line of a file of notifications.

A line that is not a notification is a *bad line*. It is reported with its number and the reason, and does not stop
the command.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final

from catchment.cli.check.checked import Judge, Relation, Report
from catchment.cli.check.report import print_report
from catchment.cli.terminal import EXIT_FAILED, BadUsage, complain, console
from catchment.errors import CatchmentError, ParseError
from catchment.model.notification import NOTIFICATION_JSON_CHARACTERS_MAX, Notification

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.text import Text

# The longest line that is read into memory: the longest notification, with four bytes for each character.
LINE_BYTES_MAX: Final = 4 * NOTIFICATION_JSON_CHARACTERS_MAX
# A smaller file is done before anybody could read a progress bar.
PROGRESS_BYTES_MIN: Final = 1_000_000
# Beside a progress bar, this many verdicts are printed together, because each print draws the bar again.
PRINTED_LINES_MIN: Final = 200

STANDARD_INPUT: Final = "-"
MATCH, NO_MATCH, BAD_LINE = "match", "no match", "bad line"
STYLE_BY_VERDICT: Final = {MATCH: "green", NO_MATCH: "yellow", BAD_LINE: "bold red"}
UTF8_MARK: Final = b"\xef\xbb\xbf"


def check_against_file(judge: Judge, relation: Relation | None, path: str, as_json: bool) -> int:
    # The file is opened before anything is printed: a file that does not exist is bad usage.
    with _opened(path) as source:
        print_report(judge, relation, as_json, more_follows=True)
        counts = _print_verdicts(judge, source, as_json)
    matched, not_matched, bad = counts[MATCH], counts[NO_MATCH], counts[BAD_LINE]
    if as_json:
        print(json.dumps({"summary": {"matched": matched, "not_matched": not_matched, "bad": bad}}))
    else:
        print(f"{matched:,} matched, {not_matched:,} did not, {bad:,} bad")
    sys.stdout.flush()
    if bad:
        lines = "1 bad line" if bad == 1 else f"{bad:,} bad lines"
        return complain(f"{lines} in {source.name}: each line must be a notification, as a JSON object", EXIT_FAILED)
    return 0


# --- reading ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Source:
    """An open file of notifications. `size` is 0 if it is unknown, as of a pipe."""

    name: str
    stream: BinaryIO
    size: int


@contextmanager
def _opened(path: str) -> Iterator[Source]:
    if path == STANDARD_INPUT:
        if sys.stdin is None:
            raise BadUsage("--against -: standard input is closed; name a file")
        yield Source("standard input", sys.stdin.buffer, 0)
        return
    try:
        stream = open(path, "rb")  # noqa: SIM115  # closed below: only an error of opening it is bad usage
    except (OSError, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else problem
        raise BadUsage(
            f"--against {path}: {reason}\ngive a file with one JSON object on each line, or - for standard input"
        ) from None
    with stream:
        status = os.fstat(stream.fileno())
        yield Source(path, stream, status.st_size if stat.S_ISREG(status.st_mode) else 0)


def _lines(stream: BinaryIO) -> Iterator[bytes | None]:
    """The lines of a stream. A line longer than LINE_BYTES_MAX is skipped, and None stands for it."""
    # One byte more than the limit, for the line end.
    while line := stream.readline(LINE_BYTES_MAX + 1):
        if len(line) <= LINE_BYTES_MAX or line.endswith(b"\n"):
            yield line
        else:
            while line and not line.endswith(b"\n"):
                line = stream.readline(LINE_BYTES_MAX)
            yield None


def _notification(line: bytes | None) -> Notification:
    """The notification on a line. CatchmentError says why it is not one."""
    if line is None:
        raise CatchmentError(f"longer than {LINE_BYTES_MAX:,} bytes")
    try:
        return Notification.parse(line.rstrip(b"\r\n").decode("utf-8"))
    except UnicodeDecodeError as problem:
        raise CatchmentError(f"byte {problem.start + 1} is 0x{line[problem.start]:02x}: not UTF-8") from None
    except ParseError as problem:
        # The error says "line 1", because it saw only this line. That would contradict the number beside it.
        raise CatchmentError(f"column {problem.column}: not JSON: found {problem.found}") from None


# --- judging ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a line of the file matches: one of MATCH, NO_MATCH and BAD_LINE, and why not."""

    line: int
    word: str
    reason: str = ""
    details: Callable[[], Report] = dict

    def to_json(self) -> Report:
        document: Report = {"line": self.line, "verdict": self.word}
        if self.reason:
            document["reason"] = self.reason
        return document | self.details()

    def __str__(self) -> str:
        return f"{self.line:>6}  {self.word:<8}  {self.reason}".rstrip()

    def to_text(self) -> Text:
        from rich.text import Text

        style = STYLE_BY_VERDICT[self.word]
        return Text.assemble((f"{self.line:>6}  ", "dim"), (f"{self.word:<8}  ", style), self.reason)


def _verdict(judge: Judge, number: int, line: bytes | None) -> Verdict:
    try:
        judgement = judge.judge(_notification(line))
    except CatchmentError as problem:
        return Verdict(number, BAD_LINE, str(problem))
    except RecursionError:
        # JSON that is just shallow enough to be parsed can be too deep to be quoted in an error message.
        return Verdict(number, BAD_LINE, "nesting too deep: a notification is a flat JSON object")
    return Verdict(number, MATCH if judgement.matched else NO_MATCH, judgement.reason, judgement.details)


def _print_verdicts(judge: Judge, source: Source, as_json: bool) -> dict[str, int]:
    """Prints a verdict on each line that is not empty. Returns how many there were of each."""
    counts = dict.fromkeys(STYLE_BY_VERDICT, 0)
    with _printer(source, as_json) as printer:
        for number, line in enumerate(_lines(source.stream), 1):
            if number == 1 and line is not None:
                line = line.removeprefix(UTF8_MARK)  # noqa: PLW2901  # some editors begin a file with it
            if line is None or line.strip():
                verdict = _verdict(judge, number, line)
                counts[verdict.word] += 1
                printer.put(verdict)
            printer.advance(len(line or b""))
    return counts


# --- printing -----------------------------------------------------------------------------------


class _Printer:
    """Prints verdicts to standard output, below them a progress bar if there is one."""

    def __init__(self, as_json: bool, is_live: bool, progress: Progress | None) -> None:
        self._as_json, self._is_live, self._progress = as_json, is_live, progress
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
        if self._is_live:
            sys.stdout.flush()

    def advance(self, size: int) -> None:
        if self._progress is not None:
            self._progress.advance(self._progress.task_ids[0], size)

    def flush(self) -> None:
        from rich.text import Text

        if self._waiting:
            # Only the console that draws the bar knows how to print above it.
            target = self._out if self._progress is None else self._progress.console
            target.print(Text("\n").join(self._waiting), soft_wrap=True)
            self._waiting.clear()


@contextmanager
def _printer(source: Source, as_json: bool) -> Iterator[_Printer]:
    # Somebody may be typing, or following a log: each verdict must appear at once.
    is_live = source.name == "standard input"
    progress = _progress(source.size, as_json)
    if progress is None:
        yield _Printer(as_json, is_live, None)
        return
    with progress:
        progress.add_task(source.name, total=source.size)
        printer = _Printer(as_json, is_live, progress)
        yield printer
        printer.flush()


def _progress(size: int, as_json: bool) -> Progress | None:
    errors, out = console(stderr=True), console()
    # JSON on a terminal is written past the console, which would garble a bar.
    if size < PROGRESS_BYTES_MIN or not errors.is_terminal or (as_json and out.is_terminal):
        return None
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    # Verdicts and the bar on one terminal must go through one console.
    drawn_on = out if out.is_terminal else errors
    return Progress(*columns, console=drawn_on, transient=True, redirect_stdout=False, redirect_stderr=False)
