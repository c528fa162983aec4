"""Records that every broker floods: each broker has a table of its own, and keeps a copy of the table of every other.

A table, the *record* of its *origin*, maps keys to values. The origin numbers each state of its record. It floods what
has changed (`after` is the number of the state before), and gives a new neighbor the whole record (`after` is None). A
broker passes a message on only when it is new to it, which ends the flooding.

change       The origin applies it, gives it the next number, and floods it.
whole        It replaces the known record of its origin if its number is greater, and is flooded on.
gap          A change that does not follow the known state. A link keeps order, and a neighbor floods a record before
             the changes that follow it, so a gap is the neighbor's mistake.
own record   A broker hears its own record with a number that is not less than its current one: the record is from
             before a crash, and the clock has gone back since. The broker states its record again, with a greater
             number.
link up      The broker sends all records that it has: two networks that were apart become one.

What makes sense is as with link states (`link_states.py`): a number that is too far ahead of the clock is none, there
are records only of brokers whose links are known, and a record goes with the links of its origin. Until then records of
brokers that cannot be reached are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from catchment.errors import RemoteProtocolError
from catchment.routing.messages import Action, Neighbor, Time
from catchment.routing.parts.link_states import LinkStates, following, implausible, is_plausible
from catchment.routing.parts.remote import check_limit

K = TypeVar("K", bound=Any)
V = TypeVar("V")


# A message about a record. Each system has a class of its own, derived from BrokerMessage, with its types of keys and
# values: `origin`, `seq`, `after`, `gone` (keys), `new` (pairs of a key and a value).
R = TypeVar("R", bound=Any)


class FloodedRecords(Generic[R, K, V]):
    """The records of all brokers, at the broker whose link states are `links`. `make` makes a message. `changed` is
    told of each change: the origin, the entries that are gone, and those that are new. `weight` says for how many
    entries one value counts; all entries together count at most for `weight_max`, whose name is `limit`."""

    def __init__(
        self,
        links: LinkStates,
        make: Callable[[str, int, int | None, tuple[K, ...], tuple[tuple[K, V], ...]], R],
        changed: Callable[[str, Mapping[K, V], Mapping[K, V]], None],
        limit: str,
        weight_max: int,
        weight: Callable[[V], int] = lambda value: 1,
    ) -> None:
        self.name = name = links.name
        self._links = links
        self._make = make
        self._changed = changed
        self._limit, self._weight_max, self._weight = limit, weight_max, weight
        # By origin: the number of the state, and the state.
        self._seqs: dict[str, int] = {name: 0}
        self._entries: dict[str, dict[K, V]] = {name: {}}
        self._total = 0

    @property
    def origins(self) -> list[str]:
        return sorted(self._entries)

    def of(self, origin: str) -> Mapping[K, V]:
        """The record of an origin. Not a copy: it changes with the next message."""
        return self._entries.get(origin, {})

    # --- our own record ---

    def state(self, gone: Iterable[K], new: Mapping[K, V], now: Time) -> R:
        """Changes our own record. Returns the message that is to be flooded."""
        before = self._started(now)
        seq = self._seqs[self.name] = following(before, now)
        left = {key: self._entries[self.name][key] for key in gone}
        self._apply(self.name, left, new)
        return self._make(self.name, seq, before, tuple(left), tuple(new.items()))

    def wholes(self, now: Time) -> list[R]:
        """All records, for a new neighbor."""
        self._started(now)
        return [self._whole(origin) for origin in self.origins]

    def _started(self, now: Time) -> int:
        """The number of our record. The first message tells the time: our record has a number above those from before a
        crash."""
        if not self._seqs[self.name]:
            self._seqs[self.name] = following(0, now)
        return self._seqs[self.name]

    def _whole(self, origin: str) -> R:
        entries = self._entries[origin]
        return self._make(origin, self._seqs[origin], None, (), tuple((key, entries[key]) for key in sorted(entries)))

    # --- what neighbors say ---

    def heard(self, record: R, source: Neighbor, now: Time) -> list[Action]:
        """Takes what a neighbor says about a record, and floods what is new in it. LimitError if there is no room for
        it; RemoteProtocolError if it contradicts what was said before."""
        if not is_plausible(record.seq, now):
            return implausible(record.origin, record.seq, source, now)
        if record.origin == self.name:
            mine = self._outbid(record, now)
            # Our own record, stated again, goes to the neighbor too.
            return [] if mine is None else self.flooded(mine)
        if record.origin not in self._links.records:
            # Its links were dropped, or are forgotten.
            return []
        known = self._seqs.get(record.origin)
        if known is not None and record.seq <= known:
            is_same = record.seq == known and record.after is None
            is_repeated = is_same and self._links.may_repeat(type(record), record.origin)
            return self.flooded(record, source) if is_repeated else []
        gone, new = self._difference(record, source, known)
        check_limit(self._limit, self._weight_max, self._total + self._weighed(new) - self._weighed(gone))
        self._seqs[record.origin] = record.seq
        self._entries.setdefault(record.origin, {})
        self._apply(record.origin, gone, new)
        return self.flooded(record, source)

    def flooded(self, record: R, source: Neighbor | None = None) -> list[Action]:
        """Sends a message about a record to all neighbors except the one it came from."""
        return self._links.flooded(record, source)

    def forget(self, origin: str) -> None:
        """The links of an origin are forgotten: so is its record."""
        if self._seqs.pop(origin, None) is not None:
            self._apply(origin, dict(self._entries[origin]), {})
            del self._entries[origin]

    def _outbid(self, record: R, now: Time) -> R | None:
        mine = self._started(now)
        # An echo of what we flooded needs no answer. Anything else with our number or a greater one is from before a
        # crash: other brokers would prefer it to ours, so ours must get a number above it.
        is_echo = record.seq == mine and (record.after is not None or dict(record.new) == self._entries[self.name])
        if record.seq < mine or is_echo:
            return None
        self._seqs[self.name] = following(record.seq, now)
        return self._whole(self.name)

    def _difference(self, record: R, source: Neighbor, known: int | None) -> tuple[dict[K, V], dict[K, V]]:
        """The entries that are gone and those that are new, if the record follows what is known."""
        before, new = self._entries.get(record.origin, {}), dict(record.new)
        if record.after is None:
            gone = {key: value for key, value in before.items() if key not in new or new[key] != value}
            return gone, {key: value for key, value in new.items() if key not in before or key in gone}
        if record.after != known:
            what = f"told a change of {record.origin} after {record.after}, known is {known}"
            raise RemoteProtocolError(source.name, what)
        if any(key not in before for key in record.gone) or any(key in before for key in new):
            what = f"told a change of {record.origin} that takes away what is not there, or adds what is"
            raise RemoteProtocolError(source.name, what)
        return {key: before[key] for key in record.gone}, new

    def _weighed(self, entries: Mapping[K, V]) -> int:
        return sum(map(self._weight, entries.values()))

    def _apply(self, origin: str, gone: Mapping[K, V], new: Mapping[K, V]) -> None:
        entries = self._entries[origin]
        for key in gone:
            del entries[key]
        entries.update(new)
        self._total += self._weighed(new) - self._weighed(gone)
        if gone or new:
            self._changed(origin, gone, new)
