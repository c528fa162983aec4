"""A core and its connections: the node gives the core what arrives, and performs the core's actions, in order.

A node has no sockets and no event loop. It puts what it sends into outlets; the clock and the timers are arguments. The
asyncio server and the simulator both drive nodes, so a simulation shows what the live node decides:

- Which client an interface stands for. When a client connects under a name that is connected already, the new
  connection replaces the old.
- Which answer belongs to which request.
- Who may ask for what, and publish as whom (`access.py`), with which numbers (`numbers.py`).
- What is durable (`routing/durable/`): it gives the store what the core writes, and the core what the store says.
- What is dropped. While a client is behind, the node drops and counts the deliveries to it. As soon as the client has
  caught up, the node tells it how many it has lost.
- What neighbors and clients hear of what may be lost between brokers (`gaps.py`).
- What ends a link. The core refused something that the neighbor said, or a message to the neighbor is too long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from catchment.errors import BadIdError, CatchmentError, UnavailableError, shown
from catchment.model.notification import Notification
from catchment.node.access import Access
from catchment.node.counting import is_counted, unwanted
from catchment.node.gaps import TIMER as GAPS_TIMER
from catchment.node.gaps import Gaps, GapTimes
from catchment.node.jobs import LINK, SLICE_CANCELLED_MAX, SLICE_PUBLISHED_MAX, TURN, Job, Jobs
from catchment.node.kept import ClientState, LinkState
from catchment.node.outlets import ClientOutlet, LinkOutlet, StoreOutlet
from catchment.node.performing import Performing
from catchment.node.publications import Publication, Publications
from catchment.node.sliced import Slices, ending_of, finished, names_in, sliced
from catchment.routing.core import LeavesInParts, RoutingCore, Work
from catchment.routing.durable.messages import DurableRequest, Taken
from catchment.routing.messages import (
    HOPS_MOST,
    HOST,
    BrokerMessage,
    Client,
    ClientDown,
    ClientRequest,
    ClientUp,
    Gap,
    HostMessage,
    Interface,
    LinkDown,
    LinkMessage,
    LinkUp,
    Neighbor,
    Refuse,
    Routed,
    SetTimer,
    Time,
    TimerFired,
)
from catchment.routing.parts.identities import Identity
from catchment.routing.stored import StoreMessage


class Node(Performing):
    """A broker without its sockets."""

    def __init__(
        self,
        name: str,
        core: RoutingCore[Any],
        now: Callable[[], Time],
        set_timer: Callable[[SetTimer], None],
        incarnation: int | None = None,
        gap_times: GapTimes | None = None,
        store: StoreOutlet | None = None,
    ) -> None:
        """`incarnation` is greater than 0 and differs from those of earlier processes of this broker; without one, it
        is the time. `store` is there if the core is durable and was made from what a store has."""
        super().__init__(name, core, now, set_timer, store)
        # Links that are up, but wait: the core still forgets the link to the same neighbor before them.
        self._coming: dict[Neighbor, LinkState] = {}
        self.access = Access(name, core, self.clients)
        if self.durable is not None:
            # A publisher goes on after what is kept of it, even if this process has not heard it yet.
            self.access.numbers.remember(self.durable.numbers())
        # Messages that the node has given to the core: each may have changed what is wanted here.
        self.messages_count = 0
        # Is told each gap that this node tells: a host may log it.
        self.on_gap: Callable[[Gap], None] = lambda gap: None
        self.jobs = Jobs(lambda: set_timer(SetTimer(TURN, now())))
        self._gaps = Gaps(
            name,
            max(1, now()) if incarnation is None else incarnation,
            now(),
            tell=self._tell_gap,
            send=self._tell_neighbor,
            set_timer=lambda timer, at: set_timer(SetTimer(timer, at, is_idle=True)),
            handled=lambda: self.totals.published + self.totals.received,
            is_reached=self._is_reached,
            times=gap_times,
        )

    # --- connections ---

    def client_up(
        self,
        client: Client,
        identity: str,
        seen: Mapping[str, int],
        outlet: ClientOutlet,
        session: int = 0,
        positions: Mapping[str, int] = MappingProxyType({}),
        storage: str = "",
    ) -> None:
        """A client has connected. If a client of this name is connected already, it has come back before this node
        noticed that the old connection is dead: the new one replaces it. The last three arguments are for durable
        delivery (`ClientUp`)."""
        if client in self.clients:
            self.clients[client].outlet.end(f"{shown(client.name)} has connected again")
            self.client_down(client)
        state = self.clients[client] = ClientState(outlet)
        message = ClientUp(identity, seen, session, dict(positions), storage)
        self._when_free(client, outlet, {client.name, identity}, lambda: self._came(client, state, message))

    def _came(self, client: Client, state: ClientState, message: ClientUp) -> None:
        # It may have gone while it waited.
        if self.clients.get(client) is state:
            state.is_known = True
            self._tell(message, client)

    def client_down(self, client: Client) -> None:
        """A client has gone. From now on nothing is delivered to it, even if the core still has to forget much."""
        if (state := self.clients.pop(client, None)) is not None:
            names = {client.name, *(identity.name for identity in self.core.clients.identities_of(client))}
            self._when_free(client, state.outlet, names, lambda: self._went(client))

    def _went(self, client: Client) -> None:
        identities = self.core.clients.identities_of(client)
        names = frozenset((client.name, *(identity.name for identity in identities)))
        self.jobs.begin(Job(names, self._taking_down(client, identities)))

    def _taking_down(self, client: Client, identities: Sequence[Identity]) -> Iterator[None]:
        """Cancels what the identities of a client want and offer, until so little is left that the core may forget it
        at once."""
        for identity in identities:
            for request in ending_of(identity):
                self._tell(request, client)
                yield
        self._tell(ClientDown(), client)

    def _when_free(self, client: Client, outlet: ClientOutlet, names: set[str], work: Callable[[], None]) -> None:
        """Does something for a client now, or when no job is about these names any more."""
        if self.jobs.must_wait(client, names):
            self.jobs.wait(client, outlet, names, work)
        else:
            work()

    def link_up(self, neighbor: Neighbor, cost: int, outlet: LinkOutlet) -> None:
        self.link_down(neighbor)
        link = self._coming[neighbor] = LinkState(outlet, cost)
        self._when_link_free(neighbor, link, lambda: self._link_came(neighbor, link))

    def _link_came(self, neighbor: Neighbor, link: LinkState) -> None:
        # It may have gone while it waited.
        if self._coming.get(neighbor) is link:
            self.links[neighbor] = self._coming.pop(neighbor)
            self._gaps.link_up(neighbor, self._now())
            self._tell(LinkUp(link.cost), neighbor)

    def link_down(self, neighbor: Neighbor) -> None:
        """A link has failed. From now on nothing is sent over it, even if the core still has to forget much."""
        self._coming.pop(neighbor, None)
        link = self.links.pop(neighbor, None)
        if link is not None:
            job = Job(frozenset((LINK + neighbor.name,)), self._forgetting(neighbor))
            self._when_link_free(neighbor, link, lambda: self.jobs.begin(job))
            self._gaps.link_down(neighbor, link.carried_out, link.carried_in, self._now())

    def _forgetting(self, neighbor: Neighbor) -> Iterator[None]:
        """Lets the core forget what a neighbor has said, until so little is left that it may forget it at once."""
        if isinstance(self.core, LeavesInParts):
            for message in self.core.farewell(neighbor, SLICE_CANCELLED_MAX):
                self._tell(message, neighbor)
                yield
        self._tell(LinkDown(), neighbor)

    def _when_link_free(self, neighbor: Neighbor, link: LinkState, work: Callable[[], None]) -> None:
        """Does something for a link now, or when the core has forgotten the link before it."""
        if self.jobs.must_wait(neighbor, (LINK + neighbor.name,)):
            self.jobs.wait(neighbor, link.outlet, (LINK + neighbor.name,), work)
        else:
            work()

    def _over_link(self, neighbor: Neighbor, work: Callable[[LinkState], None]) -> None:
        """Something has come over a link. It is dropped if the link goes while it waits."""
        link = self._coming.get(neighbor) or self.links[neighbor]
        self._when_link_free(neighbor, link, lambda: work(link) if self.links.get(neighbor) is link else None)

    def beat(self) -> None:
        """Called from time to time: tells each neighbor until when it has everything."""
        for neighbor in sorted(self.links):
            self._gaps.beat(neighbor, self.links[neighbor].carried_out, self._now())

    def part(self) -> None:
        """This process ends: tells each neighbor that it has everything."""
        for neighbor in sorted(self.links):
            self._gaps.part(neighbor, len(self.links) == 1, self._now())

    # --- requests and publications of clients ---

    def requested(self, client: Client, number: int, request: ClientRequest | DurableRequest) -> None:
        """Does what a client asks for, and answers with the number of the request. A durable request that is accepted
        takes effect later (`ClientOutlet.take_effect`)."""
        state = self.clients[client]
        names = {client.name, *names_in(request)}
        self._when_free(client, state.outlet, names, lambda: self._do(client, state, number, request))

    def _do(self, client: Client, state: ClientState, number: int, request: ClientRequest | DurableRequest) -> None:
        if self.clients.get(client) is not state:
            return  # It went while it waited.
        names = frozenset((client.name, *names_in(request)))
        self.jobs.begin(Job(names, self._answering(client, state, number, request)))

    def _answering(
        self, client: Client, state: ClientState, number: int, request: ClientRequest | DurableRequest
    ) -> Iterator[None]:
        refusals = yield from self._asking(client, request)
        state.outlet.answer(number, refusals)

    def _asking(self, client: Client, request: ClientRequest | DurableRequest) -> Slices:
        """Asks the core, in slices if it is much work. Returns the refusals."""
        try:
            if isinstance(request, DurableRequest):
                if self.durable is None:
                    raise UnavailableError(f"{self.name} has no part in durable delivery")
                self.access.check_durable(client, request)
                return self._tell(request, client)
            self.access.check_request(client, request)
        except CatchmentError as problem:
            self.totals.refused += 1
            return [Refuse(client, problem)]
        if self.access.granted(request):
            return []
        return (yield from sliced(request, self.core.clients, lambda part: self._tell(part, client)))

    def ask(self, client: Client, request: ClientRequest | DurableRequest) -> list[Refuse]:
        """Does what a client asks for, whatever it takes. Returns the refusals; the caller answers the client."""
        if self.jobs.must_wait(client, {client.name, *names_in(request)}):
            self.totals.refused += 1
            busy = f"{shown(request.identity)} is still being taken down at {self.name}: try again in a moment"
            return [Refuse(client, BadIdError(busy))]
        return finished(self._asking(client, request))

    def misasked(self, client: Client, number: int, error: CatchmentError) -> None:
        """Refuses a request or publication that the host could read, but that asks for something impossible."""
        self.totals.refused += 1
        outlet = self.clients[client].outlet
        # Answers come in the order of what was asked.
        self._when_free(client, outlet, {client.name}, lambda: outlet.answer(number, [Refuse(client, error)]))

    def published(self, client: Client, publications: Sequence[Publication]) -> None:
        """Publishes, with few calls of the core, all that one read of a client's connection brought. Each publication
        has the number of its answer, or 0 if the client does not wait for an answer. A publication with a source that
        is not the client's, or with a number that is out of range, is refused as a whole."""
        state = self.clients[client]
        self._when_free(client, state.outlet, {client.name}, lambda: self._publish_all(client, state, publications))

    def _publish_all(self, client: Client, state: ClientState, publications: Sequence[Publication]) -> None:
        now = self._now()
        admitted = Publications(client, publications, lambda batch: self.access.admitted(client, batch, now))
        self.totals.refused += admitted.refused_count
        self.jobs.begin(Job(frozenset((client.name,)), self._publishing(client, state, admitted)))

    def _publishing(self, client: Client, state: ClientState, publications: Publications) -> Iterator[None]:
        """Gives the core what was admitted; only a long publication takes more than one slice. What the client says
        next, also that it goes, comes after all of it."""
        refusals: list[Refuse] = []
        for start in range(0, len(publications.admitted), SLICE_PUBLISHED_MAX):
            if start:
                yield
            refusals += self._taken(client, state, publications.admitted[start : start + SLICE_PUBLISHED_MAX])
        for number, refused in publications.answers(refusals):
            state.outlet.answer(number, refused)

    def publish(self, client: Client, notifications: Sequence[Notification]) -> list[Refuse]:
        """Publishes notifications that do not depend on each other: if one is refused, the others are published.
        Returns the refusals."""
        refusals: list[Refuse] = []
        admitted: list[Notification] = []
        for notification in notifications:
            try:
                admitted += self.access.admitted(client, (notification,), self._now())
            except CatchmentError as problem:
                self.totals.refused += 1
                refusals.append(Refuse(client, problem, notification))
        return refusals + self._taken(client, self.clients[client], admitted)

    def _taken(self, client: Client, state: ClientState, notifications: Sequence[Notification]) -> list[Refuse]:
        state.published += len(notifications)
        self.totals.published += len(notifications)
        if not notifications:
            return []
        if self._gaps.is_owing:
            self._gaps.handles(self._now())
        batch = [Routed(notification) for notification in notifications]
        return self._perform(self.core.on_notifications(batch, client, self._now()))

    # --- durable delivery ---

    def published_stored(
        self, client: Client, number: int, notifications: Sequence[Notification], after: int | None
    ) -> None:
        """Publications of one source that the client wants to be stored, with growing numbers. `after` is the number of
        the last one before that was to be stored, None if there was none. What is kept is confirmed later
        (`ClientOutlet.confirm`); the answer says whether it is on its way. A client publishes again what was refused or
        has not been confirmed: the same numbers may come several times."""
        state = self.clients[client]
        work = partial(self._publish_stored, client, state, number, notifications, after)
        self._when_free(client, state.outlet, {client.name}, work)

    def _publish_stored(
        self,
        client: Client,
        state: ClientState,
        number: int,
        notifications: Sequence[Notification],
        after: int | None,
    ) -> None:
        try:
            if self.durable is None:
                raise UnavailableError(f"{self.name} has no part in durable delivery: nothing can be stored")
            admitted = self.access.admitted_stored(client, notifications, self._now())
        except CatchmentError as problem:
            self.totals.refused += 1
            refusals = [Refuse(client, problem)]
        else:
            state.published += len(admitted)
            self.totals.published += len(admitted)
            if self._gaps.is_owing:
                self._gaps.handles(self._now())
            refusals = self._perform(self.durable.on_publication(admitted, after, client, self._now()))
        if self.clients.get(client) is state and (number or refusals):
            state.outlet.answer(number, refusals)

    def taken(self, client: Client, taken: Taken) -> None:
        """The application has taken deliveries."""
        if self.durable is not None:
            self._when_free(client, self.clients[client].outlet, {client.name}, lambda: self._take(client, taken))

    def _take(self, client: Client, taken: Taken) -> None:
        if client in self.clients:
            self._tell(taken, client)

    def store_said(self, message: StoreMessage) -> None:
        """The store has done something, or fails."""
        self._refuse_later(self._tell(message, HOST))

    def _refuse_later(self, refusals: Sequence[Refuse]) -> None:
        """What was on its way to a store is not kept: its publishers are told."""
        for refusal in refusals:
            state = self.clients.get(refusal.source) if isinstance(refusal.source, Client) else None
            if state is not None:
                state.outlet.answer(0, [refusal])

    # --- neighbors and timers ---

    def arrived(self, neighbor: Neighbor, batch: Sequence[Routed]) -> None:
        """A neighbor has forwarded notifications, in one message."""
        self._over_link(neighbor, lambda link: self._arrived(neighbor, link, batch))

    def _arrived(self, neighbor: Neighbor, link: LinkState, batch: Sequence[Routed]) -> None:
        link.heard += 1
        link.received += len(batch)
        link.carried_in += len(batch)
        self.totals.received += len(batch)
        if any(routed.header.hops > HOPS_MOST for routed in batch):
            self.totals.looped += sum(routed.header.hops > HOPS_MOST for routed in batch)
            batch = [routed for routed in batch if routed.header.hops <= HOPS_MOST]
        plausible = self.access.numbers.plausible(batch, self._now())
        self.totals.absurd += len(batch) - len(plausible)
        batch = plausible
        if self._gaps.is_owing:
            self._gaps.handles(self._now())
        actions = self.core.on_notifications(batch, neighbor, self._now()) if batch else []
        self.totals.unwanted += unwanted(batch, actions)
        self._perform(actions)

    def told(self, neighbor: Neighbor, message: BrokerMessage) -> None:
        """A neighbor has sent a message of the routing system."""
        self._over_link(neighbor, lambda link: self._told(neighbor, link, message))

    def _told(self, neighbor: Neighbor, link: LinkState, message: BrokerMessage) -> None:
        link.heard += 1
        link.carried_in += int(message.carries_notifications)
        self.jobs.begin(Job(frozenset((LINK + neighbor.name,)), self._hearing(neighbor, link, message.parts())))

    def _hearing(self, neighbor: Neighbor, link: LinkState, parts: Sequence[BrokerMessage]) -> Iterator[None]:
        """Gives the core what a neighbor has said. There is one part, unless the neighbor says too much at once."""
        for number, part in enumerate(parts):
            if number:
                yield
                if self.links.get(neighbor) is not link:
                    return  # The link has gone in between.
            self._refuse_later(self._tell(part, neighbor))

    def link_told(self, neighbor: Neighbor, message: LinkMessage) -> None:
        """The node of a neighbor has sent a message."""
        self._over_link(neighbor, lambda link: self._link_told(neighbor, link, message))

    def _link_told(self, neighbor: Neighbor, link: LinkState, message: LinkMessage) -> None:
        link.heard += int(is_counted(message))
        self._gaps.heard(neighbor, message, link.carried_in, self._now())

    def timer_fired(self, name: str) -> None:
        if name == TURN:
            self.jobs.turn()
        elif name == GAPS_TIMER:
            self._gaps.on_timer(self._now())
        else:
            self._tell(TimerFired(name), HOST)

    def _tell(
        self,
        message: ClientRequest | HostMessage | BrokerMessage | DurableRequest | Taken | StoreMessage,
        source: Interface,
    ) -> list[Refuse]:
        """Gives a message to the core and performs the actions. Returns the refusals."""
        self.messages_count += 1
        return self._perform(self.core.on_message(message, source, self._now()))

    # --- looking in ---

    def now(self) -> Time:
        return self._now()

    def counts(self, work: Work | None = None) -> dict[str, int]:
        """All totals, and how many notifications were dropped as old: by the core, and for identities. `work` is the
        core's, if the caller has asked for it already."""
        totals = {name: getattr(self.totals, name) for name in self.totals.__slots__}
        old = (work or self.core.inspect().work).old
        return {**totals, "old": old + self.core.clients.old_count}

    # --- gaps ---

    def _tell_neighbor(self, neighbor: Neighbor, message: LinkMessage) -> None:
        link = self.links[neighbor]
        link.outlet.tell(message)
        link.sent += int(is_counted(message))

    def _tell_gap(self, gap: Gap, source: Neighbor | None) -> None:
        """Tells a gap to all clients, and to all neighbors but the one that it came from."""
        self.on_gap(gap)
        for client in sorted(self.clients):
            self.totals.gaps += 1
            self.clients[client].outlet.tell_gap(gap)
        for neighbor in sorted(self.links):
            if neighbor != source:
                self._tell_neighbor(neighbor, gap)

    def _is_reached(self, broker: str) -> bool | None:
        brokers = self.core.inspect().brokers
        return None if brokers is None else any(known.is_reached for known in brokers if known.name == broker)
