"""What travels to a neighbor and what comes from one: between names, as the core has them, and numbers of the wire.

Two processes have different schemas, and schemas grow. So each direction of a link has numbers of its own for
attributes and brokers, which the sender gives in the order in which it needs the names. The receiver keeps the names.
No attribute and no broker changes its number until the sender begins anew (`Summarized`).

What a neighbor says is checked here before anything of it is used. RemoteProtocolError says what was wrong: a number
that no name was given for, an id without attributes, a row that is not in c3 of its id, a broker that nobody has heard
of, a pair that is withdrawn and was never announced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import Final, Literal

from catchment.errors import CatchmentError, LimitError, RemoteProtocolError, shown
from catchment.model.values import KEY_BOUNDS, Type, checked_name
from catchment.routing.parts.remote import check_limit
from catchment.routing.summary.aacs import BOOL, NUMBER, TIME
from catchment.routing.summary.ids import SCHEMA_ATTRIBUTES_MAX
from catchment.routing.summary.merged import MergedSummary, PairChange
from catchment.routing.summary.messages import Ids, PatternIds, RangeIds, Rows, Summarized, SummaryChange
from catchment.routing.summary.received import ReceivedSummary
from catchment.routing.summary.rows import (
    EVERYTHING,
    NUMBERS_MAX,
    Brokers,
    Names,
    Pair,
    PatternRow,
    RangeRow,
    RowKey,
    grouped,
    pairs_of,
)
from catchment.routing.summary.sacs import Pattern

# Pairs of a row and an id in the summaries of all neighbors together: some gigabytes. A neighbor that sends more loses
# its link.
SUMMARY_PAIRS_MAX: Final = 8_000_000
# About how long one message gets: a link carries nothing else meanwhile. A quarter of the longest frame.
MESSAGE_BYTES: Final = 8 * 1_048_576
# Of these, about: a row without its operand, an id in a row, an id with its attributes.
_ROW_BYTES, _PAIR_BYTES, _NAMED_BYTES = 32, 10, 16
_KINDS: Final[dict[str, Literal[0, 1, 2]]] = {NUMBER: 0, TIME: 1, BOOL: 2}
_KIND_NAMES: Final = tuple(_KINDS)
_KIND_BOUNDS: Final = {NUMBER: KEY_BOUNDS[Type.FLOAT], TIME: KEY_BOUNDS[Type.TIME], BOOL: KEY_BOUNDS[Type.BOOL]}

NamesOf = Callable[[int], Names]


# --- sending ------------------------------------------------------------------------------------


class Numbers:
    """Names in the order in which they were numbered."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._said = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def unsaid(self) -> tuple[str, ...]:
        """The names that were numbered since this was last called."""
        names = tuple(islice(self._numbers, self._said, None))
        self._said = len(self._numbers)
        return names


class Outgoing:
    """What this broker tells one neighbor. `codes` are ids of this process."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._seq = 0
        # The set Merged_Brokers that was sent.
        self.merged_brokers: frozenset[str] = frozenset()
        self._begin()

    def _begin(self) -> None:
        self._attribute_numbers, self._broker_numbers = Numbers(), Numbers()
        # The attributes of each id that was sent, and how many rows it is in.
        self._sent: dict[int, tuple[Names | None, int]] = {}

    def whole(
        self, summary: MergedSummary, brokers: Iterable[str], names_of: NamesOf
    ) -> list[Summarized | SummaryChange]:
        """The messages that say the whole summary."""
        self._begin()
        # What has changed until now is part of it.
        summary.flush()
        self.merged_brokers = frozenset(brokers)
        parts = list(_parts(summary.rows(), len({row.name for row, _ in summary.rows()}) // 8))
        messages: list[Summarized | SummaryChange] = []
        for i, pairs in enumerate(parts):
            # With the last part: until then, the neighbor must not take these brokers as examined.
            merged = sorted(self.merged_brokers) if i == len(parts) - 1 else ()
            numbers = tuple(self._broker_numbers[name] for name in merged)
            for _, code in pairs:
                names, count = self._sent.get(code, (None, 0))
                self._sent[code] = names, count + 1
            ids, rows = self._ids((code for _, code in pairs), names_of), self._rows(pairs)
            self._seq += 1
            attributes, brokers_named = self._attribute_numbers.unsaid(), self._broker_numbers.unsaid()
            messages.append(
                SummaryChange(self._seq, self._seq - 1, attributes, brokers_named, (), numbers, ids, Rows(), rows)
                if i
                else Summarized(self._seq, attributes, brokers_named, numbers, ids, rows)
            )
        return messages

    def ended(self) -> Summarized:
        """Says that the neighbor is sent no summary any more."""
        return Summarized(self._seq + 1, (), (), (), (), Rows())

    def change(self, change: PairChange, brokers: Iterable[str], names_of: NamesOf) -> SummaryChange | None:
        """The message that says what has changed; None if the whole should be said instead."""
        after = frozenset(brokers)
        left = tuple(self._broker_numbers[name] for name in sorted(self.merged_brokers - after))
        joined = tuple(self._broker_numbers[name] for name in sorted(after - self.merged_brokers))
        rows = len({row for row, _ in change.gone}) + len({row for row, _ in change.new})
        weight = sum(_weight(row) for row, _ in change.new) + rows * _ROW_BYTES + len(change.gone) * _PAIR_BYTES
        # c3 of each id has a bit for each attribute.
        weight += len(change.new) * len(self._attribute_numbers) // 8
        if weight > MESSAGE_BYTES:
            return None
        withdrawn, announced = self._rows(change.gone), self._rows(change.new)
        for step, pairs in ((-1, change.gone), (1, change.new)):
            for _, code in pairs:
                names, count = self._sent.get(code, (None, 0))
                self._sent[code] = names, count + step
        ids = self._ids((code for _, code in (*change.gone, *change.new)), names_of)
        if len(self._attribute_numbers) > SCHEMA_ATTRIBUTES_MAX or len(self._broker_numbers) > SCHEMA_ATTRIBUTES_MAX:
            # Names that were numbered are not needed any more: beginning anew frees their numbers.
            return None
        self.merged_brokers = after
        self._seq += 1
        attributes, brokers_named = self._attribute_numbers.unsaid(), self._broker_numbers.unsaid()
        return SummaryChange(
            self._seq, self._seq - 1, attributes, brokers_named, left, joined, ids, withdrawn, announced
        )

    def _ids(self, codes: Iterable[int], names_of: NamesOf) -> tuple[tuple[bytes, Ids], ...]:
        """Of ids that were touched: those whose attributes the neighbor does not know, or knows as others. Forgets
        those that are in no row any more."""
        unknown: dict[bytes, list[int]] = {}
        for code in dict.fromkeys(codes):
            names, count = self._sent[code]
            if not count:
                del self._sent[code]
            elif (current := names_of(code)) != names:
                self._sent[code] = current, count
                unknown.setdefault(self._bits(current), []).append(code)
        return tuple((bits, self._numbered(some)) for bits, some in sorted(unknown.items()))

    def _bits(self, names: Names) -> bytes:
        bits = 0
        for name in sorted(names):
            bits |= 1 << self._attribute_numbers[name]
        return bits.to_bytes((bits.bit_length() + 7) // 8, "big")

    def _numbered(self, codes: Iterable[int]) -> Ids:
        by_owner = self._brokers.by_owner(codes)
        return tuple((self._broker_numbers[owner], tuple(sorted(by_owner[owner]))) for owner in sorted(by_owner))

    def _rows(self, pairs: Iterable[Pair]) -> Rows:
        ranges: list[RangeIds] = []
        patterns: list[PatternIds] = []
        everything: Ids = ()
        for row, codes in sorted(grouped(pairs).items(), key=_row_order):
            ids = self._numbered(codes)
            match row:
                case RangeRow(name, kind, low, high):
                    ranges.append(RangeIds(self._attribute_numbers[name], _KINDS[kind], low, high - low, ids))
                case PatternRow(name, pattern):
                    patterns.append(PatternIds(self._attribute_numbers[name], *pattern, ids))
                case _:
                    everything = ids
        return Rows(tuple(ranges), tuple(patterns), everything)


def _row_order(row_and_codes: tuple[RowKey, list[int]]) -> tuple[str, RowKey]:
    # Rows of different kinds have no order.
    return type(row_and_codes[0]).__name__, row_and_codes[0]


def _weight(row: RowKey) -> int:
    return _PAIR_BYTES + _NAMED_BYTES + (4 * len(row.pattern.operand) if isinstance(row, PatternRow) else 0)


def _parts(rows: Iterable[tuple[RowKey, Iterable[int]]], names_bytes: int) -> Iterator[list[Pair]]:
    """All pairs, in parts that each fit a message; at least one part. c3 of an id takes at most `names_bytes`."""
    part: list[Pair] = []
    weight = 0
    for row, code in pairs_of(rows):
        if weight > MESSAGE_BYTES:
            yield part
            part, weight = [], 0
        part.append((row, code))
        weight += _weight(row) + _ROW_BYTES + names_bytes
    yield part


# --- receiving ----------------------------------------------------------------------------------


class Incoming:
    """What one neighbor has told this broker. `is_known` says whether there is a record of a broker's links."""

    def __init__(self, neighbor: str, brokers: Brokers, is_known: Callable[[str], bool]) -> None:
        self.summary = ReceivedSummary()
        self._neighbor = neighbor
        self._brokers = brokers
        self._is_known = is_known
        self._seq = 0
        self._attributes: list[str] = []
        self._names: list[str] = []

    def hear(self, message: Summarized | SummaryChange, pairs_elsewhere: int = 0) -> PairChange:
        """Takes in a message. Returns the pairs that have gone and come. RemoteProtocolError or LimitError if the
        message cannot be: then nothing has changed. `pairs_elsewhere` is how many pairs other neighbors have sent."""
        try:
            if isinstance(message, Summarized):
                return self._replace(message, pairs_elsewhere)
            if message.after != self._seq:
                raise self._wrong(f"told a change of its summary after {message.after}, known is {self._seq}")
            return self._change(message, pairs_elsewhere)
        except (RemoteProtocolError, LimitError):
            raise
        except CatchmentError as problem:
            # A name or a pattern that the model refuses.
            raise self._wrong(f"sent a summary that cannot be: {problem}") from None

    def _wrong(self, what: str) -> RemoteProtocolError:
        return RemoteProtocolError(self._neighbor, what)

    def _replace(self, message: Summarized, pairs_elsewhere: int) -> PairChange:
        """A whole summary: taken in beside the old one, which it then replaces."""
        anew = Incoming(self._neighbor, self._brokers, self._is_known)
        change = SummaryChange(
            message.seq, 0, message.attributes, message.brokers, (), message.merged, message.ids, Rows(), message.rows
        )
        anew._change(change, pairs_elsewhere)
        before, after = self.summary, anew.summary
        after.looked_up = before.looked_up
        self.summary, self._seq, self._attributes, self._names = after, anew._seq, anew._attributes, anew._names
        return PairChange(
            [pair for pair in before.pairs() if pair not in after],
            [pair for pair in after.pairs() if pair not in before],
        )

    def _change(self, message: SummaryChange, pairs_elsewhere: int) -> PairChange:
        attributes = self._grown(self._attributes, message.attributes, "attributes")
        brokers = self._grown(self._names, message.brokers, "brokers")
        for name in message.attributes:
            checked_name(name)
        for name in message.brokers:
            if not self._is_known(name):
                raise self._wrong(f"summarized for {shown(name)}, which nobody has links to")
        reading = _Reading(self._wrong, attributes, [self._brokers.number(name) for name in brokers], self._brokers)
        merged = self._merged_after(message, brokers)
        names: dict[int, Names] = {}
        for bits, ids in message.ids:
            names |= dict.fromkeys(reading.codes(ids), reading.names(bits))
        change = PairChange(list(reading.pairs(message.withdrawn)), list(reading.pairs(message.announced)))
        count = pairs_elsewhere + self.summary.pairs_count + len(change.new) - len(change.gone)
        check_limit("SUMMARY_PAIRS_MAX", SUMMARY_PAIRS_MAX, count)
        self._check(change, names)
        self.summary.change(change, names)
        self.summary.merged_brokers = merged
        self._seq, self._attributes, self._names = message.seq, attributes, brokers
        return change

    def _grown(self, known: list[str], more: Sequence[str], what: str) -> list[str]:
        names = [*known, *more] if more else known
        if len(names) > SCHEMA_ATTRIBUTES_MAX:
            raise LimitError("SCHEMA_ATTRIBUTES_MAX", SCHEMA_ATTRIBUTES_MAX, f"{len(names):,} {what}")
        if more and len(set(names)) < len(names):
            raise self._wrong(f"numbered some {what} twice")
        return names

    def _merged_after(self, message: SummaryChange, brokers: Sequence[str]) -> set[str]:
        """Merged_Brokers as it is after a change."""
        for number in (*message.left, *message.joined):
            if not 0 <= number < len(brokers):
                raise self._wrong(f"merged broker number {number}, and named {len(brokers)} brokers")
        gone = {brokers[number] for number in message.left}
        merged = (self.summary.merged_brokers - gone) | {brokers[number] for number in message.joined}
        if merged and self._neighbor not in merged:
            raise self._wrong("sent a summary that does not have its own subscriptions")
        return merged

    def _check(self, change: PairChange, names: Mapping[int, Names]) -> None:
        """Pairs go that are there and come that are not; each id is in rows of its own attributes; rows of one
        attribute do not overlap."""
        gone = set(change.gone)
        if len(gone) < len(change.gone) or any(pair not in self.summary for pair in gone):
            raise self._wrong("withdrew an id from a row that it is not in")
        new = set(change.new)
        if len(new) < len(change.new) or any(pair in self.summary and pair not in gone for pair in new):
            raise self._wrong("announced an id for a row that it is in")
        for row, code in change.new:
            known = names.get(code, self.summary.names_of(code))
            if known is None:
                raise self._wrong("announced an id without saying which attributes it names")
            if row.name not in known and (row.name or known):
                raise self._wrong(f"announced an id for a row of {shown(row.name)}, which it does not name")
        self._check_ranges(change)

    def _check_ranges(self, change: PairChange) -> None:
        emptied = {row for row, codes in grouped(change.gone).items() if len(codes) == self.summary.count_of(row)}
        fresh: dict[tuple[str, str], list[RangeRow]] = {}
        for row in dict.fromkeys(row for row, _ in change.new):
            if isinstance(row, RangeRow):
                beside = [other for other in self.summary.beside(row, emptied) if _overlap(row, other)]
                if beside:
                    raise self._wrong(f"announced rows of {shown(row.name)} that overlap")
                fresh.setdefault((row.name, row.kind), []).append(row)
        for rows in fresh.values():
            rows.sort()
            if any(first.high > second.low for first, second in pairwise(rows)):
                raise self._wrong(f"announced rows of {shown(rows[0].name)} that overlap")


def _overlap(first: RangeRow, second: RangeRow) -> bool:
    return first != second and first.low < second.high and second.low < first.high


class _Reading:
    """Reads the numbers of one message."""

    def __init__(
        self,
        wrong: Callable[[str], RemoteProtocolError],
        attributes: Sequence[str],
        broker_numbers: Sequence[int],
        brokers: Brokers,
    ) -> None:
        self._wrong = wrong
        self._attributes = attributes
        self._broker_numbers = broker_numbers
        self._brokers = brokers

    def names(self, bits: bytes) -> Names:
        """The attributes of a bit set, c3."""
        if len(bits) > len(self._attributes) // 8 + 1:
            raise self._wrong("named an attribute in an id that is not in its schema")
        number = int.from_bytes(bits, "big")
        places = [place for place in range(number.bit_length()) if number >> place & 1]
        return frozenset(map(self._attribute, places))

    def _attribute(self, place: int) -> str:
        if not 0 <= place < len(self._attributes):
            raise self._wrong(f"used attribute number {place}, and named {len(self._attributes)} attributes")
        return self._attributes[place]

    def codes(self, ids: Ids) -> Iterator[int]:
        for broker, numbers in ids:
            if not 0 <= broker < len(self._broker_numbers):
                raise self._wrong(f"used broker number {broker}, and named {len(self._broker_numbers)} brokers")
            for number in numbers:
                if not 0 <= number < NUMBERS_MAX:
                    raise self._wrong(f"used {number} as the number of a subscription")
                yield self._brokers.code_of(self._broker_numbers[broker], number)

    def pairs(self, rows: Rows) -> Iterator[Pair]:
        for row in rows.ranges:
            kind = _KIND_NAMES[row.kind]
            low, high = _KIND_BOUNDS[kind]
            if not low <= row.low < row.low + row.span <= high + 1:
                raise self._wrong(f"sent a row of {row.span} keys from {row.low}, which is no range")
            key = RangeRow(self._attribute(row.attribute), kind, row.low, row.low + row.span)
            yield from ((key, code) for code in self.codes(row.ids))
        for some in rows.patterns:
            pattern = PatternRow(self._attribute(some.attribute), Pattern.checked(some.operator, some.operand))
            yield from ((pattern, code) for code in self.codes(some.ids))
        yield from ((EVERYTHING, code) for code in self.codes(rows.everything))
