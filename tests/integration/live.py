"""Brokers that run beside a test: a loop in a thread of its own."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

from catchment.broker.config import Address, Config
from catchment.broker.server import Broker

# Less than the heartbeat of a stream, which else would keep a reader waiting for ever.
WAIT_S = 12.0
ANY_PORT = Address("127.0.0.1", 0)


def until(is_so: Callable[[], Any], what: str = "it") -> Any:
    """Waits until `is_so` returns something true, and returns that."""
    end = time.monotonic() + WAIT_S
    while not (result := is_so()):
        assert time.monotonic() < end, f"{what} did not come about in {WAIT_S:.0f} s"
        time.sleep(0.005)
    return result


class Live:
    """`with Live() as live: broker = live.broker("north")`."""

    def __enter__(self) -> "Live":
        self.loop = asyncio.new_event_loop()
        self.brokers: list[Broker] = []
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for broker in self.brokers:
            self.call(broker.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(WAIT_S)

    def do(self, work: Callable[[], Any]) -> Any:
        """Calls it on the loop."""

        async def done() -> Any:
            return work()

        return self.call(done())

    def broker(self, name: str = "north", **config: Any) -> Broker:
        async def started() -> Broker:
            broker = Broker(Config(name, ANY_PORT, **{"http": ANY_PORT, **config}))
            await broker.start()
            return broker

        self.brokers.append(self.call(started()))
        return self.brokers[-1]


def url_of(broker: Broker) -> str:
    assert broker.http is not None
    return f"http://{broker.http.address}"
