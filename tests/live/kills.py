"""Storing brokers that are killed under load: five of them, two publishers and three durable readers.

Each publisher numbers its notifications 1, 2, 3, …, and goes on while brokers are killed and started again; it goes to
another broker when its own is gone. One reader does the same. One is `catchment sub --into`, which is killed too. One
connects now and then, as a new process would, with its state file. In the end each reader must have each notification
that a publisher was told is kept, exactly once, in the order of its publisher; and all of them are, when all brokers
are back.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from catchment import Notification
from catchment.client import Client, connect
from catchment.client import publishing as publishing_module
from catchment.client import reconnecting as reconnecting_module
from catchment.errors import LimitError
from tests.live.hosts import RETRY_S_FIRST, RETRY_S_MOST, ROOT, Hosts
from tests.live.runs import free_ports

BROKERS = ("a", "b", "c", "d", "e")
# A ring, so that one dead broker leaves a path between all others.
LINKS = (("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("e", "a"))
PUBLISHERS = ("p", "q")
# Notifications that a publisher has under way, and how many it makes in a turn.
UNDER_WAY_MAX, BURST = 400, 20
# How long everything may take to come when all brokers are back: there is no such time in the promise.
SETTLE_S_MAX = 60.0
# One in so many kills takes `catchment sub` along.
KILL_READER_EVERY = 3


@dataclass(frozen=True)
class KillRun:
    seed: int
    kills: int


@dataclass
class KillOutcome:
    run: KillRun
    violation: str | None = None
    kept: int = 0
    delivered: int = 0

    def __str__(self) -> str:
        return f"{self.run}: {self.violation}"


def outcome_of(run: KillRun, hosts: Hosts) -> KillOutcome:
    reconnecting_module.RETRY_S_FIRST, reconnecting_module.RETRY_S_MOST = RETRY_S_FIRST, RETRY_S_MOST
    publishing_module.RESEND_S_FIRST, publishing_module.RESEND_S_MOST = RETRY_S_FIRST, RETRY_S_MOST
    with tempfile.TemporaryDirectory(prefix="catchment-kills-") as directory:
        return asyncio.run(_Killing(run, hosts, Path(directory)).play())


@dataclass
class _Publisher:
    name: str
    client: Client
    # The last number that was given to the client.
    last: int = 0
    under_way: set[asyncio.Future[Any]] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    def publish(self) -> None:
        """Some more, as many as may be under way."""
        for _ in range(BURST):
            if len(self.under_way) >= UNDER_WAY_MAX:
                return
            with suppress(LimitError):
                future = self.client.publish_nowait(Notification({"from": self.name, "n": self.last + 1}))
                self.last += 1
                self.under_way.add(future)
                future.add_done_callback(self._done)

    def _done(self, future: asyncio.Future[Any]) -> None:
        self.under_way.discard(future)
        if (problem := future.exception()) is not None:
            self.problems.append(repr(problem))


class _Killing:
    def __init__(self, run: KillRun, hosts: Hosts, directory: Path) -> None:
        self._run, self._hosts, self._directory = run, hosts, directory
        self._rng = random.Random(run.seed)
        self._addresses = dict(zip(BROKERS, (f"127.0.0.1:{port}" for port in free_ports(len(BROKERS))), strict=True))
        self._processes: dict[str, int] = {}
        self._outcome = KillOutcome(run)
        # By reader and publisher, the numbers in the order in which they came.
        self._came: dict[str, dict[str, list[int]]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    # --- brokers ---

    def _write_configs(self) -> None:
        for name in BROKERS:
            neighbors = [self._addresses[second] for first, second in LINKS if first == name]
            text = f'name = "{name}"\nlisten = "{self._addresses[name]}"\nneighbors = {json.dumps(neighbors)}\n'
            text += f'[store]\nurl = "{self._directory / name}.db"\n'
            (self._directory / f"{name}.toml").write_text(text)

    def _start(self, name: str) -> None:
        self._processes[name] = self._hosts.start(self._directory / f"{name}.toml")

    def _urls(self, start: int) -> list[str]:
        """All brokers, from one of them on."""
        return [f"catchment://{self._addresses[BROKERS[(start + n) % len(BROKERS)]]}" for n in range(len(BROKERS))]

    # --- the run ---

    async def play(self) -> KillOutcome:
        self._write_configs()
        for name in BROKERS:
            self._start(name)
        publishers = []
        sub: subprocess.Popen[bytes] | None = None
        try:
            await self._subscribed()
            for place, name in enumerate(PUBLISHERS):
                state = self._directory / f"{name}.state"
                publishers.append(_Publisher(name, await connect(self._urls(2 * place), identity=name, state=state)))
            self._tasks = [
                asyncio.ensure_future(self._read_on("steady")),
                asyncio.ensure_future(self._read_again_and_again("roaming")),
            ]
            sub = self._sub()
            for number in range(self._run.kills):
                await self._publish_a_while(publishers)
                sub = await self._kill_one(number, sub)
            await self._settle(publishers)
            self._check(publishers)
        except TimeoutError:
            self._outcome.violation = f"not all came within {SETTLE_S_MAX:g} s: {self._missing(publishers)}"
        finally:
            await self._end(publishers, sub)
        return self._outcome

    async def _subscribed(self) -> None:
        """All readers are known at all storages before anything is published."""
        for reader in ("steady", "roaming", "file"):
            self._came[reader] = {name: [] for name in PUBLISHERS}
            state = self._directory / f"{reader}.state"
            async with connect(self._urls(0), identity=reader, state=state, offline=True) as client:
                async with asyncio.timeout(SETTLE_S_MAX):
                    while not await self._is_whole(client):
                        await asyncio.sleep(0.02)
                    subscription = await client.subscribe("n > 0", id="sub", durable=True)
                    assert await subscription.effective == ()

    async def _is_whole(self, client: Client) -> bool:
        storages = (await client.look())["storages"]
        return len([each for each in storages if each["is_reached"]]) == len(BROKERS)

    async def _publish_a_while(self, publishers: list[_Publisher]) -> None:
        for _ in range(self._rng.randrange(2, 12)):
            for publisher in publishers:
                publisher.publish()
            await asyncio.sleep(0.01)

    async def _kill_one(self, number: int, sub: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
        name = self._rng.choice(BROKERS)
        if number % KILL_READER_EVERY == 0:
            sub.kill()
            sub.wait()
            sub = self._sub()
        self._hosts.end(self._processes[name], signal.SIGKILL)
        # Sometimes it is back before anybody has noticed, sometimes others have moved.
        await asyncio.sleep(self._rng.choice((0.0, 0.05, 0.2)))
        self._start(name)
        return sub

    async def _settle(self, publishers: list[_Publisher]) -> None:
        async with asyncio.timeout(SETTLE_S_MAX):
            while any(publisher.under_way for publisher in publishers):
                await asyncio.sleep(0.02)
            expected = {publisher.name: publisher.last for publisher in publishers}
            while not all(self._has_all(reader, expected) for reader in self._came):
                self._read_file()
                for task in self._tasks:
                    if task.done():
                        task.result()  # a reader never ends by itself
                await asyncio.sleep(0.05)

    def _has_all(self, reader: str, expected: dict[str, int]) -> bool:
        return all(len(set(self._came[reader][name])) >= count for name, count in expected.items())

    def _missing(self, publishers: list[_Publisher]) -> str:
        under_way = {publisher.name: len(publisher.under_way) for publisher in publishers}
        expected = {publisher.name: publisher.last for publisher in publishers}
        came = {reader: {name: len(numbers) for name, numbers in each.items()} for reader, each in self._came.items()}
        return f"published {expected}, not kept {under_way}, came {came}"

    def _check(self, publishers: list[_Publisher]) -> None:
        problems = [f"{each.name}: {problem}" for each in publishers for problem in each.problems]
        for reader, by_publisher in self._came.items():
            for publisher in publishers:
                numbers = by_publisher[publisher.name]
                self._outcome.delivered += len(numbers)
                if numbers != [*range(1, publisher.last + 1)]:
                    problems.append(f"{reader} of {publisher.name}: {_first_wrong(numbers)}")
        self._outcome.kept = sum(publisher.last for publisher in publishers)
        self._outcome.violation = "; ".join(problems) or None

    async def _end(self, publishers: list[_Publisher], sub: subprocess.Popen[bytes] | None) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for publisher in publishers:
            await publisher.client.close()
        if sub is not None:
            sub.kill()
            sub.wait()
        for process in self._processes.values():
            self._hosts.end(process, signal.SIGKILL)

    # --- readers ---

    def _note(self, reader: str, notification: Any) -> None:
        self._came[reader][notification["from"]].append(notification["n"])

    async def _read_on(self, reader: str) -> None:
        """One that is always there, at one broker or another."""
        state = self._directory / f"{reader}.state"
        async with connect(self._urls(1), identity=reader, state=state, offline=True) as client:
            subscription = await client.subscribe("n > 0", id="sub", durable=True)
            async for delivery in subscription:
                self._note(reader, delivery.notification)

    async def _read_again_and_again(self, reader: str) -> None:
        """One that comes and goes, each time to another broker. What it has read it has taken."""
        place = 0
        state = self._directory / f"{reader}.state"
        while True:
            place += 1
            async with connect(self._urls(place), identity=reader, state=state, offline=True) as client:
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.5):
                        subscription = await client.subscribe("n > 0", id="sub", durable=True)
                        await self._read_some(reader, subscription)

    async def _read_some(self, reader: str, subscription: Any) -> None:
        for _ in range(self._rng.randrange(50, 1_000)):
            delivery = await subscription.get()
            self._note(reader, delivery.notification)
            delivery.ack()

    def _sub(self) -> subprocess.Popen[bytes]:
        """`catchment sub --into`, as a process of its own."""
        urls = ",".join(self._urls(self._rng.randrange(len(BROKERS))))
        command = (sys.executable, "-m", "catchment", "sub", "n > 0", "--durable", "file", "--url", urls)
        with (self._directory / "sub.log").open("ab") as log:
            into = str(self._directory / "file.jsonl")
            return subprocess.Popen([*command, "--into", into], cwd=ROOT, stdout=log, stderr=log, env=os.environ)

    def _read_file(self) -> None:
        came: dict[str, list[int]] = {name: [] for name in PUBLISHERS}
        path = self._directory / "file.jsonl"
        for line in path.read_bytes().splitlines(keepends=True) if path.exists() else ():
            if line.endswith(b"\n"):
                attributes = json.loads(line)["notification"]
                came[attributes["from"]].append(attributes["n"])
        self._came["file"] = came


def _first_wrong(numbers: list[int]) -> str:
    for place, number in enumerate(numbers):
        if number != place + 1:
            return f"{place + 1} was to come, {number} came, after {numbers[max(0, place - 3) : place]}"
    return f"only {len(numbers):,} came"


Outcomes = Callable[[KillRun], KillOutcome]
