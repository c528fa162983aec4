"""The table of durable delivery: what is wanted durably by whom, and where everybody is.

It has two kinds of rows, kept apart: a client that moves must not state filters anew that it may not know any more.

DurableRow   A durable subscription, or that it was cancelled. Of two with the same identity and id the greater version
             wins; if both have the same version, that of the broker with the greater name.
PlaceRow     Where an identity is served, or that it is away. The greater session wins. With the same session, being
             away wins: the broker that served it says so when the client goes. Otherwise the broker with the greater
             name.
forgotten    A row with the id FORGOTTEN says that the identity was forgotten: all rows with a smaller version are
             void, and storages drop what it is due.

Every broker has the table. It floods a row that is new to it, and gives a new neighbor all rows: so the tables of all
brokers that can reach each other become the same, whatever way rows have come. A cancelled subscription stays in the
table, without its filter: otherwise a broker that was away would bring it back. The oldest of these are forgotten when
there are more than CANCELLED_MAX.

One matcher has all durable filters. `due` says who is to get a notification, and by which subscriptions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from catchment.errors import BadFilterError, LimitError
from catchment.matching.ids import Id
from catchment.model.notification import Notification
from catchment.model.pattern import Pattern
from catchment.routing.durable.messages import Durable, Place
from catchment.routing.messages import Wanted
from catchment.routing.parts.recall import RecallingMatcher
from catchment.routing.parts.wanted import text_bytes
from catchment.routing.stored import Due, DurableRow, PlaceRow

# Durable subscriptions in a network: every broker has all of them. About a kilobyte each.
DURABLE_SUBSCRIPTIONS_MAX: Final = 200_000
# Of one identity.
IDENTITY_DURABLE_MAX: Final = 10_000
# Identities that have, or had, a durable subscription or a place.
DURABLE_IDENTITIES_MAX: Final = 100_000
# Subscriptions that were cancelled and are remembered.
CANCELLED_MAX: Final = 100_000

# The id of the row which says that an identity is forgotten. No client gives a subscription this id.
FORGOTTEN: Final = "@forgotten"
# Identities that stand for a relay at other storages begin with this: no client has such a name.
RELAYS: Final = "@relay/"
NO_PLACE: Final = PlaceRow("", 0, None)


class Arrival(Struct, frozen=True):
    """What a client says when it comes to a broker, or goes back: see `Place`."""

    positions: Mapping[str, int] = {}
    back: Mapping[str, int] = {}
    since: int | None = None


NOTHING_SAID: Final = Arrival()


class Table:
    """The rows, and the matcher of all filters in them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._rows: dict[str, dict[str, DurableRow]] = {}
        self._places: dict[str, PlaceRow] = {}
        # By identity: what its client said when it came to where it is.
        self._arrivals: dict[str, Arrival] = {}
        self.matcher: RecallingMatcher[Due] = RecallingMatcher(self._due)
        # By number in the matcher: identity and id; and the other way.
        self._owners: dict[Id, tuple[str, str]] = {}
        self._numbers: dict[tuple[str, str], int] = {}
        self._next_number = 0
        # In the order in which they were cancelled.
        self._cancelled: dict[tuple[str, str], None] = {}
        self.text_bytes = 0
        # Whether an identity names, or has named, this broker as its relay.
        self.is_relay = False

    def __len__(self) -> int:
        """How many durable subscriptions there are."""
        return len(self._numbers)

    # --- subscriptions ---

    def knows(self, identity: str) -> bool:
        """Whether the identity has, or had, a durable subscription."""
        return identity in self._rows

    def is_durable(self, identity: str) -> bool:
        """Whether the identity has a durable subscription."""
        return any(row.wanted is not None for row in self._rows.get(identity, {}).values())

    def is_group(self, identity: str) -> bool:
        """Whether several clients may share what the identity gets."""
        return any(row.is_group for row in self._rows.get(identity, {}).values())

    def row(self, identity: str, id: str) -> DurableRow | None:
        return self._rows.get(identity, {}).get(id)

    def rows_of(self, identity: str) -> Mapping[str, DurableRow]:
        """Not a copy."""
        return self._rows.get(identity, {})

    def rows(self) -> Iterator[DurableRow]:
        for identity in sorted(self._rows):
            yield from (row for _, row in sorted(self._rows[identity].items()))

    def check(self, row: DurableRow) -> None:
        """LimitError if there is no room for a row. BadFilterError for a pattern (rule 12)."""
        if isinstance(row.wanted, Pattern):
            raise BadFilterError("a durable subscription is a filter or an expression: patterns cannot be durable yet")
        known = self._rows.get(row.identity, {})
        if row.wanted is None or row.id in known:
            return
        for limit, maximum, count in (
            ("DURABLE_SUBSCRIPTIONS_MAX", DURABLE_SUBSCRIPTIONS_MAX, len(self._numbers)),
            ("IDENTITY_DURABLE_MAX", IDENTITY_DURABLE_MAX, len(known)),
            ("DURABLE_IDENTITIES_MAX", DURABLE_IDENTITIES_MAX - bool(known), len(self._rows)),
        ):
            if count >= maximum:
                raise LimitError(limit, maximum, "one more", "cancel some, or forget identities that never come back")

    def apply(self, row: DurableRow) -> bool:
        """Takes a row; whether it is newer than what was known."""
        known, forgotten = self.row(row.identity, row.id), self.row(row.identity, FORGOTTEN)
        if known is not None and (known.version, known.by) >= (row.version, row.by):
            return False
        if forgotten is not None and row.version <= forgotten.version:
            return False  # It is void.
        if row.id == FORGOTTEN:
            for id in [id for id, each in self.rows_of(row.identity).items() if each.version <= row.version]:
                self._drop(row.identity, id)
        elif known is not None:
            self._drop(row.identity, row.id)
        self.is_relay = self.is_relay or row.via == self._name
        key = (row.identity, row.id)
        self._rows.setdefault(row.identity, {})[row.id] = row
        self._cancelled.pop(key, None)
        if row.wanted is None:
            self._cancelled[key] = None
            self._forget_cancelled()
        else:
            self._add(key, row.wanted)
        return True

    def _drop(self, identity: str, id: str) -> None:
        row = self._rows[identity].pop(id)
        if (number := self._numbers.pop((identity, id), None)) is not None and row.wanted is not None:
            self.matcher.remove(number)
            del self._owners[number]
            self.text_bytes -= text_bytes(row.wanted)

    def _add(self, key: tuple[str, str], wanted: Wanted) -> None:
        assert not isinstance(wanted, Pattern), "a row was checked"
        self.matcher.add(self._next_number, wanted)
        self._owners[self._next_number] = key
        self._numbers[key] = self._next_number
        self._next_number += 1
        self.text_bytes += text_bytes(wanted)

    def _forget_cancelled(self) -> None:
        while len(self._cancelled) > CANCELLED_MAX:
            identity, id = next(iter(self._cancelled))
            del self._cancelled[identity, id]
            del self._rows[identity][id]
            if not self._rows[identity]:
                del self._rows[identity]

    def due(self, batch: Sequence[Notification]) -> list[Due]:
        """For each notification, who is to get it."""
        return self.matcher.answers(batch)

    def _due(self, numbers: Sequence[Id]) -> Due:
        ids: dict[str, list[str]] = {}
        for number in numbers:
            identity, id = self._owners[number]
            name = self.due_name(self._rows[identity][id])
            # A name has no line end: so the two can be told apart again.
            ids.setdefault(name, []).append(id if name == identity else f"{identity}\n{id}")
        return tuple((identity, tuple(sorted(ids[identity]))) for identity in sorted(ids))

    def due_name(self, row: DurableRow) -> str:
        """Under which name records are due: that of the relay, if there is one and it is not this broker."""
        return RELAYS + row.via if row.via and row.via != self._name else row.identity

    # --- places ---

    def place(self, identity: str) -> PlaceRow:
        return self._places.get(identity, NO_PLACE)

    def positions(self, identity: str) -> Mapping[str, int]:
        """What its client had taken, by log, when it came to where it is."""
        return self._arrivals.get(identity, NOTHING_SAID).positions

    def places(self) -> Iterator[PlaceRow]:
        yield from (self._places[identity] for identity in sorted(self._places))

    def move(self, row: PlaceRow, arrival: Arrival | None = None) -> bool:
        """Takes a place; whether it is newer than what was known."""
        known = self._places.get(row.identity)
        if known is not None and _rank(known) >= _rank(row):
            return False
        if known is None and len(self._places) >= DURABLE_IDENTITIES_MAX:
            return False
        self._places[row.identity] = row
        self._arrivals[row.identity] = NOTHING_SAID if row.broker is None or arrival is None else arrival
        return True

    # --- as messages ---

    def exchanged(self) -> Iterator[Durable | Place]:
        """All rows, for a new neighbor."""
        yield from map(durable_of, self.rows())
        yield from (self.place_message(place.identity) for place in self.places())

    def place_message(self, identity: str) -> Place:
        row, arrival = self._places[identity], self._arrivals[identity]
        return Place(identity, row.session, row.broker, arrival.positions, arrival.back, arrival.since)


def relayed_due(ids: Iterable[str]) -> Due:
    """Whom the ids of a relay's entry are for, and by which of their subscriptions."""
    due: dict[str, list[str]] = {}
    for text in ids:
        identity, _, id = text.partition("\n")
        due.setdefault(identity, []).append(id)
    return tuple((identity, tuple(sorted(due[identity]))) for identity in sorted(due))


def _rank(row: PlaceRow) -> tuple[int, bool, str]:
    return (row.session, row.broker is None, row.broker or "")


def durable_of(row: DurableRow) -> Durable:
    return Durable(row.identity, row.id, row.version, row.wanted, row.by, row.via, row.is_group)


def row_of(message: Durable) -> DurableRow:
    return DurableRow(
        message.identity, message.id, message.version, message.wanted, message.by, message.via, message.is_group
    )
