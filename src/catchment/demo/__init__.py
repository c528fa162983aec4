"""The data that `catchment demo` shows: invented notifications, and subscriptions of invented people."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files

from catchment.model.cesql import Cesql
from catchment.model.filter import Filter
from catchment.model.notification import Notification


@dataclass(frozen=True, slots=True)
class DemoSubscription:
    """A subscription in either dialect, with its text as it was written."""

    id: str
    client: str
    text: str
    wanted: Filter | Cesql

    @property
    def dialect(self) -> str:
        return "cesql" if isinstance(self.wanted, Cesql) else "catchment"


def notifications() -> list[Notification]:
    return [Notification.parse(line) for line in _lines("notifications.jsonl")]


def subscriptions() -> list[DemoSubscription]:
    return [_subscription(**json.loads(line)) for line in _lines("subscriptions.jsonl")]


def _subscription(id: str, client: str, text: str, dialect: str = "catchment") -> DemoSubscription:
    return DemoSubscription(id, client, text, Cesql(text) if dialect == "cesql" else Filter(text))


def _lines(name: str) -> list[str]:
    return files(__package__).joinpath(name).read_text("utf-8").splitlines()
