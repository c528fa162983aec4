"""Makes and changes saved indexes in bulk: from Arrow columns, without a Python object for each subscription.

A filter is msgpack, the form in which the index takes it in (`kernels/ingest.py`). `pack_filter` writes it once; after
that it is trusted. `Gathered` collects the subscriptions to be added; `write_index` makes or changes a saved index.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from catchment.errors import BadIdError, shown
from catchment.matching import saved_index
from catchment.matching import source as sources
from catchment.matching.encode import packed
from catchment.matching.ids import Ids, id_bytes
from catchment.matching.packing import Residue, packable, unpacked
from catchment.matching.segment import INGESTED_FILTERS_MAX, Segment
from catchment.matching.source import Source
from catchment.model.filter import Filter

Array = np.ndarray[Any, Any]
I64 = np.int64
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder()
# The head of a msgpack array of up to 2^32 objects, and the first byte of an id that is a string.
_ARRAY_HEAD, _STRING = 0xDD, 1


# --- one filter ---------------------------------------------------------------------------------


def pack_filter(filter: Filter) -> bytes:
    """A filter as an index takes it in, as msgpack."""
    return _ENCODER.encode(packable(filter))


def unpack_filter(packed: bytes) -> Filter:
    """The filter that was packed."""
    return unpacked(_DECODER.decode(packed))


# --- many ---------------------------------------------------------------------------------------


class Gathered:
    """Subscriptions that will be a segment. Their filters are taken in while they come."""

    def __init__(self) -> None:
        self._waiting: list[tuple[pa.StringArray, pa.BinaryArray]] = []
        self._waiting_count = 0
        self._sources: list[Source] = []
        self._ids: list[tuple[Array, Array]] = []
        self._residues: dict[int, Residue] = {}
        self._count = 0

    def add(self, ids: pa.StringArray, filters: pa.BinaryArray) -> None:
        """Adds subscriptions, given by id and packed filter."""
        assert len(ids) == len(filters)
        assert not ids.null_count + filters.null_count
        self._waiting.append((ids, filters))
        self._waiting_count += len(ids)
        if self._waiting_count >= INGESTED_FILTERS_MAX:
            self._ingest()

    def add_residues(self, ids: Sequence[str], residues: Sequence[Residue]) -> None:
        """Adds subscriptions for which the index holds a wider filter, of which there are few."""
        self._ingest()
        self._residues |= {self._count + i: residue for i, residue in enumerate(residues)}
        source = sources.ingested(packed(list(map(packable, residues))), len(residues))
        self._take(source, *_id_table(pa.array(ids, pa.string())))

    def _ingest(self) -> None:
        if not self._waiting_count:
            return
        ids = pa.concat_arrays([ids for ids, _ in self._waiting])
        filters = pa.concat_arrays([filters for _, filters in self._waiting])
        self._waiting, self._waiting_count = [], 0
        head = bytes([_ARRAY_HEAD]) + len(filters).to_bytes(4, "big")
        buffer = np.frombuffer(b"".join((head, _content(filters)[0])), np.uint8)
        self._take(sources.ingested(buffer, len(filters)), *_id_table(ids))

    def _take(self, source: Source, blob: Array, ends: Array) -> None:
        self._sources.append(source)
        self._ids.append((blob, ends))
        self._count += source.size

    def segment(self) -> Segment:
        """All of them, indexed; BadIdError if an id appears twice."""
        self._ingest()
        if not self._count:
            return Segment.of([], [], np.zeros(0, I64))
        source = self._sources[0] if len(self._sources) == 1 else sources.merged(self._sources)
        self._sources = []
        bases = np.cumsum([0, *(len(blob) for blob, _ in self._ids)])
        starts = np.concatenate([[0], *(ends + base for (_, ends), base in zip(self._ids, bases, strict=False))])
        ids = Ids.of_bytes(np.concatenate([blob for blob, _ in self._ids]), starts.astype(I64))
        return Segment.built(source, ids, np.full(self._count, -1, I64), self._residues)


def _content(array: pa.Array) -> tuple[memoryview, Array]:
    """The bytes of a column of strings or binaries, one after another, and the offsets of each."""
    _, buffer, content = array.buffers()
    offsets = np.frombuffer(buffer, np.int32)[array.offset : array.offset + len(array) + 1].astype(I64)
    whole = memoryview(b"" if content is None else content)
    return whole[int(offsets[0]) : int(offsets[-1])], offsets - offsets[0]


def _id_table(ids: pa.StringArray) -> tuple[Array, Array]:
    """Ids as `Ids` stores them, each behind a byte that says it is a string; and the end of each."""
    content, offsets = _content(ids)
    marks = offsets[:-1] + np.arange(len(ids))
    blob = np.full(len(content) + len(ids), _STRING, np.uint8)
    is_text = np.ones(len(blob), bool)
    is_text[marks] = False
    blob[is_text] = np.frombuffer(content, np.uint8)
    return blob, offsets[1:] + np.arange(1, len(ids) + 1)


# --- on disk ------------------------------------------------------------------------------------


def write_index(
    path: str | os.PathLike[str],
    added: Gathered,
    old: str | os.PathLike[str] | None = None,
    removed: Iterable[str] = (),
) -> int:
    """Saves an index of the added subscriptions and, if given, of those of the index `old` that are not removed.
    Returns how many there are. BadIdError if an id to remove is not there, or an id to add is there already."""
    fresh = added.segment()
    if old is None:
        saved_index.save(path, fresh, [])
        return fresh.count
    segment, groups = saved_index.load(old)
    for id in removed:
        number = segment.find(id_bytes(id))
        if number < 0:
            raise BadIdError(f"no subscription has the id {shown(id)}")
        segment.remove(number, 1)
    parts = [part for part in (segment, fresh) if len(part.living)]
    whole = parts[0] if len(parts) == 1 and not parts[0].dead else Segment.merged(parts or [fresh])
    saved_index.save(path, whole, groups)
    return whole.count
