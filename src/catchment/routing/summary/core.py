"""Subscription summaries: brokers exchange digests of filters, and a notification visits those that have them (§3, §4).

State: the local clients; link states with degrees; the summary of each neighbor as it was sent, and the merged one that
goes to one neighbor (`propagation.py`). A summary may say more than clients asked for, and never less. So the broker
that owns a subscription matches again, and clients get exactly what they want.

Two kinds of copies of a notification travel, with a `WalkHeader`. Between brokers that are no neighbors, the brokers on
the shortest path *relay*: they look at nothing but the header.

walking     One copy visits brokers (Algorithm 3). It carries the list of brokers whose subscriptions have been examined
            (BROCLI). The broker that is visited gives the notification to its own clients; examines the summaries it
            has, of brokers that were not on the list when the copy came; sends a copy to each of them that may want it;
            adds all brokers that it knows to the list; and sends the walking copy to the broker of highest degree that
            is not on the list, the nearest on ties. Brokers without subscriptions are on the list too. When all brokers
            that can be reached are on it, the walk is over.
told        A copy for the broker that owns subscriptions which may match, with their numbers. It gives the
            notification to its clients, and that is all.

The walk does not depend on what a notification says. So in a settled network everything that is published at one broker
takes one way to each other broker, and clients get the notifications of a publisher in order.

Subscribe, …            The own summary changes, and with it what goes up (`propagation.py`).
WeighedLinks            A record of links and virtual degree, flooded (`parts/link_states.py`). Degrees, and so the
                        neighbor that gets our summary, may change.
Summarized,             The neighbor's summary or a change of it. What cannot be is refused, and the link ends
SummaryChange           (`stream.py`).
LinkDown                That neighbor's summary is forgotten, with the brokers in it. Others are told.
TimerFired              The time for our degree has come: changes are sent.
walking, no way         A relay that cannot reach the broker `to` goes on with the walk itself, as if it were visited;
                        its own clients get nothing if it is on the list. A told copy without a way is dropped: its
                        broker is gone.

Departures from the text. *All brokers* are those that can be reached. BROCLI has names, because processes do not agree
on numbers. Rows are kept exactly under removal. A notification that has crossed HOPS_MAX links is dropped, which ends
circles while link states spread.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple, assert_never

from catchment.errors import LimitError, RemoteProtocolError, shown
from catchment.model.notification import Notification
from catchment.routing.core import Inspection, Table, Work
from catchment.routing.messages import (
    HOPS_MOST,
    Action,
    Client,
    ClientRequest,
    Forward,
    Interface,
    LinkDown,
    LinkUp,
    Neighbor,
    Refuse,
    Routed,
    Time,
)
from catchment.routing.parts.clients import ClientSide
from catchment.routing.parts.dispatch import DispatchingCore
from catchment.routing.parts.link_states import BROKERS_MAX, LinkStates
from catchment.routing.parts.recall import CONTENT_BYTES_MAX, CONTENTS_MAX, RecallingMatcher
from catchment.routing.summary.messages import (
    DEGREE_MAX,
    Summarized,
    SummaryChange,
    SummarySettings,
    WalkHeader,
    WeighedLinks,
)
from catchment.routing.summary.own import OwnSubscriptions
from catchment.routing.summary.propagation import PROPAGATE, Propagation
from catchment.routing.summary.rows import Brokers, RowKey

# Links that a notification may cross: a walk that visits each of a thousand brokers, ten links from one to the next.
HOPS_MAX: Final = HOPS_MOST
# Numbers of subscriptions that a told copy carries. Of more it carries none: its broker matches again anyway.
TOLD_IDS_MAX: Final = 64
# Plans that are kept: one for each list of examined brokers that comes here.
PLANS_MAX: Final = 1_024

_HEADER: Final = attrgetter("header")
_DEFAULT: Final = SummarySettings()
SummaryMessage = WeighedLinks | Summarized | SummaryChange


class _Plan(NamedTuple):
    """What a visit does with copies that come with the same list of examined brokers."""

    examined: frozenset[str]
    # The list that the walking copy takes along, the broker that it goes to, and the neighbor on the way.
    checked: tuple[str, ...]
    to: str | None
    neighbor: Neighbor | None


class _Copies:
    """Copies on their way out, by neighbor and by broker that they are for: so copies for one broker stay in order, and
    those with equal headers are beside each other."""

    def __init__(self) -> None:
        self._batches: dict[tuple[Neighbor, bool, str, bool], list[Routed]] = {}

    def add(
        self, neighbor: Neighbor, header: WalkHeader, notifications: Sequence[Notification], *, is_relayed: bool
    ) -> None:
        key = neighbor, is_relayed, header.to, header.checked is None
        self._batches.setdefault(key, []).extend([Routed(notification, header) for notification in notifications])

    def forwards(self) -> list[Action]:
        batches: dict[tuple[Neighbor, bool], list[Routed]] = {}
        for neighbor, is_relayed, to, is_told in sorted(self._batches):
            batch = self._batches[neighbor, is_relayed, to, is_told]
            batches.setdefault((neighbor, is_relayed), []).extend(batch)
        return [Forward(neighbor, tuple(batch), is_relayed) for (neighbor, is_relayed), batch in batches.items()]


class SummaryCore(DispatchingCore[SummaryMessage]):
    """A broker that summarizes."""

    def __init__(self, name: str, settings: SummarySettings = _DEFAULT) -> None:
        self.name = name
        self.settings = settings
        self.clients = ClientSide()
        self._brokers = Brokers()
        self.own = OwnSubscriptions(name, self.clients, self._brokers, subsumes=settings.subsumes)
        self.links = LinkStates(name, record=partial(_record, settings.degree_of(name)))
        self.propagation = Propagation(self.own, self.links, self._brokers, settings)
        self._matched = 0
        self._versions = (-1, -1)
        self._examinable: dict[str, frozenset[str]] = {}
        self._plans: dict[tuple[str, ...], _Plan] = {}
        # By content: the brokers that may want it, with the numbers of their subscriptions.
        self._contents: dict[bytes, tuple[tuple[str, tuple[int, ...]], ...]] = {}
        self._are_contents_enough = True

    # --- messages ---

    def _requested(self, message: ClientRequest, source: Client, now: Time) -> list[Action]:
        actions, change = self.own.request(message, source)
        self.propagation.own_changed(change)
        return actions + self.propagation.propagated(now)

    def _client_down(self, client: Client, now: Time) -> list[Action]:
        self.propagation.own_changed(self.own.client_down(client))
        return self.propagation.propagated(now)

    def _timer_fired(self, name: str, now: Time) -> list[Action]:
        if name == PROPAGATE:
            return self.propagation.timer_fired(now)
        # Brokers that are forgotten may change degrees.
        return self.links.on_timer(name, now) + self.propagation.propagated(now)

    def _from_neighbor(self, message: LinkUp | LinkDown | SummaryMessage, source: Neighbor, now: Time) -> list[Action]:
        # After the records of links: whoever hears a summary has heard of the brokers in it.
        return super()._from_neighbor(message, source, now) + self.propagation.propagated(now)

    def _link_up(self, neighbor: Neighbor, cost: int, now: Time) -> list[Action]:
        self.propagation.link_up(neighbor)
        return self.links.up(neighbor, cost, now)

    def _link_down(self, neighbor: Neighbor, now: Time) -> list[Action]:
        self.propagation.link_down(neighbor)
        return self.links.down(neighbor, now)

    def _heard(self, message: SummaryMessage, source: Neighbor, now: Time) -> list[Action]:
        match message:
            case WeighedLinks():
                self._check_record(message, source)
                return self.links.heard(message, source, now)
            case Summarized() | SummaryChange():
                self.propagation.heard(message, source)
                return []
            case _:
                assert_never(message)

    def _check_record(self, record: WeighedLinks, source: Neighbor) -> None:
        if record.degree is not None and not 1 <= record.degree <= DEGREE_MAX:
            what = f"stated a virtual degree of {record.degree} for {shown(record.origin)}, it is 1 to {DEGREE_MAX:,}"
            raise RemoteProtocolError(source.name, what)

    # --- notifications ---

    def on_notifications(self, batch: Sequence[Routed], source: Interface, now: Time) -> list[Action]:
        self._refresh()
        copies = _Copies()
        actions: list[Action] = []
        for header, group in groupby(batch, _HEADER):
            notifications = [routed.notification for routed in group]
            if not isinstance(header, WalkHeader):
                actions += self._visited(notifications, header.hops, (), copies, now)
                continue
            if (problem := _problem(header)) is not None:
                actions.append(Refuse(source, problem))
            elif header.hops > HOPS_MAX:
                continue
            elif header.to != self.name and (neighbor := self._toward(header.to)) is not None:
                further = WalkHeader(header.hops + 1, header.to, header.checked, header.ids)
                copies.add(neighbor, further, notifications, is_relayed=True)
            elif header.checked is not None:
                # It is for us, or nobody can bring it to the broker that it is for.
                actions += self._visited(notifications, header.hops, header.checked, copies, now)
            elif header.to == self.name:
                actions += self.clients.due(notifications, now)
        return actions + copies.forwards()

    def _refresh(self) -> None:
        """Forgets plans and answers that were made with other links or summaries."""
        versions = (self.links.version, self.propagation.version)
        if versions != self._versions:
            self._versions = versions
            self._plans.clear()
            self._contents.clear()
            received = self.propagation.received()
            self._examinable = {neighbor: self.propagation.examinable(neighbor) for neighbor in received}
            self._are_contents_enough = not any(summary.names_envelope for summary in received.values())

    def _toward(self, broker: str) -> Neighbor | None:
        """The neighbor on the way to a broker; None if there is no way."""
        hop = self.links.hops_from(self.name).get(broker)
        neighbor = None if hop is None else Neighbor(hop)
        return neighbor if neighbor in self.links.costs else None

    def _visited(
        self, notifications: Sequence[Notification], hops: int, checked: tuple[str, ...], copies: _Copies, now: Time
    ) -> list[Action]:
        """Algorithm 3 at this broker, for copies that come with the same list."""
        plan = self._plan(checked)
        self._matched += len(notifications)
        # On the list, if this is a relay that takes the walk over: its clients have had it.
        actions = [] if self.name in plan.examined else self.clients.due(notifications, now)
        for notification in notifications:
            for owner, ids in self._owners(notification):
                # Not those on the list as it came: another broker has told them.
                if owner not in plan.examined and (neighbor := self._toward(owner)) is not None:
                    copies.add(neighbor, WalkHeader(hops + 1, owner, None, ids), [notification], is_relayed=False)
        if plan.to is not None and plan.neighbor is not None:
            header = WalkHeader(hops + 1, plan.to, plan.checked, ())
            copies.add(plan.neighbor, header, notifications, is_relayed=False)
        return actions

    def _plan(self, checked: tuple[str, ...]) -> _Plan:
        if checked not in self._plans:
            examined = frozenset(checked)
            after = examined | self.propagation.known()
            to = self.propagation.degrees.next_broker(after, self.settings.next_broker)
            neighbor = None if to is None else self._toward(to)
            # Names that nobody has heard of are not passed on.
            known = [name for name in sorted(after) if name in self.links.records]
            if len(self._plans) >= PLANS_MAX:
                self._plans.clear()
            self._plans[checked] = _Plan(examined, tuple(known), to, neighbor)
        return self._plans[checked]

    def _owners(self, notification: Notification) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """The other brokers that may want a notification by the summaries that we have, each with the numbers of the
        subscriptions that may match."""
        content = notification.content if self._are_contents_enough else b""
        if content and (known := self._contents.get(content)) is not None:
            return known
        numbers: dict[str, set[int]] = {}
        values = notification.matched
        for neighbor, summary in self.propagation.received().items():
            for owner, some in self._brokers.by_owner(summary.match(values)).items():
                # Others are not put on the list either: a walk visits them.
                if owner != self.name and owner in self._examinable[neighbor]:
                    numbers.setdefault(owner, set()).update(some)
        owners = tuple(
            (owner, tuple(sorted(some)) if len(some) <= TOLD_IDS_MAX else ()) for owner, some in sorted(numbers.items())
        )
        if content and len(content) <= CONTENT_BYTES_MAX:
            if len(self._contents) >= CONTENTS_MAX:
                self._contents.clear()
            self._contents[content] = owners
        return owners

    # --- looking in ---

    def rows_of(self, neighbor: str) -> dict[RowKey, set[tuple[str, int]]]:
        """The rows of a neighbor's summary as it was sent, each with its ids: the broker, and the number there."""
        summary = self.propagation.received()[neighbor]
        return {
            row: {(owner, number) for owner, some in self._brokers.by_owner(codes).items() for number in some}
            for row, codes in summary.rows()
        }

    def matchers(self) -> Sequence[RecallingMatcher[Any]]:
        return (self.clients.matcher,)

    def inspect(self) -> Inspection:
        received = self.propagation.received()
        tables = [Table(name, len(summary), summary.bytes) for name, summary in received.items() if len(summary)]
        work = Work(self._matched, self.own.compared, looked_up=self.propagation.looked_up)
        every = (*self.clients.tables(), *tables)
        return Inspection(every, work, self.links.known_brokers(), self.own.apart, self.links.dropped)

    def leftovers(self) -> list[str]:
        received = self.propagation.received()
        rows = [f"{row} of {name}" for name, summary in received.items() for row, _ in summary.rows()]
        merged = self.propagation.merged
        sent = [] if merged is None else [f"{row} for {self.propagation.up}" for row, _ in merged.rows()]
        own = [f"subscription {number}" for number in self.own.numbered]
        return [*self.clients.leftovers(), *own, *rows, *sent]


def _record(degree: int | None, origin: str, seq: int, costs: tuple[tuple[str, int], ...]) -> WeighedLinks:
    return WeighedLinks(origin, seq, costs, degree)


def _problem(header: WalkHeader) -> LimitError | None:
    """What is wrong with a header that a neighbor wrote."""
    if header.checked is not None and len(header.checked) > BROKERS_MAX:
        return LimitError("BROKERS_MAX", BROKERS_MAX, f"{len(header.checked):,} brokers on the list of a notification")
    if len(header.ids) > TOLD_IDS_MAX:
        return LimitError("TOLD_IDS_MAX", TOLD_IDS_MAX, f"{len(header.ids):,} ids on a notification")
    return None
