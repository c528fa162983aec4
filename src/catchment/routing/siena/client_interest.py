"""What the identities at a broker want of the network, kept in a `Forwarding` as their requests come and go.

Subscribe            the filters of the subscription are entered.
Cancel, Unsubscribe  its filters are taken. An identity that cancels a subscription by its id keeps the narrower ones
                     that stood behind it: they are entered again. The SIENA text knows no ids; there a filter cancels
                     all that it covers, which is `Unsubscribe`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from catchment.model.filter import Filter
from catchment.routing.messages import Action, Cancel, Client, ClientRequest, Subscribe, Unsubscribe, Wanted
from catchment.routing.parts.clients import ClientSide
from catchment.routing.parts.wanted import filters_for
from catchment.routing.siena.forwarding import Forwarding


class ClientInterest:
    """`needed` says which filters a subscription wants of the network."""

    def __init__(
        self,
        clients: ClientSide,
        interest: Forwarding[Filter],
        needed: Callable[[Wanted], tuple[Filter, ...]] = filters_for,
    ) -> None:
        self._clients = clients
        self._interest = interest
        self._needed = needed

    def request(self, message: ClientRequest, client: Client) -> list[Action]:
        """Does what a client asks; what it is due by that. CatchmentError for what cannot be done."""
        at_stake = self._at_stake(message)
        due = self._clients.request(message, client)
        if isinstance(message, Subscribe):
            for filter in self._needed(message.wanted):
                self._enter(message.identity, filter)
        elif at_stake:
            kept = self._clients.wants_of(message.identity)
            gone = [wanted for id, wanted in at_stake.items() if id not in kept]
            self._restate(message.identity, [filter for wanted in gone for filter in self._needed(wanted)])
        return due

    def client_down(self, client: Client) -> list[str]:
        """The identities that are gone with a client."""
        gone = self._clients.client_down(client)
        for identity in gone:
            self._interest.drop(identity)
        return gone

    def _at_stake(self, message: ClientRequest) -> dict[str, Wanted]:
        """The subscriptions that a request may cancel."""
        match message:
            case Cancel():
                wanted = self._clients.wants_of(message.identity).get(message.id)
                return {} if wanted is None else {message.id: wanted}
            case Unsubscribe():
                return self._clients.subscriptions_of(message.identity)
            case _:
                return {}

    def _enter(self, identity: str, filter: Filter) -> None:
        if not filter.is_empty:
            self._interest.subscribe(identity, filter)

    def _restate(self, identity: str, gone: Sequence[Filter]) -> None:
        """Takes the filters of subscriptions that are gone, and enters those that stood behind them."""
        if self._holds_each(identity, len(gone)):
            for filter in gone:
                self._interest.unsubscribe(identity, filter)
            return
        wanted = dict.fromkeys(self._clients.filters_of(identity, self._needed))
        taken = [
            filter
            for filter in dict.fromkeys(gone)
            if filter not in wanted and self._interest.unsubscribe(identity, filter)
        ]
        held = set(self._interest.held_by(identity)) if taken else set()
        for filter in wanted:
            # What is held did not stand behind anything.
            if filter not in held and any(wider.covers(filter) for wider in taken):
                self._enter(identity, filter)

    def _holds_each(self, identity: str, gone: int) -> bool:
        """Whether all filters of an identity, those that are gone among them, are held: none stood behind another.
        To know that by counting spares most who cancel a look at all that they keep."""
        if self._clients.watching.of(identity):
            return False  # patterns need several filters, or none
        return self._interest.held_count(identity) == len(self._clients.wants_of(identity)) + gone
