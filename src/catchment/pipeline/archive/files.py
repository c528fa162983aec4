"""The files of an archive: days, schema, and compaction that a reader sees whole or not at all.

    ARCHIVE/_schema.json                    every column ever archived, as Spark writes a schema
    ARCHIVE/$day=2026-11-15/part-….parquet  the notifications of one UTC day
    ARCHIVE/$day=undated/part-….parquet     those without $time
    ARCHIVE/_compacted/TOKEN/*.parquet      written by a compaction that has not moved them yet
    ARCHIVE/_compacted/TOKEN.json           its record: the day, the files that go, the files that come

The record is the commit. Until it stands, the old files are the day; afterwards the new ones are, wherever
they lie: a reader that finds any of them in the day leaves out the old ones and takes the rest from where
they were written. Whoever compacts next completes what a killed compaction left. Spark skips names that
begin with `_`, so other programs can read the archive too; they see a day twice for the moment between the
first move and the last deletion.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

from pyarrow import fs

from catchment.errors import InputError
from catchment.pipeline.paths import file_system

# The `$` keeps it apart from every attribute: notifications may well have one called `day`.
DAY: Final = "$day"
UNDATED: Final = "undated"
_SCHEMA: Final = "_schema.json"
_COMPACTED: Final = "_compacted"


@dataclass(frozen=True, slots=True)
class File:
    name: str
    path: str
    size: int


@dataclass(frozen=True, slots=True)
class Compaction:
    """The record of one: in `day`, `new` takes the place of `old`."""

    token: str
    day: str
    old: tuple[str, ...]
    new: tuple[str, ...]

    def text(self) -> str:
        return json.dumps({"day": self.day, "old": self.old, "new": self.new})

    @classmethod
    def parse(cls, token: str, text: str) -> Compaction:
        found = json.loads(text)
        return cls(token, found["day"], tuple(found["old"]), tuple(found["new"]))


class Place:
    """Where an archive lies: a directory, or an address that pyarrow knows (s3://…, hdfs://…)."""

    def __init__(self, path: str) -> None:
        self._shown = path
        # Spark must not take a local path for one on the cluster's default file system.
        self._scheme = path.split("://", 1)[0] + "://" if "://" in path else "file://"
        self._fs, self._root = file_system(path)

    def uri(self, path: str) -> str:
        return self._scheme + path

    @property
    def root_uri(self) -> str:
        return self.uri(self._root)

    # --- schema ---

    def schema_text(self) -> str | None:
        """The declared schema; None where nothing was archived yet."""
        return self._read(f"{self._root}/{_SCHEMA}")

    def needed_schema_text(self) -> str:
        found = self.schema_text()
        if found is None:
            raise InputError(f"{self._shown} is not an archive: it has no {_SCHEMA}; write one with pipeline.archive")
        return found

    def write_schema(self, text: str) -> None:
        self._fs.create_dir(self._root, recursive=True)
        self._write(f"{self._root}/{_SCHEMA}", text)

    # --- days ---

    def days(self, first: date | None = None, last: date | None = None) -> list[str]:
        """The days that are there, within bounds; rows without a time are in none of them."""
        prefix = f"{DAY}="
        names = [info.base_name for info in self._listed(self._root)]
        found = sorted(name.removeprefix(prefix) for name in names if name.startswith(prefix))
        if first is None and last is None:
            return found
        low, high = (first or date.min).isoformat(), (last or date.max).isoformat()
        return [day for day in found if day != UNDATED and low <= day <= high]

    def files(self, days: Iterable[str]) -> list[File]:
        """The files that hold these days, each notification in one of them."""
        listed = {day: self._day_files(day) for day in days}
        # Records are read after the days: whatever a compaction moved before, its record is still there.
        for compaction in self.compactions():
            if compaction.day in listed:
                listed[compaction.day] = self._applied(compaction, listed[compaction.day])
        return [file for files in listed.values() for file in files]

    def _applied(self, compaction: Compaction, files: list[File]) -> list[File]:
        here = {file.name for file in files}
        if not here.intersection(compaction.new):
            return files
        kept = [file for file in files if file.name not in compaction.old]
        staged = [file for file in self.staged(compaction.token) if file.name not in here]
        return kept + staged

    def _day_files(self, day: str) -> list[File]:
        return self._parquet(f"{self._root}/{DAY}={day}")

    # --- compaction ---

    def token(self, day: str, files: Iterable[File]) -> str:
        """A name for the compaction of these files: the same for the same work, so a retry replaces its own."""
        names = "\n".join([day, *sorted(file.name for file in files)])
        return f"{day}-{hashlib.sha256(names.encode()).hexdigest()[:16]}"

    def staging_uri(self, token: str) -> str:
        return self.uri(self._staging(token))

    def staged(self, token: str) -> list[File]:
        return self._parquet(self._staging(token))

    def commit(self, compaction: Compaction) -> None:
        self._write(f"{self._root}/{_COMPACTED}/{compaction.token}.json", compaction.text())

    def finish(self, compaction: Compaction) -> None:
        """Moves the new files in, deletes the old; may be run again at any point."""
        home = f"{self._root}/{DAY}={compaction.day}"
        for file in self.staged(compaction.token):
            self._fs.move(file.path, f"{home}/{file.name}")
        for file in self._day_files(compaction.day):
            if file.name in compaction.old:
                self._fs.delete_file(file.path)
        self._drop_staging(compaction.token)

    def tidy(self) -> None:
        """Completes compactions that were committed, forgets them, and drops those that were not."""
        for compaction in self.compactions():
            self.finish(compaction)
            self._fs.delete_file(f"{self._root}/{_COMPACTED}/{compaction.token}.json")
        for info in self._listed(f"{self._root}/{_COMPACTED}"):
            if info.type == fs.FileType.Directory:
                self._fs.delete_dir(info.path)

    def compactions(self) -> Iterator[Compaction]:
        for info in self._listed(f"{self._root}/{_COMPACTED}"):
            if info.extension == "json" and (text := self._read(info.path)) is not None:
                yield Compaction.parse(info.base_name.removesuffix(".json"), text)

    def _staging(self, token: str) -> str:
        return f"{self._root}/{_COMPACTED}/{token}"

    def _drop_staging(self, token: str) -> None:
        if self._fs.get_file_info(self._staging(token)).type == fs.FileType.Directory:
            self._fs.delete_dir(self._staging(token))

    # --- the file system ---

    def _listed(self, path: str) -> list[Any]:
        found: list[Any] = self._fs.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return sorted(found, key=lambda info: info.path)

    def _parquet(self, path: str) -> list[File]:
        infos = self._listed(path)
        return [File(one.base_name, one.path, one.size) for one in infos if one.extension == "parquet"]

    def _read(self, path: str) -> str | None:
        try:
            with self._fs.open_input_stream(path) as stream:
                return str(stream.read().decode("utf-8"))
        except FileNotFoundError:
            return None

    def _write(self, path: str, text: str) -> None:
        """Whole or not at all: written beside, then moved over."""
        with self._fs.open_output_stream(f"{path}.writing") as stream:
            stream.write(text.encode("utf-8"))
        self._fs.move(f"{path}.writing", path)
