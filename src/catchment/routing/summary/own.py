"""The subscriptions of a broker's own clients, numbered for its summary: c2 of the text.

Each filter that a subscription needs from the network has a number (a pattern needs several filters). With `subsumes`,
only the roots are numbered: filters that no other filter of our clients covers (§6, summarization combined with
subsumption). A number is never used again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from typing import Final, Protocol

from catchment.errors import LimitError
from catchment.model.filter import Filter
from catchment.routing.messages import (
    Action,
    Cancel,
    CancelMany,
    Client,
    ClientRequest,
    Neighbor,
    Subscribe,
    Unsubscribe,
    Wanted,
)
from catchment.routing.parts.clients import ClientSide
from catchment.routing.parts.wanted import filters_for
from catchment.routing.siena.client_interest import ClientInterest
from catchment.routing.siena.forwarding import Forwarding
from catchment.routing.summary.merged import PairChange
from catchment.routing.summary.rows import Brokers, Names, Pair, RowKey, demands_of

# Different attributes that the filters of a broker's clients name: each id has a bit for each of them.
OWN_ATTRIBUTES_MAX: Final = 4_096


class _Filters(Protocol):
    """Which filters are to be summarized. A key names one of them."""

    def request(self, message: ClientRequest, client: Client) -> list[Action]: ...

    def client_down(self, client: Client) -> list[str]: ...

    def flush(self) -> tuple[list[Hashable], list[tuple[Hashable, Filter]]]:
        """The filters that are gone and those that are new since the last call."""
        ...

    @property
    def compared(self) -> int:
        """How many pairs of filters were compared."""
        ...

    @property
    def apart(self) -> int:
        """How many filters nobody knows coverers of, because it takes too many steps to find them."""
        ...


class _Each:
    """Each filter of each subscription. The key: identity, subscription, and place in the pattern."""

    compared = apart = 0

    def __init__(self, clients: ClientSide) -> None:
        self._clients = clients
        # By identity and subscription: how many filters it has.
        self._counts: dict[str, dict[str, int]] = {}
        self._gone: list[Hashable] = []
        self._new: list[tuple[Hashable, Filter]] = []

    def request(self, message: ClientRequest, client: Client) -> list[Action]:
        due = self._clients.request(message, client)
        identity = message.identity
        if isinstance(message, Subscribe):
            self._enter(identity, message.id, message.wanted)
        elif isinstance(message, Cancel):
            self._leave(identity, [message.id])
        elif isinstance(message, Unsubscribe | CancelMany):
            left, known = self._clients.wants_of(identity), self._counts.get(identity, {})
            at_stake = known if isinstance(message, Unsubscribe) else dict.fromkeys(message.ids)
            self._leave(identity, [id for id in at_stake if id in known and id not in left])
        return due

    def client_down(self, client: Client) -> list[str]:
        gone = self._clients.client_down(client)
        for identity in gone:
            self._leave(identity, list(self._counts.get(identity, ())))
        return gone

    def _enter(self, identity: str, id: str, wanted: Wanted) -> None:
        filters = filters_for(wanted)
        self._counts.setdefault(identity, {})[id] = len(filters)
        self._new += [((identity, id, place), filter) for place, filter in enumerate(filters)]

    def _leave(self, identity: str, ids: Iterable[str]) -> None:
        counts = self._counts.get(identity, {})
        for id in ids:
            self._gone += [(identity, id, place) for place in range(counts.pop(id))]
        if not counts:
            self._counts.pop(identity, None)

    def flush(self) -> tuple[list[Hashable], list[tuple[Hashable, Filter]]]:
        gone, new = self._gone, self._new
        self._gone, self._new = [], []
        return gone, new


class _Roots:
    """The filters that no other covers. The key is the filter."""

    def __init__(self, clients: ClientSide, name: str) -> None:
        # All other brokers together are one neighbor, which is told the roots.
        self._roots: Forwarding[Filter] = Forwarding()
        self._roots.connect(Neighbor(name))
        self._interest = ClientInterest(clients, self._roots)

    def request(self, message: ClientRequest, client: Client) -> list[Action]:
        return self._interest.request(message, client)

    def client_down(self, client: Client) -> list[str]:
        return self._interest.client_down(client)

    def flush(self) -> tuple[list[Hashable], list[tuple[Hashable, Filter]]]:
        changes = [change for _, change in self._roots.flush()]
        gone: list[Hashable] = [filter for change in changes for filter in change.withdrawn]
        return gone, [(filter, filter) for change in changes for filter in change.announced]

    @property
    def compared(self) -> int:
        return self._roots.poset.compared

    @property
    def apart(self) -> int:
        return self._roots.poset.apart


class OwnSubscriptions:
    """What the clients of the broker `name` want, as pairs of a demand and an id."""

    def __init__(self, name: str, clients: ClientSide, brokers: Brokers, *, subsumes: bool) -> None:
        self.name = name
        self._brokers = brokers
        self._filters: _Filters = _Roots(clients, name) if subsumes else _Each(clients)
        self._number_of: dict[Hashable, int] = {}
        self._next = 0
        # How many filters name each attribute.
        self._uses: Counter[str] = Counter()
        # By number: the filter, the attributes that it names, and its demands.
        self._numbered: dict[int, tuple[Filter, Names, tuple[RowKey, ...]]] = {}

    def __len__(self) -> int:
        return len(self._numbered)

    @property
    def numbered(self) -> dict[int, Filter]:
        """The filters by number."""
        return {number: filter for number, (filter, _, _) in self._numbered.items()}

    @property
    def compared(self) -> int:
        return self._filters.compared

    @property
    def apart(self) -> int:
        return self._filters.apart

    def names_of(self, number: int) -> Names | None:
        known = self._numbered.get(number)
        return None if known is None else known[1]

    def pairs(self) -> Iterator[Pair]:
        for number, (_, _, demands) in self._numbered.items():
            code = self._brokers.code(self.name, number)
            yield from ((demand, code) for demand in demands)

    # --- changes ---

    def request(self, message: ClientRequest, client: Client) -> tuple[list[Action], PairChange]:
        """Does what a client asks for. Returns the deliveries that follow, and the pairs that change. CatchmentError if
        the request cannot be done."""
        if isinstance(message, Subscribe):
            self._check_names({name for filter in filters_for(message.wanted) for name in filter.names})
        due = self._filters.request(message, client)
        return due, self._flushed()

    def _check_names(self, names: set[str]) -> None:
        """LimitError if there would be too many different attributes."""
        count = len(self._uses) + sum(name not in self._uses for name in names)
        if count > OWN_ATTRIBUTES_MAX:
            raise LimitError("OWN_ATTRIBUTES_MAX", OWN_ATTRIBUTES_MAX, f"{count:,}", "use fewer names of attributes")

    def client_down(self, client: Client) -> PairChange:
        self._filters.client_down(client)
        return self._flushed()

    def _flushed(self) -> PairChange:
        gone_keys, new_filters = self._filters.flush()
        change = PairChange([], [])
        for key in gone_keys:
            # A filter that matches nothing has no number.
            number = self._number_of.pop(key, None)
            if number is not None:
                _, names, demands = self._numbered.pop(number)
                self._uses.subtract(names)
                for name in names:
                    if not self._uses[name]:
                        del self._uses[name]
                code = self._brokers.code(self.name, number)
                change.gone.extend((demand, code) for demand in demands)
        for key, filter in new_filters:
            if not filter.is_empty:
                number = self._number_of[key] = self._next
                self._next += 1
                names, demands = demands_of(filter)
                self._numbered[number] = filter, names, demands
                self._uses.update(names)
                code = self._brokers.code(self.name, number)
                change.new.extend((demand, code) for demand in demands)
        return change
