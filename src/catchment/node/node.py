"""A core and its connections: the node gives the core what arrives, and performs the core's actions, in order.

A node has no sockets and no event loop. It puts what it sends into outlets; the clock and the timers are arguments. The
asyncio server and the simulator both drive nodes, so a simulation shows what the live node decides:

- Which client an interface stands for. When a client connects under a name that is connected already, the new
  connection replaces the old.
- Which answer belongs to which request.
- Who may ask for what. Names have a maximum length, a client may use so many identities, and a handler must be a client
  that is connected.
- What is dropped. While a client is behind, the node drops and counts the deliveries to it. As soon as the client has
  caught up, the node tells it how many it has lost.
- What ends a link. The core refused something that the neighbor said, or a message to the neighbor is too long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, assert_never

from catchment.errors import BadIdError, CatchmentError, LimitError, shown
from catchment.model.notification import Notification
from catchment.model.pattern import IDENTITY_CODEPOINTS_MAX
from catchment.node.jobs import TURN, Job, Jobs
from catchment.node.outlets import ClientOutlet, LinkOutlet
from catchment.node.sliced import Slices, ending_of, finished, names_in, sliced
from catchment.routing.core import RoutingCore
from catchment.routing.messages import (
    HOST,
    Action,
    BrokerMessage,
    Client,
    ClientDown,
    ClientRequest,
    ClientUp,
    Deliver,
    DeliverSequence,
    Forward,
    HostMessage,
    Interface,
    Keep,
    LinkDown,
    LinkUp,
    MapIdentity,
    Missed,
    Neighbor,
    Refuse,
    Routed,
    Send,
    SetTimer,
    Time,
    TimerFired,
)
from catchment.routing.parts.clients import Identity

# Identities that one client may name in its requests, or be mapped to: the node keeps each until the client goes.
CLIENT_IDENTITIES_MAX: Final = 10_000

# The actions which show that somebody wants a notification.
_WANTED: Final = (Forward, Deliver, DeliverSequence, Keep)


@dataclass(slots=True)
class ClientState:
    """What a node keeps for a client that is connected."""

    outlet: ClientOutlet
    # Whether the core knows of the client: not while it waits for the end of a client of the same name (`jobs.py`).
    is_known: bool = False
    # By identity: deliveries that the node has dropped and has not told the client about yet.
    lost: Counter[str] = field(default_factory=Counter)
    identities: set[str] = field(default_factory=set)
    delivered: int = 0
    published: int = 0


@dataclass(slots=True)
class LinkState:
    """What a node keeps for a link that is up."""

    outlet: LinkOutlet
    cost: int
    # Notifications.
    received: int = 0
    forwarded: int = 0
    # Messages, with and without notifications, since the link came up. When nothing is under way, what one end has
    # sent is what the other end has heard.
    sent: int = 0
    heard: int = 0


@dataclass(slots=True)
class Totals:
    """Counts since the start of the node."""

    published: int = 0
    received: int = 0
    forwarded: int = 0
    delivered: int = 0
    lost: int = 0
    refused: int = 0
    # Notifications that a neighbor sent, and that this broker neither delivered nor forwarded nor kept.
    unwanted: int = 0


class Node:
    """A broker without its sockets."""

    def __init__(
        self, name: str, core: RoutingCore[Any], now: Callable[[], Time], set_timer: Callable[[SetTimer], None]
    ) -> None:
        self.name = name
        self.core = core
        self.clients: dict[Client, ClientState] = {}
        self.links: dict[Neighbor, LinkState] = {}
        self.totals = Totals()
        # Messages that the node has given to the core: each may have changed what is wanted here.
        self.messages_count = 0
        self._now = now
        self._set_timer = set_timer
        self.jobs = Jobs(lambda: set_timer(SetTimer(TURN, now())))

    # --- connections ---

    def client_up(self, client: Client, identity: str, seen: Mapping[str, int], outlet: ClientOutlet) -> None:
        """A client has connected. If a client of this name is connected already, it has come back before this node
        noticed that the old connection is dead: the new one replaces it."""
        if client in self.clients:
            self.clients[client].outlet.end(f"{shown(client.name)} has connected again")
            self.client_down(client)
        state = self.clients[client] = ClientState(outlet)
        self._when_free(client, outlet, {client.name, identity}, lambda: self._came(client, state, identity, seen))

    def _came(self, client: Client, state: ClientState, identity: str, seen: Mapping[str, int]) -> None:
        # It may have gone while it waited.
        if self.clients.get(client) is state:
            state.is_known = True
            self._tell(ClientUp(identity, seen), client)

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
        self.links[neighbor] = LinkState(outlet, cost)
        self._tell(LinkUp(cost), neighbor)

    def link_down(self, neighbor: Neighbor) -> None:
        if self.links.pop(neighbor, None) is not None:
            self._tell(LinkDown(), neighbor)

    # --- requests and publications of clients ---

    def requested(self, client: Client, number: int, request: ClientRequest) -> None:
        """Does what a client asks for, and answers with the number of the request."""
        state = self.clients[client]
        names = {client.name, *names_in(request)}
        self._when_free(client, state.outlet, names, lambda: self._do(client, state, number, request))

    def _do(self, client: Client, state: ClientState, number: int, request: ClientRequest) -> None:
        if self.clients.get(client) is not state:
            return  # It went while it waited.
        names = frozenset((client.name, *names_in(request)))
        self.jobs.begin(Job(names, self._answering(client, state, number, request)))

    def _answering(self, client: Client, state: ClientState, number: int, request: ClientRequest) -> Iterator[None]:
        refusals = yield from self._asking(client, state, request)
        state.outlet.answer(number, refusals)

    def _asking(self, client: Client, state: ClientState, request: ClientRequest) -> Slices:
        """Asks the core, in slices if it is much work. Returns the refusals."""
        try:
            self._check_request(state, request)
        except CatchmentError as problem:
            self.totals.refused += 1
            return [Refuse(client, problem)]
        return (yield from sliced(request, self.core.clients, lambda part: self._tell(part, client)))

    def ask(self, client: Client, request: ClientRequest) -> list[Refuse]:
        """Does what a client asks for, whatever it takes. Returns the refusals; the caller answers the client."""
        if self.jobs.must_wait(client, {client.name, *names_in(request)}):
            self.totals.refused += 1
            busy = f"{shown(request.identity)} is still being taken down at {self.name}: try again in a moment"
            return [Refuse(client, BadIdError(busy))]
        return finished(self._asking(client, self.clients[client], request))

    def _check_request(self, state: ClientState, request: ClientRequest) -> None:
        """Checks what the core cannot check: whether a handler is connected, and how much the node keeps for a client.
        Raises what the client is refused with."""
        for name in (request.identity, getattr(request, "id", request.identity)):
            if not 1 <= len(name) <= IDENTITY_CODEPOINTS_MAX:
                raise LimitError("IDENTITY_CODEPOINTS_MAX", IDENTITY_CODEPOINTS_MAX, f"a name of {len(name):,}")
        # The clients that keep the identity after this request.
        keepers = [state]
        if isinstance(request, MapIdentity):
            handler = self.clients.get(Client(request.handler))
            if handler is None:
                raise BadIdError(f"there is no client {shown(request.handler)} at {self.name}")
            # The handler keeps the identity even after the client that asked for the mapping is gone.
            keepers.append(handler)
        # Check all before changing any: a request that is refused changes nothing.
        for keeper in keepers:
            if request.identity not in keeper.identities and len(keeper.identities) >= CLIENT_IDENTITIES_MAX:
                raise LimitError("CLIENT_IDENTITIES_MAX", CLIENT_IDENTITIES_MAX, "one more", "use another connection")
        for keeper in keepers:
            keeper.identities.add(request.identity)

    def misasked(self, client: Client, number: int, error: CatchmentError) -> None:
        """Refuses a request or publication that the host could read, but that asks for something impossible."""
        self.totals.refused += 1
        outlet = self.clients[client].outlet
        # Answers come in the order of what was asked.
        self._when_free(client, outlet, {client.name}, lambda: outlet.answer(number, [Refuse(client, error)]))

    def published(self, client: Client, publications: Sequence[tuple[int, Sequence[Notification]]]) -> None:
        """Publishes, with one call of the core, all that one read of a client's connection brought. Each publication
        has the number of its answer, or 0 if the client does not wait for an answer."""
        state = self.clients[client]
        self._when_free(client, state.outlet, {client.name}, lambda: self._publish(client, state, publications))

    def _publish(
        self, client: Client, state: ClientState, publications: Sequence[tuple[int, Sequence[Notification]]]
    ) -> None:
        outlet = state.outlet
        refusals = self._taken(client, state, [notification for _, batch in publications for notification in batch])
        refusals_by_notification: dict[int, list[Refuse]] = {}
        for refusal in refusals:
            # By object, not by value: equal notifications may be in several publications. `id` is safe as a key: the
            # core returns the very object it was given, and `publications` keeps that object alive.
            refusals_by_notification.setdefault(id(refusal.notification), []).append(refusal)
        for number, batch in publications:
            refused = [
                refusal for notification in batch for refusal in refusals_by_notification.pop(id(notification), ())
            ]
            if number or refused:
                outlet.answer(number, refused)

    def publish(self, client: Client, notifications: Sequence[Notification]) -> list[Refuse]:
        """Publishes notifications. Returns the refusals; the core has taken all other notifications."""
        return self._taken(client, self.clients[client], notifications)

    def _taken(self, client: Client, state: ClientState, notifications: Sequence[Notification]) -> list[Refuse]:
        state.published += len(notifications)
        self.totals.published += len(notifications)
        if not notifications:
            return []
        batch = [Routed(notification) for notification in notifications]
        return self._perform(self.core.on_notifications(batch, client, self._now()))

    # --- neighbors and timers ---

    def arrived(self, neighbor: Neighbor, batch: Sequence[Routed]) -> None:
        """A neighbor has forwarded notifications, in one message."""
        link = self.links[neighbor]
        link.heard += 1
        link.received += len(batch)
        self.totals.received += len(batch)
        actions = self.core.on_notifications(batch, neighbor, self._now()) if batch else []
        self.totals.unwanted += _unwanted(batch, actions)
        self._perform(actions)

    def told(self, neighbor: Neighbor, message: BrokerMessage) -> None:
        """A neighbor has sent a message of the routing system."""
        self.links[neighbor].heard += 1
        self._tell(message, neighbor)

    def timer_fired(self, name: str) -> None:
        if name == TURN:
            self.jobs.turn()
        else:
            self._tell(TimerFired(name), HOST)

    def _tell(self, message: ClientRequest | HostMessage | BrokerMessage, source: Interface) -> list[Refuse]:
        """Gives a message to the core and performs the actions. Returns the refusals."""
        self.messages_count += 1
        return self._perform(self.core.on_message(message, source, self._now()))

    # --- actions ---

    def _perform(self, actions: Iterable[Action]) -> list[Refuse]:
        """Performs actions in order. Returns the refusals: the caller answers the client."""
        refusals: list[Refuse] = []
        for action in actions:
            match action:
                case Deliver() | DeliverSequence():
                    self._deliver(action)
                case Forward():
                    self._forward(action)
                case Send():
                    self._send(action.interface, action.message)
                case Keep():
                    pass
                case Missed():
                    self._miss(action)
                case SetTimer():
                    self._set_timer(action)
                case Refuse():
                    self.totals.refused += 1
                    # A neighbor that is refused has broken the protocol: it loses its link.
                    if isinstance(action.source, Neighbor) and action.source in self.links:
                        self.links[action.source].outlet.end(str(action.error))
                    refusals.append(action)
                case _:
                    assert_never(action)
        return refusals

    def _deliver(self, action: Deliver | DeliverSequence) -> None:
        state = self.clients.get(action.client)
        if state is None or not state.is_known or self._is_lost(state, action.identity):
            return
        try:
            if isinstance(action, Deliver):
                state.outlet.deliver(action)
            else:
                state.outlet.deliver_sequence(action)
        except LimitError:
            self._lose(state, action.identity)
        else:
            state.delivered += 1
            self.totals.delivered += 1

    def _miss(self, action: Missed) -> None:
        """Counts what the core has dropped as lost too: a client hears one number, whoever dropped the deliveries."""
        state = self.clients.get(action.client)
        if state is not None and state.is_known:
            state.lost[action.identity] += action.count
            self.totals.lost += action.count
            if not state.outlet.is_behind():
                self._tell_lost(state, action.identity)

    def _is_lost(self, state: ClientState, identity: str) -> bool:
        """Whether the client is too far behind for one more delivery, which is then counted as lost. If it is not
        behind, it is told now how many deliveries it has lost before."""
        if state.outlet.is_behind():
            self._lose(state, identity)
            return True
        # Before the delivery: so the client learns where in its stream the gap is.
        if state.lost:
            self._tell_lost(state, identity)
        return False

    def _lose(self, state: ClientState, identity: str) -> None:
        state.lost[identity] += 1
        self.totals.lost += 1

    def _tell_lost(self, state: ClientState, identity: str) -> None:
        if count := state.lost.pop(identity, 0):
            state.outlet.tell_lost(identity, count)

    def caught_up(self, client: Client) -> None:
        """A client that was behind has received what waited for it. It is told now what it has lost: perhaps no further
        delivery comes that could tell it."""
        state = self.clients.get(client)
        if state is not None:
            for identity in sorted(state.lost):
                self._tell_lost(state, identity)

    def _forward(self, action: Forward) -> None:
        link = self.links.get(action.interface)
        if link is not None:
            link.forwarded += len(action.batch)
            self.totals.forwarded += len(action.batch)
            link.sent += link.outlet.forward(action.batch, action.is_relayed)

    def _send(self, neighbor: Neighbor, message: BrokerMessage) -> None:
        link = self.links.get(neighbor)
        if link is None:
            return
        try:
            link.outlet.send(message)
        except LimitError as problem:
            # A neighbor that misses a message would route by a wrong state. A new link begins from nothing.
            link.outlet.end(f"{type(message).__name__}: {problem}")
        else:
            link.sent += 1


def _unwanted(batch: Sequence[Routed], actions: Sequence[Action]) -> int:
    """How many notifications of a batch this broker did nothing with. A message to a neighbor does not count."""
    if len(batch) == 1:
        return 0 if any(isinstance(action, _WANTED) for action in actions) else 1
    # By `id`: the actions have the objects of the batch. `DeliverSequence` needs no branch: a core that watches
    # patterns emits `Keep` for each notification that a pattern wants.
    wanted: set[int] = set()
    for action in actions:
        if isinstance(action, Forward):
            wanted.update([id(routed.notification) for routed in action.batch])
        elif isinstance(action, Deliver | Keep):
            wanted.add(id(action.notification))
    return sum(id(routed.notification) not in wanted for routed in batch)
