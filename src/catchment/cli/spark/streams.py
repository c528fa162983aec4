"""What the commands that stream share: stopping on Ctrl-C, waiting for a query, progress batch by batch."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from catchment.cli.terminal import console

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from rich.status import Status

    from catchment.pipeline.stream.output import BatchRecord

WAITING: Final = "waiting for files; press Ctrl-C to stop"
_POLL_SECONDS: Final = 1


@contextmanager
def stop_on_interrupt() -> Iterator[Event]:
    """The first Ctrl-C sets the event that this gives. The second one ends the command at once."""
    is_interrupted = Event()

    def on_interrupt(*_: object) -> None:
        if is_interrupted.is_set():
            raise KeyboardInterrupt
        is_interrupted.set()

    earlier_handler = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield is_interrupted
    finally:
        signal.signal(signal.SIGINT, earlier_handler)


def wait_for(query: StreamingQuery, is_interrupted: Event, progress: BatchProgress | None = None) -> None:
    """Waits until the query ends. After an interrupt it stops the query as soon as the present batch is finished.

    Spark may begin another batch meanwhile. That one is dropped, and is done when the stream is started again.
    """
    from pyspark.errors import StreamingQueryException

    batches_at_interrupt = None
    try:
        while not query.awaitTermination(_POLL_SECONDS):
            if not is_interrupted.is_set():
                continue
            if batches_at_interrupt is None:
                batches_at_interrupt = _batches_done(progress)
                if progress is not None:
                    progress.stopping()
            # A batch more than at the interrupt: the one that ran then is finished. Or no batch runs at all.
            if _batches_done(progress) > batches_at_interrupt or not query.status["isTriggerActive"]:
                query.stop()
                return
    except StreamingQueryException as problem:
        raise _cause(problem) from None


def _batches_done(progress: BatchProgress | None) -> int:
    return 0 if progress is None else progress.batches


def _cause(problem: Exception) -> Exception:
    """An error that we raised while handling a batch reaches us as text inside an error of Spark: takes it out."""
    from catchment import errors

    for line in str(problem).splitlines():
        qualified_name, _, message = line.strip().partition(": ")
        name = qualified_name.removeprefix("catchment.errors.")
        if name != qualified_name and issubclass(getattr(errors, name, Exception), errors.CatchmentError):
            return errors.UnavailableError(f"the stream stopped: {message}")
    return problem


class BatchProgress:
    """Call it with each batch. On a terminal it keeps one line up to date; elsewhere it writes a line for each batch;
    with --json it prints a document for each batch."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._status: Status | None = None
        self.batches = 0
        self._totals = dict.fromkeys(("notifications", "matched", "matches", "rejected", "late"), 0)
        self._version: int | None = None
        self._start_s = monotonic()

    def __enter__(self) -> BatchProgress:
        errors = console(stderr=True)
        if errors.is_terminal and not self._as_json:
            self._status = errors.status("starting the stream")
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def __call__(self, batch: BatchRecord) -> None:
        counts = asdict(batch)
        self.batches += 1
        self._version = batch.version
        for name in self._totals:
            self._totals[name] += counts[name]
        if self._as_json:
            print(json.dumps({"batch": counts}), flush=True)
        self._say(self._line())

    def started(self) -> None:
        self._start_s = monotonic()
        self._say(WAITING)

    def stopping(self) -> None:
        self._say("stopping after this batch")

    def _say(self, line: str) -> None:
        if self._status is not None:
            self._status.update(line)
        elif not self._as_json:
            sys.stderr.write(f"{line}\n")

    def _line(self) -> str:
        rate = self._totals["notifications"] / max(monotonic() - self._start_s, 1e-3)
        parts = [
            _counted(self.batches),
            f"{self._totals['notifications']:,} notifications, {rate:,.0f}/s",
            f"{self._totals['matched']:,} matched",
            *(f"{self._totals[name]:,} {name}" for name in ("rejected", "late") if self._totals[name]),
            f"index version {self._version}",
        ]
        return ", ".join(parts)

    def print_summary(self, output: str) -> None:
        totals: dict[str, Any] = {"batches": self.batches, **self._totals, "version": self._version, "output": output}
        if self._as_json:
            print(json.dumps({"summary": totals}))
            return
        print(f"{_counted(self.batches)}, {self._totals['notifications']:,} notifications")
        print(f"{self._totals['matched']:,} matched, {self._totals['matches']:,} matches")
        for name, table in (("rejected", "rejects"), ("late", "late")):
            if self._totals[name]:
                print(f"{self._totals[name]:,} {name}: see {Path(output) / table}")
        print(f"written to {Path(output) / 'matched'}")


def _counted(batches: int) -> str:
    return "1 batch" if batches == 1 else f"{batches:,} batches"
