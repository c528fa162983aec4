"""A segment: some subscriptions with an index that never changes. A matcher has a few, the newest last.

A removal marks the subscription with the version of the matcher that removed it; a reader of an older version still
sees it. When segments are merged, removed subscriptions are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import msgspec
import numpy as np

from catchment.matching import index
from catchment.matching import source as sources
from catchment.matching.encode import checked_size, entries_of_mappings, packed, refusal
from catchment.matching.folded import FoldedNames
from catchment.matching.ids import Id, Ids
from catchment.matching.kernels import ids as kids
from catchment.matching.kernels import match as km
from catchment.matching.kernels import single
from catchment.matching.kernels.tables import (
    A_NAME,
    CONTROL_PLACES,
    OPEN_NODES_MAX,
    Entries,
    Scratch,
    SubscriptionColumns,
    Tables,
)
from catchment.matching.packing import AND, LEAF, AnyFilter, Residue, constraint_of, is_residue, packable
from catchment.matching.source import Source
from catchment.matching.workspace import ArrayHandles, ColumnHandles, Workspace, taken
from catchment.model.conjunction import Conjunction
from catchment.model.constraint import Constraint
from catchment.model.expression import And, Expression, Or
from catchment.model.filter import Filter
from catchment.model.values import Value

Array = np.ndarray[Any, Any]
I32, I64 = np.int32, np.int64
# Gives the attributes of a notification of the batch: residues are evaluated over them.
Attributes = Callable[[int], Mapping[str, Value]]

ALIVE: Final = 2**63 - 1
# So many filters are taken in at once: this bounds the memory of their msgpack while an index is built.
INGESTED_FILTERS_MAX: Final = 131_072
_OUTPUT_MIN: Final = 1_024
# What a walk is for.
_NUMBERS, _IDS, _GROUPS = 0, 1, 2
_NONE8: Final = np.zeros(0, np.uint8)
_NONE32: Final = np.zeros(0, I32)
_NONE64: Final = np.zeros(0, I64)
_match_batch: Callable[..., int] = km.match_batch
_match_single: Callable[..., int] = single.match_single


class Segment:
    """Subscriptions by number, in the order of the rows of the index.

    `residues` has each subscription that the index holds a wider filter for: a CESQL expression, or a filter with an
    opaque constraint. It is evaluated on what the wider filter lets through.
    """

    def __init__(self, tables: Tables, source: Source, ids: Ids, group_of: Array, residues: dict[int, Residue]) -> None:
        self.tables, self.source, self.ids = tables, source, ids
        self.group_of, self.residues = group_of, residues
        self.died, self.dead = _NONE64, 0  # by number, the version that removed it or ALIVE; and how many are removed
        self.constraint_index: Segment | None = None
        self._workspaces: list[Workspace] = []  # those that no reader uses
        self._tables = ArrayHandles(tables)
        self._columns: list[ColumnHandles | None] = [None, None, None]  # for numbers, ids, groups
        self._matches_expected = 4.0

    # --- making ---

    @classmethod
    def of(cls, ids: Sequence[Id], filters: Sequence[AnyFilter], groups: Array) -> Segment:
        parts = [
            _ingested(filters[first : first + INGESTED_FILTERS_MAX])
            for first in range(0, max(1, len(filters)), INGESTED_FILTERS_MAX)
        ]
        source = parts[0] if len(parts) == 1 else sources.merged(parts)
        residues = {i: filter for i, filter in enumerate(filters) if is_residue(filter)}
        return cls.built(source, Ids.of(ids), groups, residues)

    @classmethod
    def merged(cls, segments: Sequence[Segment]) -> Segment:
        """The subscriptions of several segments that are not removed."""
        return cls.merged_of(segments, [segment.living for segment in segments])

    @classmethod
    def merged_of(cls, segments: Sequence[Segment], living: Sequence[Array]) -> Segment:
        """The given subscriptions of several segments: those that were alive when the merge began."""
        kept = [
            segment.source if len(numbers) == segment.count else sources.chosen(segment.source, numbers)
            for segment, numbers in zip(segments, living, strict=True)
        ]
        ids = Ids.gathered([(segment.ids, numbers) for segment, numbers in zip(segments, living, strict=True)])
        groups = np.concatenate([segment.groups[numbers] for segment, numbers in zip(segments, living, strict=True)])
        residues: dict[int, Residue] = {}
        base = 0
        for segment, numbers in zip(segments, living, strict=True):
            if segment.residues:
                place = {number: i for i, number in enumerate(numbers.tolist())}
                for number, residue in segment.residues.items():
                    if number in place:
                        residues[base + place[number]] = residue
            base += len(numbers)
        merged = cls.built(sources.merged(kept) if len(kept) > 1 else kept[0], ids, groups, residues)
        if any(segment.ids.has_places for segment in segments):
            merged.ids.places  # noqa: B018 -- made here, not while a reader waits
        return merged

    @classmethod
    def built(cls, source: Source, ids: Ids, groups: Array, residues: dict[int, Residue]) -> Segment:
        """Builds the index of a source. `ids`, `groups` and `residues` are in the order of its filters; the index
        numbers the filters anew."""
        source = sources.deduplicated(source)
        tables, numbered = index.built(source)
        starts, conjunctions = np.zeros(source.size + 1, I64), np.empty(len(source.conjunctions), I32)
        kids.gather_lists(source.conjunctions, source.filter_starts, numbered, conjunctions, starts)
        source = source._replace(conjunctions=conjunctions, filter_starts=starts, roots=source.roots[numbered])
        if residues:
            number_of = np.argsort(numbered)
            residues = {int(number_of[place]): residue for place, residue in residues.items()}
        group_of = groups[numbered].astype(I32) if (groups >= 0).any() else _NONE32
        return cls(tables, source, Ids.gathered([(ids, numbered)]), group_of, residues)

    # --- subscriptions ---

    @property
    def count(self) -> int:
        return self.source.size

    @property
    def groups(self) -> Array:
        """By number, the group of the subscription, or -1."""
        return self.group_of if len(self.group_of) else np.full(self.count, -1, I32)

    @property
    def living(self) -> Array:
        """The numbers of the subscriptions that are not removed."""
        return np.flatnonzero(self.died == ALIVE) if len(self.died) else np.arange(self.count)

    def find(self, wanted: bytes) -> int:
        """The number of a living subscription by the bytes of its id, or -1."""
        number = self.ids.find(wanted)
        return -1 if number >= 0 and len(self.died) and self.died[number] != ALIVE else number

    def living_among(self, ids: Ids) -> Array:
        """The numbers of living subscriptions whose id is one of these."""
        numbers = np.empty(len(ids), I64)
        kids.find_ids(ids.blob, ids.starts, self.ids.blob, self.ids.starts, self.ids.slots, numbers)
        numbers = numbers[numbers >= 0]
        return numbers[self.died[numbers] == ALIVE] if len(self.died) else numbers

    def remove(self, number: int, version: int) -> None:
        if not len(self.died):
            self.died = np.full(self.count, ALIVE, I64)
        self.died[number] = version
        self.dead += 1

    @property
    def bytes_used(self) -> int:
        arrays = (*self.tables, *self.source[1:], self.group_of, self.died)
        return sum(array.nbytes for array in arrays) + self.ids.bytes_used

    # --- filters ---

    def constraint(self, number: int) -> Constraint:
        text = self.source.blob[self.source.starts[number] : self.source.starts[number + 1]].tobytes()
        return constraint_of(*msgspec.msgpack.decode(text))

    def conjunction(self, number: int) -> Conjunction:
        starts = self.source.conjunction_starts
        return Conjunction(tuple(map(self.constraint, self.source.members[starts[number] : starts[number + 1]])))

    def filter_of(self, number: int) -> Filter:
        """The filter of a subscription."""
        if (root := int(self.source.roots[number])) >= 0:
            return Filter.of_expression(self._expression(root))
        starts = self.source.filter_starts
        alternatives = tuple(map(self.conjunction, self.source.conjunctions[starts[number] : starts[number + 1]]))
        if len(alternatives) == 1:
            return Filter.of(*alternatives[0].constraints)
        return Filter.of_expression(
            Or(tuple(And(each.constraints) for each in alternatives)) if alternatives else False
        )

    def _expression(self, node: int) -> Expression:
        source = self.source
        children = source.node_children[source.node_starts[node] : source.node_starts[node + 1]].tolist()
        if source.node_kind[node] == LEAF:
            return self.constraint(children[0])
        parts = tuple(map(self._expression, children))
        return And(parts) if source.node_kind[node] == AND else Or(parts)

    # --- matching ---

    def match(self, entries: Entries, version: int, attributes: Attributes) -> tuple[Array, Array]:
        """For each notification the numbers of the subscriptions that match, as offsets and numbers."""
        offsets, numbers = self._walk(entries, version, 0)
        if not self.residues:
            return offsets, numbers
        return self._without_failing_residues(offsets, numbers, attributes)

    def match_single(self, packed: bytes, row: Mapping[str, Value], version: int) -> list[Id]:
        """The ids of the subscriptions that match a notification, sorted; `packed` is the row as msgpack."""
        if self._folded_names:
            return self._match_folded(row, version)
        # This does itself what `taken` and `_columns_for` do: a call takes a twentieth of the whole time.
        try:
            workspace = self._workspaces.pop()
        except IndexError:
            workspace = self._workspace()
        columns = self._columns[_IDS]
        if columns is None or columns.died is not self.died:
            columns = self._columns_for(_IDS)
        count = _match_single(self._tables.handles, columns.handles, workspace.handles, packed, version)
        if count >= 0 and not self.residues:
            ids: list[Id] = self.ids.ready[workspace.sorted[:count]].tolist()
        else:
            ids = self._match_single_slowly(count, columns, workspace, packed, row, version)
        self._workspaces.append(workspace)
        return ids

    def _match_folded(self, row: Mapping[str, Value], version: int) -> list[Id]:
        """The same where some constraints ignore case: as a batch of one."""
        _, numbers = self.match(entries_of_mappings([row]), version, lambda _: row)
        return self.ids.sorted(numbers)

    def _match_single_slowly(
        self,
        count: int,
        columns: ArrayHandles,
        workspace: Workspace,
        packed: bytes,
        row: Mapping[str, Value],
        version: int,
    ) -> list[Id]:
        """For the cases that the kernel leaves: an array was too short, an id was never listed before, or a residue
        must be evaluated."""
        while count == single.NO_ROOM:
            workspace.grow(checked_size(row), len(packed))
            count = _match_single(self._tables.handles, columns.handles, workspace.handles, packed, version)
        if count == single.REFUSED:
            raise refusal(row, 0)
        offsets = workspace.single.offsets
        numbers = workspace.single.out[: offsets[1]].copy()
        if self.residues:
            _, numbers = self._without_failing_residues(offsets, numbers, lambda _: row)
        return self.ids.sorted(numbers)

    def match_groups(self, entries: Entries, version: int, attributes: Attributes) -> tuple[Array, Array]:
        """For each notification the groups that have a match, as offsets and groups. The walk for a notification ends
        when all groups have matched."""
        if not len(self.group_of):
            return np.zeros(len(entries.starts), I64), _NONE32
        if not self.residues and self._has_groups_only:
            return self._walk(entries, version, int(self._groups_present))
        offsets, numbers = self.match(entries, version, attributes)
        row = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        pairs = np.unique(np.stack((row, self.group_of[numbers]))[:, self.group_of[numbers] >= 0], axis=1)
        return np.searchsorted(pairs[0], np.arange(len(offsets))), pairs[1].astype(I32)

    @cached_property
    def names_envelope(self) -> bool:
        """Whether some filter names a field of the envelope. If none does, the envelope need not be read."""
        names = self.tables.attributes[:-1, A_NAME]
        begins = self.tables.blob[names] == ord("$")
        return int(begins.sum()) > len(self._folded_names)

    @cached_property
    def _folded_names(self) -> FoldedNames:
        return FoldedNames(self.tables)

    @cached_property
    def _has_groups_only(self) -> bool:
        return bool((self.group_of >= 0).all())

    @cached_property
    def _groups_present(self) -> int:
        return len(np.unique(self.group_of))

    @cached_property
    def _row_group(self) -> Array:
        """By row: the group of all its subscriptions; -1 if they have several, or if one of them has other rows too."""
        runs = self.tables.row_runs
        group = np.full(len(runs) - 1, -1, I32)
        filled = np.flatnonzero(np.diff(runs) > 0)
        if len(filled):
            low = np.minimum.reduceat(self.group_of[: runs[-1]], runs[filled])
            high = np.maximum.reduceat(self.group_of[: runs[-1]], runs[filled])
            group[filled] = np.where(low == high, low, -1)
        if len(self.tables.row_shared):
            group[np.diff(self.tables.row_shared) > 0] = -1
        return group

    def _walk(self, entries: Entries, version: int, groups: int) -> tuple[Array, Array]:
        """Matches a batch. `groups` is 0, or the number of groups if groups are asked for instead of numbers."""
        if self._folded_names:
            entries = self._folded_names.added_to(entries)
        rows = len(entries.starts) - 1
        offsets = np.zeros(rows + 1, I64)
        out = np.empty(max(_OUTPUT_MIN, int(rows * self._matches_expected * 1.2)), I32)
        columns = self._columns_for(_GROUPS if groups else _NUMBERS)
        workspace = taken(self._workspaces, self._workspace)
        fixed: tuple[Any, ...] = (self._tables.handles, columns.handles, workspace.handles, *entries, version, groups)
        first = _match_batch(*fixed, 0, rows, out, offsets)
        # The kernel returns the first notification whose matches did not fit: it goes on there with a longer output.
        while first < rows:
            grown = np.empty(2 * len(out), I32)
            grown[: offsets[first]] = out[: offsets[first]]
            out = grown
            first = _match_batch(*fixed, first, rows, out, offsets)
        self._workspaces.append(workspace)
        if not groups and rows:
            self._matches_expected = max(0.9 * self._matches_expected, offsets[-1] / rows)
        return offsets, out[: offsets[-1]]

    def prepare(self, by_group: bool) -> None:
        """Makes what the first match would have to make; sorting many ids takes some milliseconds."""
        if by_group and len(self.group_of):
            self._columns_for(_GROUPS)
        elif not by_group:
            self._columns_for(_NUMBERS)
            self._columns_for(_IDS)
        if not self._workspaces:
            self._workspaces.append(self._workspace())

    def _columns_for(self, purpose: int) -> ColumnHandles:
        """The handles of the columns that a walk for numbers, ids or groups needs. They are made again when the first
        removal has replaced `died`."""
        died, handles = self.died, self._columns[purpose]
        if handles is None or handles.died is not died:
            group_of, row_group = (self.group_of, self._row_group) if purpose == _GROUPS else (_NONE32, _NONE32)
            place, made = (self.ids.places, self.ids.made) if purpose == _IDS else (_NONE32, _NONE8)
            columns = SubscriptionColumns(died, group_of, row_group, place, made)
            handles = self._columns[purpose] = ColumnHandles(columns)
        return handles

    def _workspace(self) -> Workspace:
        tables = self.tables
        dimensions = len(tables.sections)
        scratch = Scratch(
            rank=np.full(dimensions, -1, I32),
            entry_of=np.zeros(dimensions, I64),
            present=np.empty(dimensions + 1, I64),
            stack=np.empty(len(tables.node_low) + 1, I32),
            shared_stamp=np.zeros(self.count - int(tables.row_runs[-1]), I64),
            pattern_stamp=np.zeros(len(tables.literal_places), I64),
            group_stamp=np.zeros(int(self.group_of.max(initial=-1)) + 1, I64),
            node_state=np.zeros(len(tables.expression_kind), I64),
            open_nodes=np.zeros((OPEN_NODES_MAX, 2), I64),
            control=np.zeros(CONTROL_PLACES, I64),
        )
        return Workspace(scratch)

    def _without_failing_residues(self, offsets: Array, numbers: Array, attributes: Attributes) -> tuple[Array, Array]:
        """Leaves out residues that do not match, though the wider filter does."""
        kept = np.ones(len(numbers), bool)
        suspects = np.flatnonzero(np.isin(numbers, list(self.residues)))
        rows = np.searchsorted(offsets, suspects, side="right") - 1
        for place, row in zip(suspects.tolist(), rows.tolist(), strict=True):
            kept[place] = self.residues[int(numbers[place])].matches(attributes(row))
        ends = np.zeros(len(kept) + 1, I64)
        np.cumsum(kept, out=ends[1:])
        return ends[offsets], numbers[kept]


def _ingested(filters: Sequence[AnyFilter]) -> Source:
    return sources.ingested(packed([packable(filter) for filter in filters]), len(filters))
