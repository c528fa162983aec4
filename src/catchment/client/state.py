"""The file of a client's state (`connect(…, state=PATH)`): what must not be forgotten when the process is killed.

It is a journal. Each record is the length of its body, a checksum and the body. Records are appended with one `write`
of the system before what they say is told to a broker. So whatever the broker knows of this client is in the file,
also after kill -9. What was cut off in the middle of a write is the end of the file, and is cut off when it is read.
When most of the file is of no use any more, a new one with what still counts is written beside it, synced, and put in
its place.

    Begun      the number of the last session
    Position   how far the application has taken a log
    Queued     a publication that is to be stored, and is not confirmed yet
    Done       publications up to this number are confirmed, or were refused
    Stays      the storage that the publisher stays with; empty if it may go anywhere

A crash of the machine may lose what the system had not written yet. Then the client forgets positions, and is given
again what the storages do not know to be taken; and it forgets publications that `publish` has not returned for.
"""

from __future__ import annotations

import fcntl
import logging
import os
import zlib
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from struct import Struct as Layout
from typing import Final

import msgspec
from msgspec import Struct

from catchment.errors import InputError, shown
from catchment.model.notification import Notification
from catchment.model.packed import notification_of

# The file is written anew when it is as long as this, and this many times as long as what counts in it.
COMPACT_BYTES_MIN: Final = 1_048_576
COMPACT_FACTOR: Final = 4
# No record is longer: the largest notification with its frame.
RECORD_BYTES_MAX: Final = 4 * 1_048_576

_FORMAT: Final = "catchment client state 1"
_HEAD: Final = Layout(">II")
log = logging.getLogger("catchment.client")


class _Entry(Struct, frozen=True, array_like=True, tag=True, gc=False):
    pass


class Format(_Entry, frozen=True):
    """The first record: what the file is, and whose."""

    format: str
    identity: str


class Begun(_Entry, frozen=True):
    session: int


class Position(_Entry, frozen=True):
    log: str
    epoch: int


class Queued(_Entry, frozen=True):
    packed: bytes


class Done(_Entry, frozen=True):
    source: str
    seq: int


class Stays(_Entry, frozen=True):
    storage: str


Entry = Format | Begun | Position | Queued | Done | Stays
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Entry).decode


class StateError(InputError):
    """The file of the state cannot be used."""


class Remembered:
    """What the records of a file come to."""

    def __init__(self) -> None:
        self.session = 0
        self.positions: dict[str, int] = {}
        # By source, in order: what is to be stored and not done. Those that have no number come under the source "".
        self.queued: dict[str, deque[tuple[int, bytes]]] = {}
        self.done: dict[str, int] = {}
        self.storage = ""

    def apply(self, entry: Entry) -> None:
        match entry:
            case Begun():
                self.session = max(self.session, entry.session)
            case Position():
                # It may go back: the client has asked for a rewind.
                self.positions[entry.log] = entry.epoch
            case Queued():
                self.queue(notification_from(entry.packed))
            case Done():
                self._done(entry.source, entry.seq)
            case Stays():
                self.storage = entry.storage
            case Format():
                pass

    def queue(self, notification: Notification) -> None:
        source = "" if notification.seq is None else notification.source or ""
        self.queued.setdefault(source, deque()).append((notification.seq or 0, notification.packed))

    def _done(self, source: str, seq: int) -> None:
        self.done[source] = max(self.done.get(source, 0), seq)
        queued = self.queued.get(source)
        while queued and queued[0][0] <= seq:
            queued.popleft()
        if not queued:
            self.queued.pop(source, None)

    def entries(self, identity: str) -> Iterator[Entry]:
        """The shortest journal that comes to the same."""
        yield Format(_FORMAT, identity)
        yield Begun(self.session)
        yield Stays(self.storage)
        for log_id, epoch in self.positions.items():
            yield Position(log_id, epoch)
        for source, seq in self.done.items():
            yield Done(source, seq)
        for queued in self.queued.values():
            yield from (Queued(packed) for _, packed in queued)


def notification_from(packed: bytes) -> Notification:
    return notification_of(msgspec.msgpack.decode(packed))


class StateFile:
    """An open state. `add` collects records, `flush` writes them. StateError if the file cannot be used."""

    def __init__(self, path: Path, identity: str) -> None:
        self.path, self._identity = path, identity
        self._pending: list[bytes] = []
        self.remembered = Remembered()
        self._size = 0
        self._descriptor = _locked(path)
        try:
            self._read()
            # Also cuts off what was cut off in the middle of a write.
            self._compact()
        except BaseException:
            os.close(self._descriptor)
            raise

    # --- reading ---

    def _read(self) -> None:
        data = _all_of(self._descriptor)
        entries = list(_records(data, self.path))
        if not entries and not data:
            entries.append(Format(_FORMAT, self._identity))
        first = entries[0] if entries else None
        if not isinstance(first, Format) or first.format != _FORMAT:
            raise StateError(f"{self.path} is no state of a client: name another file, or a new one")
        if first.identity != self._identity:
            raise StateError(
                f"{self.path} is the state of {shown(first.identity)}, not of {shown(self._identity)}: "
                "use another file for each identity"
            )
        for entry in entries:
            self.remembered.apply(entry)

    # --- writing ---

    def add(self, entry: Entry) -> None:
        self.remembered.apply(entry)
        self._pending.append(_record(entry))

    def queue(self, notification: Notification) -> None:
        """Adds a publication that is to be stored."""
        self.remembered.queue(notification)
        self._pending.append(_record(Queued(notification.packed)))

    def flush(self) -> None:
        """Writes what was added. What is told to a broker after that is in the file."""
        if not self._pending:
            return
        data = b"".join(self._pending)
        self._pending.clear()
        _write_all(self._descriptor, data)
        self._size += len(data)
        if self._size > COMPACT_BYTES_MIN:
            self._compact_if_worth()

    def _compact_if_worth(self) -> None:
        live = sum(len(packed) + 64 for queued in self.remembered.queued.values() for _, packed in queued)
        live += 128 * (len(self.remembered.positions) + len(self.remembered.done))
        if self._size > COMPACT_FACTOR * live:
            self._compact()

    def rewrite(self) -> None:
        """Writes the file anew from what is remembered now."""
        self._pending.clear()
        self._compact()

    def _compact(self) -> None:
        """Puts a new file in the place of the old one: whoever is killed in between leaves one of the two."""
        draft = self.path.with_name(self.path.name + ".new")
        descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            data = b"".join(map(_record, self.remembered.entries(self._identity)))
            _write_all(descriptor, data)
            os.fsync(descriptor)
            os.replace(draft, self.path)
            _sync_directory(self.path.parent)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(self._descriptor)
        self._descriptor, self._size = descriptor, len(data)

    def close(self) -> None:
        self.flush()
        os.fsync(self._descriptor)
        os.close(self._descriptor)


# --- the file -----------------------------------------------------------------------------------


def _locked(path: Path) -> int:
    """The file, open and locked; StateError if another process has it."""
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as problem:
            raise StateError(f"{path} cannot be opened: {problem.strerror}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise StateError(f"{path} is in use: another process has this state open") from None
        # Another process may have put a new file in its place before it let go of the lock.
        if path.exists() and os.path.samestat(os.fstat(descriptor), os.stat(path)):
            return descriptor
        os.close(descriptor)


def _all_of(descriptor: int) -> bytes:
    with os.fdopen(os.dup(descriptor), "rb") as file:
        return file.read()


def _record(entry: Entry) -> bytes:
    body = _encode(entry)
    return _HEAD.pack(len(body), zlib.crc32(body)) + body


def _records(data: bytes, path: Path) -> Iterator[Entry]:
    """What was cut off at the end of the file is left out."""
    start = 0
    while start + _HEAD.size <= len(data):
        length, checksum = _HEAD.unpack_from(data, start)
        body = data[start + _HEAD.size : start + _HEAD.size + length]
        end = start + _HEAD.size + length
        if end > len(data) and length <= RECORD_BYTES_MAX:
            break
        try:
            if length > RECORD_BYTES_MAX or zlib.crc32(body) != checksum:
                raise ValueError
            entry = _decode(body)
        except (msgspec.MsgspecError, ValueError):
            # A write that was cut off is shorter than its length: this is something else.
            raise StateError(
                f"{path} is damaged at byte {start:,}: move it away. What is not confirmed is lost with it, and what "
                "was taken may come again"
            ) from None
        yield entry
        start = end
    if start < len(data):
        log.warning("state cut off", extra={"path": str(path), "bytes": len(data) - start})


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    os.lseek(descriptor, 0, os.SEEK_END)
    while view:
        view = view[os.write(descriptor, view) :]


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
