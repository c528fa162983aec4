"""Parts of the distinct filters, each what one task holds: coded, put into groups, laid out as trees.

A filter is coded as its skeleton and its spans (`model/witness.py`). One without a shape is *hard*: its skeleton is
itself, its spans those of its hull. All filters of one skeleton are in one part, side by side, in the order of the
tree that is made of them; that order gives them their numbers. A part is a few flat files that later tasks map.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import feather

from catchment.errors import CatchmentError
from catchment.matching import Matcher
from catchment.matching import kernels_graph as kg
from catchment.model.box import Box
from catchment.model.cesql import Cesql
from catchment.model.filter import Conjunction, Filter
from catchment.model.witness import Part as SkeletonPart
from catchment.model.witness import Shape, hull_of, junk_in, shape_of, skeleton_constraints

Array = np.ndarray[Any, Any]
I32, I64 = np.int32, np.int64
# Marks the skeleton of a hard filter; no JSON begins with it.
HARD: Final = "!"
CESQL: Final = "cesql"
_KEPT_MAX: Final = 65_536

# What a filter is coded as, besides itself. A span is "kind:name", with its least key and its greatest negated.
CODED: Final = pa.schema(
    [
        ("filter", pa.string()),
        ("dialect", pa.string()),
        ("conjunction", pa.binary()),
        ("broker", pa.string()),
        ("skeleton", pa.string()),
        ("spans", pa.list_(pa.string())),
        ("ends", pa.list_(pa.int64())),
    ]
)
_ARRAYS: Final = ("sizes", "span_starts", "spans", "points", "roots", "nodes", "bounds", "is_hard", "pairs")


class _Constraint(msgspec.Struct):
    name: str
    operator: str
    value: Any
    kind: str


class _Conjunction(msgspec.Struct):
    constraints: list[_Constraint]


# What `matching.bulk.pack_filter` wrote.
_DECODER: Final = msgspec.msgpack.Decoder(list[_Conjunction])


# --- one filter ---------------------------------------------------------------------------------


@lru_cache(_KEPT_MAX)
def boxes_of(text: str, dialect: str) -> tuple[Box, ...]:
    """The boxes of a filter; of a CESQL expression those of the filter that holds whenever it matches."""
    return Cesql(text).filter.boxes if dialect == CESQL else Filter(text).boxes


@lru_cache(_KEPT_MAX)
def _coded(text: str, packed: bytes | None, dialect: str) -> tuple[str, list[str], list[int]]:
    alternatives = () if packed is None else _DECODER.decode(packed)
    shape = shape_of(alternatives[0].constraints) if len(alternatives) == 1 else None
    spans = hull_of(boxes_of(text, dialect)) if shape is None else shape.spans
    named = sorted((f"{kind}:{name}", least, -greatest) for name, kind, least, greatest in spans)
    names, ends = [one[0] for one in named], [end for one in named for end in one[1:]]
    return f"{HARD}{dialect}:{text}" if shape is None else _dumped(shape), names, ends


def _dumped(shape: Shape) -> str:
    return msgspec.json.encode(shape.skeleton).decode()


def skeleton_of(text: str) -> tuple[SkeletonPart, ...]:
    return tuple((name, operator, value) for name, operator, value in msgspec.json.decode(text))


def coded(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For mapInArrow: rows of `CODED` from those of the catalogue. One whose boxes pass a limit of the model is left
    as it is, with nothing known of it."""
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in ("filter", "conjunction", "dialect")]
        found = [_coded_or_bare(*row) for row in zip(*columns, strict=True)]
        given = [batch.column(name) for name in CODED.names[:4]]
        made = [pa.array([one[i] for one in found], CODED.types[4 + i]) for i in range(3)]
        yield pa.RecordBatch.from_arrays([*given, *made], CODED.names)


def _coded_or_bare(text: str, packed: bytes | None, dialect: str) -> tuple[str, list[str], list[int]]:
    try:
        return _coded(text, packed, dialect)
    except CatchmentError:
        return f"{HARD}{dialect}:{text}", [], []


# --- a part -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """Some groups and their filters, numbered from 0. `pairs` has rows (filter, broker, subscriptions)."""

    table: pa.Table  # by filter: filter, dialect, conjunction
    skeletons: pa.Array  # by group
    span_names: list[str]
    brokers: list[str | None]
    arrays: dict[str, Array]

    @property
    def filters(self) -> int:
        return int(self.table.num_rows)

    @property
    def groups(self) -> int:
        return len(self.skeletons)

    @cached_property
    def firsts(self) -> Array:
        """By group, its first filter; and the number of all."""
        return np.concatenate((np.zeros(1, I64), np.cumsum(self.arrays["sizes"])))

    @cached_property
    def bases(self) -> Array:
        """By group, where its points begin; and the size of all."""
        widths = 2 * np.diff(self.arrays["span_starts"])
        return np.concatenate((np.zeros(1, I64), np.cumsum(widths * self.arrays["sizes"])))

    @cached_property
    def group_of(self) -> Array:
        """By filter, its group."""
        return np.repeat(np.arange(self.groups), self.arrays["sizes"])

    def save(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        feather.write_feather(self.table, path / "filters.arrow", compression="uncompressed")
        groups = pa.table({"skeleton": self.skeletons})
        feather.write_feather(groups, path / "groups.arrow", compression="uncompressed")
        for name, array in self.arrays.items():
            np.save(path / f"{name}.npy", array, allow_pickle=False)
        named = {"spans": self.span_names, "brokers": self.brokers}
        (path / "names.json").write_text(json.dumps(named), "utf-8")

    @classmethod
    def open(cls, path: Path) -> Part:
        """Mapped, not read."""
        named = json.loads((path / "names.json").read_text("utf-8"))
        return cls(
            feather.read_table(path / "filters.arrow", memory_map=True),
            feather.read_table(path / "groups.arrow", memory_map=True).column("skeleton").combine_chunks(),
            named["spans"],
            named["brokers"],
            {name: mapped(path / f"{name}.npy") for name in _ARRAYS},
        )


def mapped(path: Path) -> Array:
    """An array in a file; privately, so that it is of the same type to a kernel as one made in memory."""
    with path.open("rb") as source:
        np.lib.format.read_magic(source)
        shape, _, dtype = np.lib.format.read_array_header_1_0(source)
    if 0 in shape:
        return np.zeros(shape, dtype)
    found: Array = np.load(path, mmap_mode="c", allow_pickle=False).view(np.ndarray)
    return found


def part_of(rows: pa.Table) -> Part:
    """The part of rows of `CODED`, among which a filter may stand many times."""
    keys = ("skeleton", "filter", "broker")
    rows = rows.take(pc.sort_indices(rows, [(name, "ascending") for name in keys])).combine_chunks()
    is_group, is_filter, is_pair = (_is_first(rows, keys[:count]) for count in (1, 2, 3))
    firsts = np.flatnonzero(is_filter)
    distinct = rows.take(pa.array(firsts))
    group_of = np.cumsum(is_group)[firsts] - 1
    leaders = np.flatnonzero(is_group)
    skeletons = rows.column("skeleton").take(pa.array(leaders))
    arrays, span_names, order = _forest(distinct, group_of, rows.column("spans").take(pa.array(leaders)))
    arrays["is_hard"] = np.asarray(pc.starts_with(skeletons, HARD)).astype(np.int8)
    brokers, arrays["pairs"] = _pairs(rows, np.cumsum(is_filter) - 1, is_pair, order)
    table = distinct.select(["filter", "dialect", "conjunction"]).take(pa.array(order))
    return Part(table.combine_chunks(), _whole(skeletons), span_names, brokers, arrays)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _is_first(rows: pa.Table, keys: Iterable[str]) -> Array:
    """Of sorted rows, which differ from the one before."""
    found = np.zeros(rows.num_rows, bool)
    found[:1] = True
    for key in keys:
        column = _whole(rows.column(key))
        if rows.num_rows > 1:
            before, after = column[:-1], column[1:]
            same = pc.or_(pc.fill_null(pc.equal(before, after), False), pc.and_(before.is_null(), after.is_null()))
            found[1:] |= ~np.asarray(same)
    return found


def _forest(distinct: pa.Table, group_of: Array, spans: pa.ChunkedArray) -> tuple[dict[str, Array], list[str], Array]:
    """The trees of filters sorted by group: their arrays, the names of the spans, and the order of the filters."""
    listed = _whole(spans)
    names = listed.flatten().dictionary_encode() if len(listed) else pa.array([], pa.string()).dictionary_encode()
    texts = names.dictionary.to_pylist()
    rank = np.empty(len(texts), I64)
    rank[sorted(range(len(texts)), key=texts.__getitem__)] = np.arange(len(texts))
    counts = np.asarray(pc.list_value_length(listed)).astype(I64)
    sizes = np.bincount(group_of, minlength=len(listed)).astype(I64)
    points = np.array(_whole(distinct.column("ends")).flatten(), dtype=I64)
    order, roots = np.arange(len(group_of)), np.empty(len(sizes), I64)
    nodes = np.empty((2 * len(order) + 1, 5), I64)
    bounds = np.empty(4 * len(points) + 1, I64)
    stack = np.empty((kg.DEPTH_MAX + 4 * int(counts.max(initial=0)), 3), I64)
    used = kg.build_trees(sizes, 2 * counts, points, order, roots, nodes, bounds, stack)
    filled = int((nodes[:used, 4]).max(initial=-1))
    room = 0 if filled < 0 else filled + 4 * int(counts.max(initial=0))
    arrays = {
        "sizes": sizes,
        "span_starts": np.concatenate((np.zeros(1, I64), np.cumsum(counts))),
        "spans": rank[np.asarray(names.indices).astype(I64)],
        "points": points,
        "roots": roots,
        "nodes": nodes[:used].copy(),
        "bounds": bounds[:room].copy(),
    }
    return arrays, sorted(texts), order


def _pairs(rows: pa.Table, filter_of: Array, is_pair: Array, order: Array) -> tuple[list[str | None], Array]:
    """The brokers, and which holds which filter for how many subscriptions."""
    place = np.empty(len(order), I64)
    place[order] = np.arange(len(order))
    encoded = _whole(rows.column("broker")).dictionary_encode(null_encoding="encode")
    starts = np.flatnonzero(is_pair)
    counts = np.diff(np.append(starts, rows.num_rows))
    broker = np.asarray(encoded.indices).astype(I64)[starts]
    pairs = np.column_stack((place[filter_of[starts]], broker, counts))
    return encoded.dictionary.to_pylist(), pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]


# --- what a part is looked up in ----------------------------------------------------------------


def skeleton_matcher(part: Part) -> tuple[Matcher, set[str]]:
    """A matcher of the part's skeletons by group, hard ones left out; and what of `witness.JUNK` they hold."""
    ids, found, junk = [], [], set()
    for group, text in enumerate(part.skeletons.to_pylist()):
        if not text.startswith(HARD):
            skeleton = skeleton_of(text)
            ids.append(group)
            found.append(Conjunction(skeleton_constraints(skeleton)))
            junk |= junk_in(skeleton)
    matcher = Matcher()
    matcher.add_many(ids, found)
    return matcher, junk


def hard_matcher(part: Part) -> Matcher:
    """A matcher of the part's hard filters by number. A CESQL expression is not there: what it matches is known only
    from above, so it is not known to cover anything."""
    matcher = Matcher()
    ids = [one for one in hard_filters(part) if part.table["dialect"][one].as_py() != CESQL]
    matcher.add_many(ids, [Filter(part.table["filter"][one].as_py()) for one in ids])
    return matcher


def hard_filters(part: Part) -> list[int]:
    found: list[int] = part.firsts[:-1][part.arrays["is_hard"] != 0].tolist()
    return found
