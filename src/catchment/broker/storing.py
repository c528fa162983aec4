"""The store of a broker, and the thread that it lives in.

A store blocks, so one thread does all that is asked of it, and the loop goes on meanwhile. The loop gives it what the
core persists and fetches. The thread gives back `Stored`, `Fetched`, `StoreDown` and `StoreUp`, and the loop tells the
node.

write     Group commit without waiting: the thread writes all that is there in one batch, up to BATCH_WRITES_MAX. What
          comes while that is synced is the next batch. So a lone publication waits for nobody, and many share a sync.
read      Between two batches, at most READS_MAX: neither waits for long.
collect   Every COLLECT_S the store collects what everybody has taken, in slices of some milliseconds: between two
          batches too, but then for no more than one in COLLECT_SHARE of the time.
idle      The store looks for damage (`scrub`).
full      `StoreDown`: what was not written yet is dropped, and the core refuses what is to be kept. Then `StoreUp` with
          `is_full`: acknowledgements are written all the same, so that room can become free. Each PROBE_S the thread
          looks whether there is room, and says `StoreUp` without it.
broken    `StoreDown`, finally: nothing is tried again before the broker is started anew.
end       `flush` returns when all that was accepted is synced and told. `close` ends the thread.

Between the thread's `StoreDown` or `StoreUp` and the loop's hearing of it, the core may persist more that does not fit
any more. The loop puts a mark into the queue when it tells `StoreUp`: the thread drops what is before it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from catchment.broker.config import Config
from catchment.broker.keeping import Keeping
from catchment.routing.messages import Time
from catchment.routing.stored import Fetch, Persist, Stored, StoreDown, StoreMessage, StoreUp
from catchment.store.interface import Store, StoreError, StoreFullError, StoreStatus
from catchment.store.opening import open_store

# Writes of one batch. A larger batch saves little, and keeps those that wait for its first record waiting.
BATCH_WRITES_MAX: Final = 4_096
# Reads between two batches: some milliseconds.
READS_MAX: Final = 8
COLLECT_S: Final = 1.0
COLLECT_SHARE: Final = 4
PROBE_S: Final = 1.0
# Records that one look for damage checks, and how often: some milliseconds in five seconds. Forty million records are
# looked through in a day of rest.
SCRUBBED_MAX: Final = 2_048
SCRUB_S: Final = 5.0
# Writes that wait for the disk: past it publishers get no credit until half of them are written.
WAITING_MAX: Final = 32_768
# How old a report of what is in the store may be: counting what waits for whom takes a while.
REPORT_S: Final = 1.0

T = TypeVar("T")
log = logging.getLogger("catchment.broker")


class _Mark:
    """What is before it in the queue was persisted before the core heard `StoreUp`."""


_Work = Persist | Fetch | _Mark | Callable[[], None]


class Storing:
    """A `StoreOutlet`. `say` tells the node; `relieved` is called when the disk has caught up."""

    def __init__(
        self,
        store: Store,
        loop: asyncio.AbstractEventLoop,
        now: Callable[[], Time],
        broker: str = "",
    ) -> None:
        self._store, self._loop, self._now, self._broker = store, loop, now, broker
        # What was in it at the start.
        self.opened = store.opened()
        self.say: Callable[[StoreMessage], None] = lambda message: None
        self.relieved: Callable[[], None] = lambda: None
        self.keeping = Keeping()
        # For people: why it takes nothing, or no records. Empty if it works.
        self.problem = ""
        self.is_broken = False
        self.batches = self.writes = 0
        # Writes that were given to the thread and are not done.
        self._waiting_count = 0
        self._was_behind = False
        self._work: deque[_Work] = deque()
        self._wake = threading.Event()
        self._is_ending = False
        # The thread's: whether it drops what is persisted until the next mark, and whether there is no room.
        self._drops = False
        self._is_full = False
        self._collect_at = self._scrub_at = self._probe_at = 0.0
        self._has_collectable = True
        # What the thread has said and the loop has not told yet.
        self._said: deque[StoreMessage] = deque()
        # What was in the store when somebody asked last, and when that was.
        self.last_report: StoreStatus | None = None
        self._reported_at = -REPORT_S
        self._reporting: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name="catchment store", daemon=True)

    def start(self, is_needed: bool = True) -> None:
        """Starts the thread; if it is not needed, closes the store."""
        if is_needed:
            self._thread.start()
        else:
            self._store.close()

    # --- the loop's side ---

    def persist(self, persist: Persist) -> None:
        self._waiting_count += len(persist.writes)
        self.keeping.gave(persist.serial)
        self._put(persist)

    def fetch(self, fetch: Fetch) -> None:
        self._put(fetch)

    @property
    def waiting_count(self) -> int:
        """Writes that wait for the disk."""
        return self._waiting_count

    @property
    def is_behind(self) -> bool:
        """Whether so much waits for the disk that publishers should wait. `relieved` tells when it no longer does."""
        if self._waiting_count > WAITING_MAX:
            self._was_behind = True
        return self._was_behind

    def _put(self, work: _Work) -> None:
        self._work.append(work)
        if not self._wake.is_set():
            self._wake.set()

    async def report(self) -> StoreStatus | None:
        """What is in the store, not older than REPORT_S; None if it has failed. `last_report` is the same."""
        if self.is_broken or not self._thread.is_alive():
            return self.last_report
        if self._loop.time() - self._reported_at >= REPORT_S:
            with suppress(StoreError):
                self.last_report = await self.run(self._store.status)
                self._reported_at = self._loop.time()
        return self.last_report

    def report_then(self, go_on: Callable[[], None]) -> None:
        """Calls when `last_report` is fresh."""

        async def reporting() -> None:
            await self.report()
            go_on()

        task = self._loop.create_task(reporting())
        self._reporting.add(task)
        task.add_done_callback(self._reporting.discard)

    async def run(self, work: Callable[[], T]) -> T:
        """Does something in the thread of the store, after all that was asked before."""
        future: asyncio.Future[T] = self._loop.create_future()

        def done(result: T | None, problem: BaseException | None) -> None:
            if future.done():
                return
            if problem is None:
                future.set_result(result)  # type: ignore[arg-type]
            else:
                future.set_exception(problem)

        def do() -> None:
            try:
                result = work()
            except BaseException as problem:
                self._loop.call_soon_threadsafe(done, None, problem)
            else:
                self._loop.call_soon_threadsafe(done, result, None)

        self._put(do)
        return await future

    async def flush(self) -> None:
        """Returns when all that was persisted so far is written, or will never be, and the node was told."""
        if self._thread.is_alive():
            await self.run(lambda: None)
            self._tell()

    async def close(self) -> None:
        """Writes what is there, and ends the thread."""
        self._is_ending = True
        self._wake.set()
        if self._thread.is_alive():
            await self._loop.run_in_executor(None, self._thread.join)

    def _tell(self) -> None:
        """Tells the node what the thread has said, of several `Stored` in a row the last."""
        while self._said:
            message = self._said.popleft()
            if isinstance(message, Stored) and self._said and isinstance(self._said[0], Stored):
                continue
            if isinstance(message, StoreUp):
                self._put(_Mark())
            self.say(message)
            self.keeping.heard(message)
        if self._was_behind and self._waiting_count <= WAITING_MAX // 2:
            self._was_behind = False
            self.relieved()

    # --- the thread's side ---

    def _run(self) -> None:
        try:
            while not (self._is_ending and not self._work):
                self._wake.wait(None if self._is_ending else self._rest_s())
                self._wake.clear()
                self._do_all()
                if not self._work and not self._is_ending:
                    self._guarded(self._tend)
        except BaseException:
            log.error("the store has failed", extra={"broker": self._broker}, exc_info=True)
            self._break("an internal error of the broker: see its log")
        finally:
            self._store.close()

    def _do_all(self) -> None:
        """All that is there, in rounds of a batch of writes and some reads."""
        reads: deque[Fetch] = deque()
        while self._work or reads:
            self._write(self._next_batch(reads))
            for _ in range(min(READS_MAX, len(reads))):
                self._read(reads.popleft())
            # Also if there is always something to write: the file must not grow for ever.
            self._guarded(self._collect_if_due)

    def _next_batch(self, reads: deque[Fetch]) -> list[Persist]:
        """The next writes, in order. Other work is done when what was persisted before it is written."""
        batch: list[Persist] = []
        count = 0
        while self._work and count < BATCH_WRITES_MAX:
            work = self._work[0]
            if not isinstance(work, Persist | Fetch) and batch:
                break
            self._work.popleft()
            if isinstance(work, Persist):
                if self._drops:
                    self._loop.call_soon_threadsafe(self._has_done, len(work.writes))
                    continue
                batch.append(work)
                count += len(work.writes)
            elif isinstance(work, Fetch):
                reads.append(work)
            elif isinstance(work, _Mark):
                self._drops = False
            else:
                work()
        return batch

    def _write(self, batch: list[Persist]) -> None:
        if not batch:
            return
        count = sum([len(persist.writes) for persist in batch])
        if self._drops or self.is_broken:
            self._loop.call_soon_threadsafe(self._has_done, count)
            return
        try:
            self._store.write(batch)
        except StoreFullError as problem:
            self._fill(str(problem))
        except Exception as problem:
            self._fail(problem)
        else:
            self.batches += 1
            self.writes += count
            self._has_collectable = True
            self._said.append(Stored(batch[-1].serial))
        self._loop.call_soon_threadsafe(self._has_done, count)

    def _has_done(self, count: int) -> None:
        self._waiting_count -= count
        self._tell()

    def _read(self, fetch: Fetch) -> None:
        if not self.is_broken:
            fetched = self._guarded(lambda: self._store.read(fetch))
            if fetched is not None:
                self._post(fetched)

    def _guarded(self, work: Callable[[], T]) -> T | None:
        try:
            return work()
        except StoreFullError as problem:
            self._fill(str(problem))
        except Exception as problem:
            self._fail(problem)
        return None

    def _post(self, *messages: StoreMessage) -> None:
        self._said.extend(messages)
        self._loop.call_soon_threadsafe(self._tell)

    # --- idle ---

    def _rest_s(self) -> float:
        """How long to wait for work before the next look at what else is due."""
        if self._has_collectable:
            return max(0.0, min(COLLECT_S, PROBE_S, self._collect_at - time.monotonic()))
        return min(COLLECT_S, PROBE_S, SCRUB_S)

    def _tend(self) -> None:
        """What a store needs now and then."""
        if self.is_broken:
            return
        now = time.monotonic()
        if self._is_full and now >= self._probe_at:
            self._probe_at = now + PROBE_S
            if self._store.probe():
                self._empty()
        if not self._collect_if_due() and now >= self._scrub_at:
            # A little of it at a time, as long as nobody wants anything else.
            self._scrub_at = now + SCRUB_S
            self._store.scrub(SCRUBBED_MAX)

    def _collect_if_due(self) -> bool:
        began = time.monotonic()
        if self.is_broken or not self._has_collectable or began < self._collect_at:
            return False
        has_more = self._collect()
        took = time.monotonic() - began
        self._collect_at = began + (COLLECT_SHARE * took if has_more else COLLECT_S)
        return True

    def _collect(self) -> bool:
        """Whether there is more to collect at once."""
        collected = self._store.collect(self._now())
        self._has_collectable = collected.more or bool(collected.records)
        for identity, count in collected.lost:
            log.warning("records dropped", extra={"broker": self._broker, "identity": identity, "count": count})
        return collected.more

    # --- full and broken ---

    def _fill(self, reason: str) -> None:
        log.error("store full", extra={"broker": self._broker, "reason": reason})
        self._is_full = self._drops = True
        self.problem = reason
        self._probe_at = time.monotonic() + PROBE_S
        self._post(StoreDown(reason), StoreUp(self._store.opened(), is_full=True))

    def _empty(self) -> None:
        log.warning("store has room again", extra={"broker": self._broker})
        self._is_full, self._drops, self.problem = False, True, ""
        self._post(StoreUp(self._store.opened()))

    def _fail(self, problem: Exception) -> None:
        if not isinstance(problem, StoreError):
            log.error("the store has failed", extra={"broker": self._broker}, exc_info=problem)
        else:
            log.error("the store has failed", extra={"broker": self._broker, "reason": str(problem)})
        self._break(str(problem))

    def _break(self, reason: str) -> None:
        self.problem, self.is_broken, self._drops = reason, True, True
        self._post(StoreDown(reason, is_final=True))


def opened_store(config: Config, loop: asyncio.AbstractEventLoop, now: Callable[[], Time]) -> Storing | None:
    """The store that the configuration names, not started yet; None if it names none. StoreError if it cannot be
    used."""
    if not config.store.url:
        return None
    return Storing(open_store(config.store.url, config.store.retention), loop, now, config.name)
