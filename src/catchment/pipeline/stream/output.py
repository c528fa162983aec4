"""The output of a stream on disk: tables of batches. Each batch is written once, and readers see it whole.

    OUT/matched/$version=3/$batch=12/part-….parquet   rows with the ids that match, by index version and batch
    OUT/late/$version=3/$batch=12/…                   the same for rows that came too late
    OUT/rejects/$version=3/$batch=12/…                rows that are not notifications
    OUT/_batches/0000000012.json                      the record of a batch: its version and counts; written last
    OUT/_schema.json                                  every column ever written
    OUT/_stream.json                                  the stream that writes here
    OUT/_staging/…  OUT/_committed/12/  OUT/_lock     batches on their way to the tables, and the lock

An attempt writes a batch into a directory of its own in `_staging`, under a name that no other attempt has. Then

1. **commit**: that directory, with all tables and the record, is renamed to `_committed/12`. It is one rename, so the
   batch is committed whole or not at all. If an attempt is killed before, what it wrote is garbage.
2. **publish**: each table of the batch is renamed to its place, and the record last. Each step moves something that is
   still there, so any process that finds a committed batch can go on with it, any number of times.

So a batch that is committed, or has a record, is never written again, and no directory that readers see is ever changed
or removed. Spark does not read names that begin with `_`, and no such name is in a table: any program that reads
`OUT/matched` sees whole batches. The tables agree with each other up to the last record.
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

MATCHED_TABLE, LATE_TABLE, REJECTS_TABLE = "matched", "late", "rejects"
# In the order in which they are published: a reader that sees the matched rows of a batch finds its late rows and its
# rejects too.
TABLES: Final = (REJECTS_TABLE, LATE_TABLE, MATCHED_TABLE)
# No attribute begins with `$`, so these columns cannot be mistaken for attributes.
VERSION, BATCH = "$version", "$batch"
_STAGING, _COMMITTED, _BATCHES = "_staging", "_committed", "_batches"
_SCHEMA, _STREAM, _LOCK, _RECORD = "_schema.json", "_stream.json", "_lock", "batch.json"


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """The record of a batch. `time_max` is the latest time in this batch and all before, in microseconds."""

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
    def parse(cls, text: str) -> BatchRecord:
        return cls(**json.loads(text))


class StreamOutput:
    """The directory into which one stream writes its batches, in order."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        text = os.fspath(path).removeprefix("file://")
        if "://" in text:
            raise InputError(
                f"the output of a stream cannot be at {shown(text)}: it needs an atomic rename, so use a path that the "
                "driver and all workers see"
            )
        self.root = Path(text).absolute()

    @property
    def checkpoint(self) -> Path:
        """The directory in which the stream keeps its own state, unless another one is given."""
        return self.root / "_checkpoint"

    def table(self, name: str) -> Path:
        return self.root / name

    # --- one stream, one process at a time ---

    def prepare(self) -> None:
        """Makes the directories, and publishes what a killed process had committed."""
        if self.root.exists() and not self.root.is_dir():
            raise InputError(f"{self.root} is a file: name a directory")
        if self.root.is_dir() and not (self.root / _BATCHES).is_dir() and any(self.root.iterdir()):
            raise InputError(f"{self.root} holds something else: name a new directory, or that of a stream")
        for name in (_BATCHES, _STAGING, _COMMITTED):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        with self.locked():
            self._recover()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the lock of this output; a process that dies gives it up. Raises UnavailableError if another process
        holds it."""
        with (self.root / _LOCK).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UnavailableError(f"another process streams into {self.root}: stop one of them") from None
            yield

    def claim(self, stream: str) -> None:
        """Makes this the output of a stream. Raises InputError if it belongs to another one: each checkpoint numbers
        its batches from 0, so a stream with another checkpoint would take its own batches for written already."""
        path = self.root / _STREAM
        if not path.exists():
            _replace(path, json.dumps({"id": stream}))
        owner = json.loads(path.read_text("utf-8"))["id"]
        if owner != stream:
            raise InputError(
                f"{self.root} belongs to another stream ({owner}, this is {stream}): give the checkpoint that it had, "
                "or a new output"
            )

    def _recover(self) -> None:
        """Publishes committed batches, and deletes attempts that were not committed."""
        for directory in sorted((self.root / _COMMITTED).iterdir()):
            self._publish(directory)
        for directory in (self.root / _STAGING).iterdir():
            shutil.rmtree(directory)

    # --- records ---

    def last_record(self) -> BatchRecord | None:
        """The record of the last batch; None if there is none."""
        names = sorted(path.name for path in (self.root / _BATCHES).glob("*.json"))
        return BatchRecord.parse((self.root / _BATCHES / names[-1]).read_text("utf-8")) if names else None

    def record(self, batch: int) -> BatchRecord | None:
        """The record of this batch; None if it is not published."""
        try:
            return BatchRecord.parse(self._record_path(batch).read_text("utf-8"))
        except FileNotFoundError:
            return None

    def _record_path(self, batch: int) -> Path:
        return self.root / _BATCHES / f"{batch:010}.json"

    # --- schema ---

    def schema_text(self) -> str | None:
        path = self.root / _SCHEMA
        return path.read_text("utf-8") if path.exists() else None

    def write_schema(self, text: str) -> None:
        _replace(self.root / _SCHEMA, text)

    # --- writing ---

    def stage(self, batch: int) -> Path:
        """Makes an empty directory for one attempt at a batch."""
        directory = self.root / _STAGING / f"{batch}-{uuid4().hex}"
        directory.mkdir()
        return directory

    def commit(self, record: BatchRecord, staged: Path) -> None:
        """Commits an attempt: from here on the batch is what was staged. Then publishes it."""
        write_durably(staged / _RECORD, record.text())
        committed = self.root / _COMMITTED / str(record.batch)
        rename_durably(staged, committed)
        self._publish(committed)

    def _publish(self, committed: Path) -> None:
        """Moves a committed batch into the tables. If it is interrupted, it can be run again: what was moved is not
        here any more, and the record moves last."""
        if (committed / _RECORD).exists():
            record = BatchRecord.parse((committed / _RECORD).read_text("utf-8"))
            for name in TABLES:
                if (committed / name).exists():
                    version_directory = self.root / name / f"{VERSION}={record.version}"
                    version_directory.mkdir(parents=True, exist_ok=True)
                    rename_durably(committed / name, version_directory / f"{BATCH}={record.batch}")
            rename_durably(committed / _RECORD, self._record_path(record.batch))
        shutil.rmtree(committed)


# --- files --------------------------------------------------------------------------------------


def _replace(path: Path, text: str) -> None:
    """Writes a file that readers see whole or not at all."""
    new = path.with_name(f".{path.name}.{uuid4().hex[:8]}")
    write_durably(new, text)
    new.replace(path)
    sync_directory(path.parent)


def rename_durably(source: Path, target: Path) -> None:
    source.rename(target)
    sync_directory(target.parent)


def sync_directory(directory: Path) -> None:
    """Returns when the names in a directory are on disk: a rename alone may still be in the kernel's memory."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_output(path: str | os.PathLike[str]) -> tuple[StreamOutput, BatchRecord | None, dict[str, Any]]:
    """The output at a path, the record of its last batch, and its schema as Spark's JSON. Raises InputError if no
    stream has written there."""
    output = StreamOutput(path)
    schema = output.schema_text()
    if schema is None or not (output.root / _BATCHES).is_dir():
        raise InputError(
            f"{output.root} is not the output of a stream: it has no {_SCHEMA}; write one with catchment stream"
        )
    return output, output.last_record(), json.loads(schema)
