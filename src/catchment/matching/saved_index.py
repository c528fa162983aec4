"""A segment on disk: a directory of flat arrays, and a manifest that says what they must be.

The arrays are `.npy` files. They are memory-mapped privately: processes that open the same index share its pages. The
manifest holds the version, and the type, shape and checksum of each array. A file that differs is refused.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from pathlib import Path
from typing import Any, Final

import numpy as np

from catchment.errors import BadIndexError, CatchmentError, shown
from catchment.matching.ids import Id, Ids
from catchment.matching.kernels.tables import Tables
from catchment.matching.packing import Residue
from catchment.matching.segment import Segment
from catchment.matching.source import Source
from catchment.model.cesql import Cesql
from catchment.model.filter import Filter

Array = np.ndarray[Any, Any]
FORMAT: Final = "catchment-index"
# This grows with every change of what the arrays mean.
# 2: groups of patterns are in the order in which they are searched; before, some filters were not found.
# 3: filters that are expressions, and residues that are filters.
VERSION: Final = 3
MANIFEST: Final = "manifest.json"
_MANIFEST_BYTES_MAX: Final = 1 << 30
_READ_BYTES: Final = 1 << 22


def save(path: str | os.PathLike[str], segment: Segment, groups: list[Id]) -> None:
    """Writes the index beside the target and then renames it, so that a reader finds either the old index or the new
    one."""
    target = Path(path)
    if target.exists() and any(target.iterdir()) and not (target / MANIFEST).exists():
        raise BadIndexError(f"{target} is a directory of something else: no index is written over it")
    fresh = target.with_name(f".{target.name}.{os.getpid()}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        _write(fresh, segment, groups)
        _replace(fresh, target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _write(directory: Path, segment: Segment, groups: list[Id]) -> None:
    described = {}
    for name, array in _arrays(segment).items():
        file = directory / f"{name}.npy"
        with file.open("wb") as out:
            np.save(out, array, allow_pickle=False)
            out.flush()
            os.fsync(out.fileno())
        described[name] = {"dtype": array.dtype.str, "shape": list(array.shape), "crc32": _checksum(file)}
    residues = {str(number): _residue_text(residue) for number, residue in segment.residues.items()}
    manifest = {"format": FORMAT, "version": VERSION, "arrays": described, "groups": groups, "residues": residues}
    text = json.dumps(manifest, sort_keys=True, ensure_ascii=False)
    with (directory / MANIFEST).open("wb") as out:
        out.write(f"{zlib.crc32(text.encode()):08x}\n{text}\n".encode())
        out.flush()
        os.fsync(out.fileno())


def _residue_text(residue: Residue) -> tuple[str, str]:
    return ("cesql", residue.text) if isinstance(residue, Cesql) else ("filter", str(residue))


def _residue(dialect: str, text: str) -> Residue:
    return Cesql(text) if dialect == "cesql" else Filter(text)


def _replace(fresh: Path, target: Path) -> None:
    old = target.with_name(f".{target.name}.{os.getpid()}.old")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    fresh.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def _arrays(segment: Segment) -> dict[str, Array]:
    """The arrays to save, by name; what can be made from them is left out. The constraints (`blob`) are in the tables
    and in the source, and saved once."""
    arrays = dict(segment.tables._asdict())
    arrays |= {f"source_{name}": array for name, array in segment.source._asdict().items() if name != "blob"}
    ids = segment.ids
    return arrays | {
        "id_blob": ids.blob,
        "id_starts": ids.starts,
        "id_slots": ids.slots,
        "group_of": segment.group_of,
    }


# --- loading ------------------------------------------------------------------------------------


def load(path: str | os.PathLike[str]) -> tuple[Segment, list[Id]]:
    """A saved segment and the names of its groups."""
    directory = Path(path)
    try:
        manifest = _manifest(directory)
        arrays = {name: _array(directory, name, described) for name, described in manifest["arrays"].items()}
        tables = Tables(**{name: arrays[name] for name in Tables._fields})
        source = Source(tables.blob, *(arrays[f"source_{name}"] for name in Source._fields[1:]))
        ids = Ids(arrays["id_blob"], arrays["id_starts"], arrays["id_slots"])
        residues = {int(number): _residue(*written) for number, written in manifest["residues"].items()}
        return Segment(tables, source, ids, arrays["group_of"], residues), list(manifest["groups"])
    except BadIndexError:
        raise
    except (CatchmentError, OSError, KeyError, ValueError, TypeError, AttributeError) as problem:
        raise BadIndexError(f"{directory} is no readable index: {type(problem).__name__}: {problem}") from None


def _manifest(directory: Path) -> dict[str, Any]:
    file = directory / MANIFEST
    if not file.is_file():
        raise BadIndexError(f"{directory} is no index: it has no {MANIFEST}")
    checksum, _, text = file.read_bytes().partition(b"\n")
    if not text.endswith(b"\n") or checksum != f"{zlib.crc32(text[:-1]):08x}".encode():
        raise BadIndexError(f"{file} is corrupt or truncated: its checksum does not fit")
    manifest: dict[str, Any] = json.loads(text)
    if manifest.get("format") != FORMAT:
        raise BadIndexError(f"{file} says format {shown(manifest.get('format'))}, not {FORMAT}")
    if manifest.get("version") != VERSION:
        raise BadIndexError(
            f"{directory} has version {shown(manifest.get('version'))}, this program reads {VERSION}: save it again"
        )
    return manifest


def _array(directory: Path, name: str, described: dict[str, Any]) -> Array:
    file = directory / f"{name}.npy"
    if not file.is_file():
        raise BadIndexError(f"{file} is missing")
    if _checksum(file) != described["crc32"]:
        raise BadIndexError(f"{file} is corrupt or truncated: its checksum does not fit")
    if 0 in described["shape"]:
        return np.zeros(described["shape"], described["dtype"])
    # Mapped privately, the arrays are writable, and so of the same type to the kernels as those made in memory.
    array: Array = np.load(file, mmap_mode="c", allow_pickle=False).view(np.ndarray)
    if array.dtype.str != described["dtype"] or list(array.shape) != described["shape"]:
        raise BadIndexError(f"{file} holds {array.dtype.str} {array.shape}, not what the manifest says")
    return array


def _checksum(file: Path) -> int:
    checksum = 0
    with file.open("rb") as source:
        while piece := source.read(_READ_BYTES):
            checksum = zlib.crc32(piece, checksum)
    return checksum
