"""A small file beside a database that says how far it must be.

When a bit flips in the last transaction of a write-ahead log, the database takes it for a transaction that was never
finished, and drops it in silence. Nothing in the database can tell the two apart. So after each commit, and before
anybody is told of it, the log's id, the serial and the head go into this file, which is synced by itself.

The file has two slots, a block each, which are written in turns: whatever happens to the one that is being written, the
other is whole. At the start the newer good slot counts:

    the database has at least that serial    all is well; it may have more, if the power failed before the witness
    it has less                              acknowledged writes are missing: StoreLossError says which epochs
    the slots are of another log             one of the two files was exchanged: StoreLossError
    one slot is damaged                      the other counts, and both are written anew
    both are damaged, or the file is gone    nobody knows whether something is missing: StoreLossError, unless the
                                             database has never been written to
    the database is gone                     StoreLossError, unless the witness says that nothing was ever written
"""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path
from struct import Struct as Layout
from typing import Final, NamedTuple, Protocol

from catchment.store.interface import StoreBrokenError, StoreLossError

# A slot takes a block of its own, so that no write touches the other one.
SLOT_BYTES: Final = 4_096
_SLOTS: Final = 2
_MAGIC: Final = b"catchwit"
# The magic, the log's id, serial and head; a hash of these follows.
_LAYOUT: Final = Layout(">8s32sQQ")
_HASH_BYTES: Final = 16

ADVICE: Final = (
    "If the disk can be read again, or a newer copy of the store exists, use that. Otherwise catchment store "
    "accept-loss goes on with what is there, under a new log id, and everybody concerned is told of the loss"
)


class Testimony(NamedTuple):
    """What a slot says."""

    log: str
    serial: int
    head: int


class Extent(Protocol):
    """How far a database is."""

    @property
    def log(self) -> str: ...
    @property
    def serial(self) -> int: ...
    @property
    def head(self) -> int: ...


class Witness:
    """The file, open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._slot = 0
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self.was_there = os.fstat(self._file).st_size > 0
        except OSError as problem:
            raise StoreBrokenError(f"{path}: the witness cannot be opened: {problem.strerror}") from problem

    def check(self, url: str, extent: Extent) -> None:
        """StoreLossError if the database has less than was promised."""
        testimony = read_testimony(self._path)
        if extent.serial == 0 and (testimony is None or testimony.serial == 0):
            return
        if testimony is None:
            what = "is damaged" if self.was_there else "is missing"
            raise StoreLossError(
                f"{url}: the witness {self._path} {what}: nobody knows whether acknowledged records are missing after "
                f"epoch {extent.head}. {ADVICE}"
            )
        check_extent(url, self._path, testimony, extent)

    def write(self, log: str, serial: int, head: int) -> None:
        """When it returns, the promise is on disk. A new file, or a damaged one, becomes whole."""
        packed = packed_testimony(Testimony(log, serial, head))
        try:
            if not self.was_there:
                self._lay_out(packed)
            else:
                self._slot = 1 - self._slot
                os.pwrite(self._file, packed, self._slot * SLOT_BYTES)
            os.fdatasync(self._file)
        except OSError as problem:
            raise StoreBrokenError(f"{self._path}: the witness cannot be written: {problem.strerror}") from problem

    def _lay_out(self, packed: bytes) -> None:
        """Both slots at once, with all their blocks: later writes change no size, so syncing them is cheap."""
        os.pwrite(self._file, packed.ljust(SLOT_BYTES, b"\0") * _SLOTS, 0)
        os.fsync(self._file)
        directory = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
        self.was_there = True

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def check_extent(url: str, path: Path | str, testimony: Testimony, extent: Extent | None) -> None:
    """StoreLossError if the database has less than the testimony says; without a database, if it says anything."""
    if extent is None:
        if testimony.serial > 0:
            missing = f"all its records are missing, epochs up to {testimony.head}"
            raise StoreLossError(f"{url} is not there, but its witness {path} is: {missing}. {ADVICE}")
    elif testimony.log != extent.log:
        raise StoreLossError(
            f"{url} and its witness {path} do not belong together: one is of log {extent.log}, the other of log "
            f"{testimony.log}. Put back the file that was exchanged. {ADVICE}"
        )
    elif testimony.serial > extent.serial:
        missing = (
            f"the records of epochs {extent.head + 1} to {testimony.head}"
            if testimony.head > extent.head
            else "no records, but acknowledgements, subscriptions or other writes"
        )
        raise StoreLossError(
            f"{url}: acknowledged writes are missing: {missing}. The database ends with write {extent.serial}, and "
            f"write {testimony.serial} was synced. {ADVICE}"
        )


def packed_testimony(testimony: Testimony) -> bytes:
    packed = _LAYOUT.pack(_MAGIC, testimony.log.encode(), testimony.serial, testimony.head)
    return packed + blake2b(packed, digest_size=_HASH_BYTES).digest()


def read_testimony(path: Path) -> Testimony | None:
    """The newest good slot; None if there is none."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise StoreBrokenError(f"{path}: the witness cannot be read: {problem.strerror}") from problem
    slots = [_slot(content[start : start + SLOT_BYTES]) for start in range(0, _SLOTS * SLOT_BYTES, SLOT_BYTES)]
    return max((slot for slot in slots if slot is not None), key=lambda slot: slot.serial, default=None)


def _slot(block: bytes) -> Testimony | None:
    packed, digest = block[: _LAYOUT.size], block[_LAYOUT.size : _LAYOUT.size + _HASH_BYTES]
    if len(packed) < _LAYOUT.size or blake2b(packed, digest_size=_HASH_BYTES).digest() != digest:
        return None
    magic, log, serial, head = _LAYOUT.unpack(packed)
    return Testimony(log.rstrip(b"\0").decode(), serial, head) if magic == _MAGIC else None
