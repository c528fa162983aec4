"""Advertisement forwarding, with parts of patterns watched upstream (SIENA §5.1, §5.4, Tables 5 and 6, Figure 23).

A pattern that is *needed* here, by the monitors of local clients or by neighbors that delegated it, is factored
(`available.py`): its runs are delegated to the neighbors that alone provide them, and its other filters are plain
interest, held in the name of the pattern. What neighbors delegated is not watched by a monitor but thinned
(`thinning.py`). Server 2 of Figure 23 treats what server 1 delegated as server 1 treats what a client wants.

State: the needed patterns, each with who needs it and its runs; for each neighbor the parts told to it with their
*users*, the runs that are served by them: equal parts are shared. The filters of runs count for monitors and thinners
only when they come in a `Part`, the others only when they come by themselves.

Subscribe, Cancel, …     a need begins or ends; then all runs are chosen anew, and neighbors are told the difference.
Advertised, Interest, …  runs are chosen anew likewise.
Delegated                needs begin and end. One that is withdrawn is answered with what is held of it, so that a
                         part can become plain interest, or part of a longer run, without a sequence being lost: this
                         `Part` is the last. What a broker further upstream holds of it is waited for.
Part                     goes to the users that its part had when it was sent: those of now, or, until the last has
                         come, those from before the withdrawal.
notifications            as ever; then thinned. A `Part` goes after the notification that completes it and before the
                         next: one that matches filters on both sides of a run counts as it would in one monitor.

A held notification begins no sequence for a monitor that has joined after it arrived upstream: clocks of brokers are
compared for that, and their difference is how long before the subscription a sequence may begin.

When each notification is published later than the one before, and after that has reached everybody, sequences are
those of a monitor that is told everything at once (§3.4). Otherwise they are sequences as the pattern says, but which
of several depends on what came first, here as there.

Departures: the text delegates to a monitor that assembles sequences; why ours thins is said in `thinning.py`. The
criteria for delegation are in a report that we do not have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, assert_never

from msgspec.structs import replace

from catchment.errors import RemoteProtocolError
from catchment.matching.ids import Id
from catchment.model.filter import Advertisement, Filter, Pattern
from catchment.model.notification import Notification
from catchment.routing.messages import (
    Action,
    Advertise,
    Client,
    ClientRequest,
    Interface,
    Keep,
    Neighbor,
    Refuse,
    Routed,
    Send,
    Time,
    Unadvertise,
    Wanted,
)
from catchment.routing.parts.recall import RecallingMatcher
from catchment.routing.parts.remote import check_limit
from catchment.routing.siena.advertising import OfferingCore
from catchment.routing.siena.available import Runs, delegated, plain_filters, providers
from catchment.routing.siena.held_watching import HeldWatching
from catchment.routing.siena.messages import Advertised, Delegated, Held, Interest, Part
from catchment.routing.siena.thinning import Thinner, in_order, keep

# Each change looks at all patterns that may be delegated: some milliseconds. Those past it are plain interest.
DELEGATING_PATTERNS_MAX: Final = 1_000
# Patterns that a neighbor may delegate: more than it considers at a time, since it withdraws some later than others.
LINK_PATTERNS_MAX: Final = 10 * DELEGATING_PATTERNS_MAX


# A needed pattern and the place in it of a part; for each part those that it is wanted for.
_User = tuple[Pattern, int]
_Parts = dict[Pattern, list[_User]]


@dataclass(slots=True)
class _Need:
    """A pattern that is needed: by monitors, by identity and id with the time since when; by neighbors."""

    pattern: Pattern
    monitors: dict[tuple[str, str], Time] = field(default_factory=dict)
    delegators: dict[Neighbor, None] = field(default_factory=dict)
    thinner: Thinner | None = None
    runs: Runs = ()
    # Of the filters that are no part of runs, in the matcher of the thinners.
    numbers: list[int] = field(default_factory=list)
    is_stated: bool = False


@dataclass(slots=True)
class _Ending:
    """A pattern that a neighbor has withdrawn: what is held of it here and upstream, of which `awaited` parts."""

    neighbor: Neighbor
    pattern: Pattern
    held: dict[Notification, Held]
    awaited: int


@dataclass(slots=True)
class _Users:
    """Whom a delegated part serves: runs of needed patterns, with the time since when; withdrawn patterns, with the
    place of the part in them."""

    runs: dict[_User, Time] = field(default_factory=dict)
    endings: list[tuple[_Ending, int]] = field(default_factory=list)
    # Somebody who uses it may have got the first notifications elsewhere.
    is_outrun: bool = False


_IsOver = Callable[[Pattern, _Users, list[_User]], bool]


DelegatingMessage = Interest | Advertised | Delegated | Part


class DelegatingCore(OfferingCore[DelegatingMessage]):
    """A peer in a network without cycles where publishers advertise and patterns are watched upstream."""

    def __init__(self, name: str) -> None:
        self._watching = HeldWatching()
        super().__init__(name, self._watching)
        self._needs: dict[Pattern, _Need] = {}
        self._watched: dict[str, dict[str, Pattern]] = {}
        self._told: dict[Neighbor, dict[Pattern, _Users]] = {}
        self._closing: dict[Neighbor, dict[Pattern, list[_Users]]] = {}
        self._thinned = RecallingMatcher(self._places)
        self._places_by_number: dict[Id, tuple[Pattern, int]] = {}
        self._number_next = 0
        self._changed: dict[str, None] = {}
        self._offered_here: dict[Filter, bool] = {}

    # --- looking in ---

    def delegated_to(self, neighbor: Neighbor) -> tuple[Pattern, ...]:
        return tuple(self._told.get(neighbor, ()))

    def delegated_by(self, neighbor: Neighbor) -> tuple[Pattern, ...]:
        return tuple(one.pattern for one in self._needs.values() if neighbor in one.delegators)

    def available(self) -> dict[Advertisement | Pattern, tuple[Neighbor, ...]]:
        """The table of available patterns (§5.4.1)."""
        return providers({one: self.offers.held_by(one) for one in self.offers.neighbors}, self._told)

    def leftovers(self) -> list[str]:
        return [*super().leftovers(), *self.kept_for_patterns()]

    def kept_for_patterns(self) -> Iterator[str]:
        yield from (f"pattern {one}" for one in self._needs)
        yield from (f"delegation {part} to {one}" for one, told in self._told.items() for part in told)
        yield from (f"withdrawal of {part} from {one}" for one, parts in self._closing.items() for part in parts)
        if len(self._thinned):
            yield f"{len(self._thinned)} filters of thinned patterns"

    # --- who needs which patterns ---

    def _needed(self, wanted: Wanted) -> tuple[Filter, ...]:
        return () if _is_compound(wanted) else super()._needed(wanted)

    def _on_request(self, message: ClientRequest, source: Client) -> list[Action]:
        self._changed[message.identity] = None
        if isinstance(message, Advertise | Unadvertise):
            self._offered_here.clear()
        return super()._on_request(message, source)

    def _forgotten(self, identity: str) -> None:
        super()._forgotten(identity)
        self._changed[identity] = None
        self._offered_here.clear()

    def _restate_monitors(self, now: Time) -> None:
        """Needs of the identities that something has changed for."""
        for identity in self._changed:
            monitors = self._watching.of(identity)
            after = {id: one.pattern for id, one in monitors.items() if _is_compound(one.pattern)}
            before = self._watched.pop(identity, {})
            for id in [id for id in before if after.get(id) != before[id]]:
                del self._needs[before[id]].monitors[identity, id]
                self._drop_unneeded(before[id])
            for id in [id for id in after if before.get(id) != after[id]]:
                self._need(after[id]).monitors[identity, id] = now
            if after:
                self._watched[identity] = after
        self._changed.clear()

    def _need(self, pattern: Pattern) -> _Need:
        return self._needs.setdefault(pattern, _Need(pattern))

    def _drop_unneeded(self, pattern: Pattern) -> None:
        need = self._needs[pattern]
        if not need.delegators and need.thinner is not None:
            need.thinner = None
            self._listen(need, ())
        if not need.delegators and not need.monitors:
            self.interest.drop(pattern)
            self._watching.hold_back(pattern, ())
            del self._needs[pattern]

    # --- what neighbors delegate ---

    def _on_neighbor(self, message: DelegatingMessage, source: Neighbor, now: Time) -> list[Action]:
        match message:
            case Interest():
                return self._on_interest(message, source, now)
            case Advertised():
                return self._on_advertised(message, source, now)
            case Delegated():
                return self._on_delegated(message, source, now)
            case Part():
                return self._on_part(message, source, now)
            case _:
                assert_never(message)

    def _on_delegated(self, message: Delegated, source: Neighbor, now: Time) -> list[Action]:
        patterns = len(self.delegated_by(source)) + len(message.announced)
        check_limit("LINK_PATTERNS_MAX", LINK_PATTERNS_MAX, patterns)
        # Before anything is changed: what is refused is refused whole.
        self.remote.check_room(len(message.interest.announced))
        last = [part for pattern in message.withdrawn for part in self._end(pattern, source)]
        for pattern in message.announced:
            self._begin(pattern, source, is_ongoing=pattern in message.ongoing)
        return last + self._on_interest(message.interest, source, now)

    def _begin(self, pattern: Pattern, source: Neighbor, *, is_ongoing: bool) -> None:
        need = self._need(pattern)
        need.delegators[source] = None
        if need.thinner is None:
            need.thinner, need.is_stated = Thinner(pattern), False
        if is_ongoing:
            need.thinner.go_on()
            for run in need.runs:
                self._told[run.neighbor][run.part].is_outrun = True

    def _end(self, pattern: Pattern, source: Neighbor) -> list[Action]:
        need = self._needs.get(pattern)
        if need is None or source not in need.delegators or need.thinner is None:
            return [Refuse(source, RemoteProtocolError(source.name, f"withdrew {pattern}, which it had not delegated"))]
        ending = _Ending(source, pattern, {one.notification: one for one in need.thinner.held()}, awaited=0)
        # Also what was withdrawn a moment ago: one advertisement that goes lets all brokers on the way withdraw.
        serving = [(self._told[run.neighbor][run.part], run.first) for run in need.runs]
        serving += [(users, first) for users in self._closers() for one, first in users.runs if one == pattern]
        for users, first in serving:
            users.endings.append((ending, first))
            ending.awaited += 1
        del need.delegators[source]
        self._drop_unneeded(pattern)
        return _ended(ending)

    # --- links ---

    def _on_link_up(self, neighbor: Neighbor) -> list[Action]:
        ended = self._unlink(neighbor)
        self._told[neighbor] = {}
        return ended + super()._on_link_up(neighbor)

    def _on_link_down(self, neighbor: Neighbor) -> list[Action]:
        return self._unlink(neighbor) + super()._on_link_down(neighbor)

    def _unlink(self, neighbor: Neighbor) -> list[Action]:
        """Forgets what was said to and by a neighbor; nothing that it holds is waited for any more."""
        told, closing = self._told.pop(neighbor, {}), self._closing.pop(neighbor, {})
        for users in (*self._all_users(), *told.values(), *(one for some in closing.values() for one in some)):
            users.endings = [one for one in users.endings if one[0].neighbor != neighbor]
        lost = [*told.values(), *(one for some in closing.values() for one in some)]
        for need in list(self._needs.values()):
            runs = tuple(run for run in need.runs if run.neighbor != neighbor)
            need.runs, need.is_stated = runs, need.is_stated and runs == need.runs
            if neighbor in need.delegators:
                del need.delegators[neighbor]
                self._drop_unneeded(need.pattern)
        return [action for users in lost for action in _last_came(users)]

    def _all_users(self) -> Iterator[_Users]:
        for told in self._told.values():
            yield from told.values()
        for closing in self._closing.values():
            yield from (users for some in closing.values() for users in some)

    # --- what is delegated ---

    def _flushed(self, now: Time) -> list[Action]:
        self._restate_monitors(now)
        changes = self._redelegated(now) if self._needs or any(self._told.values()) else {}
        actions: list[Action] = []
        for action in super()._flushed(now):
            if isinstance(action, Send) and isinstance(action.message, Interest) and action.interface in changes:
                change = replace(changes.pop(action.interface), interest=action.message)
                actions.append(Send(action.interface, change))
            else:
                actions.append(action)
        return actions + [Send(neighbor, changes[neighbor]) for neighbor in sorted(changes)]

    def _redelegated(self, now: Time) -> dict[Neighbor, Delegated]:
        """Chooses all runs anew; what neighbors must hear of that."""
        considered = list(self._needs)[:DELEGATING_PATTERNS_MAX]
        runs_by_pattern = delegated(considered, self._source_of, self._is_wanted)
        wanted: dict[Neighbor, _Parts] = {one: {} for one in sorted(self._told)}
        for pattern, need in self._needs.items():
            runs = runs_by_pattern.get(pattern, ())
            if runs != need.runs or not need.is_stated:
                self._state(need, runs)
            for run in runs:
                wanted[run.neighbor].setdefault(run.part, []).append((pattern, run.first))
        left = {one: self._withdrawn(one, wanted[one], self._is_left) for one in wanted}
        outrun = {one: self._withdrawn(one, wanted[one], self._is_joined_inside) for one in wanted}
        changes = {one: self._announced(one, wanted[one], left[one] + outrun[one], now) for one in wanted}
        return {one: change for one, change in changes.items() if change != Delegated()}

    def _source_of(self, pattern: Pattern, filter: Filter) -> Neighbor | None:
        delegators = self._needs[pattern].delegators
        sources = [one for one in self._told if one not in delegators and self._may_tell(filter, one)]
        return sources[0] if len(sources) == 1 and not self._is_offered_here(filter) else None

    def _is_offered_here(self, filter: Filter) -> bool:
        if filter not in self._offered_here:
            offers = (offer for identity in self.clients for offer in identity.advertisements)
            self._offered_here[filter] = any(offer.overlaps(filter) for offer in offers)
        return self._offered_here[filter]

    def _is_wanted(self, filter: Filter, neighbor: Neighbor) -> bool:
        holders = (who for one in self.interest.poset.covering(filter) for who in self.interest.subscribers(one))
        return any(who != neighbor and not isinstance(who, Pattern) for who in holders)

    def _state(self, need: _Need, runs: Runs) -> None:
        """Enters what is not delegated as plain interest, and lets that alone count as it comes."""
        need.runs, need.is_stated = runs, True
        self.interest.drop(need.pattern)
        for filter in plain_filters(need.pattern, runs):
            self._subscribe(need.pattern, filter)
        steps = frozenset(step for run in runs for step in run.steps)
        self._watching.hold_back(need.pattern, steps)
        if need.thinner is not None:
            self._listen(need, [step for step in range(len(need.pattern.filters)) if step not in steps])

    def _listen(self, need: _Need, steps: Sequence[int]) -> None:
        """The thinner of a pattern gets what matches these filters."""
        for number in need.numbers:
            self._thinned.remove(number)
            del self._places_by_number[number]
        need.numbers = list(range(self._number_next, self._number_next + len(steps)))
        self._number_next += len(steps)
        for number, step in zip(need.numbers, steps, strict=True):
            self._thinned.add(number, need.pattern.filters[step])
            self._places_by_number[number] = (need.pattern, step)

    def _withdrawn(self, neighbor: Neighbor, wanted: _Parts, is_over: _IsOver) -> list[Pattern]:
        """Parts that are not delegated any more, or anew, so that what is held comes now."""
        told = self._told[neighbor]
        found = [part for part in sorted(told, key=str) if is_over(part, told[part], wanted.get(part, []))]
        for part in found:
            self._closing.setdefault(neighbor, {}).setdefault(part, []).append(told.pop(part))
        return found

    def _is_left(self, part: Pattern, users: _Users, after: list[_User]) -> bool:
        """Whether somebody still needs what is held, and will not get it by this part."""
        is_left = any(one not in after and one[0] in self._needs for one in users.runs)
        return is_left or not after or bool(users.endings)

    def _is_joined_inside(self, part: Pattern, users: _Users, after: list[_User]) -> bool:
        return users.is_outrun or any(one not in users.runs and self._is_inside(one, part) for one in after)

    def _announced(self, neighbor: Neighbor, wanted: _Parts, withdrawn: list[Pattern], now: Time) -> Delegated:
        told = self._told[neighbor]
        for part, users in told.items():
            users.runs = {one: users.runs.get(one, now) for one in wanted[part]}
        new = [part for part in sorted(wanted, key=str) if part not in told]
        ongoing = [part for part in new if any(self._is_inside(one, part) for one in wanted[part])]
        for part in new:
            told[part] = _Users(dict.fromkeys(wanted[part], now))
        return Delegated(tuple(sorted(withdrawn, key=str)), tuple(new), tuple(ongoing))

    def _is_inside(self, user: _User, part: Pattern) -> bool:
        """Whether a user has, or is about to get, the first notifications for a part and not the last."""
        pattern, first = user
        need, last = self._needs[pattern], first + len(part.filters) - 1
        if any(pattern == other for users in self._closers() for other, _ in users.runs):
            return True
        if need.thinner is not None and need.thinner.is_inside(first, last):
            return True
        return any(self._watching.is_inside(identity, id, first, last) for identity, id in need.monitors)

    def _closers(self) -> Iterator[_Users]:
        return (users for closing in self._closing.values() for some in closing.values() for users in some)

    # --- parts and notifications ---

    def _on_part(self, message: Part, source: Neighbor, now: Time) -> list[Action]:
        part, closing = message.pattern, self._closing.get(source, {})
        users = closing[part][0] if part in closing else self._told.get(source, {}).get(part)
        if users is None or not _is_sound(message) or (message.is_last and part not in closing):
            return [Refuse(source, RemoteProtocolError(source.name, f"sent a part of {part}, which it cannot have"))]
        actions: list[Action] = []
        for need in [self._needs[one] for one in dict.fromkeys(one for one, _ in users.runs) if one in self._needs]:
            places = {first: since for (pattern, first), since in users.runs.items() if pattern == need.pattern}
            actions += self._fed(need, _moved(message.held, places), max(places.values()), now)
        for ending, first in users.endings:
            for one in _moved(message.held, (first,)):
                keep(ending.held, one)
        if message.is_last:
            self._close(source, part)
            actions += _last_came(users)
        return actions

    def _close(self, neighbor: Neighbor, part: Pattern) -> None:
        closing = self._closing[neighbor]
        del closing[part][0]
        if not closing[part]:
            del closing[part]
        if not closing:
            del self._closing[neighbor]

    def _fed(self, need: _Need, held: Sequence[Held], since: Time, now: Time) -> list[Action]:
        """What monitors and the thinner make of what was held."""
        actions: list[Action] = []
        for one in held:
            for (identity, id), began in sorted(need.monitors.items()):
                is_older = one.arrived < max(began, since)
                steps = [step for step in one.steps if step > 0] if is_older else one.steps
                complete = self._watching.see_held(identity, id, one.notification, steps, now)
                actions += self.clients.sequences_due(identity, id, complete)
        if need.thinner is not None:
            actions += self._sent(need, [found for one in held for found in need.thinner.on_notification(one)])
        return actions

    def _sent(self, need: _Need, held: Sequence[Held]) -> list[Action]:
        if not held:
            return []
        return [Send(one, Part(need.pattern, tuple(held))) for one in sorted(need.delegators)]

    def on_notifications(self, batch: Sequence[Routed], source: Interface, now: Time) -> list[Action]:
        if not len(self._thinned):
            return super().on_notifications(batch, source, now)
        actions: list[Action] = []
        kept: list[Action] = []
        start = 0
        for i, routed in enumerate(batch):
            is_thinned, parts = self._parts(routed, source, now)
            if is_thinned:
                kept.append(Keep(routed.notification))
            if parts:
                actions += [*super().on_notifications(batch[start : i + 1], source, now), *parts]
                start = i + 1
        if start < len(batch):
            actions += super().on_notifications(batch[start:], source, now)
        return actions + kept

    def matchers(self) -> Sequence[RecallingMatcher[Any]]:
        return (*super().matchers(), self._thinned)

    def _parts(self, routed: Routed, source: Interface, now: Time) -> tuple[bool, list[Action]]:
        """Whether a delegated pattern has a filter that matches it, and the parts that are complete with it."""
        if isinstance(source, Client) and not self._is_advertised(routed):
            return False, []
        parts: list[Action] = []
        thinned = self._thinned.found((routed.notification,))[0]
        for pattern, steps in thinned:
            need = self._needs[pattern]
            assert need.thinner is not None
            parts += self._sent(need, need.thinner.on_notification(Held(routed.notification, now, steps)))
        return bool(thinned), parts

    def _places(self, numbers: Sequence[Id]) -> tuple[tuple[Pattern, tuple[int, ...]], ...]:
        found: dict[Pattern, list[int]] = {}
        for number in numbers:
            pattern, step = self._places_by_number[number]
            found.setdefault(pattern, []).append(step)
        return tuple((pattern, tuple(sorted(steps))) for pattern, steps in found.items())


def _is_sound(part: Part) -> bool:
    """Whether all that was held could be: it has a time, and matched filters that there are."""
    places = range(len(part.pattern.filters))
    return all(one.notification.time is not None and set(one.steps) <= set(places) for one in part.held)


def _is_compound(wanted: Wanted) -> bool:
    return isinstance(wanted, Pattern) and not wanted.is_simple


def _moved(held: Sequence[Held], places: Iterable[int]) -> list[Held]:
    """The same, for a pattern that has the part at these places."""
    steps = [tuple(sorted({step + first for first in places for step in one.steps})) for one in held]
    return [Held(one.notification, one.arrived, some) for one, some in zip(held, steps, strict=True)]


def _last_came(users: _Users) -> list[Action]:
    for ending, _ in users.endings:
        ending.awaited -= 1
    return [action for ending, _ in users.endings for action in _ended(ending)]


def _ended(ending: _Ending) -> list[Action]:
    """The last part of a pattern that was withdrawn, if it is not waited for others."""
    if ending.awaited:
        return []
    return [Send(ending.neighbor, Part(ending.pattern, tuple(in_order(ending.held)), True))]
