"""Who waits until everything that was persisted so far is stored: publishers over HTTP that ask for it.

Many may wait for one sync: nobody waits for a sync of its own.
"""

from __future__ import annotations

import asyncio
from collections import deque

from catchment.routing.stored import Stored, StoreDown, StoreMessage, StoreUp
from catchment.store.interface import StoreError


class Keeping:
    """The loop tells it each serial that it gives to the store, and all that the store says."""

    def __init__(self) -> None:
        self._given = self._stored = 0
        # In the order of their serials.
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def gave(self, serial: int) -> None:
        self._given = serial

    def heard(self, message: StoreMessage) -> None:
        match message:
            case Stored(serial):
                self._stored = serial
                while self._waiting and self._waiting[0][0] <= serial:
                    _, future = self._waiting.popleft()
                    if not future.done():
                        future.set_result(None)
            case StoreDown(reason):
                # What was given since the last `Stored` is not kept, or nobody knows.
                while self._waiting:
                    _, future = self._waiting.popleft()
                    if not future.done():
                        future.set_exception(StoreError(f"the store takes nothing now: {reason}"))
            case StoreUp(opened):
                # The core numbers on from here.
                self._given = self._stored = opened.serial

    async def all_stored(self) -> None:
        """Returns when all that was given until now is stored; StoreError if it is not kept."""
        if self._given > self._stored:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((self._given, future))
            await future
