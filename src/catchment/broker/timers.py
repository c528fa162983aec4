"""The timers of a broker's core, on the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from catchment.routing.messages import SetTimer, Time


class Timers:
    """`fired` is told the name of each timer when its time has come."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now: Callable[[], Time], fired: Callable[[str], None]) -> None:
        self._loop, self._now, self._fired = loop, now, fired
        self._handles: dict[str, asyncio.TimerHandle] = {}
        self._idle: set[str] = set()
        self._is_stopped = False

    def set(self, timer: SetTimer) -> None:
        """Replaces the timer of the same name."""
        if self._is_stopped:
            return
        if (before := self._handles.pop(timer.name, None)) is not None:
            before.cancel()
        self._handles[timer.name] = self._loop.call_later(max(0, timer.at - self._now()) / 1e6, self._fire, timer.name)
        (self._idle.add if timer.is_idle else self._idle.discard)(timer.name)

    def _fire(self, name: str) -> None:
        del self._handles[name]
        self._idle.discard(name)
        self._fired(name)

    def stop(self) -> None:
        self._is_stopped = True
        for handle in self._handles.values():
            handle.cancel()

    @property
    def count(self) -> int:
        """Timers that wait to fire, without those that are set in a network at rest too."""
        return len(self._handles) - len(self._idle)
