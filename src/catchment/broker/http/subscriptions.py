"""Subscriptions made over HTTP: each a client of the node of its own, whose deliveries wait in a log to be read.

A subscription lives until it is deleted, until the broker ends, or until nobody has read it for IDLE_S_MAX. One that is
made for a single stream (`GET /events?filter=…`) lives as long as that.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

import msgspec

from catchment.broker.http.delivery_log import Log
from catchment.broker.http.filters import Any_, Expression, Selection, Text, everything_of, expressions_of, selection_of
from catchment.broker.node import Node
from catchment.errors import BadFilterError, BadIdError, CatchmentError, InputError, shown
from catchment.model.cesql import Cesql
from catchment.model.cloudevents import cloudevent_of
from catchment.model.notification import Notification
from catchment.routing.messages import Client, Deliver, Subscribe

# Each holds a log of at most LOG_BYTES_MAX: a gigabyte in all.
SUBSCRIPTIONS_MAX: Final = 1_000
# Types that one subscription names.
TYPES_MAX: Final = 64
# One that nobody reads is forgotten after an hour: its reader has gone without a word.
IDLE_S_MAX: Final = 3_600.0

# What a delivered CloudEvent says besides what it said: the ids of the subscriptions that match, and its place.
IDS_MEMBER: Final = "catchmentids"
PLACE_MEMBER: Final = "catchmentplace"

_ID: Final = re.compile(r"[A-Za-z0-9._~-]{1,128}")
_KNOWN: Final = ("id", "source", "types", "filters")
_PUSHED: Final = ("sink", "sinkcredential", "protocol", "protocolsettings", "config")


class FullError(CatchmentError):
    """There are as many as the broker takes."""


class TakenIdError(BadIdError):
    """There is one of this id."""


class UnknownSubscriptionError(CatchmentError):
    """There is none of this id."""


@dataclass(slots=True, eq=False)
class HttpSubscription:
    """An outlet of the node; it is handed deliveries as they are, so no frames come."""

    id: str
    given: dict[str, Any]
    selections: Mapping[str, Selection]
    log: Log
    encoded: Callable[[Notification], bytes]
    is_listed: bool = True
    idle_since: float = 0.0

    @property
    def client(self) -> Client:
        return Client(f"@http/{self.id}")

    def receive(self, delivery: Deliver) -> None:
        notification, chosen = delivery.notification, self.selections
        matched = tuple(one for one in delivery.subscriptions if one in chosen and chosen[one].matches(notification))
        if matched:
            self.log.append(matched, self.encoded(notification))

    def put(self, frame: bytes) -> None:
        pass

    def is_behind(self) -> bool:
        return False

    def end(self, reason: str) -> None:
        self.log.end(reason)

    @property
    def resource(self) -> dict[str, Any]:
        path = f"/subscriptions/{self.id}"
        delivery = {"sse": f"{path}/events", "websocket": f"{path}/ws"}
        return {"id": self.id, **self.given, "delivery": delivery, "waiting": self.log.waiting}


@dataclass(slots=True)
class Subscriptions:
    """`now` is the loop's clock, in seconds."""

    node: Node
    now: Callable[[], float]
    subscriptions_max: int = SUBSCRIPTIONS_MAX
    idle_s_max: float = IDLE_S_MAX
    lost_before: int = 0
    _by_id: dict[str, HttpSubscription] = field(default_factory=dict)
    _encoded: tuple[Notification | None, bytes] = (None, b"")

    # --- beginning and end ---

    def create(self, given: object) -> HttpSubscription:
        """From the JSON of a subscription; InputError says what is wrong with it."""
        if not isinstance(given, Mapping):
            raise InputError(f"a subscription is a JSON object, found {shown(given)}")
        _check_members(given)
        id = given.get("id") or os.urandom(9).hex()
        if not isinstance(id, str) or not _ID.fullmatch(id):
            raise BadIdError(f"{shown(id)} is no id: use up to 128 of A-Z a-z 0-9 . _ ~ -")
        if id in self._by_id:
            raise TakenIdError(f"there is a subscription {shown(id)} already: delete it first")
        selection = selection_of(everything_of(_expressions(given)))
        return self._begin(id, {name: given[name] for name in _KNOWN[1:] if name in given}, {id: selection}, True)

    def ad_hoc(self, expressions: Sequence[Expression]) -> HttpSubscription:
        """For one stream, with a subscription named by its place, from 1, for each; of none, everything."""
        chosen = expressions or (everything_of(()),)
        selections = {str(i): selection_of(one) for i, one in enumerate(chosen, 1)}
        return self._begin(os.urandom(9).hex(), {}, selections, False)

    def _begin(
        self, id: str, given: dict[str, Any], selections: Mapping[str, Selection], is_listed: bool
    ) -> HttpSubscription:
        if len(self._by_id) >= self.subscriptions_max:
            raise FullError(f"SUBSCRIPTIONS_MAX is {self.subscriptions_max:,}: delete some, or try again later")
        for one in selections.values():
            if isinstance(one.wanted, Cesql):
                one.wanted.filter  # noqa: B018 (what has none within the limits is refused here, not in the core)
        found = HttpSubscription(id, given, selections, Log(os.urandom(6).hex()), self._encode, is_listed, self.now())
        self.node.client_up(found.client, found.client.name, {}, found, found.receive)
        for name, one in selections.items():
            refusals = self.node.ask(found.client, Subscribe(found.client.name, name, one.wanted))
            if refusals:
                self.node.client_down(found.client)
                raise refusals[0].error
        self._by_id[id] = found
        return found

    def delete(self, id: str, reason: str = "the subscription is deleted") -> HttpSubscription:
        found = self[id]
        del self._by_id[id]
        self.node.client_down(found.client)
        found.log.end(reason)
        self.lost_before += found.log.lost
        return found

    def close(self, reason: str) -> None:
        for id in list(self._by_id):
            self.delete(id, reason)

    def expire(self) -> None:
        """Forgets those that nobody has read for long."""
        before = self.now() - self.idle_s_max
        for one in list(self._by_id.values()):
            if not one.log.readers and one.idle_since < before:
                self.delete(one.id, f"nobody has read it for {self.idle_s_max:.0f} s")

    # --- looking in ---

    def __getitem__(self, id: str) -> HttpSubscription:
        try:
            return self._by_id[id]
        except KeyError:
            raise UnknownSubscriptionError(f"there is no subscription {shown(id)}") from None

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def readers_count(self) -> int:
        return sum(len(one.log.readers) for one in self._by_id.values())

    @property
    def lost(self) -> int:
        return self.lost_before + sum(one.log.lost for one in self._by_id.values())

    def page(self, after: str, limit: int) -> tuple[list[HttpSubscription], bool]:
        """Those that follow an id, and whether there are more."""
        ids = sorted(one.id for one in self._by_id.values() if one.is_listed)
        start = bisect_right(ids, after)
        return [self._by_id[id] for id in ids[start : start + limit]], start + limit < len(ids)

    # --- what is delivered ---

    @property
    def source(self) -> str:
        """Of CloudEvents that the broker itself says."""
        return f"/brokers/{quote(self.node.name, safe='')}"

    def _encode(self, notification: Notification) -> bytes:
        """Once, however many subscriptions match."""
        if self._encoded[0] is not notification:
            members = cloudevent_of(notification, self.source)
            # Of one that was delivered before and published again.
            members.pop(IDS_MEMBER, None)
            members.pop(PLACE_MEMBER, None)
            self._encoded = (notification, msgspec.json.encode(members)[:-1])
        return self._encoded[1]


def _check_members(given: Mapping[str, object]) -> None:
    for name in given:
        if name.lower() in _PUSHED:
            raise InputError(f"{name}: this broker does not push: leave it out, and read the subscription's events")
        if name not in _KNOWN:
            raise InputError(f"a subscription has {', '.join(_KNOWN)}, found {shown(name)}")


def _expressions(given: Mapping[str, Any]) -> list[Expression]:
    found = expressions_of(given.get("filters", []))
    if (types := given.get("types")) is not None:
        if not isinstance(types, list) or not 1 <= len(types) <= TYPES_MAX or not all(map(_is_named, types)):
            raise BadFilterError(f"types is an array of 1 to {TYPES_MAX} texts, found {shown(types)}")
        found.insert(0, Any_(tuple(Text("exact", "type", one) for one in types)))
    if (source := given.get("source")) is not None:
        if not _is_named(source):
            raise BadFilterError(f"source is a text, found {shown(source)}")
        found.insert(0, Text("exact", "source", source))
    return found


def _is_named(value: object) -> bool:
    return isinstance(value, str) and bool(value)
