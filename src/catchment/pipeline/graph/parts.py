"""Parts: the distinct filters, split so that one task can hold a part. Within a part they form groups and trees.

A filter is *coded* as its skeleton and its spans (`model/witness.py`). A filter without a shape is *hard*: its skeleton
is the filter itself, and its spans are those of its hull. All filters with the same skeleton are a *group*. A group is
in one part, and its filters stand side by side, in the order of the k-d tree that is made of them; that order gives
them their numbers. A part is saved as a few flat files, which later tasks map into memory.
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
from catchment.matching.kernels import kd_trees
from catchment.matching.packing import FOLDED
from catchment.model.box import Box
from catchment.model.cesql import Cesql
from catchment.model.conjunction import Conjunction
from catchment.model.filter import Filter
from catchment.model.witness import Part as SkeletonPart
from catchment.model.witness import Shape, hull_of, junk_in, shape_of, skeleton_constraints

Array = np.ndarray[Any, Any]
I32, I64 = np.int32, np.int64
# Marks the skeleton of a hard filter. Other skeletons are JSON, which does not begin with it.
HARD: Final = "!"
CESQL: Final = "cesql"
# Filters whose boxes or codes a worker remembers.
_KEPT_MAX: Final = 65_536

# A filter, and its code: the skeleton, the names of its spans ("kind:name"), and for each span two ends, the least key
# and the greatest key negated. So a span contains another one if neither of its ends is above the other's.
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


# Decodes the conjunctions that `matching.bulk.pack_filter` wrote; an expression is something else.
_DECODER: Final = msgspec.msgpack.Decoder(tuple[_Conjunction])


# --- one filter ---------------------------------------------------------------------------------


@lru_cache(_KEPT_MAX)
def boxes_of(text: str, dialect: str) -> tuple[Box, ...]:
    """The boxes of the filter that a filter is routed by: of the filter itself or, if it has no normal form, of a wider
    one. For a CESQL expression, those of the filter that holds whenever the expression matches."""
    return (Cesql(text).filter if dialect == CESQL else Filter(text)).routed.boxes


@lru_cache(_KEPT_MAX)
def coded_filter(text: str, packed: bytes | None, dialect: str) -> tuple[str, list[str], list[int]]:
    shape = None if packed is None else _shape(packed)
    spans = hull_of(boxes_of(text, dialect)) if shape is None else shape.spans
    named = sorted((f"{kind}:{name}", least, -greatest) for name, kind, least, greatest in spans)
    names, ends = [name for name, *_ in named], [end for _, *both_ends in named for end in both_ends]
    return f"{HARD}{dialect}:{text}" if shape is None else _skeleton_text(shape), names, ends


def _shape(packed: bytes) -> Shape | None:
    try:
        (conjunction,) = _DECODER.decode(packed)
    except msgspec.ValidationError:
        return None
    constraints = conjunction.constraints
    # To compare a text with the same text in any case takes sets of strings.
    return None if any(constraint.name.startswith(FOLDED) for constraint in constraints) else shape_of(constraints)


def _skeleton_text(shape: Shape) -> str:
    return msgspec.json.encode(shape.skeleton).decode()


def skeleton_of(text: str) -> tuple[SkeletonPart, ...]:
    """The skeleton from its text; not for hard filters."""
    return tuple((name, operator, value) for name, operator, value in msgspec.json.decode(text))


def coded(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For mapInArrow: rows of `CODED` from rows of the catalogue."""
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in ("filter", "conjunction", "dialect")]
        codes = [_coded_or_bare(*row) for row in zip(*columns, strict=True)]
        given = [batch.column(name) for name in CODED.names[:4]]
        made = [pa.array([code[i] for code in codes], CODED.types[4 + i]) for i in range(3)]
        yield pa.RecordBatch.from_arrays([*given, *made], CODED.names)


def _coded_or_bare(text: str, packed: bytes | None, dialect: str) -> tuple[str, list[str], list[int]]:
    try:
        return coded_filter(text, packed, dialect)
    except CatchmentError:  # its boxes pass a limit of the model: a hard filter without spans
        return f"{HARD}{dialect}:{text}", [], []


# --- a part -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """Some groups and their filters, numbered from 0. The array `pairs` has a row (filter, broker, subscriptions) for
    each filter and each broker that holds it."""

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
        """By group, its first filter; at the end, the number of filters."""
        return np.concatenate((np.zeros(1, I64), np.cumsum(self.arrays["sizes"])))

    @cached_property
    def bases(self) -> Array:
        """By group, where its points begin; at the end, the size of all points."""
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
        names = {"spans": self.span_names, "brokers": self.brokers}
        (path / "names.json").write_text(json.dumps(names), "utf-8")

    @classmethod
    def open(cls, path: Path) -> Part:
        """A saved part, mapped into memory rather than read."""
        names = json.loads((path / "names.json").read_text("utf-8"))
        return cls(
            feather.read_table(path / "filters.arrow", memory_map=True),
            feather.read_table(path / "groups.arrow", memory_map=True).column("skeleton").combine_chunks(),
            names["spans"],
            names["brokers"],
            {name: mapped(path / f"{name}.npy") for name in _ARRAYS},
        )


def mapped(path: Path) -> Array:
    """An array in a file, mapped into memory. It is mapped copy-on-write: such an array has the same type to a kernel
    as one made in memory, so no kernel is compiled twice."""
    with path.open("rb") as source:
        np.lib.format.read_magic(source)
        shape, _, dtype = np.lib.format.read_array_header_1_0(source)
    if 0 in shape:
        return np.zeros(shape, dtype)  # an empty file cannot be mapped
    array: Array = np.load(path, mmap_mode="c", allow_pickle=False).view(np.ndarray)
    return array


def part_of(rows: pa.Table) -> Part:
    """The part that rows of `CODED` make. A filter may stand in many of them."""
    keys = ("skeleton", "filter", "broker")
    rows = rows.take(pc.sort_indices(rows, [(name, "ascending") for name in keys])).combine_chunks()
    is_group, is_filter, is_pair = (_is_first(rows, keys[:count]) for count in (1, 2, 3))
    firsts = np.flatnonzero(is_filter)
    distinct = rows.take(pa.array(firsts))
    group_of = np.cumsum(is_group)[firsts] - 1
    first_of_group = pa.array(np.flatnonzero(is_group))
    skeletons = rows.column("skeleton").take(first_of_group)
    arrays, span_names, order = _trees(distinct, group_of, rows.column("spans").take(first_of_group))
    arrays["is_hard"] = np.asarray(pc.starts_with(skeletons, HARD)).astype(np.int8)
    brokers, arrays["pairs"] = _pairs(rows, np.cumsum(is_filter) - 1, is_pair, order)
    table = distinct.select(["filter", "dialect", "conjunction"]).take(pa.array(order))
    return Part(table.combine_chunks(), _whole(skeletons), span_names, brokers, arrays)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array."""
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _is_first(rows: pa.Table, keys: Iterable[str]) -> Array:
    """Which of the sorted rows differ from the row before in one of the keys."""
    is_first = np.zeros(rows.num_rows, bool)
    is_first[:1] = True
    for key in keys:
        column = _whole(rows.column(key))
        if rows.num_rows > 1:
            before, after = column[:-1], column[1:]
            is_same = pc.or_(pc.fill_null(pc.equal(before, after), False), pc.and_(before.is_null(), after.is_null()))
            is_first[1:] |= ~np.asarray(is_same)
    return is_first


def _trees(distinct: pa.Table, group_of: Array, spans: pa.ChunkedArray) -> tuple[dict[str, Array], list[str], Array]:
    """A k-d tree for each group, of filters that are sorted by group: the arrays of the trees, the names of the spans,
    and the new order of the filters."""
    spans_of_group = _whole(spans)
    flat = spans_of_group.flatten() if len(spans_of_group) else pa.array([], pa.string())
    encoded = flat.dictionary_encode()
    span_names = encoded.dictionary.to_pylist()
    rank = np.empty(len(span_names), I64)
    rank[sorted(range(len(span_names)), key=span_names.__getitem__)] = np.arange(len(span_names))
    counts = np.asarray(pc.list_value_length(spans_of_group)).astype(I64)
    sizes = np.bincount(group_of, minlength=len(spans_of_group)).astype(I64)
    points = np.array(_whole(distinct.column("ends")).flatten(), dtype=I64)
    order, roots = np.arange(len(group_of)), np.empty(len(sizes), I64)
    # Room for the most that the kernel may need; what it does not use is cut off below.
    nodes = np.empty((2 * len(order) + 1, 5), I64)
    bounds = np.empty(4 * len(points) + 1, I64)
    stack = np.empty((kd_trees.DEPTH_MAX + 4 * int(counts.max(initial=0)), 3), I64)
    used = kd_trees.build_trees(sizes, 2 * counts, points, order, roots, nodes, bounds, stack)
    last_bounds = int((nodes[:used, 4]).max(initial=-1))
    bounds_used = 0 if last_bounds < 0 else last_bounds + 4 * int(counts.max(initial=0))
    arrays = {
        "sizes": sizes,
        "span_starts": np.concatenate((np.zeros(1, I64), np.cumsum(counts))),
        "spans": rank[np.asarray(encoded.indices).astype(I64)],
        "points": points,
        "roots": roots,
        "nodes": nodes[:used].copy(),
        "bounds": bounds[:bounds_used].copy(),
    }
    return arrays, sorted(span_names), order


def _pairs(rows: pa.Table, filter_of: Array, is_pair: Array, order: Array) -> tuple[list[str | None], Array]:
    """The brokers, and the array `pairs`: which broker holds which filter, for how many subscriptions."""
    number_of = np.empty(len(order), I64)
    number_of[order] = np.arange(len(order))
    encoded = _whole(rows.column("broker")).dictionary_encode(null_encoding="encode")
    starts = np.flatnonzero(is_pair)
    counts = np.diff(np.append(starts, rows.num_rows))
    broker = np.asarray(encoded.indices).astype(I64)[starts]
    pairs = np.column_stack((number_of[filter_of[starts]], broker, counts))
    return encoded.dictionary.to_pylist(), pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]


# --- matchers that witnesses are looked up in ---------------------------------------------------


def skeleton_matcher(part: Part) -> tuple[Matcher, set[str]]:
    """A matcher of the skeletons of a part by group, without the hard ones; and the characters of `witness.JUNK` that
    occur in them."""
    groups, skeletons, junk = [], [], set()
    for group, text in enumerate(part.skeletons.to_pylist()):
        if not text.startswith(HARD):
            skeleton = skeleton_of(text)
            groups.append(group)
            skeletons.append(Conjunction(skeleton_constraints(skeleton)))
            junk |= junk_in(skeleton)
    matcher = Matcher()
    matcher.add_many(groups, skeletons)
    return matcher, junk


def hard_matcher(part: Part) -> Matcher:
    """A matcher of the hard filters of a part by number. It leaves out CESQL expressions, and filters without a normal
    form: only a wider filter is known of them, so they are not known to cover anything."""
    matcher = Matcher()
    numbers = [number for number in hard_filters(part) if part.table["dialect"][number].as_py() != CESQL]
    filters = {number: Filter(part.table["filter"][number].as_py()) for number in numbers}
    known = {number: filter for number, filter in filters.items() if filter.is_normal}
    matcher.add_many(list(known), list(known.values()))
    return matcher


def hard_filters(part: Part) -> list[int]:
    """The numbers of the hard filters; each is alone in its group."""
    numbers: list[int] = part.firsts[:-1][part.arrays["is_hard"] != 0].tolist()
    return numbers
