"""Paths as Spark takes them: an address without escapes, and, to read from, with its wildcards quoted.

Spark does not decode `%20`, so `Path.as_uri` is not what it wants; and it takes `[`, `*` and the like in a path to
read for a pattern.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from pyarrow import fs

_WILD: Final = re.compile(r"([{}\[\]*?\\])")


def address(path: str | os.PathLike[str]) -> str:
    """Where to write: a local path is one of this machine, whatever the cluster's own file system is."""
    text = os.fspath(path)
    return text if "://" in text else f"file://{Path(text).absolute()}"


def quoted(path: str) -> str:
    """A path or address to read that means itself."""
    return _WILD.sub(r"\\\1", path)


def reading(path: str | os.PathLike[str]) -> str:
    return quoted(address(path))


def file_system(path: str | os.PathLike[str]) -> tuple[fs.FileSystem, str]:
    """The one that a path or address lies on, and the path there; pyarrow's errors say which it does not know."""
    text = os.fspath(path)
    found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(text if "://" in text else Path(text).absolute().as_uri())
    return found


def write_durably(path: Path, text: str) -> None:
    """Writes a small file, and returns when it is on disk."""
    with path.open("w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
