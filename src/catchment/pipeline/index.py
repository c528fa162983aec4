"""An index on disk: its versions, each complete, and a pointer to the current one.

    index/
      CURRENT                  the number of the current version
      versions/3/
        manifest.json          shards, counts; written last, so a version that has it is complete
        shards/0000/ …         saved Matchers, memory-mapped by whoever matches
        subscriptions/ …       Parquet: every subscription with its canonical filter, status and note
        rejects/ …             Parquet: rows that are not subscriptions, with file, row and reason
        filters/ edges/ reduced/ summaries/ …   Parquet: the content graph, see docs/content-graph.md

A version is written under another name beside the others, renamed when it is complete, and only then does CURRENT name
it: a reader finds the old version or the new one. Versions share shards: if a change did not touch a shard, the next
manifest names the shard in the older version. So versions stay until `prune` deletes them, and a job ends with the
version it began with.
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
from catchment.pipeline.paths import readable, write_durably

CURRENT: Final = "CURRENT"
VERSIONS: Final = "versions"
MANIFEST: Final = "manifest.json"
FORMAT: Final = "catchment-pipeline-index"
FORMAT_VERSION: Final = 1
# The status of a subscription that is in the shards, and the count of those in the manifest.
LIVE: Final = "live"
# A manifest names at most some hundred shards; a larger file is something else.
_MANIFEST_BYTES_MAX: Final = 16 * 1_048_576


@dataclass(frozen=True, slots=True)
class Index:
    """One version of an index. `counts` has the number of subscriptions by status and note, and the sizes of the
    content graph."""

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
        """The address of the table of subscriptions, for Spark to read."""
        return readable(self.directory / "subscriptions")

    @property
    def rejects(self) -> str:
        """The address of the table of rejects."""
        return readable(self.directory / "rejects")

    @property
    def has_graph(self) -> bool:
        """Whether this version has a content graph. It is always that of the subscriptions of this version."""
        return (self.directory / "edges").is_dir()

    @property
    def filters(self) -> str:
        """The address of the table of distinct filters: number, text, depth, degrees. This and the next three raise
        BadIndexError if the version has no content graph."""
        return self._graph_table("filters")

    @property
    def edges(self) -> str:
        """The address of the table of immediate edges: predecessor, successor."""
        return self._graph_table("edges")

    @property
    def reduced(self) -> str:
        """The address of the table of the filters that each broker must propagate."""
        return self._graph_table("reduced")

    @property
    def summaries(self) -> str:
        """The address of the table of the brokers' summaries."""
        return self._graph_table("summaries")

    def _graph_table(self, name: str) -> str:
        if not self.has_graph:
            raise BadIndexError(
                f"version {self.version} of {self.path} has no content graph: compile it with graph=True"
            )
        return readable(self.directory / name)


def local_path(path: str | os.PathLike[str]) -> Path:
    """The absolute path of an index. Raises InputError for an address of another file system: workers memory-map the
    index, so it must consist of local files."""
    text = os.fspath(path).removeprefix("file://")
    if "://" in text:
        raise InputError(
            f"an index cannot be at {shown(text)}: workers memory-map it, so use a path that all workers see"
        )
    return Path(text).absolute()


def open_index(path: str | os.PathLike[str] | Index, version: int | None = None) -> Index:
    """The current version of an index, or the version given. Raises BadIndexError if there is none."""
    if isinstance(path, Index):
        return path
    root = local_path(path)
    number = _current(root) if version is None else version
    file = root / VERSIONS / str(number) / MANIFEST
    try:
        if file.stat().st_size > _MANIFEST_BYTES_MAX:
            raise BadIndexError(f"{file} is not a manifest: it is too long")
        return _from_manifest(root, json.loads(file.read_text("utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        if isinstance(problem, BadIndexError):
            raise
        raise BadIndexError(f"{root} has no readable version {number}: {type(problem).__name__}: {problem}") from None


def _current(root: Path) -> int:
    try:
        return int((root / CURRENT).read_text("ascii"))
    except OSError:
        raise BadIndexError(f"{root} is not an index: it has no {CURRENT}; make one with catchment compile") from None
    except ValueError:
        raise BadIndexError(f"{root / CURRENT} is corrupt: it does not hold a number") from None


def _from_manifest(root: Path, manifest: dict[str, Any]) -> Index:
    if manifest["format"] != FORMAT or manifest["format_version"] != FORMAT_VERSION:
        raise BadIndexError(f"{root} has another format ({shown(manifest['format'])}): compile it again")
    shards = tuple(map(str, manifest["shards"]))
    for shard in shards:
        if not (root / shard).is_dir():
            raise BadIndexError(f"{root / shard} is missing")
    return Index(str(root), int(manifest["version"]), shards, dict(manifest["counts"]))


# --- writing ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Draft:
    """A version that is being written, in a directory that no reader looks at."""

    root: Path
    version: int
    directory: Path

    def shard(self, number: int) -> str:
        """The path of shard `number` relative to the index, as it is once the version is published."""
        return f"{VERSIONS}/{self.version}/shards/{number:04}"


def begin(path: str | os.PathLike[str]) -> Draft:
    """An empty draft of the next version. Raises BadIndexError if the directory holds something else than an index."""
    root = local_path(path)
    if root.exists() and (not root.is_dir() or (any(root.iterdir()) and not (root / VERSIONS).is_dir())):
        raise BadIndexError(f"{root} holds something else: name a new directory, or that of an index")
    versions = root / VERSIONS
    versions.mkdir(parents=True, exist_ok=True)
    numbers = [int(entry.name) for entry in versions.iterdir() if entry.name.isdecimal()]
    version = max(numbers, default=0) + 1
    directory = versions / f".{version}.{uuid4().hex[:8]}.new"
    (directory / "shards").mkdir(parents=True)
    return Draft(root, version, directory)


def publish(draft: Draft, shards: tuple[str, ...], counts: Mapping[str, int]) -> Index:
    """Makes a draft the current version. Raises BadIndexError if another writer has published this version already."""
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
        # The rename fails if the directory is there and not empty: of two writers of one version the first wins.
        draft.directory.rename(target)
    except OSError as problem:
        raise BadIndexError(f"somebody else has written {target} meanwhile: compile again ({problem})") from None
    new_pointer = draft.root / f".{CURRENT}.{os.getpid()}.new"
    write_durably(new_pointer, f"{draft.version}\n")
    new_pointer.replace(draft.root / CURRENT)  # atomic: a reader sees the old number or the new one
    return open_index(draft.root, draft.version)


def discard(draft: Draft) -> None:
    """Deletes a draft that will not be published; does nothing after `publish`."""
    shutil.rmtree(draft.directory, ignore_errors=True)


def prune(path: str | os.PathLike[str]) -> list[int]:
    """Deletes the versions before the current one, except the shards that the current one shares, and the drafts of
    killed compilations. Returns the numbers of the versions deleted. Call it only when no job reads them any more."""
    index = open_index(path)
    kept = {str(Path(shard)) for shard in index.shards}
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
