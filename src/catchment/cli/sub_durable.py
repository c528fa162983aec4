"""`catchment sub --durable NAME`, `--group NAME`: nothing is missed while the command does not run.

With `--into FILE` each delivery is a line of JSON at the end of the file, with the log and the epoch that it has there.
The file is its own state: at the start the command reads out of it how far it is, and cuts off a last line that is not
whole. A delivery is acknowledged when its line is on the disk. So each is in the file exactly once, whatever is killed.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from catchment.cli.terminal import BadUsage

if TYPE_CHECKING:
    from catchment.client import Client, Delivered, LostLogSpan
    from catchment.client.deliveries import Queue
    from catchment.routing.messages import Wanted


class _Place(msgspec.Struct):
    log: str
    epoch: int


_place_of = msgspec.json.Decoder(_Place).decode


class DeliveriesFile:
    """The file of `--into`, open and locked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # By log, the epoch of its last line.
        self.positions: dict[str, int] = {}
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as problem:
            raise BadUsage(f"--into {path}: {problem.strerror}") from None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BadUsage(f"--into {path}: another process writes to this file") from None
        self._read()

    def _read(self) -> None:
        whole = 0
        with open(self._descriptor, "rb", closefd=False) as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break
                try:
                    place = _place_of(line)
                except msgspec.MsgspecError:
                    what = f"line {number} is none of catchment sub --into"
                    raise BadUsage(f"--into {self.path}: {what}: name another file") from None
                # Not the greatest, but the last: after `--since` the same records come again.
                self.positions[place.log] = place.epoch
                whole += len(line)
        if os.fstat(self._descriptor).st_size > whole:
            os.ftruncate(self._descriptor, whole)
            os.fsync(self._descriptor)

    def append(self, lines: Sequence[str]) -> None:
        """Returns when they are on the disk."""
        data = memoryview("".join(f"{line}\n" for line in lines).encode())
        while data:
            data = data[os.write(self._descriptor, data) :]
        os.fsync(self._descriptor)


class DurableReading:
    """One run of the command. `show` prints a delivery if there is no file."""

    def __init__(
        self,
        wanted_by_id: Mapping[str, Wanted],
        group: str | None,
        file: DeliveriesFile | None,
        since: Since | None,
        count: int | None,
        show: Callable[[Delivered], None],
        is_quiet: bool,
    ) -> None:
        self._wanted_by_id, self._group, self._file = wanted_by_id, group, file
        self._since, self._count, self._show, self._is_quiet = since, count, show, is_quiet

    async def run(self, client: Client) -> int:
        queue = client.all_deliveries(acks="manual")
        missing: set[str] = set()
        for id, wanted in self._wanted_by_id.items():
            # Each has deliveries of its own besides those of all: they count as taken at once.
            subscription = await client.subscribe(
                wanted, id=id, durable=self._group is None, group=self._group, take=lambda _: None
            )
            missing.update(await subscription.effective)
        if self._since is not None:
            who = self._group or client.identity
            await client.rewind(log=self._since.log, epoch=self._since.epoch, since=self._since.time, identity=who)
        if not self._is_quiet:
            who = f"group {self._group}" if self._group else client.identity
            print(f"subscribed durably at {client.broker} as {who}", file=sys.stderr, flush=True)
        if missing:
            names = ", ".join(sorted(missing))
            print(f"not reached, and told later: the storages {names}", file=sys.stderr, flush=True)
        await self._read_all(queue)
        return 0

    async def _read_all(self, queue: Queue) -> None:
        left = self._count
        while left is None or left > 0:
            try:
                batch = [await queue.get()]
            except StopAsyncIteration:
                return
            room = None if left is None else left - 1
            # All that has come meanwhile shares a sync.
            batch += queue.waiting_now(room)
            left = None if left is None else left - len(batch)
            await self._take(batch)

    async def _take(self, batch: Sequence[Delivered]) -> None:
        if self._file is None:
            for delivery in batch:
                self._show(delivery)
        else:
            lines = [json.dumps(line_of(delivery), ensure_ascii=False) for delivery in batch]
            await asyncio.get_running_loop().run_in_executor(None, self._file.append, lines)
        for delivery in batch:
            delivery.ack()


class Since(msgspec.Struct, frozen=True):
    """Where `--since` goes back to: a time, or an epoch of a log."""

    time: datetime | None = None
    log: str = ""
    epoch: int = 0


def line_of(delivery: Delivered) -> dict[str, Any]:
    """A line of the file."""
    notification = delivery.notification
    line: dict[str, Any] = {
        "source": notification.source,
        "seq": notification.seq,
        "log": delivery.log,
        "epoch": delivery.epoch,
        "subscriptions": list(delivery.subscriptions),
        "notification": notification.to_json(),
    }
    return {**line, "lost": delivery.lost} if delivery.lost else line


def print_lost_log(lost: LostLogSpan) -> None:
    what = f"the storage {lost.storage} has lost its log: what it kept for {lost.identity} and was not taken is gone"
    print(what, file=sys.stderr, flush=True)
