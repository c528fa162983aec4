"""What a broker does when it has time: gets ready for the next notifications."""

from __future__ import annotations

import asyncio
from typing import Final

from catchment.node import Node

# Nobody has changed what is wanted for so long: more changes are not expected at once.
IDLE_S: Final = 0.1


async def keep_prepared(node: Node) -> None:
    """Prepares the core's matchers once nobody has changed what is wanted for IDLE_S. Otherwise the next notification
    would wait for that: some ten milliseconds with a hundred thousand subscriptions, and half a second to merge their
    indexes. It runs in a thread, and most of it in kernels that let others run: what comes meanwhile is served."""
    loop = asyncio.get_running_loop()
    prepared = before = 0
    while True:
        await asyncio.sleep(IDLE_S)
        now = node.messages_count
        if now == before != prepared:
            for matcher in node.core.matchers():
                await loop.run_in_executor(None, matcher.prepare)
            prepared = now
        before = now
