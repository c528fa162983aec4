"""The stores of simulated brokers: disks that survive crashes, and take their time.

A write is put at once, and synced after a delay that is drawn from the store's own generator; only then the node hears
`Stored`. What is written meanwhile goes together in the next write, as in the live broker. A read answers after a delay
too.

    kill          all that was put is there
    power loss    what was synced is there, and some of the writes after it, drawn
    full          the next write fails: the node hears `StoreDown`, and `StoreUp` once there is room again
    failing       the disk fails for good, until the broker is started again
    slow          delays are multiplied
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, Protocol

from msgspec import Struct

from catchment.node import Node
from catchment.routing.messages import Time
from catchment.routing.stored import Fetch, Opened, Persist, Stored, StoreDown, StoreMessage, StoreUp
from catchment.sim.network import MILLISECOND
from catchment.store.interface import Retention, StoreBrokenError, StoreFullError
from catchment.store.memory import MemoryDisk, MemoryStore

# How often a full store is tried again.
PROBE_US: Final = 20 * MILLISECOND


class DiskTimes(Struct, frozen=True):
    """How long a write and a read take: from `least` to `most`, drawn."""

    least: Time = 100
    most: Time = 3 * MILLISECOND


class Later(Protocol):
    """Does something after a time. A run does not wait for what `is_idle`."""

    def __call__(self, delay: Time, work: Callable[[], None], /, *, is_idle: bool = False) -> None: ...


class SimStore:
    """The store of one broker. It outlives the broker's nodes; `later` schedules, `node` finds the node that runs."""

    def __init__(
        self,
        log: str,
        later: Later,
        node: Callable[[], Node | None],
        rng: random.Random,
        times: DiskTimes,
        retention: Retention | None = None,
    ) -> None:
        self.log = log
        self.disk = MemoryDisk(log)
        self.times = times
        # Delays are multiplied by it.
        self.slowness = 1
        self._later, self._node, self._rng, self._retention = later, node, rng, retention
        self.store: MemoryStore | None = None
        # Grows with each opening: what was scheduled before does not happen.
        self._opening = 0
        self._waiting: list[Persist] = []
        self._is_writing = False
        self._is_down = False

    def open(self) -> Opened:
        """A broker has been started."""
        self.store = self.disk.open(self._retention)
        self._opening += 1
        self._waiting, self._is_writing, self._is_down = [], False, False
        return self.store.opened()

    def crash(self, is_power_loss: bool) -> None:
        """The broker, or the whole machine, is gone."""
        if is_power_loss:
            self.disk.power_loss(self._rng.randrange(2) if self._is_writing else 0)
        else:
            self.disk.kill()
        self.store = None
        self._opening += 1

    def collect(self, now: Time) -> None:
        if self.store is not None and not self.store.is_closed:
            self.store.collect(now)

    # --- the node's outlet ---

    def persist(self, persist: Persist) -> None:
        self._waiting.append(persist)
        if not self._is_writing and not self._is_down:
            self._write()

    def fetch(self, fetch: Fetch) -> None:
        self._after(lambda: self._read(fetch))

    def _write(self) -> None:
        batch, self._waiting = self._waiting, []
        assert self.store is not None, "a node writes only while its store is open"
        try:
            self.store.put(batch)
        except (StoreFullError, StoreBrokenError) as problem:
            self._fail(problem)
            return
        self._is_writing = True
        self._after(lambda: self._sync(batch[-1].serial))

    def _sync(self, serial: int) -> None:
        assert self.store is not None
        self._is_writing = False
        try:
            self.store.sync()
        except StoreBrokenError as problem:
            self._fail(problem)
            return
        self._say(Stored(serial))
        if self._waiting and not self._is_writing and not self._is_down:
            self._write()

    def _read(self, fetch: Fetch) -> None:
        if self.store is not None and not self.store.is_closed and not self._is_down:
            self._say(self.store.read(fetch))

    def _fail(self, problem: StoreFullError | StoreBrokenError) -> None:
        self._is_down, self._waiting = True, []
        is_final = isinstance(problem, StoreBrokenError)
        # Not at once: a node must not hear of its store while it performs what its core wants.
        self._after(lambda: self._say(StoreDown(str(problem), is_final)))
        if not is_final:
            self._later(PROBE_US, self._guarded(self._probe), is_idle=True)

    def _probe(self) -> None:
        assert self.store is not None
        if not self.store.probe():
            self._later(PROBE_US, self._guarded(self._probe), is_idle=True)
            return
        self._is_down, self._waiting = False, []
        self._say(StoreUp(self.store.opened()))

    def _say(self, message: StoreMessage) -> None:
        node = self._node()
        if node is not None:
            node.store_said(message)

    def _after(self, work: Callable[[], None]) -> None:
        delay = self._rng.randint(self.times.least, self.times.most) * self.slowness
        self._later(delay, self._guarded(work))

    def _guarded(self, work: Callable[[], None]) -> Callable[[], None]:
        opening = self._opening
        return lambda: work() if opening == self._opening else None
