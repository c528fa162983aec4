"""A core and its connections: hands over what comes, performs the actions that the core answers with, in order.

No sockets here and no loop: connections are outlets that frames are put into, the clock and the timers are arguments.
What is decided here is only what the seam leaves to a host: whom an interface stands for, which answer belongs to
which request, and what happens when somebody cannot keep up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, assert_never

from catchment.errors import BadIdError, CatchmentError, LimitError, shown
from catchment.model.notification import Notification
from catchment.model.pattern import IDENTITY_CODEPOINTS_MAX
from catchment.routing.core import RoutingCore
from catchment.routing.messages import (
    HOST,
    Action,
    Client,
    ClientDown,
    ClientUp,
    Deliver,
    DeliverSequence,
    Forward,
    Interface,
    LinkDown,
    LinkUp,
    MapIdentity,
    Message,
    Missed,
    Neighbor,
    Refuse,
    Routed,
    Said,
    Send,
    SetTimer,
    Time,
    TimerFired,
)
from catchment.wire import (
    LINK_FRAME_BYTES_MAX,
    Accepted,
    ClientRequest,
    Lost,
    Publish,
    Refused,
    Request,
    SequenceDelivery,
    Unfit,
    batch_frame,
    delivery_frame,
    frame,
    pieces,
)

# Notifications in one frame to a neighbor: some hundred kilobytes of small ones.
FORWARD_MAX: Final = 1_024
# Identities that one client may ask for, or be mapped to: each is kept until the client goes.
CLIENT_IDENTITIES_MAX: Final = 10_000


class Outlet(Protocol):
    """The sending side of a connection."""

    def put(self, frame: bytes) -> None:
        """Sends it with all else of this turn of the loop."""
        ...

    def is_behind(self) -> bool:
        """Whether so much waits to be sent that a client loses what comes now."""
        ...

    def end(self, reason: str) -> None:
        """Says goodbye and closes."""
        ...


@dataclass(slots=True)
class ClientState:
    outlet: Outlet
    # Of a client in this process: is handed deliveries as they are, and minds itself how many wait.
    receive: Callable[[Deliver], None] | None = None
    # By identity, how many were dropped and are not told yet.
    lost: Counter[str] = field(default_factory=Counter)
    identities: set[str] = field(default_factory=set)
    delivered: int = 0
    published: int = 0


@dataclass(slots=True)
class LinkState:
    outlet: Outlet
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


class Node:
    """A broker without its sockets."""

    def __init__(
        self, name: str, core: RoutingCore, now: Callable[[], Time], set_timer: Callable[[str, Time], None]
    ) -> None:
        self.name = name
        self.core = core
        self.clients: dict[Client, ClientState] = {}
        self.links: dict[Neighbor, LinkState] = {}
        self.totals = Totals()
        # Messages that the core was given: each may have changed what is wanted here.
        self.told_count = 0
        self._now = now
        self._set_timer = set_timer

    # --- who is there ---

    def client_up(
        self,
        client: Client,
        identity: str,
        seen: dict[str, int],
        outlet: Outlet,
        receive: Callable[[Deliver], None] | None = None,
    ) -> None:
        """A client that was there already under this name is replaced: it has come back before we knew it was gone."""
        if client in self.clients:
            self.clients[client].outlet.end(f"{shown(client.name)} has connected again")
            self.client_down(client)
        self.clients[client] = ClientState(outlet, receive)
        self._tell(ClientUp(identity, seen), client)

    def client_down(self, client: Client) -> None:
        if self.clients.pop(client, None) is not None:
            self._tell(ClientDown(), client)

    def link_up(self, neighbor: Neighbor, cost: int, outlet: Outlet) -> None:
        self.link_down(neighbor)
        self.links[neighbor] = LinkState(outlet, cost)
        self._tell(LinkUp(cost), neighbor)

    def link_down(self, neighbor: Neighbor) -> None:
        if self.links.pop(neighbor, None) is not None:
            self._tell(LinkDown(), neighbor)

    # --- what comes ---

    def requested(self, client: Client, request: Request) -> None:
        state = self.clients[client]
        refusals = self.ask(client, request.body)
        state.outlet.put(frame(_answer(request.number, refusals)))

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
        for one in states:
            if request.identity not in one.identities and len(one.identities) >= CLIENT_IDENTITIES_MAX:
                raise LimitError("CLIENT_IDENTITIES_MAX", CLIENT_IDENTITIES_MAX, "one more", "use another connection")
        for one in states:
            one.identities.add(request.identity)

    def misasked(self, client: Client, unfit: Unfit) -> None:
        """In a good frame, something that cannot be had."""
        self.totals.refused += 1
        self.clients[client].outlet.put(frame(_answer(unfit.number, [Refuse(client, unfit.error)])))

    def published(self, client: Client, publications: Sequence[Publish]) -> None:
        """All that one read of a client brought: one call of the core."""
        state = self.clients[client]
        refusals = self.publish(client, [one for publication in publications for one in publication.notifications])
        if refusals and len(publications) > 1:
            # Rare: which of them was refused is found by asking for each, without publishing it again.
            self._answer_apart(state, publications, refusals)
            return
        for publication in publications:
            if publication.number or refusals:
                state.outlet.put(frame(_answer(publication.number, refusals)))

    def publish(self, client: Client, notifications: Sequence[Notification]) -> list[Refuse]:
        """Those that are refused; all others are on their way."""
        self.clients[client].published += len(notifications)
        self.totals.published += len(notifications)
        return self._hand_over([Routed(one) for one in notifications], client)

    def _answer_apart(self, state: ClientState, publications: Sequence[Publish], refusals: Sequence[Refuse]) -> None:
        for publication in publications:
            mine = [one for one in refusals if one.notification in publication.notifications]
            if publication.number or mine:
                state.outlet.put(frame(_answer(publication.number, mine)))

    def arrived(self, neighbor: Neighbor, batch: Sequence[Routed]) -> None:
        self.links[neighbor].heard += 1
        self.links[neighbor].received += len(batch)
        self.totals.received += len(batch)
        self._hand_over(batch, neighbor)

    def told(self, neighbor: Neighbor, message: Message) -> None:
        self.links[neighbor].heard += 1
        self._tell(message, neighbor)

    def timer_fired(self, name: str) -> None:
        self._tell(TimerFired(name), HOST)

    def _tell(self, message: Message, source: Interface) -> list[Refuse]:
        self.told_count += 1
        return self._perform(self.core.on_message(message, source, self._now()))

    def _hand_over(self, batch: Sequence[Routed], source: Interface) -> list[Refuse]:
        return self._perform(self.core.on_notifications(batch, source, self._now())) if batch else []

    # --- what is to be done ---

    def _perform(self, actions: Iterable[Action]) -> list[Refuse]:
        """Performs them in order; what a client is refused is for the caller to answer."""
        refused: list[Refuse] = []
        for action in actions:
            match action:
                case Deliver():
                    self._deliver(action)
                case Forward():
                    self._forward(action.interface, action.batch)
                case Send():
                    self._send(action.interface, action.message)
                case DeliverSequence():
                    self._deliver_sequence(action)
                case Missed():
                    self._miss(action)
                case SetTimer():
                    self._set_timer(action.name, action.at)
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
        if state is None:
            return
        if self._is_lost(state, action.identity):
            return
        if state.receive is not None:
            state.delivered += 1
            self.totals.delivered += 1
            state.receive(action)
            return
        try:
            found = delivery_frame(action.identity, action.subscriptions, action.notification.packed)
        except LimitError:
            self._lose(state, action.identity)
        else:
            self._put(state, found)

    def _deliver_sequence(self, action: DeliverSequence) -> None:
        state = self.clients.get(action.client)
        if state is None or self._is_lost(state, action.identity):
            return
        try:
            found = frame(SequenceDelivery(action.identity, action.subscription, action.notifications))
        except LimitError:
            self._lose(state, action.identity)
        else:
            self._put(state, found)

    def _put(self, state: ClientState, found: bytes) -> None:
        state.delivered += 1
        self.totals.delivered += 1
        state.outlet.put(found)

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
            state.outlet.put(frame(Lost(identity, count)))

    def caught_up(self, client: Client) -> None:
        """A client that was behind has taken what waited: it is told what it has lost, also if nothing more comes."""
        state = self.clients.get(client)
        if state is not None:
            for identity in sorted(state.lost):
                self._tell_lost(state, identity)

    def _forward(self, neighbor: Neighbor, batch: Sequence[Routed]) -> None:
        link = self.links.get(neighbor)
        if link is not None:
            link.forwarded += len(batch)
            self.totals.forwarded += len(batch)
            for piece in pieces(batch, [len(one.notification.packed) for one in batch], FORWARD_MAX):
                link.sent += 1
                link.outlet.put(batch_frame(piece))

    def _send(self, neighbor: Neighbor, message: Message) -> None:
        link = self.links.get(neighbor)
        if link is not None:
            assert isinstance(message, Said), f"{type(message).__name__} does not travel"
            try:
                found = frame(message, LINK_FRAME_BYTES_MAX)
            except LimitError as problem:
                link.outlet.end(f"{type(message).__name__}: {problem}")
                return
            link.sent += 1
            link.outlet.put(found)


def _answer(number: int, refusals: Sequence[Refuse]) -> Said:
    if not refusals:
        return Accepted(number)
    error = refusals[0].error
    more = f" (and {len(refusals) - 1} more)" if len(refusals) > 1 else ""
    return Refused(number, type(error).__name__, f"{error}{more}")
