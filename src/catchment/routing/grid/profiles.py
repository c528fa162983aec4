"""The profile propagation protocol: what the clients of each unit want, counted (Grid §3.2).

The *profile* of a unit is a bag of filters: each with the number of predicates in the unit that are this filter. A
subscription to a filter is one predicate, a pattern has one for each of its filters.

State: for each speaker (`gateways.py`) the profile of its unit as it said it; one matcher that has all these filters,
in one group for each speaker; the profiles of this broker's own units.

speaking   As with connections: every broker states what its own clients want, in its cluster. A gatekeeper of level ℓ
           states what its unit of level ℓ wants, to the other units of level ℓ around it: the sum over the brokers and
           units inside that it believes. A gatekeeper of the highest level also says which of its units of the level
           below has each predicate: so whoever publishes decides about both levels in one matching step
           (`core.py`).
±δω        Only changes are sent: predicates that have come and that have gone. Speaker and number are the unique id of
           a change. A change that is known is not counted again, however many ways it comes. A change that does not
           follow the last one, or takes away more than there is, is the neighbor's mistake.
LinkUp     A new neighbor gets whole profiles first, and changes from then on.
several    If a unit has several gatekeepers, all state the same sum. While a change is on its way they may differ:
           then the greater count is taken, so nothing is missed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import NamedTuple

from catchment.errors import LimitError, RemoteProtocolError
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.routing.core import Table
from catchment.routing.grid.believing import Key
from catchment.routing.grid.gateways import GatewayStatements
from catchment.routing.grid.messages import Counted, Profile, ProfileChange
from catchment.routing.grid.units import Path, shown_path
from catchment.routing.messages import Action, Neighbor, Send, Time
from catchment.routing.parts.link_states import following, implausible, is_plausible
from catchment.routing.parts.recall import RecallingMatcher
from catchment.routing.parts.remote import RemoteFilters

# Where a predicate is (a unit of the level below the highest, or nothing), and its filter.
Predicate = tuple[str, Filter]
Counts = dict[Predicate, int]


class Wanting(NamedTuple):
    """A unit that wants a notification, and the speaker that said so."""

    key: Key
    unit: Path


class _Said:
    """What a speaker has stated."""

    __slots__ = ("counts", "seq", "unit")

    def __init__(self, unit: Path, seq: int) -> None:
        self.unit = unit
        self.seq = seq
        self.counts: Counts = {}


class Profiles:
    """The profiles that a broker knows, and those that it states. `gateways` says whom to believe."""

    def __init__(self, gateways: GatewayStatements) -> None:
        self._gateways = gateways
        self._path = gateways.path
        self._levels = gateways.levels
        self.remote = RemoteFilters()
        self._said: dict[Key, _Said] = {}
        # By holder in `remote`: whom the filters are of.
        self._wanting: dict[str, Wanting] = {}
        # By unit: its profile as it is counted in our own units, and the speakers that it is from.
        self._units: dict[Path, dict[Filter, int]] = {}
        self._speakers: dict[Path, set[Key]] = {}
        # By level: the profile of this broker's unit; what has changed in it since it was stated; what was stated.
        self._own: list[Counts] = [{} for _ in range(self._levels + 1)]
        self._touched: list[dict[Predicate, None]] = [{} for _ in range(self._levels + 1)]
        self._stated: dict[int, _Said] = {}

    # --- what is known ---

    def of(self, unit: Path) -> dict[Predicate, int]:
        """The profile of a unit that this broker sees, by the speakers that it believes."""
        counts: Counts = {}
        for key in self._speakers.get(unit, ()):
            for predicate, count in self._said[key].counts.items():
                counts[predicate] = max(count, counts.get(predicate, 0))
        return counts

    def own(self, level: int) -> Mapping[Predicate, int]:
        """The profile of this broker's own unit of a level. Not a copy."""
        return self._own[level]

    @property
    def matcher(self) -> RecallingMatcher[tuple[str, ...]]:
        return self.remote.matcher

    def wanting(self, batch: list[Notification]) -> list[tuple[str, ...]]:
        """For each notification, the holders of filters that match it."""
        return self.remote.wanting(batch)

    def units_of(self, holders: Iterable[str]) -> list[Wanting]:
        """The units behind some holders, of speakers that are believed."""
        believed = self._gateways.believed
        return [wanting for holder in holders if (wanting := self._wanting[holder]).key in believed]

    # --- our own clients ---

    def count(self, filters: Iterable[Filter], by: int) -> None:
        """Clients of this broker want some filters more, or no longer."""
        for filter in filters:
            if not filter.is_empty:
                self._add(self._path, 0, filter, by)

    def _add(self, unit: Path, lowest: int, filter: Filter, by: int) -> None:
        """So many predicates have come to a unit inside all our units from level `lowest` on."""
        for level in range(lowest, self._levels + 1):
            predicate = (unit[1] if level == self._levels else "", filter)
            counts = self._own[level]
            counts[predicate] = counts.get(predicate, 0) + by
            assert counts[predicate] >= 0, "units take back only what they stated"
            if not counts[predicate]:
                del counts[predicate]
            self._touched[level][predicate] = None

    def wholes(self, neighbor: Neighbor) -> list[Action]:
        """What a new neighbor must be told before any change: all that has been stated so far."""
        known = [(self._gateways.name, said) for said in self._stated.values()]
        known += [(key[1], said) for key, said in sorted(self._said.items(), key=lambda each: each[0])]
        return [
            Send(neighbor, Profile(said.unit, speaker, said.seq, _counted(said.counts)))
            for speaker, said in known
            if self._gateways.may_cross(said.unit, neighbor)
        ]

    def settled(self, now: Time) -> list[Action]:
        """After a change: whom to believe, and what to state."""
        self._believe()
        actions: list[Action] = []
        for level in range(self._levels + 1):
            if self._gateways.speaks_at(level):
                actions += self._state(level, now)
            else:
                self._stated.pop(level, None)
            self._touched[level].clear()
        return actions

    def _state(self, level: int, now: Time) -> list[Action]:
        said, unit = self._stated.get(level), self._path[: len(self._path) - level]
        if said is None:
            said = self._stated[level] = _Said(unit, following(0, now))
            said.counts = dict(self._own[level])
            whole = Profile(unit, self._gateways.name, said.seq, _counted(said.counts))
            return self._gateways.flooded(whole, unit)
        minus, plus = self._difference(level, said.counts)
        if not minus and not plus:
            return []
        before, said.seq = said.seq, following(said.seq, now)
        change = ProfileChange(unit, self._gateways.name, said.seq, before, _counted(minus), _counted(plus))
        return self._gateways.flooded(change, unit)

    def _difference(self, level: int, stated: Counts) -> tuple[Counts, Counts]:
        """What has gone and what has come since it was stated; it counts as stated from now on."""
        minus: Counts = {}
        plus: Counts = {}
        for predicate in self._touched[level]:
            before, after = stated.pop(predicate, 0), self._own[level].get(predicate, 0)
            if after:
                stated[predicate] = after
            if after > before:
                plus[predicate] = after - before
            elif after < before:
                minus[predicate] = before - after
        return minus, plus

    # --- what speakers say ---

    def heard(self, message: Profile | ProfileChange, source: Neighbor, now: Time) -> list[Action]:
        """A neighbor passes on a profile or a change of one. `settled` has to follow."""
        if not self._gateways.is_for_us(message.unit, message.speaker, source):
            return self._outbid(message, now) if message.speaker == self._gateways.name else []
        if not is_plausible(message.seq, now):
            return implausible(message.speaker, message.seq, source, now)
        key = self._gateways.level(message.unit), message.speaker
        if self._gateways.statement(key) is None:
            # Its connections found no room, or are forgotten.
            return []
        said = self._said.get(key)
        known = -1 if said is None else said.seq
        if message.seq <= known:
            return self._on_known(message, key, known, source)
        minus, plus = self._changes(message, said, known, source)
        self._check_room(len(plus) - len(minus))
        if said is None or said.unit != message.unit:
            self.forget(key)
            said = self._said[key] = _Said(message.unit, message.seq)
        said.seq = message.seq
        self._apply(key, said, minus, plus)
        return self._gateways.flooded(message, message.unit, source)

    def _on_known(self, message: Profile | ProfileChange, key: Key, known: int, source: Neighbor) -> list[Action]:
        if message.seq == known:
            is_repeated = isinstance(message, Profile) and self._gateways.may_repeat(Profile, key)
            return self._gateways.flooded(message, message.unit, source) if is_repeated else []
        if source.name != message.speaker:
            return []
        said = self._said[key]
        # The speaker's clock has gone back: it hears what it said before, and outbids it.
        return [Send(source, Profile(said.unit, message.speaker, said.seq, _counted(said.counts)))]

    def _outbid(self, message: Profile | ProfileChange, now: Time) -> list[Action]:
        stated = self._stated.get(self._gateways.level(message.unit))
        if stated is None or message.seq < stated.seq or message.unit != stated.unit:
            return []
        stated.seq = following(message.seq, now)
        whole = Profile(stated.unit, self._gateways.name, stated.seq, _counted(stated.counts))
        return self._gateways.flooded(whole, stated.unit)

    def _changes(
        self, message: Profile | ProfileChange, said: _Said | None, known: int, source: Neighbor
    ) -> tuple[Counts, Counts]:
        """How many of each predicate go and come. RemoteProtocolError if the change cannot be."""
        is_top = self._gateways.level(message.unit) == self._levels
        lists = (message.counts,) if isinstance(message, Profile) else (message.minus, message.plus)
        if any(bool(each.within) != is_top for listed in lists for each in listed):
            what = f"told a profile of {shown_path(message.unit)} that says wrongly in which units its predicates are"
            raise RemoteProtocolError(source.name, what)
        counts = said.counts if said is not None and said.unit == message.unit else {}
        about = f"the profile of {shown_path(message.unit)} by {message.speaker}"
        if isinstance(message, Profile):
            after = _counts(message.counts)
            minus = {each: count - after.get(each, 0) for each, count in counts.items() if count > after.get(each, 0)}
            plus = {each: count - counts.get(each, 0) for each, count in after.items() if count > counts.get(each, 0)}
            return minus, plus
        if message.after != known:
            what = f"told a change of {about} after {message.after}, known is {known}"
            raise RemoteProtocolError(source.name, what)
        minus, plus = _counts(message.minus), _counts(message.plus)
        short = next((each for each, count in minus.items() if count > counts.get(each, 0)), None)
        if short is not None:
            what = f"told a change that takes {minus[short]} of {short[1]} from {about}: it has {counts.get(short, 0)}"
            raise RemoteProtocolError(source.name, what)
        return minus, plus

    def _check_room(self, more: int) -> None:
        try:
            self.remote.check_room(more)
        except LimitError:
            self._gateways.forget_doubted()
            self.remote.check_room(more)

    def _apply(self, key: Key, said: _Said, minus: Counts, plus: Counts) -> None:
        for changes, sign in ((plus, 1), (minus, -1)):
            for predicate, count in changes.items():
                before = said.counts.get(predicate, 0)
                after = said.counts[predicate] = before + sign * count
                if not before:
                    self.remote.add(self._holder(key, said.unit, predicate[0]), predicate[1])
                if not after:
                    del said.counts[predicate]
                    self.remote.remove(self._holder(key, said.unit, predicate[0]), predicate[1])
        if key in self._speakers.get(said.unit, ()):
            self._recount(said.unit, {predicate[1] for predicate in (*minus, *plus)})

    def _holder(self, key: Key, unit: Path, within: str) -> str:
        """The name of a group of filters: no name of a unit or broker has a line end in it."""
        inner = (*unit, within) if within else unit
        holder = "\n".join((str(key[0]), key[1], *inner))
        self._wanting.setdefault(holder, Wanting(key, inner))
        return holder

    def forget(self, key: Key) -> None:
        """A speaker is forgotten, with all that it said."""
        said = self._said.pop(key, None)
        if said is None:
            return
        for within, filter in said.counts:
            self.remote.remove(self._holder(key, said.unit, within), filter)
        self._wanting = {holder: each for holder, each in self._wanting.items() if each.key != key}
        if key in self._speakers.get(said.unit, ()):
            self._speakers[said.unit].discard(key)
            self._recount(said.unit, {filter for _, filter in said.counts})

    # --- believing ---

    def _believe(self) -> None:
        speakers: dict[Path, set[Key]] = {}
        for key in self._gateways.believed:
            if key in self._said:
                speakers.setdefault(self._said[key].unit, set()).add(key)
        changed = [
            unit
            for unit in {*speakers, *self._speakers}
            if speakers.get(unit, set()) != self._speakers.get(unit, set())
        ]
        before, self._speakers = self._speakers, speakers
        for unit in sorted(changed):
            keys = before.get(unit, set()) | speakers.get(unit, set())
            filters = {predicate[1] for key in keys if key in self._said for predicate in self._said[key].counts}
            self._recount(unit, filters | self._units.get(unit, {}).keys())

    def _recount(self, unit: Path, filters: Set[Filter]) -> None:
        """Counts some filters of a unit anew: the greatest count of the speakers that are believed."""
        level = self._gateways.level(unit)
        if level == self._levels:
            # What units of the highest level want is in none of this broker's own units.
            return
        counts = self._units.setdefault(unit, {})
        speakers = [self._said[key].counts for key in self._speakers.get(unit, ())]
        for filter in sorted(filters, key=str):
            before = counts.pop(filter, 0)
            after = max((said.get(("", filter), 0) for said in speakers), default=0)
            if after:
                counts[filter] = after
            if after != before:
                self._add(unit, level + 1, filter, after - before)
        if not counts:
            del self._units[unit]

    # --- looking in ---

    def tables(self) -> list[Table]:
        """One table for each speaker that is believed. What others said is kept until it is believed again, or
        forgotten; notifications do not go by it."""
        tables: dict[str, Table] = {}
        for table in self.remote.tables():
            key = self._wanting[table.holder].key
            if key in self._gateways.believed:
                before = tables.get(key[1], Table(key[1], 0, 0))
                tables[key[1]] = Table(key[1], before.filters + table.filters, before.bytes + table.bytes)
        return list(tables.values())

    def held(self) -> dict[str, list[Filter]]:
        """By speaker that is believed: the filters that it stated, once for each unit that wants them."""
        filters: dict[str, list[Filter]] = {}
        for holder, wanting in sorted(self._wanting.items()):
            if wanting.key in self._gateways.believed:
                filters.setdefault(wanting.key[1], []).extend(self.remote.of(holder))
        return filters

    def leftovers(self) -> Iterator[str]:
        for unit in sorted(self._speakers):
            yield from (f"{filter} of {shown_path(unit)}" for _, filter in self.of(unit))


def _counted(counts: Mapping[Predicate, int]) -> tuple[Counted, ...]:
    ordered = sorted(counts.items(), key=lambda each: (each[0][0], str(each[0][1])))
    return tuple(Counted(within, filter, count) for (within, filter), count in ordered)


def _counts(counted: Iterable[Counted]) -> Counts:
    counts: Counts = {}
    for each in counted:
        predicate = each.within, each.filter
        counts[predicate] = counts.get(predicate, 0) + each.count
    return counts
