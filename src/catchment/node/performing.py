"""Performing the actions of a core: what a node does with its outlets.

Deliveries to a client that is behind are dropped and counted, except those from a log: only so many of these are under
way to a client, and a storage keeps them until the client has taken them. A message to a neighbor that is too long ends
the link.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, assert_never

from catchment.errors import LimitError
from catchment.node.kept import ClientState, LinkState, Totals
from catchment.node.outlets import StoreOutlet
from catchment.routing.core import RoutingCore
from catchment.routing.durable.core import DurableCore
from catchment.routing.durable.messages import Confirm, DurableAction, TakeEffect, TellLostLog
from catchment.routing.messages import (
    Action,
    BrokerMessage,
    Client,
    Deliver,
    DeliverSequence,
    Forward,
    Keep,
    Missed,
    Neighbor,
    Refuse,
    Send,
    SetTimer,
    Time,
)
from catchment.routing.stored import Fetch, Persist, StoreAction


class Performing:
    """The clients and links of a node, and its store. Only a `Node` is one."""

    def __init__(
        self,
        name: str,
        core: RoutingCore[Any],
        now: Callable[[], Time],
        set_timer: Callable[[SetTimer], None],
        store: StoreOutlet | None,
    ) -> None:
        self.name = name
        self.core = core
        # The same, if it serves durable subscriptions.
        self.durable = core if isinstance(core, DurableCore) else None
        self.clients: dict[Client, ClientState] = {}
        self.links: dict[Neighbor, LinkState] = {}
        self.totals = Totals()
        self._now = now
        self._set_timer = set_timer
        self._store = store

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
                case Persist() | Fetch() | Confirm() | TakeEffect() | TellLostLog():
                    self._perform_durable(action)
                case Refuse():
                    self.totals.refused += 1
                    # A neighbor that is refused has broken the protocol: it loses its link.
                    if isinstance(action.source, Neighbor) and action.source in self.links:
                        self.links[action.source].outlet.end(str(action.error))
                    refusals.append(action)
                case _:
                    assert_never(action)
        return refusals

    def _perform_durable(self, action: StoreAction | DurableAction) -> None:
        if isinstance(action, Persist | Fetch):
            assert self._store is not None, "only a core that was made from a store writes to one"
            if isinstance(action, Persist):
                self._store.persist(action)
            else:
                self._store.fetch(action)
            return
        state = self.clients.get(action.client)
        if state is None or not state.is_known:
            return
        match action:
            case Confirm():
                state.outlet.confirm(action)
            case TakeEffect():
                state.outlet.take_effect(action)
            case TellLostLog():
                state.outlet.tell_lost_log(action)
            case _:
                assert_never(action)

    def _deliver_durable(self, action: Deliver) -> None:
        """A delivery from a log is never dropped because the client is behind: only so many are under way to it."""
        state = self.clients.get(action.client)
        if state is None or not state.is_known:
            return
        try:
            state.outlet.deliver(action)
        except LimitError:
            self._lose(state, action.identity)
            self._tell_lost(state, action.identity)
            assert self.durable is not None, "only a durable core delivers from a log"
            self._perform(self.durable.on_undeliverable(action, self._now()))
        else:
            state.delivered += 1
            self.totals.delivered += 1

    def _deliver(self, action: Deliver | DeliverSequence) -> None:
        if isinstance(action, Deliver) and action.log:
            self._deliver_durable(action)
            return
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
            link.carried_out += len(action.batch)
            self.totals.forwarded += len(action.batch)
            link.sent += link.outlet.forward(action.batch, action.is_relayed)

    def _send(self, neighbor: Neighbor, message: BrokerMessage) -> None:
        link = self.links.get(neighbor)
        if link is None:
            return
        try:
            for part in message.parts():
                link.outlet.send(part)
                link.sent += 1
                link.carried_out += int(part.carries_notifications)
        except LimitError as problem:
            # A neighbor that misses a message would route by a wrong state. A new link begins from nothing.
            link.outlet.end(f"{type(message).__name__}: {problem}")
