"""`catchment pub --ack stored`: publishes, and ends when a storage has everything on disk."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from catchment.cli.terminal import EXIT_FAILED
from catchment.errors import CatchmentError
from catchment.model.notification import Notification

if TYPE_CHECKING:
    from catchment.client import Client, Kept
    from catchment.model.advertisement import Advertisement


class StoredPublication:
    """One run of the command. `lines` are the notifications, each with the place that it was read from."""

    def __init__(
        self,
        lines: Iterable[tuple[str, Notification | CatchmentError]],
        advertisement: Advertisement | None,
        source: str | None,
        state: str | None,
        wait_s: float,
        as_json: bool,
    ) -> None:
        self._lines, self._advertisement, self._source = lines, advertisement, source
        self._state, self._wait_s, self._as_json = state, wait_s, as_json
        self._bad = self._kept = 0
        self._last: Kept | None = None
        self._waiting: dict[asyncio.Future[Kept], str] = {}
        # Set whenever something was confirmed or refused.
        self._progress = asyncio.Event()

    async def run(self, client: Client) -> int:
        if (rest := client.unkept_count) and not self._as_json:
            print(f"{rest:,} notifications from before wait in {self._state}: they go first", file=sys.stderr)
        if self._advertisement is not None:
            await client.advertise(self._advertisement, identity=self._source)
        for place, notification in self._lines:
            if isinstance(notification, CatchmentError):
                self._complain(place, notification)
            elif not await self._publish(client, place, notification):
                return self._given_up(client)
        # Also what earlier runs have left in the state.
        while client.unkept_count or self._waiting:
            if not await self._has_progress(client):
                return self._given_up(client)
        self._print_end()
        return EXIT_FAILED if self._bad else 0

    async def _publish(self, client: Client, place: str, notification: Notification) -> bool:
        """False if there is no room, and none becomes free."""
        while True:
            try:
                future = client.publish_nowait(notification)
            except CatchmentError as problem:
                if client.unkept_count == 0:
                    self._complain(place, problem)
                    return True
                if not await self._has_progress(client):
                    return False
            else:
                break
        self._waiting[future] = place
        future.add_done_callback(self._answered)
        # Lets the client send, so that what is read slowly goes at once.
        await asyncio.sleep(0)
        return True

    def _answered(self, future: asyncio.Future[Kept]) -> None:
        place = self._waiting.pop(future)
        problem = future.exception()
        if problem is None:
            self._kept += 1
            self._last = future.result()
            if self._as_json:
                print(json.dumps(kept_json(future.result())), flush=True)
        elif isinstance(problem, CatchmentError):
            self._complain(place, problem)
        self._progress.set()

    async def _has_progress(self, client: Client) -> bool:
        """Waits until something is confirmed or refused; False if nothing is for as long as the user will wait."""
        before = client.unkept_count
        loop = asyncio.get_running_loop()
        until = loop.time() + self._wait_s
        while client.unkept_count >= before and loop.time() < until:
            self._progress.clear()
            # What was queued by an earlier run has nobody who waits for it: its confirmation is seen by the count.
            try:
                async with asyncio.timeout(0.05):
                    await self._progress.wait()
            except TimeoutError:
                continue
            return True
        return client.unkept_count < before

    def _given_up(self, client: Client) -> int:
        count = client.unkept_count
        where = f"they wait in {self._state}: run the command again to send them"
        what = (
            where if self._state is not None else "nobody knows which are; give --state FILE, and another run goes on"
        )
        print(f"{count:,} notifications are not kept after {self._wait_s:g} s: {what}", file=sys.stderr)
        return EXIT_FAILED

    def _complain(self, place: str, problem: CatchmentError) -> None:
        self._bad += 1
        print(f"{place}: {problem}" if place else f"error: {problem}", file=sys.stderr)

    def _print_end(self) -> None:
        if self._as_json:
            return
        rest = f", {self._bad:,} bad" if self._bad else ""
        where = "" if self._last is None else f" by {self._last.storage}, up to {self._last.source} {self._last.seq}"
        print(f"{self._kept:,} notifications kept{where}{rest}", file=sys.stderr)


def kept_json(kept: Kept) -> dict[str, Any]:
    return {"source": kept.source, "seq": kept.seq, "storage": kept.storage, "log": kept.log}
