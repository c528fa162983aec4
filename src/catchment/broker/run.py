"""Runs one broker until it is told to stop: the loop and the signals."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Callable

from catchment.broker.config import Config
from catchment.broker.server import Broker
from catchment.routing.parts.recall import warm


def run_broker(config: Config, ready: Callable[[Broker], None] = lambda broker: None) -> bool:
    """Returns when the broker has stopped: on the first SIGINT or SIGTERM it drains, on the second it ends at once.
    Whether it has drained."""
    try:
        import uvloop
    except ImportError:  # not on every platform
        return asyncio.run(_running(config, ready))
    else:
        return uvloop.run(_running(config, ready))


async def _running(config: Config, ready: Callable[[Broker], None]) -> bool:
    warm()
    # What is loaded by now stays: a full collection need not look at it each time.
    gc.collect()
    gc.freeze()
    broker = Broker(config)
    await broker.start()
    loop = asyncio.get_running_loop()
    stopping: list[asyncio.Task[None]] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, lambda: stopping.append(loop.create_task(broker.stop())))
    ready(broker)
    await broker.stopped()
    await asyncio.gather(*stopping, return_exceptions=True)
    return not broker.is_cut_short
