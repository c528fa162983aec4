"""Paths and addresses, as Spark and pyarrow take them.

Spark does not decode `%20`, so `Path.as_uri` is not what it wants. And in a path to read, Spark takes `[`, `*` and the
like for wildcards, so `readable` escapes them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from pyarrow import fs

_WILDCARDS: Final = re.compile(r"([{}\[\]*?\\])")


def address(path: str | os.PathLike[str]) -> str:
    """The address that Spark writes to. A local path means this machine, whatever the cluster's file system is."""
    text = os.fspath(path)
    return text if "://" in text else f"file://{Path(text).absolute()}"


def escaped(path: str) -> str:
    """A path or address that Spark reads as it stands, without wildcards."""
    return _WILDCARDS.sub(r"\\\1", path)


def readable(path: str | os.PathLike[str]) -> str:
    """The address that Spark reads from."""
    return escaped(address(path))


def file_system(path: str | os.PathLike[str]) -> tuple[fs.FileSystem, str]:
    """The file system of a path or address, and the path on it. pyarrow raises for one that it does not know."""
    text = os.fspath(path)
    uri = text if "://" in text else Path(text).absolute().as_uri()
    opened: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(uri)
    return opened


def write_durably(path: Path, text: str) -> None:
    """Writes a small file, and returns when it is on disk."""
    with path.open("w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
