"""Subscriptions made over HTTP. Each is a client of the node of its own, whose deliveries wait in a log to be read.

A subscription lives until it is deleted, until the broker stops, or until nobody has read it for IDLE_S_MAX. A
subscription that is made for a single stream (`GET /events?filter=…`) is not listed and lives as long as the stream.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

import msgspec

from catchment.broker.http.delivery_log import DeliveryLog, LogsRoom
from catchment.broker.http.filters import (
    AnyOf,
    FilterExpression,
    Selection,
    TextTest,
    combined,
    expressions_of,
    selection_of,
)
from catchment.broker.http.outlet import QuietOutlet
from catchment.errors import BadFilterError, BadIdError, CatchmentError, InputError, shown
from catchment.model.cesql import Cesql
from catchment.model.cloudevents import cloudevent_of
from catchment.model.notification import Notification
from catchment.node import Node
from catchment.routing.messages import Client, Deliver, Gap, Subscribe, instant_of

# Each is a client of the node. Their logs are bounded together: LOGS_BYTES_MAX.
SUBSCRIPTIONS_MAX: Final = 1_000
# Types that one subscription may name.
TYPES_MAX: Final = 64
# The broker deletes a subscription that nobody has read for an hour: its reader is gone for good.
IDLE_S_MAX: Final = 3_600.0

# Attributes that a delivery adds to a CloudEvent: the ids of the subscriptions that match, and its place in the log.
IDS_MEMBER: Final = "catchmentids"
PLACE_MEMBER: Final = "catchmentplace"

_ID: Final = re.compile(r"[A-Za-z0-9._~-]{1,128}")
_MEMBERS: Final = ("id", "source", "types", "filters")


class FullError(CatchmentError):
    """The broker has as many subscriptions over HTTP as it allows."""


class TakenIdError(BadIdError):
    """The id of a new subscription is in use."""


class UnknownSubscriptionError(CatchmentError):
    """No subscription has this id."""


@dataclass(slots=True, eq=False)
class HttpSubscription(QuietOutlet):
    """A subscription, or the subscriptions of one stream, and the outlet of its client at the node. Deliveries go
    into the log. `given` is the JSON that the client sent,
    without the id."""

    id: str
    given: dict[str, Any]
    selections: Mapping[str, Selection]
    log: DeliveryLog
    encode: Callable[[Notification], bytes]
    is_listed: bool = True
    idle_since: float = 0.0

    @property
    def client(self) -> Client:
        return Client(f"@http/{self.id}")

    def deliver(self, delivery: Deliver) -> None:
        notification = delivery.notification
        matching = tuple(
            id for id in delivery.subscriptions if id in self.selections and self.selections[id].matches(notification)
        )
        if matching:
            self.log.append(matching, self.encode(notification))

    def tell_gap(self, gap: Gap) -> None:
        """A place in the log like a delivery: a reader that comes later hears of it where it was."""
        since, until = instant_of(gap.since), None if not gap.until else instant_of(gap.until)
        self.log.append((), b"", {"since": since, "until": until, "missed": gap.missed, "link": gap.link})

    def end(self, reason: str) -> None:
        self.log.end(reason)

    @property
    def resource(self) -> dict[str, Any]:
        """The JSON object that `GET /subscriptions/{id}` returns."""
        path = f"/subscriptions/{self.id}"
        delivery = {"sse": f"{path}/events", "websocket": f"{path}/ws"}
        return {"id": self.id, **self.given, "delivery": delivery, "waiting": self.log.waiting_count}


@dataclass(slots=True)
class HttpSubscriptions:
    """All subscriptions over HTTP at one broker. `now` is the loop's clock, in seconds."""

    node: Node
    now: Callable[[], float]
    subscriptions_max: int = SUBSCRIPTIONS_MAX
    idle_s_max: float = IDLE_S_MAX
    # Deliveries lost by subscriptions that are deleted.
    lost_before: int = 0
    room: LogsRoom = field(default_factory=LogsRoom)
    _by_id: dict[str, HttpSubscription] = field(default_factory=dict)
    # The last notification encoded, and its bytes.
    _last_encoded: tuple[Notification | None, bytes] = (None, b"")

    # --- beginning and end ---

    def create(self, given: object) -> HttpSubscription:
        """Makes a subscription from its JSON. An InputError says what is wrong with it."""
        if not isinstance(given, Mapping):
            raise InputError(f"a subscription must be a JSON object, found {shown(given)}")
        id = id_of(given)
        if id in self._by_id:
            raise TakenIdError(f"there is a subscription {shown(id)} already: delete it first")
        return self._begin(id, interest_members(given), {id: selection_of_members(given)}, is_listed=True)

    def ad_hoc(self, expressions: Sequence[FilterExpression]) -> HttpSubscription:
        """Makes subscriptions for one stream, with ids 1, 2, …; without an expression, one that matches everything."""
        numbered = enumerate(expressions or [combined([])], 1)
        selections = {str(number): checked_selection(expression) for number, expression in numbered}
        return self._begin(os.urandom(9).hex(), {}, selections, is_listed=False)

    def _begin(
        self, id: str, given: dict[str, Any], selections: Mapping[str, Selection], is_listed: bool
    ) -> HttpSubscription:
        if len(self._by_id) >= self.subscriptions_max:
            raise FullError(f"SUBSCRIPTIONS_MAX is {self.subscriptions_max:,}: delete some, or try again later")
        log = DeliveryLog(os.urandom(6).hex(), room=self.room)
        made = HttpSubscription(id, given, selections, log, self.encode, is_listed, self.now())
        self.node.client_up(made.client, made.client.name, {}, made)
        for name, selection in selections.items():
            refusals = self.node.ask(made.client, Subscribe(made.client.name, name, selection.wanted))
            if refusals:
                self.node.client_down(made.client)
                log.end("refused")
                raise refusals[0].error
        self._by_id[id] = made
        return made

    def delete(self, id: str, reason: str = "the subscription is deleted") -> HttpSubscription:
        deleted = self[id]
        del self._by_id[id]
        self.node.client_down(deleted.client)
        deleted.log.end(reason)
        self.lost_before += deleted.log.lost
        return deleted

    def close(self, reason: str) -> None:
        for id in list(self._by_id):
            self.delete(id, reason)

    def expire(self) -> None:
        """Deletes the subscriptions that nobody has read for `idle_s_max`."""
        before = self.now() - self.idle_s_max
        for subscription in list(self._by_id.values()):
            if not subscription.log.readers and subscription.idle_since < before:
                self.delete(subscription.id, f"nobody has read it for {self.idle_s_max:.0f} s")

    # --- looking in ---

    def __getitem__(self, id: str) -> HttpSubscription:
        try:
            return self._by_id[id]
        except KeyError:
            raise UnknownSubscriptionError(f"there is no subscription {shown(id)}") from None

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, id: object) -> bool:
        return id in self._by_id

    @property
    def readers_count(self) -> int:
        return sum(len(subscription.log.readers) for subscription in self._by_id.values())

    @property
    def lost(self) -> int:
        """Deliveries that no reader took in time, since the start."""
        return self.lost_before + sum(subscription.log.lost for subscription in self._by_id.values())

    @property
    def listed_ids(self) -> list[str]:
        return sorted(subscription.id for subscription in self._by_id.values() if subscription.is_listed)

    # --- what is delivered ---

    @property
    def source(self) -> str:
        """The CloudEvents source of the broker's own messages."""
        return f"/brokers/{quote(self.node.name, safe='')}"

    def encode(self, notification: Notification) -> bytes:
        """The JSON of a CloudEvent without its closing brace. A notification that matches several subscriptions comes
        once for each, one after the other: it is encoded for the first."""
        if self._last_encoded[0] is not notification:
            members = cloudevent_of(notification, self.source)
            # Somebody may publish a CloudEvent that was delivered by us: each delivery adds its own values of these.
            members.pop(IDS_MEMBER, None)
            members.pop(PLACE_MEMBER, None)
            self._last_encoded = (notification, msgspec.json.encode(members)[:-1])
        return self._last_encoded[1]


def id_of(given: Mapping[str, object]) -> str:
    """The id that a new subscription asks for, or a new one."""
    id = given.get("id") or os.urandom(9).hex()
    if not isinstance(id, str) or not _ID.fullmatch(id):
        raise BadIdError(f"{shown(id)} cannot be an id: use 1 to 128 of the characters A-Z a-z 0-9 . _ ~ -")
    return id


def check_members(given: Mapping[str, object], others: Sequence[str]) -> None:
    """An InputError if there is a member that is neither for all subscriptions nor one of the `others`."""
    for name in given:
        if name not in (*_MEMBERS, *others):
            members = ", ".join((*_MEMBERS, *others))
            raise InputError(f"a subscription has the members {members}, found {shown(name)}")


def interest_members(given: Mapping[str, Any]) -> dict[str, Any]:
    """The members that say what is wanted."""
    return {name: given[name] for name in _MEMBERS if name in given and name != "id"}


def selection_of_members(given: Mapping[str, Any]) -> Selection:
    """What the members `source`, `types` and `filters` of a subscription ask for. It raises what is wrong with them."""
    return checked_selection(combined(_expressions(given)))


def checked_selection(expression: FilterExpression) -> Selection:
    selection = selection_of(expression)
    if isinstance(selection.wanted, Cesql):
        # Computes the filter, which is an error if it is past a limit: here, before the core is asked.
        selection.wanted.filter  # noqa: B018
    return selection


def _expressions(given: Mapping[str, Any]) -> list[FilterExpression]:
    """What must hold: the source, one of the types, and all filters."""
    expressions = expressions_of(given.get("filters", []))
    if (types := given.get("types")) is not None:
        if not isinstance(types, list) or not 1 <= len(types) <= TYPES_MAX or not all(map(_is_text, types)):
            raise BadFilterError(f"types must be an array of 1 to {TYPES_MAX} strings, found {shown(types)}")
        expressions.insert(0, AnyOf(tuple(TextTest("exact", "type", type) for type in types)))
    if (source := given.get("source")) is not None:
        if not _is_text(source):
            raise BadFilterError(f"source must be a string that is not empty, found {shown(source)}")
        expressions.insert(0, TextTest("exact", "source", source))
    return expressions


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)
