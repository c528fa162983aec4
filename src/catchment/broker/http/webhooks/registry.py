"""All webhooks of a broker.

Making one: it is kept, then the network is asked for its durable subscription, then its task begins. Deleting one: it
is kept as deleted, the network forgets its identity, then it is gone. So a broker that is killed in between finishes at
its next start what it had begun.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Mapping
from secrets import token_hex
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from catchment.broker.http.durable_client import DurableClient, DurableEntry
from catchment.broker.http.interest import Interest, Revisions
from catchment.broker.http.subscriptions import FullError, UnknownSubscriptionError, interest_members
from catchment.broker.http.webhooks.permission import Permission
from catchment.broker.http.webhooks.resource import push_of
from catchment.broker.http.webhooks.webhook import KeptWebhook, Surroundings, Webhook, new_key
from catchment.broker.targets import TargetRules, target_of
from catchment.errors import CatchmentError, shown
from catchment.node import Node
from catchment.store.http_tables import DeadLetter, DeadTotal, Resource

# Webhooks of one broker. Each may have a window of entries in memory: FETCH_BYTES_MAX, 1 MiB.
WEBHOOKS_MAX: Final = 128
# How long a request to send a dead letter again waits for the sink, besides the timeout of one request.
RESEND_S_EXTRA: Final = 5.0
# How long a stopping broker waits for requests that are under way.
WEBHOOKS_DRAIN_S_MAX: Final = 5.0
_DELETED: Final = "deleted"

log = logging.getLogger("catchment.broker")


class SinkRefusedError(CatchmentError):
    """The sink did not accept a dead letter."""


class Running:
    """A webhook, its client at the node, and its task."""

    def __init__(self, id: str, kept: KeptWebhook, around: Surroundings, node: Node, dead: DeadTotal) -> None:
        self.webhook = Webhook(id, kept, around, self._taken, self._end, dead)
        self._node = node
        self.client = self._made_client(kept.born)
        self.missing: tuple[str, ...] = ()
        self._task: asyncio.Task[None] | None = None

    def _made_client(self, born: str) -> DurableClient:
        identity = f"@webhook/{self._node.name}/{self.webhook.id}/{born}"
        return DurableClient(self._node, identity, self._on_entry, self._on_lost, self._on_lost_log)

    def begin_anew(self, born: str) -> None:
        """With another identity: the one before was forgotten."""
        self.client = self._made_client(born)
        self.client.up()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self.webhook.run())
        self._task.add_done_callback(self._on_done)

    async def stop(self, wait_s: float = WEBHOOKS_DRAIN_S_MAX) -> None:
        """Lets the request under way come to its end, for a while."""
        self.webhook.stop()
        if self._task is not None:
            _, late = await asyncio.wait([self._task], timeout=wait_s)
            for task in late:
                task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        self.client.down()

    def _on_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (problem := task.exception()) is not None:
            self.webhook.problem = "an internal error of the broker: see its log"
            log.error("webhook failed", exc_info=problem, extra={"webhook": self.webhook.id})

    def _on_entry(self, entry: DurableEntry) -> None:
        self.webhook.enqueue(entry)

    def _taken(self, log: str, epoch: int) -> None:
        self.client.taken(log, epoch)

    def _on_lost(self, count: int) -> None:
        self.webhook.counts.lost += count

    def _on_lost_log(self, storage: str) -> None:
        log.warning("webhook lost a log", extra={"webhook": self.webhook.id, "storage": storage})

    def _end(self) -> None:
        """The sink is retired: nothing waits for it any longer."""
        if self.client.is_up:
            self.client.forget(self.webhook.kept.revisions.id)
            self.client.down()

    @property
    def resource(self) -> dict[str, Any]:
        kept, status = self.webhook.kept, self.webhook.status
        return {
            "id": self.webhook.id,
            **kept.revisions.given,
            **kept.push.resource,
            "status": {**status, "missing": list(self.missing)},
        }


class Webhooks:
    """`around` is what they share; `rules` where they may go."""

    def __init__(self, node: Node, around: Surroundings, rules: TargetRules) -> None:
        self._node, self._around, self._rules = node, around, rules
        self._by_id: dict[str, Running] = {}
        # One change at a time: two that cross would leave the node and the tables with different words.
        self._changing = asyncio.Lock()

    # --- beginning and end ---

    async def open(self, resources: list[Resource]) -> None:
        """Goes on with the webhooks that were kept."""
        dead = await self._around.tables.call(lambda tables: tables.totals())
        for resource in resources:
            if resource.kind == "webhook":
                kept = msgspec.json.decode(resource.body, type=KeptWebhook)
                await self._open_one(resource.id, kept, dead.get(resource.id, DeadTotal()))

    async def _open_one(self, id: str, kept: KeptWebhook, dead: DeadTotal) -> None:
        running = Running(id, kept, self._around, self._node, dead)
        self._by_id[id] = running
        if kept.gone == _DELETED:
            await self._finish_delete(id)
            return
        if not kept.gone:
            running.client.up()
            try:
                # The broker may have been killed before the network knew. Asking again changes nothing.
                await running.client.subscribe(kept.revisions.id, running.webhook.interest.selection.wanted, 0.0)
            except CatchmentError as problem:
                log.warning("webhook not subscribed", extra={"webhook": id, "reason": str(problem)})
        running.start()

    async def close(self) -> None:
        await asyncio.gather(*(running.stop() for running in self._by_id.values()))
        self._by_id.clear()

    # --- what users ask for ---

    async def create(self, id: str, given: Mapping[str, Any]) -> Running:
        """The caller has checked that no subscription has this id."""
        async with self._changing:
            if len(self._by_id) >= WEBHOOKS_MAX:
                raise FullError(f"WEBHOOKS_MAX is {WEBHOOKS_MAX:,}: delete some first")
            self._rules.check_target(target_of(given.get("sink")))
            kept = KeptWebhook(Revisions(interest_members(given)), push_of(given), new_key(), token_hex(4))
            running = Running(id, kept, self._around, self._node, DeadTotal())
            self._by_id[id] = running
            try:
                await self._keep(running)
                running.client.up()
                wanted = running.webhook.interest.selection.wanted
                running.missing = await running.client.subscribe(kept.revisions.id, wanted)
            except BaseException:
                running.client.down()
                del self._by_id[id]
                await self._around.tables.call(lambda tables: tables.drop("webhook", id))
                raise
            running.start()
            return running

    async def edit(self, id: str, given: Mapping[str, Any]) -> Running:
        """Puts this in the place of what the webhook was. What was published before goes by the old filters."""
        async with self._changing:
            running = self[id]
            before = running.webhook.kept
            self._rules.check_target(target_of(given.get("sink")))
            push = push_of(given, before.push)
            revisions = before.revisions.edited(interest_members(given))
            Interest(revisions)  # What is wrong with the filters is raised before anything changes.
            kept = replace(before, revisions=revisions, push=push, gone="")
            if (push.sink, push.rate) != (before.push.sink, before.push.rate):
                kept = replace(kept, permission=Permission(), key=new_key())
            if before.gone:
                kept = replace(kept, born=token_hex(4))
                running.begin_anew(kept.born)
            await self._subscribe(running, before.revisions, kept, is_new=bool(before.gone))
            running.webhook.edit(kept)
            await self._keep(running)
            return running

    async def _subscribe(self, running: Running, before: Revisions, kept: KeptWebhook, is_new: bool) -> None:
        if kept.revisions == before and not is_new:
            return
        wanted = Interest(kept.revisions).selection.wanted
        running.missing = await running.client.subscribe(kept.revisions.id, wanted)
        if not is_new:
            # Only now: what is published meanwhile comes by both, never by none.
            running.client.cancel(before.id)

    async def delete(self, id: str) -> dict[str, Any]:
        async with self._changing:
            running = self[id]
            resource = running.resource
            await running.stop()
            running.webhook.kept = replace(running.webhook.kept, gone=_DELETED)
            await self._keep(running)
            await self._finish_delete(id)
            return resource

    async def _finish_delete(self, id: str) -> None:
        running = self._by_id[id]
        running.client.up()
        running.client.forget(running.webhook.kept.revisions.id)
        running.client.down()
        await self._around.tables.call(lambda tables: tables.drop("webhook", id))
        del self._by_id[id]

    async def confirm(self, id: str, key: str, headers: Mapping[str, str]) -> bool:
        """The callback of a sink. False if the key is wrong."""
        running = self[id]
        if running.webhook.confirm(key, headers) is None:
            return False
        await self._keep(running)
        return True

    async def _keep(self, running: Running) -> None:
        resource = running.webhook.resource
        await self._around.tables.call(lambda tables: tables.keep(resource))

    # --- dead letters ---

    async def dead(self, id: str, after: int, count_max: int) -> list[DeadLetter]:
        self[id]
        return await self._around.tables.call(lambda tables: tables.dead(id, after, count_max))

    async def letter(self, id: str, number: int) -> DeadLetter:
        self[id]
        letter = await self._around.tables.call(lambda tables: tables.letter(id, number))
        if letter is None:
            raise UnknownSubscriptionError(f"{shown(id)} has no dead letter {number}")
        return letter

    async def resend(self, id: str, number: int) -> None:
        """Returns when the sink has accepted it; else an error says why not."""
        letter = await self.letter(id, number)
        webhook = self[id].webhook
        waiting: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        webhook.resend(letter.number, waiting)
        try:
            async with asyncio.timeout(webhook.kept.push.timeout_s + RESEND_S_EXTRA):
                problem = await waiting
        except TimeoutError:
            problem = "it waits for its turn; look again later"
        if problem:
            raise SinkRefusedError(problem)

    async def resend_all(self, id: str) -> int:
        """Begins to send all dead letters again, in order, until one is not accepted. Returns how many there are."""
        webhook, count, after = self[id].webhook, 0, 0
        while numbers := [letter.number for letter in await self.dead(id, after, 100)]:
            for number in numbers:
                webhook.resend(number, None)
            count, after = count + len(numbers), numbers[-1]
        return count

    async def drop(self, id: str, number: int | None) -> int:
        """Drops a dead letter, or all. Returns how many."""
        webhook = self[id].webhook
        count = await self._around.tables.call(lambda tables: tables.unbury(id, number))
        totals = await self._around.tables.call(lambda tables: tables.totals())
        webhook.dead_changed(totals.get(id, DeadTotal()))
        return count

    # --- looking in ---

    def __getitem__(self, id: str) -> Running:
        try:
            return self._by_id[id]
        except KeyError:
            raise UnknownSubscriptionError(f"there is no webhook {shown(id)}") from None

    def __contains__(self, id: object) -> bool:
        return id in self._by_id

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def ids(self) -> list[str]:
        return sorted(self._by_id)

    def page(self, after: str, limit: int) -> tuple[list[Running], bool]:
        ids = self.ids
        start = bisect_right(ids, after)
        return [self._by_id[id] for id in ids[start : start + limit]], start + limit < len(ids)
