"""An index on disk: versions of it, each whole, and a pointer to the current one.

    index/
      CURRENT                  the number of the current version
      versions/3/
        manifest.json          shards, counts; written last, so what has one is whole
        shards/0000/ …         saved Matchers, memory-mapped by whoever matches
        subscriptions/ …       Parquet: every subscription, its canonical filter, what the report says of it
        rejects/ …             Parquet: rows that are no subscription, with file, row and reason
        filters/ edges/ reduced/ summaries/ …   Parquet: the content graph, see docs/content-graph.md

A version is written beside the others under another name, renamed when whole, and then pointed at: a reader finds
the old version or the new one. Versions share shards: what a change did not touch is named in the next manifest by
where it lies. So versions stay until `prune`, and a job that began with one ends with it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from catchment.errors import BadIndexError, InputError, shown
from catchment.pipeline.paths import reading, write_durably

CURRENT: Final = "CURRENT"
VERSIONS: Final = "versions"
MANIFEST: Final = "manifest.json"
FORMAT: Final = "catchment-pipeline-index"
FORMAT_VERSION: Final = 1
# A manifest names some shards; a larger file is something else.
_MANIFEST_BYTES_MAX: Final = 16 * 1_048_576


@dataclass(frozen=True, slots=True)
class Index:
    """One version of an index. `counts` are of subscriptions, by what became of them."""

    path: str
    version: int
    shards: tuple[str, ...]
    counts: Mapping[str, int]

    @property
    def directory(self) -> Path:
        return Path(self.path) / VERSIONS / str(self.version)

    @property
    def shard_paths(self) -> tuple[str, ...]:
        return tuple(str(Path(self.path) / shard) for shard in self.shards)

    @property
    def subscriptions(self) -> str:
        """Where the table of subscriptions lies, for Spark."""
        return reading(self.directory / "subscriptions")

    @property
    def rejects(self) -> str:
        return reading(self.directory / "rejects")

    @property
    def has_graph(self) -> bool:
        """Whether it was compiled with its content graph, which then is of just these subscriptions."""
        return (self.directory / "edges").is_dir()

    @property
    def filters(self) -> str:
        """Where the distinct filters lie, for Spark: number, text, depth, degrees; BadIndexError without a graph."""
        return self._of_graph("filters")

    @property
    def edges(self) -> str:
        """The immediate edges: predecessor, successor."""
        return self._of_graph("edges")

    @property
    def reduced(self) -> str:
        """Which filters each broker must propagate."""
        return self._of_graph("reduced")

    @property
    def summaries(self) -> str:
        """Rows of the brokers' summaries."""
        return self._of_graph("summaries")

    def _of_graph(self, name: str) -> str:
        if not self.has_graph:
            raise BadIndexError(
                f"version {self.version} of {self.path} has no content graph: compile it with graph=True"
            )
        return reading(self.directory / name)


def local_path(path: str | os.PathLike[str]) -> Path:
    """The absolute path of an index; InputError for an address: files that are mapped must be files."""
    text = os.fspath(path).removeprefix("file://")
    if "://" in text:
        raise InputError(f"{shown(text)} is no place for an index: it is memory-mapped, so use a path all workers see")
    return Path(text).absolute()


def open_index(path: str | os.PathLike[str] | Index, version: int | None = None) -> Index:
    """The current version, or the one asked for; BadIndexError if there is none."""
    if isinstance(path, Index):
        return path
    root = local_path(path)
    number = _current(root) if version is None else version
    file = root / VERSIONS / str(number) / MANIFEST
    try:
        if file.stat().st_size > _MANIFEST_BYTES_MAX:
            raise BadIndexError(f"{file} is no manifest: it is too long")
        found = json.loads(file.read_text("utf-8"))
        return _from_manifest(root, found)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        if isinstance(problem, BadIndexError):
            raise
        raise BadIndexError(f"{root} has no readable version {number}: {type(problem).__name__}: {problem}") from None


def _current(root: Path) -> int:
    try:
        return int((root / CURRENT).read_text("ascii"))
    except OSError:
        raise BadIndexError(f"{root} is no index: it has no {CURRENT}; make one with catchment compile") from None
    except ValueError:
        raise BadIndexError(f"{root / CURRENT} is corrupt: it holds no number") from None


def _from_manifest(root: Path, found: dict[str, Any]) -> Index:
    if found["format"] != FORMAT or found["format_version"] != FORMAT_VERSION:
        raise BadIndexError(f"{root} is of another format ({shown(found['format'])}): compile it anew")
    shards = tuple(str(one) for one in found["shards"])
    for shard in shards:
        if not (root / shard).is_dir():
            raise BadIndexError(f"{root / shard} is missing")
    return Index(str(root), int(found["version"]), shards, dict(found["counts"]))


# --- writing ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Draft:
    """A version that is being written, under a name that no reader looks at."""

    root: Path
    version: int
    directory: Path

    def shard(self, number: int) -> str:
        """Where shard `number` is written, relative to the index once the version is published."""
        return f"{VERSIONS}/{self.version}/shards/{number:04}"


def begin(path: str | os.PathLike[str]) -> Draft:
    """The next version, empty; BadIndexError where something else lies."""
    root = local_path(path)
    if root.exists() and (not root.is_dir() or (any(root.iterdir()) and not (root / VERSIONS).is_dir())):
        raise BadIndexError(f"{root} is something else: an index is not written into it")
    versions = root / VERSIONS
    versions.mkdir(parents=True, exist_ok=True)
    numbers = [int(one.name) for one in versions.iterdir() if one.name.isdecimal()]
    version = max(numbers, default=0) + 1
    directory = versions / f".{version}.{uuid4().hex[:8]}.new"
    (directory / "shards").mkdir(parents=True)
    return Draft(root, version, directory)


def publish(draft: Draft, shards: tuple[str, ...], counts: Mapping[str, int]) -> Index:
    """Makes a draft the current version; BadIndexError if somebody else was faster."""
    manifest = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "version": draft.version,
        "shards": shards,
        "counts": dict(counts),
    }
    write_durably(draft.directory / MANIFEST, json.dumps(manifest, indent=1, sort_keys=True))
    target = draft.root / VERSIONS / str(draft.version)
    try:
        draft.directory.rename(target)
    except OSError as problem:
        raise BadIndexError(f"{target} was written by somebody else meanwhile: compile again ({problem})") from None
    fresh = draft.root / f".{CURRENT}.{os.getpid()}.new"
    write_durably(fresh, f"{draft.version}\n")
    fresh.replace(draft.root / CURRENT)
    return open_index(draft.root, draft.version)


def discard(draft: Draft) -> None:
    """Forgets a draft that will not be published."""
    shutil.rmtree(draft.directory, ignore_errors=True)


def prune(path: str | os.PathLike[str]) -> list[int]:
    """Deletes the versions before the current one, save the shards that it shares, and what compilations left that
    were killed; gives the numbers. Only when no job still reads them."""
    index = open_index(path)
    kept = {str(Path(one)) for one in index.shards}
    pruned = []
    for old in sorted((Path(index.path) / VERSIONS).iterdir()):
        if old.name.startswith(".") and int(old.name.split(".")[1]) <= index.version:
            shutil.rmtree(old)
        if old.name.isdecimal() and int(old.name) < index.version:
            pruned += [int(old.name)] if (old / MANIFEST).exists() else []
            _prune_version(old, kept, Path(index.path))
    return pruned


def _prune_version(old: Path, kept: set[str], root: Path) -> None:
    (old / MANIFEST).unlink(missing_ok=True)
    for part in old.iterdir():
        if part.name != "shards":
            shutil.rmtree(part, ignore_errors=True)
            continue
        for shard in part.iterdir():
            if str(shard.relative_to(root)) not in kept:
                shutil.rmtree(shard)
    if not any((old / "shards").iterdir()):
        shutil.rmtree(old)
