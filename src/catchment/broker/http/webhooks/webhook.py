"""One webhook: takes the entries of a durable identity to a sink, one at a time, in order.

State. What is kept (`KeptWebhook`): the filters, how to send, whether the sink agreed. What is not: the entries that
came and are not done with (bounded by the window of a storage), the courier of the first of them, and dead letters that
somebody wants to send again.

Each `step` does the next thing that is due and returns how long nothing is:

    ask the sink for permission → send a dead letter again → send the first entry

The promise. An entry is acknowledged (`taken`) only after the sink has answered 2xx, or after the entry was kept as a
dead letter, or at once if the filters do not want it. A broker that is killed before that sends the entry again after
its restart, as the same CloudEvent. So a sink gets each notification at least once, and those of a publisher in order.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, assert_never

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from catchment.broker.http.durable_client import DurableEntry
from catchment.broker.http.interest import Interest, Revisions
from catchment.broker.http.tables import TablesThread
from catchment.broker.http.webhooks.answers import Accepted, Failed, NotNow, Outcome, outcome_of
from catchment.broker.http.webhooks.courier import Courier, Dead, Done, Retired, Verdict
from catchment.broker.http.webhooks.message import Message, message_of, message_of_json, structured_json
from catchment.broker.http.webhooks.pacing import Pace
from catchment.broker.http.webhooks.permission import (
    CALLBACK_HEADER,
    ORIGIN_HEADER,
    RATE_HEADER,
    Asking,
    Permission,
    allowed_rate,
    granted,
)
from catchment.broker.http.webhooks.resource import Push
from catchment.broker.http.webhooks.sinks import SinkError, Sinks
from catchment.broker.targets import target_of
from catchment.store.http_tables import DeadLetter, DeadTotal, Resource
from catchment.store.interface import StoreError

# Dead letters of one webhook, and the bytes of their events. When a webhook has as many it stops, and drops nothing.
DEAD_LETTERS_MAX: Final = 10_000
DEAD_BYTES_MAX: Final = 64 * 1_048_576
# When a dead letter cannot be kept: how long until it is tried again.
STORE_AGAIN_S: Final = 5.0
FOREVER: Final = float("inf")

log = logging.getLogger("catchment.broker")


class KeptWebhook(Struct, frozen=True):
    """A webhook as it is kept. `key` is the secret of its callback. `born` is drawn when it begins. `gone` is why it
    has ended, if it has."""

    revisions: Revisions
    push: Push
    key: str
    born: str
    permission: Permission = Permission()
    gone: str = ""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all webhooks of a broker share. `now` is the loop's clock, `wall` the time of day, `chance` a number in
    [0, 1). `source` is the CloudEvents source of notifications without one."""

    sinks: Sinks
    tables: TablesThread
    now: Callable[[], float]
    wall: Callable[[], datetime]
    chance: Callable[[], float]
    origin: str
    source: str
    callback_url: str = ""
    trusted: frozenset[str] = frozenset()


@dataclass(slots=True)
class Counts:
    delivered: int = 0
    failed: int = 0
    lost: int = 0


class Webhook:
    """`taken` is called when all entries of a log up to an epoch are done with; `on_gone` when the sink is retired."""

    def __init__(
        self,
        id: str,
        kept: KeptWebhook,
        around: Surroundings,
        taken: Callable[[str, int], None],
        on_gone: Callable[[], None],
        dead: DeadTotal | None = None,
    ) -> None:
        self.id, self.kept, self._around = id, kept, around
        self._taken, self._on_gone = taken, on_gone
        self.interest = Interest(kept.revisions)
        self.counts = Counts()
        self.dead = dead or DeadTotal()
        # Why nothing is sent now, for people.
        self.problem = kept.gone
        self._entries: deque[DurableEntry] = deque()
        self._courier: Courier | None = None
        # What is to be done with the first entry, if that has failed.
        self._verdict: Verdict | None = None
        # Dead letters to send again, each with whoever waits for the outcome: nothing, or why it was not accepted.
        self._resends: deque[tuple[int, asyncio.Future[str] | None]] = deque()
        self._pace = Pace(kept.permission.rate)
        self._asking = Asking()
        if kept.permission.is_granted:
            self._asking.on_granted(kept.permission, around.now(), around.wall().timestamp())
        self._not_before = 0.0
        self._wake = asyncio.Event()
        self._is_stopping = False

    # --- from outside ---

    @property
    def resource(self) -> Resource:
        return Resource("webhook", self.id, msgspec.json.encode(self.kept))

    def enqueue(self, entry: DurableEntry) -> None:
        self._entries.append(entry)
        self._wake.set()

    def edit(self, kept: KeptWebhook) -> None:
        """From now on it is like this. What waits is tried at once: perhaps the sink was wrong."""
        if kept.permission != self.kept.permission:
            self._permit(kept.permission)
        self.kept = kept
        self.interest = Interest(kept.revisions)
        self.problem = kept.gone
        self._not_before = 0.0
        if self._courier is not None:
            self._courier.due_at = 0.0
        self._wake.set()

    def restart_entries(self) -> None:
        """All entries that are not acknowledged will come again."""
        self._entries.clear()
        self._courier = self._verdict = None

    def confirm(self, key: str, headers: Mapping[str, str]) -> Permission | None:
        """The sink, or somebody who can read its log, has used the callback. None if the key is wrong."""
        if not hmac.compare_digest(key.encode("utf-8", "replace"), self.kept.key.encode()):
            return None
        rate = allowed_rate(headers, self.kept.push.rate)
        permission = Permission("callback", rate, self._around.wall().timestamp())
        self._permit(permission)
        self.kept = replace(self.kept, permission=permission)
        return permission

    def ask_again(self) -> None:
        """Asks the sink for permission now."""
        self._asking = Asking()
        self._wake.set()

    def resend(self, number: int, waiting: asyncio.Future[str] | None) -> None:
        self._resends.append((number, waiting))
        self._wake.set()

    def dead_changed(self, total: DeadTotal) -> None:
        self.dead = total
        self._wake.set()

    def stop(self) -> None:
        """Ends after the request that is under way."""
        self._is_stopping = True
        self._wake.set()

    @property
    def status(self) -> dict[str, Any]:
        permission, kept = self.kept.permission, self.kept
        state = "gone" if kept.gone else "active" if permission.is_granted else "asking"
        if state == "active" and self.problem:
            state = "retrying"
        return {
            "state": state,
            "problem": self.problem,
            "allowed_by": permission.by or None,
            "allowed_rate": (permission.rate or "*") if permission.is_granted else None,
            "waiting": len(self._entries),
            "delivered": self.counts.delivered,
            "failed": self.counts.failed,
            "lost": self.counts.lost,
            "dead": self.dead.count,
        }

    # --- its task ---

    async def run(self) -> None:
        while not self._is_stopping:
            self._wake.clear()
            wait_s = await self.step()
            if wait_s > 0 and not self._is_stopping:
                # Whatever changes sets `_wake`: what came during the step is not missed.
                try:
                    async with asyncio.timeout(None if wait_s == FOREVER else wait_s):
                        await self._wake.wait()
                except TimeoutError:
                    pass

    async def step(self) -> float:
        """Does what is due. Returns how many seconds nothing is, unless something changes."""
        now = self._around.now()
        if self.kept.gone:
            self._fail_resends(self.kept.gone)
            return FOREVER
        if now >= self._asking.due_at:
            await self._ask_permission()
            return 0.0
        if not self.kept.permission.is_granted:
            self._fail_resends(f"the sink has not agreed: {self.problem}")
            return self._asking.due_at - now
        expires_at = self.kept.push.expires_at()
        if expires_at is not None and expires_at <= self._around.wall():
            self.problem = "the access token has expired: PUT a new one"
            self._fail_resends(self.problem)
            return FOREVER
        wait_s = max(self._pace.wait_s(now), self._not_before - now)
        if self._verdict is None and wait_s > 0:
            return min(wait_s, self._asking.due_at - now)
        return await self._send_next(now)

    async def _send_next(self, now: float) -> float:
        if self._verdict is not None:
            return await self._conclude(self._verdict)
        if self._resends:
            await self._resend_next()
            return 0.0
        if self._courier is None and not self._begin(now):
            return self._asking.due_at - now
        assert self._courier is not None
        if (wait_s := self._courier.due_at - now) > 0:
            return min(wait_s, self._asking.due_at - now)
        verdict = await self._attempt(self._courier)
        return 0.0 if verdict is None else await self._conclude(verdict)

    # --- entries ---

    def _begin(self, now: float) -> bool:
        """Takes up the first entry that the filters want; False if there is none."""
        while self._entries:
            entry = self._entries[0]
            self.counts.lost += entry.lost
            if self.interest.wants(entry.ids, entry.notification):
                self._courier = Courier(self.kept.push.attempts, self.kept.push.giveup_s, now)
                return True
            self._finish_first()
        return False

    def _finish_first(self) -> None:
        entry = self._entries.popleft()
        self._courier = self._verdict = None
        self._taken(entry.log, entry.epoch)

    async def _attempt(self, courier: Courier) -> Verdict | None:
        notification = self._entries[0].notification
        courier.start(self._around.now())
        outcome = await self._send(message_of(notification, self.kept.push.mode, self._around.source))
        if self._courier is not courier:
            return None  # It was taken away meanwhile: `restart_entries`.
        self._verdict = courier.finish(outcome, self._around.now(), self._around.chance())
        self.problem = "" if isinstance(outcome, Accepted) else outcome.reason
        return self._verdict

    async def _conclude(self, verdict: Verdict) -> float:
        """Does with the first entry what has been decided. Returns how long to wait if that cannot be done now."""
        match verdict:
            case Done():
                self.counts.delivered += 1
                self._finish_first()
                return 0.0
            case Dead(reason):
                return await self._bury(reason)
            case Retired(reason):
                if (wait_s := await self._bury(reason)) > 0:
                    return wait_s
                await self._retire(reason)
                return 0.0
            case _:
                assert_never(verdict)

    async def _bury(self, reason: str) -> float:
        if self.dead.count >= DEAD_LETTERS_MAX or self.dead.bytes >= DEAD_BYTES_MAX:
            self.problem = "there is no room for more dead letters: send them again or drop them"
            return FOREVER
        entry, courier = self._entries[0], self._courier
        assert courier is not None
        body = structured_json(entry.notification, self._around.source)
        at = int(self._around.wall().timestamp() * 1e6)
        letter = DeadLetter(self.id, entry.log, entry.epoch, at, courier.attempts, reason, body)
        try:
            await self._around.tables.call(lambda tables: tables.bury(letter))
        except StoreError as problem:
            self.problem = f"a dead letter cannot be kept: {problem}"
            return STORE_AGAIN_S
        self.dead = DeadTotal(self.dead.count + 1, self.dead.bytes + len(body))
        log.warning("dead letter", extra={"webhook": self.id, "reason": reason})
        if self._courier is courier:
            # Only now: the entry is safe as a dead letter.
            self._finish_first()
        return 0.0

    async def _retire(self, reason: str) -> None:
        self.kept = replace(self.kept, gone=reason)
        self.problem = reason
        self.restart_entries()
        log.warning("webhook gone", extra={"webhook": self.id, "reason": reason})
        await self._keep()
        self._on_gone()

    # --- dead letters ---

    async def _resend_next(self) -> None:
        number, waiting = self._resends.popleft()
        try:
            problem = await self._resent(number)
        except StoreError as error:
            problem = str(error)
        _tell(waiting, problem)
        if problem:
            # The others would fare no better now.
            self._fail_resends(problem)

    async def _resent(self, number: int) -> str:
        """Sends a dead letter once. Returns why it was not accepted; nothing if it was, and then it is deleted."""
        tables = self._around.tables
        letter = await tables.call(lambda tables: tables.letter(self.id, number))
        if letter is None:
            return ""  # Somebody has dropped it, or it was sent twice.
        outcome = await self._send(message_of_json(letter.body, self.kept.push.mode))
        if not isinstance(outcome, Accepted):
            return outcome.reason
        self.counts.delivered += 1
        await tables.call(lambda tables: tables.unbury(self.id, number))
        self.dead = DeadTotal(self.dead.count - 1, self.dead.bytes - len(letter.body))
        return ""

    def _fail_resends(self, reason: str) -> None:
        while self._resends:
            _tell(self._resends.popleft()[1], reason)

    # --- requests ---

    async def _send(self, message: Message) -> Outcome:
        push, around = self.kept.push, self._around
        headers = {"user-agent": "catchment", **push.request_headers, ORIGIN_HEADER: around.origin, **message.headers}
        self._pace.spend(around.now())
        try:
            answer = await around.sinks.ask(
                push.method, target_of(push.sink), headers, message.body, float(push.timeout_s)
            )
        except SinkError as problem:
            self.counts.failed += 1
            return Failed(str(problem))
        outcome = outcome_of(answer, around.wall())
        self.counts.failed += not isinstance(outcome, Accepted)
        if isinstance(outcome, NotNow):
            # For all requests to this sink, those of dead letters too.
            self._not_before = around.now() + outcome.wait_s
        return outcome

    async def _ask_permission(self) -> None:
        """The handshake."""
        push, around, before = self.kept.push, self._around, self.kept.permission
        target = target_of(push.sink)
        wall = around.wall().timestamp()
        if target.host in around.trusted:
            await self._settle(Permission("trusted", push.rate, wall))
            return
        callback = {CALLBACK_HEADER: self.callback_url} if around.callback_url else {}
        rate = {} if push.rate is None else {RATE_HEADER: str(push.rate)}
        headers = {"user-agent": "catchment", **push.request_headers, ORIGIN_HEADER: around.origin, **callback, **rate}
        key = self.kept.key
        try:
            answer = await around.sinks.ask("OPTIONS", target, headers, b"", float(push.timeout_s))
        except SinkError as problem:
            self.problem = "" if before.is_granted else str(problem)
            self._asking.on_no_answer(around.now(), around.chance())
            return
        if self.kept.key != key or self.kept.permission.by == "callback":
            return  # It was edited meanwhile, or has been given permission.
        await self._settle(granted(answer.headers, around.origin, push.rate, wall))

    async def _settle(self, permission: Permission) -> None:
        self._permit(permission)
        if not permission.is_granted:
            self.problem = (
                "the sink has not agreed: it must answer OPTIONS with WebHook-Allowed-Origin, or use the callback"
            )
            self._asking.on_no_answer(self._around.now(), self._around.chance())
        if permission != self.kept.permission:
            self.kept = replace(self.kept, permission=permission)
            await self._keep()

    def _permit(self, permission: Permission) -> None:
        if permission.is_granted:
            self.problem = ""
            self._asking.on_granted(permission, self._around.now(), self._around.wall().timestamp())
            self._pace.per_minute = permission.rate
        else:
            self._asking.due_at = 0.0
        self._wake.set()

    async def _keep(self) -> None:
        resource = self.resource
        try:
            await self._around.tables.call(lambda tables: tables.keep(resource))
        except StoreError as problem:
            # After a restart the broker asks again, or hears 410 again.
            log.warning("webhook not kept", extra={"webhook": self.id, "reason": str(problem)})

    @property
    def callback_url(self) -> str:
        return f"{self._around.callback_url}/subscriptions/{self.id}/confirm?key={self.kept.key}"


def new_key() -> str:
    return secrets.token_urlsafe(24)


def _tell(waiting: asyncio.Future[str] | None, outcome: str) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(outcome)
