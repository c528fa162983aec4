"""The link between the client side and a `Forwarding`: enters the filters that identities need from the network.

In a `Forwarding` no subscriber holds two filters of which one covers the other. So a subscription of an identity may
*stand behind* a wider one: its filter is covered, and not entered.

Subscribe            enters the filters of the subscription.
Cancel, Unsubscribe  takes them out. An identity that cancels a wide subscription by its id keeps the narrower ones that
                     stood behind it: their filters are entered now. The SIENA text has no ids. There a filter cancels
                     all subscriptions that it covers, which is `Unsubscribe` here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from catchment.model.filter import Filter
from catchment.routing.messages import Action, Cancel, CancelMany, Client, ClientRequest, Subscribe, Unsubscribe, Wanted
from catchment.routing.parts.clients import ClientSide
from catchment.routing.parts.wanted import filters_for
from catchment.routing.siena.forwarding import Forwarding


class ClientInterest:
    """`needed` says which filters a subscription needs from the network."""

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
        """Does what a client asks for. Returns the deliveries that follow from it. CatchmentError if the request cannot
        be done."""
        # Before the client side forgets them.
        at_stake = self._at_stake(message)
        due = self._clients.request(message, client)
        if isinstance(message, Subscribe):
            for filter in self._needed(message.wanted):
                self._enter(message.identity, filter)
        elif at_stake:
            kept = self._clients.wants_of(message.identity)
            gone = [filter for id, wanted in at_stake.items() if id not in kept for filter in self._needed(wanted)]
            if isinstance(message, CancelMany) and message.is_ending:
                # What stood behind these filters goes too: nothing is entered again.
                for filter in gone:
                    self._interest.unsubscribe(message.identity, filter)
            else:
                going = message.going if isinstance(message, CancelMany) else frozenset[str]()
                self._restate(message.identity, gone, going)
        return due

    def client_down(self, client: Client) -> list[str]:
        """Forgets the identities of a client that is gone. Returns their names."""
        gone = self._clients.client_down(client)
        for identity in gone:
            self._interest.drop(identity)
        return gone

    def _at_stake(self, message: ClientRequest) -> dict[str, Wanted]:
        """The subscriptions that a request may cancel, by id."""
        match message:
            case Cancel():
                wanted = self._clients.wants_of(message.identity).get(message.id)
                return {} if wanted is None else {message.id: wanted}
            case CancelMany():
                wants = self._clients.wants_of(message.identity)
                return {id: wants[id] for id in message.ids if id in wants}
            case Unsubscribe():
                return self._clients.subscriptions_of(message.identity)
            case _:
                return {}

    def _enter(self, identity: str, filter: Filter) -> None:
        if not filter.is_empty:
            self._interest.subscribe(identity, filter)

    def _restate(self, identity: str, gone: Sequence[Filter], going: Collection[str]) -> None:
        """Takes out the filters of subscriptions that are gone, and enters the filters that stood behind them, except
        those of subscriptions that are going too."""
        # The fast way: no filter stood behind another.
        if self._holds_each(identity, len(gone)):
            for filter in gone:
                self._interest.unsubscribe(identity, filter)
            return
        wants = self._clients.wants_of(identity)
        staying = [wants[id] for id in wants if id not in going] if going else wants.values()
        wanted = dict.fromkeys(filter for each in staying for filter in self._needed(each))
        # A filter that another subscription still needs stays. So does one that was not held: it stood behind a wider.
        taken = [
            filter
            for filter in dict.fromkeys(gone)
            if filter not in wanted and self._interest.unsubscribe(identity, filter)
        ]
        held = set(self._interest.held_by(identity)) if taken else set()
        for filter in wanted:
            # A filter that is held stands behind nothing. Only a filter that one of those taken covers was behind it.
            if filter not in held and any(wider.covers(filter) for wider in taken):
                self._enter(identity, filter)

    def _holds_each(self, identity: str, gone: int) -> bool:
        """Whether all filters of an identity are held, including the `gone` filters that are to be taken out: then none
        stood behind another. Counting is enough to know that, so most clients that cancel need no look at all their
        other subscriptions."""
        # With patterns, counting does not work: a pattern needs several filters, or none.
        if self._clients.watching.of(identity):
            return False
        return self._interest.held_count(identity) == len(self._clients.wants_of(identity)) + gone
