"""`catchment tour`: a network of three brokers on this machine, told as a story.

The three form a ring in which the way from north to south through east is the cheaper one, so that when east is killed
there is something to see: what came through it comes over the direct link from then on.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from catchment.cli.terminal import console
from catchment.demo import notifications, subscriptions
from catchment.errors import CatchmentError
from catchment.model.notification import Notification

if TYPE_CHECKING:
    from catchment.client import Client, Delivered

NAMES: Final = ("north", "east", "south")
COSTS: Final = {("north", "east"): 1, ("east", "south"): 1, ("north", "south"): 10}
# Each part of the story must come true within this time, on a slow machine too.
PATIENCE_S: Final = 60.0
STREAM_PAUSE_S: Final = 0.05


class StoryError(CatchmentError):
    """The story did not come true."""


class Network:
    """Broker processes in a directory of their own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        ports = _free_ports(2 * len(NAMES))
        self.addresses = {name: f"127.0.0.1:{port}" for name, port in zip(NAMES, ports, strict=False)}
        self.http = {name: f"127.0.0.1:{port}" for name, port in zip(NAMES, ports[len(NAMES) :], strict=True)}
        self._processes: dict[str, asyncio.subprocess.Process] = {}

    async def start(self, name: str) -> None:
        """Returns when it listens."""
        config = self.directory / f"{name}.toml"
        config.write_text(self._config(name), "utf-8")
        log = (self.directory / f"{name}.log").open("ab")
        command = (sys.executable, "-m", "catchment", "serve", str(config), "--json", "--log", "json")
        self._processes[name] = process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=log, start_new_session=True
        )
        log.close()
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            if not await process.stdout.readline():
                raise StoryError(f"{name} did not start:\n{(self.directory / f'{name}.log').read_text('utf-8')}")

    def _config(self, name: str) -> str:
        neighbors = [second for first, second in COSTS if first == name]
        costs = ", ".join(f'"{self.addresses[one]}" = {COSTS[name, one]}' for one in neighbors)
        return (
            f'name = "{name}"\nlisten = "{self.addresses[name]}"\nhttp = "{self.http[name]}"\n'
            f"neighbors = {json.dumps([self.addresses[one] for one in neighbors])}\ncosts = {{ {costs} }}\n"
        )

    async def kill(self, name: str) -> None:
        process = self._processes.pop(name)
        process.send_signal(signal.SIGKILL)
        await process.wait()

    async def stop(self) -> None:
        for process in self._processes.values():
            if process.returncode is None:
                process.terminate()
        for process in self._processes.values():
            try:
                async with asyncio.timeout(10):
                    await process.wait()
            except TimeoutError:
                process.kill()
        self._processes.clear()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


class Story:
    def __init__(self, network: Network, headless: bool) -> None:
        self.network = network
        self.headless = headless
        self.out = console()
        self.received: dict[str, int] = {}
        self.publisher: Client | None = None
        self._tasks: list[asyncio.Task[None]] = []

    # --- telling ---

    def say(self, text: str, style: str = "") -> None:
        self.out.print(text, style=style, soft_wrap=True)

    def chapter(self, title: str) -> None:
        self.say(f"\n{title}", "bold")

    def show(self, who: str, delivery: Delivered) -> None:
        values = ", ".join(f"{name} = {value!r}" for name, value in delivery.notification.items())
        self.say(f"  {who}: {values}", "green")

    # --- the story ---

    async def play(self) -> None:
        self.chapter("Three brokers")
        await asyncio.gather(*(self.network.start(name) for name in NAMES))
        for name in NAMES:
            self.say(f"  {name} listens at {self.network.addresses[name]}")
        self.say("  They form a ring; the way from north to south through east is the cheaper one.")
        await self._until("the links are up", self._is_linked)
        await self._subscribers()
        await self._curl()
        await self._near_miss()
        await self._kill_and_return()
        self.chapter("That was it")
        if not self.headless:
            await self._go_on()

    async def _is_linked(self) -> bool:
        return all([len((await self._status(name))["links"]) == 2 for name in NAMES])

    async def _status(self, name: str) -> dict[str, Any]:
        from catchment.client import connect

        async with connect(self.network.addresses[name], reconnect=False) as client:
            found: dict[str, Any] = await client.look()
            return found

    async def _subscribers(self) -> None:
        from catchment.client import connect

        self.chapter("Eight people subscribe at south, and a stream begins at north")
        shown = {"left": 4}
        for one in subscriptions():
            client = await connect(self.network.addresses["south"], identity=one.client)
            subscription = await client.subscribe(one.wanted, id=one.id)
            self.say(f"  {one.client}: {one.text}")
            self._tasks.append(asyncio.create_task(self._read(one.client, subscription, shown)))
        self.publisher = await connect(self.network.addresses["north"], identity="the stream")
        self._tasks.append(asyncio.create_task(self._stream()))
        await self._until("something is delivered", self._is_received(8))

    async def _read(self, who: str, subscription: Any, shown: dict[str, int]) -> None:
        async for delivery in subscription:
            self.received[who] = self.received.get(who, 0) + 1
            if shown["left"] > 0:
                shown["left"] -= 1
                self.show(who, delivery)

    async def _stream(self) -> None:
        assert self.publisher is not None
        while True:
            for one in notifications():
                await self.publisher.publish(Notification(dict(one)))
                await asyncio.sleep(STREAM_PAUSE_S)

    def _is_received(self, more: int) -> Callable[[], Awaitable[bool]]:
        wanted = sum(self.received.values()) + more

        async def check() -> bool:
            return sum(self.received.values()) >= wanted

        return check

    async def _curl(self) -> None:
        from catchment.client import connect

        self.chapter("A CloudEvent, published with curl at east")
        if shutil.which("curl") is None:
            self.say("  (curl is not installed here: left out)")
            return
        event = {"specversion": "1.0", "type": "tour.greeting", "source": "curl", "id": "1", "mood": "curious"}
        command = (
            "curl", "-sS", "--fail", "-H", "content-type: application/cloudevents+json", "-d", json.dumps(event),
            f"http://{self.network.http['east']}/events",
        )  # fmt: skip
        async with connect(self.network.addresses["south"], identity="the curious") as client:
            known = (await self._status("east"))["remote_filters"]
            subscription = await client.subscribe("mood = 'curious'")
            await self._until("the subscription is known at east", self._is_known("east", known + 1))
            self.say(f"  {shlex.join(command)}")
            process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
            if await process.wait() != 0:
                raise StoryError("curl failed")
            async with asyncio.timeout(PATIENCE_S):
                self.show("the curious", await subscription.get())

    def _is_known(self, name: str, filters: int) -> Callable[[], Awaitable[bool]]:
        async def check() -> bool:
            return bool((await self._status(name))["remote_filters"] >= filters)

        return check

    async def _near_miss(self) -> None:
        from catchment.client import connect

        self.chapter("Why somebody got nothing")
        missed = Notification({"symbol": "DIS", "exchange": "NASDAQ", "price": 101.25, "change": 0.5})
        async with connect(self.network.addresses["south"]) as client:
            found = await client.look("explain", missed)
        one = next((one for one in found if one["identity"] == "Ana" and not one["matches"]), None)
        if one is None:
            raise StoryError(f"Ana should have missed {missed!r}")
        self.say(f"  Ana wants {one['filter']}, and did not get {dict(missed)}:")
        self.say(f"  {one['explanation']}", "yellow")

    async def _kill_and_return(self) -> None:
        self.chapter("East is killed; what came through it takes the other way")
        through = (await self._status("east"))["totals"]["forwarded"]
        self.say(f"  east has passed on {through:,} notifications; kill -9")
        await self.network.kill("east")
        await self._until("north has lost its link to east", self._has_links("north", {"south"}))
        await self._until("deliveries go on over the direct link", self._is_received(10))
        self.say("  deliveries go on: north sends to south directly now")
        await self.network.start("east")
        await self._until("east is taken back", self._has_links("north", {"south", "east"}))
        await self._until("deliveries go through east again", self._has_forwarded("east", 3))
        self.say("  east is back, and passes on what goes to south again")

    def _has_links(self, name: str, neighbors: set[str]) -> Callable[[], Awaitable[bool]]:
        async def check() -> bool:
            return {one["neighbor"] for one in (await self._status(name))["links"]} == neighbors

        return check

    def _has_forwarded(self, name: str, count: int) -> Callable[[], Awaitable[bool]]:
        async def check() -> bool:
            return bool((await self._status(name))["totals"]["forwarded"] >= count)

        return check

    async def _until(self, what: str, holds: Callable[[], Awaitable[bool]]) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not await holds():
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise StoryError(f"it did not come true within {PATIENCE_S:.0f} s that {what}") from None

    async def _go_on(self) -> None:
        address = self.network.addresses
        self.say("The network goes on until you press Ctrl-C. In another terminal, try:\n")
        self.say(f'  catchment sub "change > 0" --url {address["south"]}')
        self.say(f"  catchment pub symbol=DIS price=99 change=1 --url {address['north']}")
        self.say(f"  catchment top --url {address['east']}")
        await asyncio.Event().wait()

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.network.stop()


def run_tour(headless: bool) -> int:
    with tempfile.TemporaryDirectory(prefix="catchment-tour-") as directory:
        try:
            asyncio.run(_tour(Path(directory), headless))
        except KeyboardInterrupt:
            if headless:
                raise
            os.write(2, b"\nthe brokers are stopped\n")
    return 0


async def _tour(directory: Path, headless: bool) -> None:
    story = Story(Network(directory), headless)
    try:
        await story.play()
    finally:
        await story.end()
