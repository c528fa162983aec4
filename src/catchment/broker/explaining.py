"""Explanations for clients, one row in a turn of the loop: each row is up to some ten milliseconds of work."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from catchment.broker.connection import Connection
from catchment.broker.status import explained, in_order
from catchment.errors import CatchmentError, LimitError
from catchment.node import Node
from catchment.wire.messages import Look, Refused, Seen

# Questions of all clients that wait: they are answered one after the other.
EXPLAININGS_MAX: Final = 64


class Explaining:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._waiting: deque[tuple[Connection, Look]] = deque()
        self._task: asyncio.Task[None] | None = None

    def begin(self, connection: Connection, look: Look) -> None:
        """Answers a client soon; LimitError if too many wait already."""
        if len(self._waiting) >= EXPLAININGS_MAX:
            raise LimitError("EXPLAININGS_MAX", EXPLAININGS_MAX, "one more", "ask again later")
        self._waiting.append((connection, look))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._answer_all())

    async def _answer_all(self) -> None:
        while self._waiting:
            connection, look = self._waiting.popleft()
            try:
                rows = []
                for row in explained(self._node, look.notification):
                    rows.append(row)
                    await asyncio.sleep(0)
                    if not connection.is_open:
                        break
                connection.send(Seen(look.number, in_order(rows)))
            except CatchmentError as problem:
                connection.send(Refused(look.number, type(problem).__name__, str(problem)))

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
