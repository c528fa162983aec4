"""The output of a stream on disk: tables of batches, each batch written once and seen whole.

    OUT/matched/$version=3/$batch=12/part-….parquet   rows with the ids that match, by index version and batch
    OUT/late/$version=3/$batch=12/…                   the same of rows that came too late
    OUT/rejects/$version=3/$batch=12/…                the dead letters: what is no notification
    OUT/_batches/0000000012.json                      the record of a batch: its version and counts; comes last
    OUT/_schema.json                                  every column ever written
    OUT/_stream.json                                  the stream that writes here
    OUT/_staging/…  OUT/_committed/12/  OUT/_lock     on the way to the above

A batch is written to a directory of its own in `_staging`, under a name that no other attempt has. Then

1. **commit**: that directory, with all tables and the record, is renamed to `_committed/12`. One rename, so a batch
   is committed whole or not at all; what an attempt wrote that was killed before is garbage.
2. **publish**: each table of it is renamed to its place, and the record last. Every step is a rename of something
   that is still there, so whoever finds a committed batch can go on with it, any number of times.

So a batch of which there is a record, or which is committed, is never written again, and no directory that readers
see is ever changed or taken away. Names that begin with `_` are not read by Spark, nor are they in a table: any
program that reads `OUT/matched` sees whole batches. Tables agree with each other up to the last record.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from catchment.errors import InputError, UnavailableError, shown
from catchment.pipeline.paths import write_durably

MATCHED, LATE, REJECTS = "matched", "late", "rejects"
# In the order they are published: whoever sees the rows of a batch finds what was set apart from them too.
TABLES: Final = (REJECTS, LATE, MATCHED)
# The `$` keeps them apart from every attribute.
VERSION, BATCH = "$version", "$batch"
_STAGING, _COMMITTED, _BATCHES = "_staging", "_committed", "_batches"
_SCHEMA, _STREAM, _LOCK, _RECORD = "_schema.json", "_stream.json", "_lock", "batch.json"


@dataclass(frozen=True, slots=True)
class Batch:
    """The record of a batch. `time_max` is the latest time of this batch and those before, in microseconds."""

    batch: int
    version: int
    notifications: int = 0
    matched: int = 0
    matches: int = 0
    rejected: int = 0
    late: int = 0
    time_max: int | None = None

    def text(self) -> str:
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def parse(cls, text: str) -> Batch:
        return cls(**json.loads(text))


class Output:
    """Where one stream writes its batches, in order."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        text = os.fspath(path).removeprefix("file://")
        if "://" in text:
            raise InputError(
                f"{shown(text)} is no place for the output of a stream: it needs a rename that is atomic, so use a "
                "path that the driver and all workers see"
            )
        self.root = Path(text).absolute()

    @property
    def checkpoint(self) -> Path:
        """Where the stream keeps its own state unless told otherwise."""
        return self.root / "_checkpoint"

    def table(self, name: str) -> Path:
        return self.root / name

    # --- one stream, one process at a time ---

    def prepare(self) -> None:
        """Makes the directories, and completes what a killed process left."""
        if self.root.exists() and not self.root.is_dir():
            raise InputError(f"{self.root} is a file: name a directory")
        if self.root.is_dir() and not (self.root / _BATCHES).is_dir() and any(self.root.iterdir()):
            raise InputError(f"{self.root} holds something else: name a new directory, or that of a stream")
        for name in (_BATCHES, _STAGING, _COMMITTED):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        with self.turn():
            self._recover()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """One process at a time; a process that dies gives it up."""
        with (self.root / _LOCK).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UnavailableError(f"another process streams into {self.root}: stop one of them") from None
            yield

    def claim(self, stream: str) -> None:
        """Batches are numbered by a stream: one with another checkpoint would find its own already written."""
        path = self.root / _STREAM
        if not path.exists():
            _replace(path, json.dumps({"id": stream}))
        found = json.loads(path.read_text("utf-8"))["id"]
        if found != stream:
            raise InputError(
                f"{self.root} belongs to another stream ({found}, this is {stream}): give the checkpoint that it had, "
                "or a new output"
            )

    def _recover(self) -> None:
        for directory in sorted((self.root / _COMMITTED).iterdir()):
            self._publish(directory)
        for directory in (self.root / _STAGING).iterdir():
            shutil.rmtree(directory)

    # --- records ---

    def last(self) -> Batch | None:
        """The last batch there is a record of."""
        names = sorted(one.name for one in (self.root / _BATCHES).glob("*.json"))
        return Batch.parse((self.root / _BATCHES / names[-1]).read_text("utf-8")) if names else None

    def record(self, batch: int) -> Batch | None:
        try:
            return Batch.parse(self._record(batch).read_text("utf-8"))
        except FileNotFoundError:
            return None

    def _record(self, batch: int) -> Path:
        return self.root / _BATCHES / f"{batch:010}.json"

    # --- schema ---

    def schema_text(self) -> str | None:
        path = self.root / _SCHEMA
        return path.read_text("utf-8") if path.exists() else None

    def write_schema(self, text: str) -> None:
        _replace(self.root / _SCHEMA, text)

    # --- writing ---

    def stage(self, batch: int) -> Path:
        """An empty directory for one attempt at a batch."""
        found = self.root / _STAGING / f"{batch}-{uuid4().hex}"
        found.mkdir()
        return found

    def commit(self, record: Batch, staged: Path) -> None:
        """From here on the batch is what was staged; then readers see it."""
        write_durably(staged / _RECORD, record.text())
        committed = self.root / _COMMITTED / str(record.batch)
        _rename(staged, committed)
        self._publish(committed)

    def _publish(self, committed: Path) -> None:
        """May be begun again at any point: what was moved is not there any more, and the record goes last."""
        if (committed / _RECORD).exists():
            record = Batch.parse((committed / _RECORD).read_text("utf-8"))
            for name in TABLES:
                if (committed / name).exists():
                    home = self.root / name / f"{VERSION}={record.version}"
                    home.mkdir(parents=True, exist_ok=True)
                    _rename(committed / name, home / f"{BATCH}={record.batch}")
            _rename(committed / _RECORD, self._record(record.batch))
        shutil.rmtree(committed)


# --- files --------------------------------------------------------------------------------------


def _replace(path: Path, text: str) -> None:
    """Whole or not at all."""
    fresh = path.with_name(f".{path.name}.{uuid4().hex[:8]}")
    write_durably(fresh, text)
    fresh.replace(path)
    _settle(path.parent)


def _rename(source: Path, target: Path) -> None:
    source.rename(target)
    _settle(target.parent)


def _settle(directory: Path) -> None:
    """Names in a directory are on disk, not only in the kernel's memory."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def recorded(path: str | os.PathLike[str]) -> tuple[Output, Batch | None, dict[str, Any]]:
    """The output at a path, its last batch, and its schema as Spark's JSON; InputError where there is none."""
    output = Output(path)
    schema = output.schema_text()
    if schema is None or not (output.root / _BATCHES).is_dir():
        raise InputError(
            f"{output.root} is no output of a stream: it has no {_SCHEMA}; write one with catchment stream"
        )
    return output, output.last(), json.loads(schema)
