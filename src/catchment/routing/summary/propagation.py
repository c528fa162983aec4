"""Algorithm 2: which summary a broker sends to which neighbor, and when (§4.2).

In the text, brokers act in iterations: in iteration i, those of degree i merge all that they have received before and
send it to one neighbor of equal or higher degree. The result does not depend on iterations. It is the one solution of
these two rules, which hold here whenever nothing is under way:

    sent(B)     B's own subscriptions, and what B has received from neighbors of strictly lower degree
    known(B)    B's own subscriptions, and all that B has received

What comes from a neighbor of equal degree is known, and not passed on: in the text it comes in the same iteration.
Passed on, it would go round in a ring of brokers of equal degree. A broker with no neighbor of equal or higher degree
sends nothing.

State: the summary of each neighbor as it was sent; the merged summary that goes to the neighbor `up`, if there is one,
made of these; and what `up` was told of it. So when a subscription or a neighbor goes, its rows go, and what they had
absorbed comes back. Merged_Brokers shrinks by the same rule: it is the union of the sets of lower neighbors.

When: with period 0, after every message. Otherwise at points of time that all brokers share: in each period the text's
iterations, as equal slots of time, so that a broker acts after all brokers of lower degree. In an iteration that no
broker has the degree for, nothing happens. While a change waits for its time, the network is not at rest, so the timer
is not idle.

What: `differences` sends the pairs of rows and ids that have come and gone. `wholes` sends the whole summary when
something has changed. `always` sends it in every period, changed or not, as the text does; while nothing has changed,
its timer is idle.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from catchment.routing.messages import Action, Neighbor, Send, SetTimer, Time
from catchment.routing.parts.link_states import LinkStates
from catchment.routing.summary.degrees import Degrees
from catchment.routing.summary.merged import MergedSummary, PairChange
from catchment.routing.summary.messages import Summarized, SummaryChange, SummarySettings
from catchment.routing.summary.own import OwnSubscriptions
from catchment.routing.summary.received import ReceivedSummary
from catchment.routing.summary.rows import NUMBERS_MAX, Brokers, Names, Pair
from catchment.routing.summary.stream import Incoming, Outgoing

PROPAGATE: Final = "propagate"


class Propagation:
    """The summaries of neighbors, and what is sent on."""

    def __init__(self, own: OwnSubscriptions, links: LinkStates, brokers: Brokers, settings: SummarySettings) -> None:
        self.degrees = Degrees(links)
        self._own = own
        self._links = links
        self._brokers = brokers
        self._period = round(settings.period_ms * 1_000)
        self._sends = settings.sends
        self._incoming: dict[Neighbor, Incoming] = {}
        # The neighbors of lower degree, whose summaries are in `_merged`.
        self._lower: set[Neighbor] = set()
        # The neighbor that gets our summary, what it was told, and what it should be told.
        self.up: Neighbor | None = None
        self._outgoing: Outgoing | None = None
        self._merged: MergedSummary | None = None
        # While the timer is set: the version of the links that its time was computed with, and whether something waits.
        self._timer: tuple[int, bool] | None = None
        # What was counted in summaries that are gone.
        self._looked_up_before = 0
        # Grows whenever `known` or what neighbors have sent may have changed.
        self.version = 0

    # --- what is known ---

    def received(self) -> dict[str, ReceivedSummary]:
        """The summary of each neighbor as it was sent, by neighbor."""
        return {neighbor.name: self._incoming[neighbor].summary for neighbor in sorted(self._incoming)}

    def examinable(self, neighbor: str) -> frozenset[str]:
        """The brokers whose subscriptions we can examine in the summary of a neighbor: those that it names, if it is
        for the neighbor to summarize for them. All brokers know all links, so all can say whose summaries are whose.
        A neighbor that names others does not keep notifications from them. While links change, the two may differ for
        a moment; then a walk visits more brokers, not fewer."""
        if self.degrees.up_of(neighbor) != self._own.name:
            return frozenset()
        return self.degrees.sent_by(neighbor) & self._incoming[Neighbor(neighbor)].summary.merged_brokers

    def known(self) -> frozenset[str]:
        """Merged_Brokers of what this broker keeps: the brokers whose subscriptions it can examine."""
        return frozenset([self._own.name]).union(*map(self.examinable, self.received()))

    def sent_brokers(self) -> frozenset[str]:
        """Merged_Brokers of what this broker should send."""
        lower = (self._incoming[neighbor].summary.merged_brokers for neighbor in self._lower)
        return frozenset([self._own.name]).union(*lower)

    @property
    def looked_up(self) -> int:
        """Rows and ids looked at to match notifications."""
        return self._looked_up_before + sum(some.looked_up for some in self.received().values())

    @property
    def merged(self) -> MergedSummary | None:
        """The summary for `up`; None if there is no such neighbor."""
        return self._merged

    # --- what happens ---

    def link_up(self, neighbor: Neighbor) -> None:
        """Both ends have forgotten what they said."""
        self.link_down(neighbor)
        self._incoming[neighbor] = Incoming(neighbor.name, self._brokers, self._links.records.__contains__)

    def link_down(self, neighbor: Neighbor) -> None:
        if neighbor == self.up:
            self.up = self._outgoing = None
        if neighbor in self._incoming:
            self._leave(neighbor)
            self._looked_up_before += self._incoming.pop(neighbor).summary.looked_up
            self.version += 1

    def own_changed(self, change: PairChange) -> None:
        if self._merged is not None:
            self._merged.add(change.new)
            self._merged.remove(change.gone)

    def heard(self, message: Summarized | SummaryChange, source: Neighbor) -> None:
        """A neighbor has sent its summary, or a change of it. RemoteProtocolError or LimitError if it cannot be."""
        incoming = self._incoming[source]
        others = sum(some.summary.pairs_count for each, some in self._incoming.items() if each != source)
        change = incoming.hear(message, others)
        self.version += 1
        if self._merged is not None and source in self._lower:
            self._merged.add(self._of_others(change.new))
            self._merged.remove(self._of_others(change.gone))

    def _of_others(self, pairs: Iterable[Pair]) -> Iterable[Pair]:
        """Without our own ids. While degrees change, a neighbor may send what we once sent it."""
        own = self._brokers.number(self._own.name)
        return [pair for pair in pairs if pair[1] // NUMBERS_MAX != own]

    # --- what is merged ---

    def _regroup(self) -> None:
        """Takes in the summaries of neighbors that have a lower degree now, and takes out those of others."""
        lower = {neighbor for neighbor in self._incoming if self.degrees.is_lower(neighbor)}
        for neighbor in sorted(self._lower - lower):
            self._leave(neighbor)
        for neighbor in sorted(lower - self._lower):
            self._lower.add(neighbor)
            if self._merged is not None:
                self._merged.add(self._of_others(self._incoming[neighbor].summary.pairs()))

    def _leave(self, neighbor: Neighbor) -> None:
        if neighbor in self._lower:
            self._lower.remove(neighbor)
            if self._merged is not None:
                self._merged.remove(self._of_others(self._incoming[neighbor].summary.pairs()))

    def _begin(self) -> MergedSummary:
        merged = MergedSummary()
        merged.add(self._own.pairs())
        for neighbor in sorted(self._lower):
            merged.add(self._of_others(self._incoming[neighbor].summary.pairs()))
        return merged

    def _names_of(self, code: int) -> Names:
        """c3 of an id in the merged summary. If two neighbors name different attributes, because one is behind, all of
        them: every row of the id is one of c3."""
        number, own = code % NUMBERS_MAX, self._brokers.number(self._own.name)
        if code // NUMBERS_MAX == own:
            names = self._own.names_of(number)
            assert names is not None
            return names
        named = [self._incoming[neighbor].summary.names_of(code) for neighbor in self._lower]
        return frozenset().union(*(names for names in named if names is not None))

    # --- what is sent ---

    def propagated(self, now: Time) -> list[Action]:
        """After every message: what must be sent now, or a timer until then."""
        self._regroup()
        if not self._period:
            return self._flushed()
        return self._timed(now)

    def _timed(self, now: Time) -> list[Action]:
        """Sets the timer, if something waits, or if the summary is to be sent in every period."""
        waits = self._waits()
        if not waits and (self._sends != "always" or self.degrees.up() is None):
            return []
        # With other links, our iteration may be at another time; and what was idle may have something to send.
        timer = self._links.version, waits
        if timer == self._timer:
            return []
        self._timer = timer
        return [SetTimer(PROPAGATE, self._next_time(now), is_idle=not waits)]

    def timer_fired(self, now: Time) -> list[Action]:
        self._timer = None
        return self._flushed() + self._timed(now)

    def _waits(self) -> bool:
        """Whether something is to be sent."""
        up = self.degrees.up()
        if up != self.up or self._outgoing is None or self._merged is None:
            return up is not None or self.up is not None
        return self._merged.has_changes or self._outgoing.merged_brokers != self.sent_brokers()

    def _next_time(self, now: Time) -> Time:
        """When the iteration for our degree is next. A period has one slot for each degree, and one more."""
        slot = self._period // (self.degrees.highest + 2)
        offset = slot * self.degrees.of(self._own.name)
        return now + self._period - (now - offset) % self._period

    def _flushed(self) -> list[Action]:
        up = self.degrees.up()
        actions: list[Action] = []
        if up != self.up and self.up is not None and self._outgoing is not None:
            actions.append(Send(self.up, self._outgoing.ended()))
        if up is None:
            self.up = self._outgoing = self._merged = None
            return actions
        if self._merged is None:
            self._merged = self._begin()
        brokers = self.sent_brokers()
        if up != self.up or self._outgoing is None:
            self.up, self._outgoing = up, Outgoing(self._brokers)
            return actions + self._said(self._outgoing.whole(self._merged, brokers, self._names_of))
        change = self._merged.flush()
        if not change and brokers == self._outgoing.merged_brokers and self._sends != "always":
            return actions
        # When most rows change, the whole is shorter.
        is_long = len(change.gone) + len(change.new) > len(self._merged)
        message = None
        if self._sends == "differences" and not is_long:
            message = self._outgoing.change(change, brokers, self._names_of)
        if message is not None:
            return actions + self._said([message])
        return actions + self._said(self._outgoing.whole(self._merged, brokers, self._names_of))

    def _said(self, messages: Iterable[Summarized | SummaryChange]) -> list[Action]:
        assert self.up is not None
        return [Send(self.up, message) for message in messages]
