"""Advertisement forwarding, where brokers upstream watch parts of patterns (SIENA §5.1, §5.4, Tables 5, 6, Figure 23).

*Upstream* is nearer to the publishers, *downstream* nearer to the subscriber. A pattern is *needed* here if a local
client subscribed to it or a neighbor delegated it to this broker. The broker factors each needed pattern
(`available.py`) into *runs* and other filters. It delegates a run to the one neighbor that provides it: for that
neighbor the run is a pattern, called a *part* here. The other filters are *plain interest*: the broker subscribes to
them in the name of the pattern. Monitors watch the patterns of clients. What neighbors delegated is not watched by a
monitor but thinned (`thinning.py`). So server 2 of Figure 23 treats what server 1 delegated to it as server 1 treats
what its client wants.

State (`needs.py`): the needed patterns, each with who needs it and with its runs; for each neighbor the parts that were
delegated to it, each with its *users*, the runs that it serves. Equal parts are delegated once. For monitors and
thinners, a filter of a run counts only when a notification comes in a `Part`; every other filter counts only when a
notification comes by itself.

Subscribe, Cancel, …     A need begins or ends. Then all runs are chosen again, and neighbors are told the difference.
Advertised, Interest, …  All runs are chosen again.
Delegated                Needs begin and end. When a neighbor withdraws a pattern, this broker answers with a last
                         `Part` that has everything held for it. So a part can become plain interest, or part of a
                         longer run, and no sequence is lost. If brokers further upstream hold something for it, the
                         answer waits for their last parts.
Part                     goes to the users that the part had when the neighbor sent it. As long as the answer to a
                         withdrawal has not come, those are the users from before the withdrawal; otherwise the
                         present ones.
notifications            are routed as in advertisement forwarding, then thinned. A `Part` is sent after the
                         notification that completes it and before the next one. So a notification that matches
                         filters on both sides of a run counts as it would in one monitor.

A held notification begins no sequence for a monitor that joined after the notification had arrived upstream. This
compares the clocks of two brokers: a sequence may begin before the subscription by as much as the clocks differ.

If each notification is published later than the one before, and after that one has reached everybody, the sequences
are those of a monitor that is told everything at once (§3.4). Otherwise they are still sequences that match the
pattern, but which of several possible sequences is found depends on what came first, as it does in a single monitor.

Departures: the text delegates to a monitor that assembles sequences; `thinning.py` says why ours thins. The text's
criteria for delegation are in a report that we do not have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, assert_never

from msgspec.structs import replace

from catchment.errors import RemoteProtocolError
from catchment.model.advertisement import Advertisement
from catchment.model.filter import Filter
from catchment.model.pattern import Pattern
from catchment.routing.core import Inspection, Table
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
from catchment.routing.parts.wanted import text_bytes
from catchment.routing.siena.advertising import OfferingCore, forget_if_full
from catchment.routing.siena.available import Runs, delegated, plain_filters, providers
from catchment.routing.siena.held_watching import HeldWatching
from catchment.routing.siena.messages import Advertised, Delegated, Held, Interest, Part
from catchment.routing.siena.needs import Ending, Need, Parts, User, Users, ended, is_sound, last_came, moved
from catchment.routing.siena.thinned import ThinnedFilters
from catchment.routing.siena.thinning import Thinner, keep

# Patterns that are considered for delegation: each change looks at all of them, which takes some milliseconds. The
# filters of further patterns are plain interest.
DELEGATING_PATTERNS_MAX: Final = 1_000
# Patterns that a neighbor may delegate to this broker: more than it considers at a time, since withdrawals come later.
LINK_PATTERNS_MAX: Final = 10 * DELEGATING_PATTERNS_MAX

# Whether a part must be withdrawn, given its users until now and the users that it is wanted for.
_IsOver = Callable[[Pattern, Users, list[User]], bool]

DelegatingMessage = Interest | Advertised | Delegated | Part


class DelegatingCore(OfferingCore[DelegatingMessage]):
    """A peer in a network without cycles where publishers advertise and brokers upstream watch parts of patterns."""

    def __init__(self, name: str) -> None:
        self._watching = HeldWatching()
        super().__init__(name, self._watching)
        self._needs: dict[Pattern, Need] = {}
        # By identity and subscription id: the patterns of clients that are entered as needs.
        self._watched: dict[str, dict[str, Pattern]] = {}
        # The parts that are delegated to each neighbor.
        self._told: dict[Neighbor, dict[Pattern, Users]] = {}
        # The parts that were withdrawn from each neighbor and whose last `Part` has not come yet. A part may be
        # delegated and withdrawn again before that: then it has several entries, the oldest first.
        self._closing: dict[Neighbor, dict[Pattern, list[Users]]] = {}
        self._thinned = ThinnedFilters()
        # Identities whose subscriptions may have changed since the last flush.
        self._changed: dict[str, None] = {}
        # Whether a local client offers what a filter wants: asked often, changed only by advertisements.
        self._offered_here: dict[Filter, bool] = {}

    # --- looking in ---

    def delegated_to(self, neighbor: Neighbor) -> tuple[Pattern, ...]:
        return tuple(self._told.get(neighbor, ()))

    def delegated_by(self, neighbor: Neighbor) -> tuple[Pattern, ...]:
        return tuple(need.pattern for need in self._needs.values() if neighbor in need.delegators)

    def available(self) -> dict[Advertisement | Pattern, tuple[Neighbor, ...]]:
        """The table of available patterns (§5.4.1)."""
        return providers({neighbor: self.offers.held_by(neighbor) for neighbor in self.offers.neighbors}, self._told)

    def inspect(self) -> Inspection:
        """With the patterns that neighbors delegated, each as its filters."""
        inspection = super().inspect()
        tables = {table.holder: table for table in inspection.tables}
        for need in self._needs.values():
            for neighbor in need.delegators:
                before = tables.get(neighbor.name, Table(neighbor.name, 0, 0))
                filters, size = len(need.pattern.filters), text_bytes(need.pattern)
                tables[neighbor.name] = Table(neighbor.name, before.filters + filters, before.bytes + size)
        return replace(inspection, tables=tuple(sorted(tables.values())))

    def leftovers(self) -> list[str]:
        return [*super().leftovers(), *self.kept_for_patterns()]

    def kept_for_patterns(self) -> Iterator[str]:
        """Texts that describe all that this core keeps for patterns."""
        yield from (f"pattern {pattern}" for pattern in self._needs)
        yield from (f"delegation {part} to {neighbor}" for neighbor, told in self._told.items() for part in told)
        yield from (
            f"withdrawal of {part} from {neighbor}" for neighbor, closing in self._closing.items() for part in closing
        )
        if len(self._thinned.matcher):
            yield f"{len(self._thinned.matcher)} filters of thinned patterns"

    # --- needs ---

    def _needed(self, wanted: Wanted) -> tuple[Filter, ...]:
        # The filters of a compound pattern are entered by `_state`, in the name of the pattern.
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
        """Brings the needs up to date for the identities that something has changed for."""
        for identity in self._changed:
            monitors = self._watching.of(identity)
            after = {id: monitor.pattern for id, monitor in monitors.items() if _is_compound(monitor.pattern)}
            before = self._watched.pop(identity, {})
            for id in [id for id in before if after.get(id) != before[id]]:
                del self._needs[before[id]].monitors[identity, id]
                self._drop_unneeded(before[id])
            for id in [id for id in after if before.get(id) != after[id]]:
                self._need(after[id]).monitors[identity, id] = now
            if after:
                self._watched[identity] = after
        self._changed.clear()

    def _need(self, pattern: Pattern) -> Need:
        return self._needs.setdefault(pattern, Need(pattern))

    def _drop_unneeded(self, pattern: Pattern) -> None:
        """Ends the thinner of a pattern if no neighbor needs it, and the need itself if nobody does. The parts that
        served it are withdrawn by the next `_redelegated`."""
        need = self._needs[pattern]
        if not need.delegators and need.thinner is not None:
            need.thinner = None
            self._thinned.listen(pattern, ())
        if not need.delegators and not need.monitors:
            self.interest.drop(pattern)
            self._watching.hold_back(pattern, ())
            del self._needs[pattern]

    # --- patterns that neighbors delegate to this broker ---

    def _heard(self, message: DelegatingMessage, source: Neighbor, now: Time) -> list[Action]:
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
        # Check the room for the interest too before anything changes: a message is refused as a whole.
        self.remote.check_room(len(message.interest.announced))
        # Withdrawals first: one message may withdraw a pattern and delegate it again, as ongoing.
        last_parts = [part for pattern in message.withdrawn for part in self._end(pattern, source)]
        for pattern in message.announced:
            self._begin(pattern, source, is_ongoing=pattern in message.ongoing)
        return last_parts + self._on_interest(message.interest, source, now)

    def _begin(self, pattern: Pattern, source: Neighbor, *, is_ongoing: bool) -> None:
        """A neighbor delegates a pattern. `is_ongoing` says that it may have the first notifications already."""
        need = self._need(pattern)
        need.delegators[source] = None
        if need.thinner is None:
            need.thinner, need.is_stated = Thinner(pattern), False
        if is_ongoing:
            need.thinner.go_on()
            # The thinners further upstream must know it too: their parts will be delegated again, as ongoing.
            for run in need.runs:
                self._told[run.neighbor][run.part].is_outrun = True

    def _end(self, pattern: Pattern, source: Neighbor) -> list[Action]:
        """A neighbor withdraws a pattern: answers with the last `Part`, or lets the answer wait for brokers
        upstream."""
        need = self._needs.get(pattern)
        if need is None or source not in need.delegators or need.thinner is None:
            return [Refuse(source, RemoteProtocolError(source.name, f"withdrew {pattern}, which it had not delegated"))]
        ending = Ending(source, pattern, {held.notification: held for held in need.thinner.held()}, awaited=0)
        # What brokers upstream hold for this pattern belongs into the answer. They hold it for the parts that serve the
        # pattern now, and for parts that this broker withdrew a moment ago and that are still closing: if one
        # advertisement goes, all brokers on the way withdraw at about the same time.
        serving = [(self._told[run.neighbor][run.part], run.first) for run in need.runs]
        serving += [(users, first) for users in self._closers() for served, first in users.runs if served == pattern]
        # The flush after this message withdraws the parts that are not closing yet: `_is_left` sees the ending. The
        # last `Part` of each counts `awaited` down.
        for users, first in serving:
            users.endings.append((ending, first))
            ending.awaited += 1
        del need.delegators[source]
        self._drop_unneeded(pattern)
        return ended(ending)

    # --- links ---

    def _on_link_up(self, neighbor: Neighbor) -> list[Action]:
        ended = self._unlink(neighbor)
        self._told[neighbor] = {}
        return ended + super()._on_link_up(neighbor)

    def _on_link_down(self, neighbor: Neighbor) -> list[Action]:
        return self._unlink(neighbor) + super()._on_link_down(neighbor)

    def _unlink(self, neighbor: Neighbor) -> list[Action]:
        """Forgets what was said to and by a neighbor. Nobody waits any more for what that neighbor holds."""
        told, closing = self._told.pop(neighbor, {}), self._closing.pop(neighbor, {})
        served_by_neighbor = [*told.values(), *(users for entries in closing.values() for users in entries)]
        # The neighbor's own withdrawals need no answer any more, whichever part they wait for.
        for users in (*self._all_users(), *served_by_neighbor):
            users.endings = [(ending, first) for ending, first in users.endings if ending.neighbor != neighbor]
        for need in list(self._needs.values()):
            runs = tuple(run for run in need.runs if run.neighbor != neighbor)
            # A need with fewer runs must be stated again, even if `_redelegated` then chooses exactly these.
            need.runs, need.is_stated = runs, need.is_stated and runs == need.runs
            if neighbor in need.delegators:
                del need.delegators[neighbor]
                self._drop_unneeded(need.pattern)
        # No last `Part` will come from this neighbor: the withdrawals of others must not wait for it.
        return [action for users in served_by_neighbor for action in last_came(users)]

    def _all_users(self) -> Iterator[Users]:
        for told in self._told.values():
            yield from told.values()
        yield from self._closers()

    # --- parts that this broker delegates ---

    def _flushed(self, now: Time) -> list[Action]:
        self._restate_monitors(now)
        # Before the interest is flushed: choosing runs changes which filters are plain interest.
        changes = self._redelegated(now) if self._needs or any(self._told.values()) else {}
        actions: list[Action] = []
        # A neighbor that is told of patterns and of interest hears both in one message. When a filter moves from a part
        # to plain interest or back, there is no moment at which the neighbor sends its notifications in neither way.
        for action in super()._flushed(now):
            if isinstance(action, Send) and isinstance(action.message, Interest) and action.interface in changes:
                change = replace(changes.pop(action.interface), interest=action.message)
                actions.append(Send(action.interface, change))
            else:
                actions.append(action)
        return actions + [Send(neighbor, changes[neighbor]) for neighbor in sorted(changes)]

    def _redelegated(self, now: Time) -> dict[Neighbor, Delegated]:
        """Chooses all runs again. Returns what neighbors must hear of the changes."""
        considered = list(self._needs)[:DELEGATING_PATTERNS_MAX]
        runs_by_pattern = delegated(considered, self._source_of, self._is_wanted)
        wanted: dict[Neighbor, Parts] = {neighbor: {} for neighbor in sorted(self._told)}
        for pattern, need in self._needs.items():
            runs = runs_by_pattern.get(pattern, ())
            if runs != need.runs or not need.is_stated:
                self._state(need, runs)
            for run in runs:
                wanted[run.neighbor].setdefault(run.part, []).append((pattern, run.first))
        # Three passes over all neighbors, in this order: whether a user is inside a part depends on everything that is
        # closing at any neighbor, so all that is left must be closing before the first such question.
        left = {neighbor: self._withdrawn(neighbor, parts, self._is_left) for neighbor, parts in wanted.items()}
        outrun = {
            neighbor: self._withdrawn(neighbor, parts, self._is_joined_inside) for neighbor, parts in wanted.items()
        }
        changes = {
            neighbor: self._announced(neighbor, parts, left[neighbor] + outrun[neighbor], now)
            for neighbor, parts in wanted.items()
        }
        return {neighbor: change for neighbor, change in changes.items() if change != Delegated()}

    def _source_of(self, pattern: Pattern, filter: Filter) -> Neighbor | None:
        """The only neighbor that offers notifications for a filter of a pattern; None if a local client offers some
        too. Delegators do not count: a pattern never goes back to a neighbor that delegated it."""
        delegators = self._needs[pattern].delegators
        sources = [
            neighbor for neighbor in self._told if neighbor not in delegators and self._may_tell(filter, neighbor)
        ]
        return sources[0] if len(sources) == 1 and not self._is_offered_here(filter) else None

    def _is_offered_here(self, filter: Filter) -> bool:
        """Whether a local client has advertised notifications for a filter."""
        if filter not in self._offered_here:
            offers = (offer for identity in self.clients for offer in identity.advertisements)
            forget_if_full(self._offered_here)
            self._offered_here[filter] = any(offer.overlaps(filter) for offer in offers)
        return self._offered_here[filter]

    def _is_wanted(self, filter: Filter, neighbor: Neighbor) -> bool:
        """Whether a client or another neighbor wants a filter, or one that covers it, as plain interest."""
        coverers = self.interest.poset.covering(filter)
        holders = (holder for coverer in coverers for holder in self.interest.subscribers(coverer))
        return any(holder != neighbor and not isinstance(holder, Pattern) for holder in holders)

    def _state(self, need: Need, runs: Runs) -> None:
        """Enters the filters in no run as plain interest. For monitors and the thinner, single notifications count from
        now on for these filters only."""
        need.runs, need.is_stated = runs, True
        self.interest.drop(need.pattern)
        for filter in plain_filters(need.pattern, runs):
            self._subscribe(need.pattern, filter)
        delegated_steps = frozenset(step for run in runs for step in run.steps)
        self._watching.hold_back(need.pattern, delegated_steps)
        if need.thinner is not None:
            other_steps = [step for step in range(len(need.pattern.filters)) if step not in delegated_steps]
            self._thinned.listen(need.pattern, other_steps)

    def _withdrawn(self, neighbor: Neighbor, wanted: Parts, is_over: _IsOver) -> list[Pattern]:
        """Withdraws the parts for which `is_over` holds: they close, so that the neighbor sends what it holds. Those
        that are still wanted are delegated again (`_announced`)."""
        told = self._told[neighbor]
        over = [part for part in sorted(told, key=str) if is_over(part, told[part], wanted.get(part, []))]
        for part in over:
            self._closing.setdefault(neighbor, {}).setdefault(part, []).append(told.pop(part))
        return over

    def _is_left(self, part: Pattern, users: Users, after: list[User]) -> bool:
        """Whether a part must be withdrawn because of users that it no longer serves: one of them still needs what is
        held, or nobody uses the part any more, or a withdrawal waits for the last `Part`."""
        is_left = any(user not in after and user[0] in self._needs for user in users.runs)
        return is_left or not after or bool(users.endings)

    def _is_joined_inside(self, part: Pattern, users: Users, after: list[User]) -> bool:
        """Whether a part must be delegated again, as ongoing: a new user may have the first notifications already."""
        return users.is_outrun or any(user not in users.runs and self._is_inside(user, part) for user in after)

    def _announced(self, neighbor: Neighbor, wanted: Parts, withdrawn: list[Pattern], now: Time) -> Delegated:
        """Delegates to a neighbor the parts that are wanted and not told. Returns what it must hear."""
        told = self._told[neighbor]
        for part, users in told.items():
            # A user that was served before keeps the time since when.
            users.runs = {user: users.runs.get(user, now) for user in wanted[part]}
        new = [part for part in sorted(wanted, key=str) if part not in told]
        ongoing = [part for part in new if any(self._is_inside(user, part) for user in wanted[part])]
        for part in new:
            told[part] = Users(dict.fromkeys(wanted[part], now))
        return Delegated(tuple(sorted(withdrawn, key=str)), tuple(new), tuple(ongoing))

    def _is_inside(self, user: User, part: Pattern) -> bool:
        """Whether a user may have, or be about to get, the first notifications for a part, but not the last."""
        pattern, first = user
        need, last = self._needs[pattern], first + len(part.filters) - 1
        # While a part that served the pattern is closing, its last `Part` may bring anything.
        if any(served == pattern for users in self._closers() for served, _ in users.runs):
            return True
        if need.thinner is not None and need.thinner.is_inside(first, last):
            return True
        return any(self._watching.is_inside(identity, id, first, last) for identity, id in need.monitors)

    def _closers(self) -> Iterator[Users]:
        """The users of all parts that are closing."""
        return (users for closing in self._closing.values() for entries in closing.values() for users in entries)

    # --- parts and notifications ---

    def _on_part(self, message: Part, source: Neighbor, now: Time) -> list[Action]:
        part, closing = message.pattern, self._closing.get(source, {})
        # A link keeps order: what comes before the answer to our oldest withdrawal was sent for its users, even if the
        # part has been delegated again since.
        users = closing[part][0] if part in closing else self._told.get(source, {}).get(part)
        if users is None or not is_sound(message) or (message.is_last and part not in closing):
            return [Refuse(source, RemoteProtocolError(source.name, f"sent a part of {part}, which it cannot have"))]
        actions: list[Action] = []
        patterns = dict.fromkeys(pattern for pattern, _ in users.runs)
        # Some of the patterns may be needed no longer.
        for need in [self._needs[pattern] for pattern in patterns if pattern in self._needs]:
            # All places of the part in this pattern at once: a monitor must see each notification once.
            places = {first: since for (pattern, first), since in users.runs.items() if pattern == need.pattern}
            actions += self._fed(need, moved(message.held, places), max(places.values()), now)
        for ending, first in users.endings:
            for held in moved(message.held, (first,)):
                keep(ending.held, held)
        if message.is_last:
            self._close(source, part)
            actions += last_came(users)
        return actions

    def _close(self, neighbor: Neighbor, part: Pattern) -> None:
        """The oldest withdrawal of a part is answered."""
        closing = self._closing[neighbor]
        del closing[part][0]
        if not closing[part]:
            del closing[part]
        if not closing:
            del self._closing[neighbor]

    def _fed(self, need: Need, held: Sequence[Held], since: Time, now: Time) -> list[Action]:
        """Shows the monitors and the thinner of a need what was held upstream. The part serves it since `since`."""
        actions: list[Action] = []
        for arrival in held:
            for (identity, id), began in sorted(need.monitors.items()):
                # What arrived upstream before this monitor joined begins no sequence for it.
                is_older = arrival.arrived < max(began, since)
                steps = [step for step in arrival.steps if step > 0] if is_older else arrival.steps
                complete = self._watching.see_held(identity, id, arrival.notification, steps, now)
                actions += self.clients.sequences_due(identity, id, complete)
        if need.thinner is not None:
            released = [to_send for arrival in held for to_send in need.thinner.on_notification(arrival)]
            actions += self._sent(need, released)
        return actions

    def _sent(self, need: Need, held: Sequence[Held]) -> list[Action]:
        """Sends what a thinner has released to all neighbors that delegated the pattern."""
        if not held:
            return []
        return [Send(neighbor, Part(need.pattern, tuple(held))) for neighbor in sorted(need.delegators)]

    def on_notifications(self, batch: Sequence[Routed], source: Interface, now: Time) -> list[Action]:
        if not len(self._thinned.matcher):
            return super().on_notifications(batch, source, now)
        actions: list[Action] = []
        kept: list[Action] = []
        # The batch is cut after each notification that completes a part: the part must go out after the notification
        # and before the next one.
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
        return (*super().matchers(), self._thinned.matcher)

    def _parts(self, routed: Routed, source: Interface, now: Time) -> tuple[bool, list[Action]]:
        """Whether a delegated pattern wants a notification, and the parts to send because of it."""
        # A notification that its publisher has not advertised is refused: it must not be thinned either.
        if isinstance(source, Client) and not self._is_advertised(routed):
            return False, []
        parts: list[Action] = []
        places = self._thinned.wanting(routed.notification)
        for pattern, steps in places:
            need = self._needs[pattern]
            assert need.thinner is not None
            parts += self._sent(need, need.thinner.on_notification(Held(routed.notification, now, steps)))
        return bool(places), parts


def _is_compound(wanted: Wanted) -> bool:
    """Whether it is a pattern of several filters."""
    return isinstance(wanted, Pattern) and not wanted.is_simple
