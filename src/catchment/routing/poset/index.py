"""The attribute index of a poset: which filters could cover a given one, and which could it cover.

Theory of operation. A *token* is an attribute name; or, if a filter allows values of only one kind there, the name with
that kind. All tokens of a filter that covers another are tokens of the other too. Each filter is a *row* of integers in
shared columns: its tokens as the bits of a *mask*, and, for each token with a kind, the span of the values that it
allows (`codes.py`). Masks and spans are compared one column at a time, for all candidate rows at once. The candidates
come from the tokens. Each token keeps two kinds of lists:

homes   Each row has one home: in the token that keeps it apart best from other rows, in the smallest *cell* around its
        span. (A cell is all positions that have the same leading bits: `cells.py`.) The home of a row that covers a
        filter is a cell around the filter's own span. So a search for coverers looks up, for each token of the filter,
        one cell of each size in use.
posts   All rows with the token are posted in the cells of a few fixed sizes around their span. A search for the rows
        that a filter covers takes the shortest list that must have them all. The length of such a list also tells how
        well a token keeps a row apart.

Names and kinds share a fixed number of columns and of mask bits. If two tokens of one row share a column, that row
leaves the column open. If two tokens share a bit, the mask says less. Both cost precision, but never a result: what a
search returns is *sure* (the columns decide alone), or *doubtful* (to be asked of `covers`).

Advertisements are the other way round: an attribute that they do not name may not appear. So an advertisement that
covers another has all tokens of the other, and the mask of a row has the tokens that the row lacks. There are far fewer
advertisements than subscriptions. They, and filters without tokens, are in one *common* list, which every search reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from catchment.model.box import Box
from catchment.model.constraint import Kind
from catchment.model.domain import ABSENT, EVERYTHING, Values
from catchment.routing.poset.cells import ROOT_CELL, Cell, Cells, RowIds, cell_around
from catchment.routing.poset.codes import GREATEST, LEAST, Span, spans
from catchment.routing.poset.grams import ALL_GRAMS, had_by, needed_by

# A slot is the columns of one token: low and high of both spans. Filters rarely name more attributes. A slot takes 32
# bytes for each row.
SLOTS: Final = 8
# A mask is two words. The first tokens have a bit of their own in the first word. All others share bits in the second.
WORD_BITS: Final = 63
WORD: Final = (1 << WORD_BITS) - 1
ALL_BITS: Final = (1 << 2 * WORD_BITS) - 1
ROWS_FIRST: Final = 64
# The sizes of the cells that rows are posted in: a single position; two leading bytes, and one leading byte, of a
# string. For numbers these two are a 2,048th and an eighth of the way to the double, and the last two are some
# doublings.
POST_SIZES: Final = (0, 41, 49, 52, 54)

Ids = npt.NDArray[np.int32]
Key = tuple[str, Kind | None]
# Low and -high of the wide span, then of the tight span. With -high, "contains" is the same comparison at both ends.
Slot = tuple[int, int, int, int]
# The slot of a row that has two tokens in it: its wide span contains every span, its tight span is in every span.
_SHARED_SLOT: Final[Slot] = (LEAST, LEAST, GREATEST, GREATEST)


@dataclass(slots=True, eq=False)
class Token:
    """An attribute name, or a name with a kind, and the rows that have it."""

    number: int
    slot: int
    name: Token | None  # for a name with a kind: the token of the name alone, which the rows of this one have too
    bits: int = 0
    uses: int = 0
    homes: Cells = field(default_factory=Cells)
    posts: Cells = field(default_factory=Cells)

    def __post_init__(self) -> None:
        bit = self.number if self.is_owner else WORD_BITS + self.number % WORD_BITS
        self.bits = 1 << bit | (self.name.bits if self.name else 0)

    @property
    def is_owner(self) -> bool:
        """Whether no other token has its bit."""
        return self.number < WORD_BITS

    def homes_around(self, span: Span | None) -> list[RowIds]:
        """The home lists that have all rows with this token, or with its name alone, whose wide span contains the tight
        span of `span`."""
        above = self.name.homes.all() if self.name else []
        if span is None or span.is_anywhere:
            return above + self.homes.all()
        size, _ = cell_around(span.tight_low, span.tight_high)
        return above + self.homes.around(span.tight_low, size)

    def posts_within(self, span: Span | None) -> tuple[Cells, Cell]:
        """The post list that has all rows with this token whose tight span lies in the wide span of `span`."""
        size, place = home_cell(span)
        for posted in POST_SIZES:
            if posted >= size:
                # The same leading bits, as the place of a larger cell.
                return self.posts, (posted, place << size >> posted)
        # The span is larger than every posted cell. All rows with the name are posted at its root.
        return (self.name or self).posts, ROOT_CELL

    def post(self, span: Span | None, row_id: int) -> None:
        for cell in post_cells(span):
            self.posts.enter(cell, row_id)
        (self.name or self).posts.enter(ROOT_CELL, row_id)

    def withdraw(self, span: Span | None, row_id: int) -> None:
        for cell in post_cells(span):
            self.posts.leave(cell, row_id)
        (self.name or self).posts.leave(ROOT_CELL, row_id)


def post_cells(span: Span | None) -> list[Cell]:
    """The cells that a row is posted in, besides the root of its name: one of each size that has its tight span."""
    if span is None:
        return []
    size, _ = cell_around(span.tight_low, span.tight_high)
    return [(posted, span.tight_low >> posted) for posted in POST_SIZES if posted >= size]


def home_cell(span: Span | None) -> Cell:
    """The smallest cell around the wide span."""
    return ROOT_CELL if span is None else cell_around(span.low, span.high)


Tokens = tuple[tuple[Token, Span | None], ...]


@dataclass(slots=True)
class Row:
    """A filter as integers: its token mask and its slots."""

    keys: tuple[Key, ...]
    tokens: Tokens
    mask: int
    slots: dict[int, Slot]
    needs: int  # the grams that it needs, and those that a sample of it has (`grams.py`)
    has: int
    is_closed: bool
    is_solid: bool
    is_plain: bool

    @property
    def is_empty(self) -> bool:
        """Whether this is the row of the filter that matches nothing: every filter covers it."""
        return not self.keys and not self.is_closed and self.mask == ALL_BITS

    @property
    def is_unplaced(self) -> bool:
        """Whether no token tells where to look for the row: it goes into the common list."""
        return self.is_closed or not self.tokens or any(span and span.is_anywhere for _, span in self.tokens)


class Vocabulary:
    """The tokens in use. The next new token gets the bit and the column of one that is no longer used."""

    def __init__(self) -> None:
        self._tokens: dict[Key, Token] = {}
        self._numbers_free: list[int] = []
        self._slot_uses = [0] * SLOTS

    @property
    def words(self) -> int:
        """How many words of the masks have bits of tokens."""
        return 1 if len(self._tokens) + len(self._numbers_free) <= WORD_BITS else 2

    def __getitem__(self, key: Key) -> Token:
        return self._tokens[key]

    def acquire(self, key: Key) -> Token:
        """The token of a key, which is made if there is none. It stays until it is released as often as acquired."""
        token = self._tokens.get(key)
        if token is None:
            token = self._tokens[key] = self._created(*key)
        token.uses += 1
        return token

    def _created(self, name: str, kind: Kind | None) -> Token:
        # A token with a kind keeps the token of its name in use.
        parent = self.acquire((name, None)) if kind else None
        number = self._numbers_free.pop() if self._numbers_free else len(self._tokens)
        slot = self._slot_uses.index(min(self._slot_uses)) if kind else -1
        if kind:
            self._slot_uses[slot] += 1
        return Token(number, slot, parent)

    def release(self, key: Key) -> None:
        token = self._tokens[key]
        token.uses -= 1
        if not token.uses:
            del self._tokens[key]
            self._numbers_free.append(token.number)
            if token.name:
                self._slot_uses[token.slot] -= 1
                self.release((key[0], None))

    def row(self, boxes: Sequence[Box]) -> Row:
        """The row of a filter or an advertisement, given as a union of boxes. Its tokens stay in use until it is
        released."""
        if not boxes:
            # All bits: every filter has its tokens among these.
            return Row((), (), ALL_BITS, {}, 0, ALL_GRAMS, False, False, False)
        is_closed = _is_closed(boxes)
        named = _named_spans(boxes)
        tokens = tuple((self.acquire(key), span) for key, span in named)
        mask = 0
        for token, _ in tokens:
            mask |= token.bits
        slots, is_plain = _slots(tokens)
        is_solid = is_plain and not is_closed and len(boxes) == 1 and _is_solid(tokens, len(boxes[0].sets))
        keys = tuple(key for key, _ in named)
        bits = ALL_BITS & ~mask if is_closed else mask
        # Advertisements are not told apart by grams: whatever they allow, they need nothing.
        needs, has = (0, ALL_GRAMS) if is_closed else (needed_by(boxes), had_by(boxes[0]))
        return Row(keys, tokens, bits, slots, needs, has, is_closed, is_solid, is_plain)


def _is_closed(boxes: Sequence[Box]) -> bool:
    """Whether it is an advertisement: attributes that it does not name must be absent."""
    return boxes[0].others is ABSENT


def _named_spans(boxes: Sequence[Box]) -> list[tuple[Key, Span | None]]:
    """The keys of the tokens of a filter or an advertisement, each with its span if it has a kind."""
    if not boxes:
        return []
    return _closed_spans(boxes[0]) if _is_closed(boxes) else _open_spans(boxes)


def _open_spans(boxes: Sequence[Box]) -> list[tuple[Key, Span | None]]:
    """The tokens of a filter: each name that all its boxes constrain, with the kind if there is only one."""
    if len(boxes) == 1:
        return [_open_span(name, values) for name, values in boxes[0].sets.items()]
    names = [name for name in boxes[0].sets if all(name in box.sets for box in boxes)]
    joint = [_joint_span(name, [box.sets[name] for box in boxes]) for name in names]
    return [named for named in joint if named is not None]


def _open_span(name: str, values: Values) -> tuple[Key, Span | None]:
    # An attribute that may be absent has no kind.
    kinds = () if values.absent else spans(values)
    if len(kinds) != 1:
        return (name, None), None
    kind, span = kinds[0]
    return (name, kind), span


def _joint_span(name: str, sets: Sequence[Values]) -> tuple[Key, Span | None] | None:
    """The token and span of a name in a union of boxes; None if the boxes together allow everything there."""
    named = [_open_span(name, values) for values in sets]
    key, span = named[0]
    for next_key, next_span in named[1:]:
        if span is None or next_span is None or next_key != key:
            return None if reduce(or_, sets) == EVERYTHING else ((name, None), None)
        span = span.hull(next_span)
    return key, span


def _closed_spans(box: Box) -> list[tuple[Key, Span | None]]:
    """The tokens of an advertisement: each name with each kind that it allows. Without names of the envelope ("$…"),
    which any notification may have."""
    return [((name, kind), span) for name, values in box.sets.items() if name[0] != "$" for kind, span in spans(values)]


def _slots(tokens: Tokens) -> tuple[dict[int, Slot], bool]:
    """The columns of a row, and whether they are plain: all spans are, and no two tokens share a column."""
    slots: dict[int, Slot] = {}
    is_plain = True
    for token, span in tokens:
        if span is not None:
            is_plain &= span.is_plain and token.slot not in slots
            own_slot = (span.low, -span.high, span.tight_low, -span.tight_high)
            slots[token.slot] = _SHARED_SLOT if token.slot in slots else own_slot
    return slots, is_plain


def _is_solid(tokens: Tokens, names: int) -> bool:
    """Whether the columns say all about the values that a filter with so many names allows."""
    spanned = [(token, span) for token, span in tokens if span is not None]
    return len(spanned) == names and all(span.is_solid and token.is_owner for token, span in spanned)


class Candidates(NamedTuple):
    """The rows that a search finds: `sure` are those that the columns decide, `doubtful` those they leave open."""

    sure: Ids
    doubtful: Ids

    def where(self, is_open: Callable[[Ids], npt.NDArray[np.bool_]]) -> Candidates:
        """Without the doubtful rows that `is_open` rules out."""
        return Candidates(self.sure, self.doubtful[is_open(self.doubtful)]) if self.doubtful.size else self

    def settled(self, is_true: Callable[[int], bool]) -> Ids:
        """The rows that are sure, and the doubtful ones for which `is_true` holds."""
        kept = [row_id for row_id in self.doubtful.tolist() if is_true(row_id)]
        return np.concatenate([self.sure, np.array(kept, np.int32)])


class Index:
    """Rows by id; ids are small integers that the caller chooses."""

    def __init__(self) -> None:
        self._vocabulary = Vocabulary()
        # The common list, as one cell: the rows that no token tells where to look for.
        self._common = Cells()
        # By row id. None for rows in the common list, and where there is no row.
        self._homes: list[tuple[Token, Cell] | None] = []
        self._allocate(ROWS_FIRST)

    def _allocate(self, capacity: int) -> None:
        self._masks, self._needs, self._has = (np.zeros((2, capacity), np.int64) for _ in range(3))
        self._wide = np.full((2 * SLOTS, capacity), LEAST, np.int64)
        self._tight = np.full((2 * SLOTS, capacity), LEAST, np.int64)
        self._solid, self._plain, self._live = (np.zeros(capacity, np.bool_) for _ in range(3))

    def _columns(self) -> tuple[npt.NDArray[Any], ...]:
        return self._masks, self._needs, self._has, self._wide, self._tight, self._solid, self._plain, self._live

    def _grow(self) -> None:
        old = self._columns()
        size = len(self._live)
        self._allocate(2 * size)
        new = self._columns()
        for before, after in zip(old, new, strict=True):
            after[..., :size] = before

    # --- rows ---

    def row(self, boxes: Sequence[Box]) -> Row:
        """A row to search with. The caller must add it or release it."""
        return self._vocabulary.row(boxes)

    def release(self, row: Row) -> None:
        for key in row.keys:
            self._vocabulary.release(key)

    def add(self, row_id: int, row: Row) -> None:
        while row_id >= len(self._live):
            self._grow()
        while row_id >= len(self._homes):
            self._homes.append(None)
        for columns, bits in ((self._masks, row.mask), (self._needs, row.needs), (self._has, row.has)):
            columns[:, row_id] = bits & WORD, bits >> WORD_BITS
        self._solid[row_id], self._plain[row_id], self._live[row_id] = row.is_solid, row.is_plain, True
        # A column that a closed row does not use is for attributes that must be absent: its tight span is contained in
        # every span, its wide span contains none. For an open row it is for attributes that may be anything: its wide
        # span contains every span, its tight span is contained in none.
        unused = GREATEST if row.is_closed or row.is_empty else LEAST
        self._wide[:, row_id] = self._tight[:, row_id] = unused
        for slot, (low, high, tight_low, tight_high) in row.slots.items():
            self._wide[2 * slot : 2 * slot + 2, row_id] = low, high
            self._tight[2 * slot : 2 * slot + 2, row_id] = tight_low, tight_high
        self._place(row_id, row)

    def _place(self, row_id: int, row: Row) -> None:
        if row.is_unplaced:
            self._common.enter(ROOT_CELL, row_id)
            return
        # The home is kept: later the counts differ, and another token would be best.
        token, cell = self._homes[row_id] = _best_home(row.tokens)
        token.homes.enter(cell, row_id)
        for token, span in row.tokens:
            token.post(span, row_id)

    def remove(self, row_id: int, boxes: Sequence[Box]) -> None:
        named = _named_spans(boxes)
        self._live[row_id] = False
        home, self._homes[row_id] = self._homes[row_id], None
        if home is None:
            self._common.leave(ROOT_CELL, row_id)
        else:
            home[0].homes.leave(home[1], row_id)
            for key, span in named:
                self._vocabulary[key].withdraw(span, row_id)
        for key, _ in named:
            self._vocabulary.release(key)

    # --- search ---

    def coverers(self, row: Row) -> Candidates:
        """Rows that could cover `row`."""
        lists = self._common.all()
        for token, span in row.tokens:
            lists += token.homes_around(span)
        ids = self._all() if row.is_empty else _joined(lists)
        # A coverer has no token that `row` lacks.
        for word, mask in self._words(row):
            ids = ids[word[ids] & ~mask == 0]
        # The wide span of a coverer contains the tight span of `row`. `high` is negated, so both ends compare alike.
        for slot, (_, _, low, high) in row.slots.items():
            if not ids.size:
                break
            ids = ids[self._wide[2 * slot][ids] <= low]
            ids = ids[self._wide[2 * slot + 1][ids] <= high]
        candidates = _sorted_out(ids, self._solid, row.is_plain)
        # A coverer needs no gram that our sample lacks.
        needs, has = self._needs, _words(row.has)
        return candidates.where(lambda ids: (needs[0][ids] & ~has[0] | needs[1][ids] & ~has[1]) == 0)

    def covered(self, row: Row) -> Candidates:
        """Rows that `row` could cover."""
        if row.tokens:
            posts, cell = min((token.posts_within(span) for token, span in row.tokens), key=_count)
            ids = _joined([*self._common.all(), posts.ids(cell)])
        else:
            ids = self._all()
        # The same comparisons the other way round: here `row` is the coverer.
        for word, mask in self._words(row):
            ids = ids[mask & ~word[ids] == 0]
        for slot, (low, high, _, _) in row.slots.items():
            if not ids.size:
                break
            ids = ids[self._tight[2 * slot][ids] >= low]
            ids = ids[self._tight[2 * slot + 1][ids] >= high]
        candidates = _sorted_out(ids, self._plain, row.is_solid)
        if not row.needs:
            return candidates
        needs, has = _words(row.needs), self._has
        return candidates.where(lambda ids: (needs[0] & ~has[0][ids] | needs[1] & ~has[1][ids]) == 0)

    def _words(self, row: Row) -> Iterator[tuple[npt.NDArray[np.int64], int]]:
        yield self._masks[0], row.mask & WORD
        if self._vocabulary.words > 1:
            yield self._masks[1], row.mask >> WORD_BITS

    def _all(self) -> Ids:
        return np.flatnonzero(self._live).astype(np.int32)


def _words(bits: int) -> tuple[int, int]:
    return bits & WORD, bits >> WORD_BITS


def _best_home(tokens: Tokens) -> tuple[Token, Cell]:
    """The token that keeps a row apart best, with the cell: where the fewest rows are posted that it could cover."""
    token, span = min(tokens, key=lambda named: _count(named[0].posts_within(named[1])))
    return token, home_cell(span)


def _count(posts: tuple[Cells, Cell]) -> int:
    cells, cell = posts
    return cells.count(cell)


def _joined(lists: Sequence[RowIds]) -> Ids:
    """All lists in one array. Of a single list it is a view: nothing is copied, and nobody may change it meanwhile."""
    views = [np.frombuffer(ids, np.int32) for ids in lists if ids]
    if len(views) == 1:
        return views[0]
    return np.concatenate(views) if views else np.empty(0, np.int32)


def _sorted_out(ids: Ids, decided: npt.NDArray[np.bool_], is_decided: bool) -> Candidates:
    """The columns decide where a solid row covers a plain one (`codes.py`). `is_decided` says whether the searched row
    is fit for that, `decided` says it of the rows that the search found."""
    if not is_decided:
        return Candidates(ids[:0], ids)
    sure = decided[ids]
    return Candidates(ids[sure], ids[~sure])
