"""The files of an archive: its days, its schema, and its compactions, which a reader sees whole or not at all.

    ARCHIVE/_schema.json                    every column ever archived, as Spark writes a schema
    ARCHIVE/$day=2026-11-15/part-….parquet  the notifications of one UTC day
    ARCHIVE/$day=undated/part-….parquet     those without $time
    ARCHIVE/_compacted/TOKEN/*.parquet      new files of a compaction, not yet moved into their day
    ARCHIVE/_compacted/TOKEN.json           its record: the day, the old files, the new files

The record is the commit. Before it exists, the old files hold the day. Afterwards the new files hold it, wherever they
are: a reader that finds any new file in the day leaves out the old files, and takes the other new files from
`_compacted`. If a compaction is killed, the next one completes it. Spark skips names that begin with `_`, so other
programs can read the archive too; such a program may see notifications of a day twice while a compaction moves its
files, from the first move to the last deletion.
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

# No attribute begins with `$`, so this column cannot be mistaken for an attribute called `day`.
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
    """The record of a compaction: in `day`, the files `new` replace the files `old`."""

    token: str
    day: str
    old: tuple[str, ...]
    new: tuple[str, ...]

    def text(self) -> str:
        return json.dumps({"day": self.day, "old": self.old, "new": self.new})

    @classmethod
    def parse(cls, token: str, text: str) -> Compaction:
        record = json.loads(text)
        return cls(token, record["day"], tuple(record["old"]), tuple(record["new"]))


class Archive:
    """The files of an archive in a directory, or at an address that pyarrow knows (s3://…, hdfs://…)."""

    def __init__(self, path: str) -> None:
        self._path = path
        # Spark would take a path without a scheme for one on the cluster's default file system.
        self._scheme = path.split("://", 1)[0] + "://" if "://" in path else "file://"
        self._fs, self._root = file_system(path)

    def uri(self, path: str) -> str:
        return self._scheme + path

    @property
    def root_uri(self) -> str:
        return self.uri(self._root)

    # --- schema ---

    def schema_text(self) -> str | None:
        """The schema as Spark's JSON; None where nothing was archived yet."""
        return self._read(f"{self._root}/{_SCHEMA}")

    def required_schema_text(self) -> str:
        """The schema as Spark's JSON; raises InputError where nothing was archived yet."""
        text = self.schema_text()
        if text is None:
            raise InputError(f"{self._path} is not an archive: it has no {_SCHEMA}; write one with catchment archive")
        return text

    def write_schema(self, text: str) -> None:
        self._fs.create_dir(self._root, recursive=True)
        self._write(f"{self._root}/{_SCHEMA}", text)

    # --- days ---

    def days(self, first: date | None = None, last: date | None = None) -> list[str]:
        """The days of the archive from `first` to `last`. UNDATED is one of them only if neither is given."""
        prefix = f"{DAY}="
        names = [info.base_name for info in self._listed(self._root)]
        days = sorted(name.removeprefix(prefix) for name in names if name.startswith(prefix))
        if first is None and last is None:
            return days
        low, high = (first or date.min).isoformat(), (last or date.max).isoformat()
        return [day for day in days if day != UNDATED and low <= day <= high]

    def files(self, days: Iterable[str]) -> list[File]:
        """The files that hold these days; each notification is in exactly one of them."""
        listed = {day: self._day_files(day) for day in days}
        # Records are read after the days. If a compaction had already moved files when a day was listed, its record
        # was written before, and is found now.
        for compaction in self.compactions():
            if compaction.day in listed:
                listed[compaction.day] = self._applied(compaction, listed[compaction.day])
        return [file for files in listed.values() for file in files]

    def _applied(self, compaction: Compaction, files: list[File]) -> list[File]:
        """The files of a day, given those in its directory, after a compaction that may be half done."""
        names = {file.name for file in files}
        if not names.intersection(compaction.new):
            return files  # no new file was there when the day was listed: the old ones are all there
        kept = [file for file in files if file.name not in compaction.old]
        staged = [file for file in self.staged(compaction.token) if file.name not in names]
        return kept + staged

    def _day_files(self, day: str) -> list[File]:
        return self._parquet(f"{self._root}/{DAY}={day}")

    # --- compaction ---

    def token(self, day: str, files: Iterable[File]) -> str:
        """The name of the compaction of these files. It depends on the files alone, so a retry overwrites what the
        failed attempt left."""
        names = "\n".join([day, *sorted(file.name for file in files)])
        return f"{day}-{hashlib.sha256(names.encode()).hexdigest()[:16]}"

    def staging_uri(self, token: str) -> str:
        return self.uri(self._staging(token))

    def staged(self, token: str) -> list[File]:
        return self._parquet(self._staging(token))

    def commit(self, compaction: Compaction) -> None:
        self._write(f"{self._root}/{_COMPACTED}/{compaction.token}.json", compaction.text())

    def finish(self, compaction: Compaction) -> None:
        """Moves the new files into the day and deletes the old ones. If it is interrupted, run it again."""
        directory = f"{self._root}/{DAY}={compaction.day}"
        for file in self.staged(compaction.token):
            self._fs.move(file.path, f"{directory}/{file.name}")
        for file in self._day_files(compaction.day):
            if file.name in compaction.old:
                self._fs.delete_file(file.path)
        self._drop_staging(compaction.token)

    def recover(self) -> None:
        """Completes the compactions that were committed, deletes their records, and drops those that were not
        committed."""
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
        infos: list[Any] = self._fs.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return sorted(infos, key=lambda info: info.path)

    def _parquet(self, path: str) -> list[File]:
        infos = self._listed(path)
        return [File(info.base_name, info.path, info.size) for info in infos if info.extension == "parquet"]

    def _read(self, path: str) -> str | None:
        try:
            with self._fs.open_input_stream(path) as stream:
                return str(stream.read().decode("utf-8"))
        except FileNotFoundError:
            return None

    def _write(self, path: str, text: str) -> None:
        """Writes a file that readers see whole or not at all: it is written under another name, then moved."""
        with self._fs.open_output_stream(f"{path}.writing") as stream:
            stream.write(text.encode("utf-8"))
        self._fs.move(f"{path}.writing", path)
