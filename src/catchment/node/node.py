"""A core and its connections: hands over what comes, performs the actions that the core answers with, in order.

No sockets here and no loop: connections are outlets that things are put into, the clock and the timers are arguments.
The asyncio server and the simulator both drive nodes, so what a node decides is simulated as it runs:

- whom an interface stands for: a client that comes again under its name replaces the one that was there;
- which answer belongs to which request;
- who may ask for what: names have a length, a client has so many identities, a handler must be there;
- what is dropped and counted: a client that is behind loses what comes and is told how many, as soon as it is not;
- what ends a link: a neighbor that is refused, or that is told more than a message may hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, assert_never

from catchment.errors import BadIdError, CatchmentError, LimitError, shown
from catchment.model.filter import IDENTITY_CODEPOINTS_MAX
from catchment.model.notification import Notification
from catchment.node.outlets import ClientOutlet, LinkOutlet
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

# Identities that one client may ask for, or be mapped to: each is kept until the client goes.
CLIENT_IDENTITIES_MAX: Final = 10_000

# Actions that show that somebody wants a notification.
_WANTED: Final = (Forward, Deliver, DeliverSequence, Keep)


@dataclass(slots=True)
class ClientState:
    outlet: ClientOutlet
    # By identity, how many were dropped and are not told yet.
    lost: Counter[str] = field(default_factory=Counter)
    identities: set[str] = field(default_factory=set)
    delivered: int = 0
    published: int = 0


@dataclass(slots=True)
class LinkState:
    outlet: LinkOutlet
    cost: int
    received: int = 0
    forwarded: int = 0
    # Messages of any kind since it came up: at both ends the same when nothing is under way.
    sent: int = 0
    heard: int = 0


@dataclass(slots=True)
class Totals:
    """Since the start."""

    published: int = 0
    received: int = 0
    forwarded: int = 0
    delivered: int = 0
    lost: int = 0
    refused: int = 0
    # Notifications that a neighbor sent and that were neither delivered nor passed on nor kept.
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
        # Messages that the core was given: each may have changed what is wanted here.
        self.messages_count = 0
        self._now = now
        self._set_timer = set_timer

    # --- who is there ---

    def client_up(self, client: Client, identity: str, seen: Mapping[str, int], outlet: ClientOutlet) -> None:
        """A client that was there already under this name is replaced: it has come back before we knew it was gone."""
        if client in self.clients:
            self.clients[client].outlet.end(f"{shown(client.name)} has connected again")
            self.client_down(client)
        self.clients[client] = ClientState(outlet)
        self._tell(ClientUp(identity, seen), client)

    def client_down(self, client: Client) -> None:
        if self.clients.pop(client, None) is not None:
            self._tell(ClientDown(), client)

    def link_up(self, neighbor: Neighbor, cost: int, outlet: LinkOutlet) -> None:
        self.link_down(neighbor)
        self.links[neighbor] = LinkState(outlet, cost)
        self._tell(LinkUp(cost), neighbor)

    def link_down(self, neighbor: Neighbor) -> None:
        if self.links.pop(neighbor, None) is not None:
            self._tell(LinkDown(), neighbor)

    # --- what clients ask ---

    def requested(self, client: Client, number: int, request: ClientRequest) -> None:
        """A request that is answered with its number."""
        outlet = self.clients[client].outlet
        outlet.answer(number, self.ask(client, request))

    def ask(self, client: Client, request: ClientRequest) -> list[Refuse]:
        """What a client asks for; it is refused with these."""
        try:
            self._check_request(self.clients[client], request)
        except CatchmentError as problem:
            self.totals.refused += 1
            return [Refuse(client, problem)]
        return self._tell(request, client)

    def _check_request(self, state: ClientState, request: ClientRequest) -> None:
        """What a core cannot know, and the size of what it keeps."""
        for name in (request.identity, getattr(request, "id", request.identity)):
            if not 1 <= len(name) <= IDENTITY_CODEPOINTS_MAX:
                raise LimitError("IDENTITY_CODEPOINTS_MAX", IDENTITY_CODEPOINTS_MAX, f"a name of {len(name):,}")
        states = [state]
        if isinstance(request, MapIdentity):
            handler = self.clients.get(Client(request.handler))
            if handler is None:
                raise BadIdError(f"there is no client {shown(request.handler)} at {self.name}")
            # It keeps the identity from now on, also when who has asked is gone.
            states.append(handler)
        for keeper in states:
            if request.identity not in keeper.identities and len(keeper.identities) >= CLIENT_IDENTITIES_MAX:
                raise LimitError("CLIENT_IDENTITIES_MAX", CLIENT_IDENTITIES_MAX, "one more", "use another connection")
        for keeper in states:
            keeper.identities.add(request.identity)

    def misasked(self, client: Client, number: int, error: CatchmentError) -> None:
        """A request or publication that was well said and cannot be had."""
        self.totals.refused += 1
        self.clients[client].outlet.answer(number, [Refuse(client, error)])

    def published(self, client: Client, publications: Sequence[tuple[int, Sequence[Notification]]]) -> None:
        """All that one read of a client brought, each with the number of its answer, 0 if nobody waits for it: one
        call of the core."""
        outlet = self.clients[client].outlet
        refusals = self.publish(client, [notification for _, batch in publications for notification in batch])
        refused_by_notification: dict[int, list[Refuse]] = {}
        for refusal in refusals:
            # By the object: the core was handed it, and equal ones may be in several publications.
            refused_by_notification.setdefault(id(refusal.notification), []).append(refusal)
        for number, batch in publications:
            refused = [each for notification in batch for each in refused_by_notification.pop(id(notification), ())]
            if number or refused:
                outlet.answer(number, refused)

    def publish(self, client: Client, notifications: Sequence[Notification]) -> list[Refuse]:
        """Those that are refused; all others are on their way."""
        self.clients[client].published += len(notifications)
        self.totals.published += len(notifications)
        if not notifications:
            return []
        batch = [Routed(notification) for notification in notifications]
        return self._perform(self.core.on_notifications(batch, client, self._now()))

    # --- what neighbors say ---

    def arrived(self, neighbor: Neighbor, batch: Sequence[Routed]) -> None:
        """Notifications, in one message."""
        link = self.links[neighbor]
        link.heard += 1
        link.received += len(batch)
        self.totals.received += len(batch)
        actions = self.core.on_notifications(batch, neighbor, self._now()) if batch else []
        self.totals.unwanted += _unwanted(batch, actions)
        self._perform(actions)

    def told(self, neighbor: Neighbor, message: BrokerMessage) -> None:
        self.links[neighbor].heard += 1
        self._tell(message, neighbor)

    def timer_fired(self, name: str) -> None:
        self._tell(TimerFired(name), HOST)

    def _tell(self, message: ClientRequest | HostMessage | BrokerMessage, source: Interface) -> list[Refuse]:
        self.messages_count += 1
        return self._perform(self.core.on_message(message, source, self._now()))

    # --- what is to be done ---

    def _perform(self, actions: Iterable[Action]) -> list[Refuse]:
        """Performs them in order; what a client is refused is for the caller to answer."""
        refused: list[Refuse] = []
        for action in actions:
            match action:
                case Deliver():
                    self._deliver(action)
                case Forward():
                    self._forward(action)
                case Send():
                    self._send(action.interface, action.message)
                case DeliverSequence():
                    self._deliver_sequence(action)
                case Keep():
                    pass
                case Missed():
                    self._miss(action)
                case SetTimer():
                    self._set_timer(action)
                case Refuse():
                    self.totals.refused += 1
                    if isinstance(action.source, Neighbor) and action.source in self.links:
                        self.links[action.source].outlet.end(str(action.error))
                    refused.append(action)
                case _:
                    assert_never(action)
        return refused

    def _deliver(self, action: Deliver) -> None:
        state = self.clients.get(action.client)
        if state is None or self._is_lost(state, action.identity):
            return
        try:
            state.outlet.deliver(action)
        except LimitError:
            self._lose(state, action.identity)
        else:
            state.delivered += 1
            self.totals.delivered += 1

    def _deliver_sequence(self, action: DeliverSequence) -> None:
        state = self.clients.get(action.client)
        if state is None or self._is_lost(state, action.identity):
            return
        try:
            state.outlet.deliver_sequence(action)
        except LimitError:
            self._lose(state, action.identity)
        else:
            state.delivered += 1
            self.totals.delivered += 1

    def _miss(self, action: Missed) -> None:
        state = self.clients.get(action.client)
        if state is not None:
            state.lost[action.identity] += action.count
            self.totals.lost += action.count
            if not state.outlet.is_behind():
                self._tell_lost(state, action.identity)

    def _is_lost(self, state: ClientState, identity: str) -> bool:
        """Whether a client is too far behind for one more; once it is not, it is told how many it has lost."""
        if state.outlet.is_behind():
            self._lose(state, identity)
            return True
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
        """A client that was behind has taken what waited: it is told what it has lost, also if nothing more comes."""
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
            link.outlet.end(f"{type(message).__name__}: {problem}")
        else:
            link.sent += 1


def _unwanted(batch: Sequence[Routed], actions: Sequence[Action]) -> int:
    """Notifications of a batch that nothing was done with: an answer to the neighbor does not count."""
    if len(batch) == 1:
        return 0 if any(isinstance(action, _WANTED) for action in actions) else 1
    wanted: set[int] = set()
    for action in actions:
        if isinstance(action, Forward):
            wanted.update([id(routed.notification) for routed in action.batch])
        elif isinstance(action, Deliver | Keep):
            wanted.add(id(action.notification))
    return sum(id(routed.notification) not in wanted for routed in batch)
