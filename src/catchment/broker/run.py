"""Runs a broker in this process until a signal stops it."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Callable

from catchment.broker.config import Config
from catchment.broker.garbage import keep_frozen
from catchment.broker.server import Broker
from catchment.routing.parts.recall import warm


def run_broker(config: Config, ready: Callable[[Broker], None] = lambda broker: None) -> bool:
    """Calls `ready` once the broker listens, and returns when the broker has stopped.

    On the first SIGINT or SIGTERM the broker lets clients and neighbors read what waits, then stops. On a second one it
    stops at once. Returns False if a second one cut it short.
    """
    try:
        import uvloop
    except ImportError:  # uvloop does not exist for every platform
        return asyncio.run(_running(config, ready))
    else:
        return uvloop.run(_running(config, ready))


async def _running(config: Config, ready: Callable[[Broker], None]) -> bool:
    warm()
    # All that is loaded by now stays until the end, so the garbage collector need not look at it again.
    gc.collect()
    gc.freeze()
    broker = Broker(config)
    await broker.start()
    loop = asyncio.get_running_loop()
    stopping: list[asyncio.Task[None]] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, lambda: stopping.append(loop.create_task(broker.stop())))
    ready(broker)
    freezing = loop.create_task(keep_frozen(broker.node))
    await broker.stopped()
    freezing.cancel()
    await asyncio.gather(*stopping, return_exceptions=True)
    return not broker.is_cut_short
