"""A webhook without a network: a clock that the test moves, a sink that answers what the test says."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from catchment.broker.http.durable_client import DurableEntry
from catchment.broker.http.interest import Revisions
from catchment.broker.http.tables import TablesThread
from catchment.broker.http.webhooks.answers import SinkAnswer
from catchment.broker.http.webhooks.permission import Permission
from catchment.broker.http.webhooks.resource import push_of
from catchment.broker.http.webhooks.sinks import SinkError
from catchment.broker.http.webhooks.webhook import KeptWebhook, Surroundings, Webhook
from catchment.model.notification import Notification
from catchment.store.http_tables import MemoryHttpTables

SINK = "https://sink.example/hook"
BEGIN = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)
LOG = "a" * 32


def an_entry(epoch, lost=0, **attributes):
    context = {"specversion": "1.0", "id": str(epoch), "source": "/s", "type": "t", "datacontenttype": "text/plain"}
    notification = Notification({**context, **attributes}, id=str(epoch), source="/s", payload=b"hello")
    return DurableEntry(LOG, epoch, notification, ("r1",), lost)


class FakeSinks:
    """Answers from a list, the last answer again and again. An answer is a status, (status, headers) or an error."""

    def __init__(self):
        self.answers: list[Any] = [200]
        self.asked: list[Any] = []
        self.now = lambda: 0.0
        self.before_answer = lambda: None

    async def ask(self, method, target, headers, body, timeout_s):
        self.asked.append((self.now(), method, target.url, dict(headers), body))
        self.before_answer()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, str):
            raise SinkError(answer)
        status, headers = answer if isinstance(answer, tuple) else (answer, {})
        return SinkAnswer(status, headers)

    @property
    def posted(self):
        return [headers["ce-id"] for _, method, _, headers, _ in self.asked if method == "POST"]


def fake_sinks() -> Any:
    return FakeSinks()


class World:
    """`await world.work(n)` lets the webhook make n steps; the clock jumps to when the next one is due."""

    def __init__(self, tables=None, given=None, permission=None, revisions=None, **around):
        self.clock = 0.0
        self.chances = 0.5
        self.sinks = fake_sinks()
        self.sinks.now = lambda: self.clock
        self.tables: Any = tables or MemoryHttpTables()
        self.around = Surroundings(
            self.sinks,
            TablesThread(self.tables),
            lambda: self.clock,
            lambda: BEGIN + timedelta(seconds=self.clock),
            lambda: self.chances,
            **{"origin": "broker.example", "source": "/brokers/north", "callback_url": "https://b.example", **around},
        )
        push = push_of({"sink": SINK, "protocol": "HTTP", **(given or {})})
        permission = Permission("callback", None, 0.0) if permission is None else permission
        self.kept = KeptWebhook(revisions or Revisions({}), push, "the-key", "1a2b", permission)
        self.taken: list[int] = []
        self.gone: list[int] = []
        self.webhook = Webhook(
            "audit", self.kept, self.around, lambda log, epoch: self.taken.append(epoch), lambda: self.gone.append(1)
        )

    async def work(self, steps=1_000, until_s=float("inf")):
        """Steps until nothing is due at all, or the clock is at `until_s`."""
        for _ in range(steps):
            wait_s = await self.webhook.step()
            if wait_s > 0:
                if self.clock + wait_s > until_s or wait_s == float("inf"):
                    return
                self.clock += wait_s

    def dead(self):
        return self.tables.dead("audit", 0, 1_000)


def run(work):
    return asyncio.run(work)
