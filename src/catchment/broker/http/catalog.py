"""All subscriptions of a broker that were made over HTTP, of three kinds, under one set of ids:

transient   read as a stream; what is not read in time is lost (`subscriptions.py`)
durable     read as a stream, nothing is lost (`durable_streams.py`): `"durable": true`
webhook     pushed to a sink, nothing is lost (`webhooks/`): `"sink": "https://…"`

The last two need a store.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from heapq import merge
from typing import Any

from catchment.broker.http.durable_side import DurableSide
from catchment.broker.http.durable_streams import DurableStream, DurableStreams
from catchment.broker.http.subscriptions import (
    HttpSubscription,
    HttpSubscriptions,
    TakenIdError,
    UnknownSubscriptionError,
    check_members,
    id_of,
)
from catchment.broker.http.webhooks.registry import Webhooks
from catchment.broker.http.webhooks.resource import PUSH_MEMBERS
from catchment.errors import CatchmentError, InputError, shown


class NoStoreError(CatchmentError):
    """Something durable was asked of a broker without a store."""


class FixedError(InputError):
    """A subscription that cannot be changed."""


class Catalog:
    def __init__(self, transient: HttpSubscriptions) -> None:
        self.transient = transient
        # There is one as soon as the broker's store is open, if it has one.
        self.durable: DurableSide | None = None

    @property
    def webhooks(self) -> Webhooks:
        return self._side.webhooks

    @property
    def streams(self) -> DurableStreams:
        return self._side.streams

    @property
    def _side(self) -> DurableSide:
        if self.durable is None:
            raise NoStoreError("this broker has no store: start it with --store, or ask a broker that has one")
        return self.durable

    # --- changes ---

    async def create(self, given: object) -> dict[str, Any]:
        """Makes a subscription from its JSON, and returns it as it is shown."""
        members = _members(given)
        id = id_of(members)
        if id in self:
            raise TakenIdError(f"there is a subscription {shown(id)} already: delete it first")
        if "sink" in members:
            return (await self.webhooks.create(id, members)).resource
        if members.get("durable"):
            return (await self.streams.create(id, members)).resource
        return self.transient.create({**members, "id": id}).resource

    async def edit(self, id: str, given: object) -> dict[str, Any]:
        members = _members(given)
        if members.get("id", id) != id:
            raise InputError(f"the id of a subscription cannot change: it is {shown(id)}")
        if "sink" in members and self._is_webhook(id):
            return (await self.webhooks.edit(id, members)).resource
        if members.get("durable") and self._is_stream(id):
            return (await self.streams.edit(id, members)).resource
        if id not in self:
            raise UnknownSubscriptionError(f"there is no subscription {shown(id)}")
        raise FixedError("a subscription keeps its kind, and only webhooks and durable ones change: delete it first")

    async def delete(self, id: str) -> dict[str, Any]:
        if self._is_webhook(id):
            return await self.webhooks.delete(id)
        if self._is_stream(id):
            return await self.streams.delete(id)
        return self.transient.delete(self.listed(id).id).resource

    # --- looking in ---

    def show(self, id: str) -> dict[str, Any]:
        if self._is_webhook(id):
            return self.webhooks[id].resource
        if self._is_stream(id):
            return self.streams[id].resource
        return self.listed(id).resource

    def listed(self, id: str) -> HttpSubscription:
        """A transient subscription that is not that of a single stream."""
        subscription = self.transient[id]
        if not subscription.is_listed:
            raise UnknownSubscriptionError(f"there is no subscription {shown(id)}")
        return subscription

    def readable(self, id: str) -> HttpSubscription | DurableStream:
        if self._is_webhook(id):
            raise FixedError(f"{shown(id)} is a webhook: its sink gets the events, nobody can read them here")
        return self.streams[id] if self._is_stream(id) else self.listed(id)

    def page(self, after: str, limit: int, kind: str) -> tuple[list[dict[str, Any]], bool]:
        """Up to `limit` subscriptions that follow the id `after`, and whether there are more."""
        by_kind: dict[str, list[str]] = {"transient": self.transient.listed_ids}
        if self.durable is not None:
            by_kind |= {"durable": self.streams.ids, "webhook": self.webhooks.ids}
        if kind not in ("", "transient", "durable", "webhook"):
            raise InputError(f"kind must be transient, durable or webhook, found {shown(kind)}")
        ids = list(merge(*(by_kind.values() if not kind else [by_kind.get(kind, [])])))
        start = bisect_right(ids, after)
        return [self.show(id) for id in ids[start : start + limit]], start + limit < len(ids)

    def __contains__(self, id: str) -> bool:
        return id in self.transient or self._is_webhook(id) or self._is_stream(id)

    @property
    def readers_count(self) -> int:
        durable = 0 if self.durable is None else self.streams.readers_count
        return self.transient.readers_count + durable

    def _is_webhook(self, id: str) -> bool:
        return self.durable is not None and id in self.webhooks

    def _is_stream(self, id: str) -> bool:
        return self.durable is not None and id in self.streams


def _members(given: object) -> Mapping[str, Any]:
    """The JSON object of a subscription, with members that fit each other."""
    if not isinstance(given, Mapping):
        raise InputError(f"a subscription must be a JSON object, found {shown(given)}")
    check_members(given, ("durable", *PUSH_MEMBERS))
    if given.get("durable") not in (None, True, False):
        raise InputError(f"durable must be true or false, found {shown(given['durable'])}")
    pushing = [name for name in PUSH_MEMBERS if name in given]
    if pushing and "sink" not in given:
        raise InputError(f"{pushing[0]} is for a webhook: name its sink too, or leave it out")
    if pushing and given.get("durable") is False:
        raise InputError("a webhook is always durable")
    return given
