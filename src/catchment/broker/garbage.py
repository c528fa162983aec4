"""Garbage: what Python's cycle collector looks at, and when.

The collector looks at all objects each time their number has grown by a quarter. With a hundred thousand subscriptions
that stops a broker for a second or more, at any moment. Nearly all these objects live long and are in no cycle:
reference counts free them. So while subscriptions come, a broker *freezes* every now and then all objects that there
are: the collector never looks at these again, and what it does look at is small.

A frozen object that is in a cycle when it dies is not freed, such as what was left of a connection. So when the broker
has few filters again, it looks at everything once.
"""

from __future__ import annotations

import asyncio
import gc
from typing import Final, Literal

from catchment.node import Node

TICK_S: Final = 0.1
# So many messages to the core since the last time: what they left is worth freezing.
FREEZE_MESSAGES: Final = 500
# With fewer filters than this, a look at all objects takes less than a tenth of a second.
FEW_FILTERS: Final = 2_000
# The least time between two looks at all objects.
COLLECT_S_MIN: Final = 3_600.0

Step = Literal["freeze", "collect"]


class Freezing:
    """Decides what to do at each tick."""

    def __init__(self, now: float) -> None:
        self._messages = 0
        self._collected_at = now
        self._has_frozen = False

    def step(self, now: float, messages: int, filters: int) -> Step | None:
        """`messages` is how many the core has been given in all, `filters` how many it has now."""
        if messages - self._messages >= FREEZE_MESSAGES:
            self._messages = messages
            self._has_frozen = True
            return "freeze"
        if self._has_frozen and filters < FEW_FILTERS and now - self._collected_at >= COLLECT_S_MIN:
            self._collected_at = now
            self._has_frozen = False
            return "collect"
        return None


async def keep_frozen(node: Node) -> None:
    """For the only broker of a process: it decides over all objects."""
    loop = asyncio.get_running_loop()
    freezing = Freezing(loop.time())
    while True:
        await asyncio.sleep(TICK_S)
        filters = sum(len(matcher) for matcher in node.core.matchers())
        step = freezing.step(loop.time(), node.messages_count, filters)
        if step == "collect":
            gc.unfreeze()
            gc.collect()
        if step is not None:
            # It moves lists of objects, without a look at any of them: some microseconds.
            gc.freeze()
