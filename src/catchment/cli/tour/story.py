"""The story of the tour. Each part waits until what it tells has come true, and fails if it does not."""

from __future__ import annotations

import asyncio
import json
import shlex
import shutil
from collections.abc import Awaitable, Callable
from typing import Any, Final

from catchment.cli.terminal import console
from catchment.cli.tour.network import NAMES, PATIENCE_S, Network, StoryError
from catchment.client import Client, Delivered, connect
from catchment.demo import notifications, subscriptions
from catchment.model.notification import Notification

STREAM_PAUSE_S: Final = 0.05
POLL_S: Final = 0.05
# Deliveries that are printed. More would bury the story.
DELIVERIES_SHOWN_MAX: Final = 4

Condition = Callable[[], Awaitable[bool]]


async def tell(network: Network, headless: bool) -> None:
    story = Story(network, headless)
    try:
        await story.play()
    finally:
        await story.end()


class Story:
    def __init__(self, network: Network, headless: bool) -> None:
        self.network = network
        self.headless = headless
        self.out = console()
        self._deliveries = 0
        self._deliveries_to_show = DELIVERIES_SHOWN_MAX
        self._tasks: list[asyncio.Task[None]] = []

    # --- telling ---

    def say(self, text: str, style: str = "") -> None:
        self.out.print(text, style=style, soft_wrap=True)

    def chapter(self, title: str) -> None:
        self.say(f"\n{title}", "bold")

    def show(self, person: str, delivery: Delivered) -> None:
        attributes = ", ".join(f"{name} = {value!r}" for name, value in delivery.notification.items())
        self.say(f"  {person}: {attributes}", "green")

    # --- the story ---

    async def play(self) -> None:
        self.chapter("Three brokers")
        await asyncio.gather(*(self.network.start(name) for name in NAMES))
        for name in NAMES:
            self.say(f"  {name} listens at {self.network.addresses[name]}")
        self.say("  They form a ring; the way from north to south through east is the cheaper one.")
        await self._until("the links are up", self._all_are_linked)
        await self._subscribe()
        await self._publish_with_curl()
        await self._explain_a_near_miss()
        await self._kill_and_return()
        self.chapter("That was it")
        if not self.headless:
            await self._go_on()

    async def _subscribe(self) -> None:
        self.chapter("Eight people subscribe at south, and a stream begins at north")
        for wish in subscriptions():
            client = await connect(self.network.addresses["south"], identity=wish.client)
            subscription = await client.subscribe(wish.wanted, id=wish.id)
            self.say(f"  {wish.client}: {wish.text}")
            self._tasks.append(asyncio.create_task(self._read(wish.client, subscription)))
        publisher = await connect(self.network.addresses["north"], identity="the stream")
        self._tasks.append(asyncio.create_task(self._publish_for_ever(publisher)))
        await self._until("something is delivered", self._are_delivered(8))

    async def _read(self, person: str, subscription: Any) -> None:
        async for delivery in subscription:
            self._deliveries += 1
            if self._deliveries_to_show > 0:
                self._deliveries_to_show -= 1
                self.show(person, delivery)

    async def _publish_for_ever(self, publisher: Client) -> None:
        while True:
            for notification in notifications():
                # Without its id and time: each round publishes it anew.
                await publisher.publish(Notification(dict(notification)))
                await asyncio.sleep(STREAM_PAUSE_S)

    async def _publish_with_curl(self) -> None:
        self.chapter("A CloudEvent, published with curl at east")
        if shutil.which("curl") is None:
            self.say("  (curl is not installed here: left out)")
            return
        cloud_event = {"specversion": "1.0", "type": "tour.greeting", "source": "curl", "id": "1", "mood": "curious"}
        command = (
            "curl", "-sS", "--fail", "-H", "content-type: application/cloudevents+json", "-d", json.dumps(cloud_event),
            f"http://{self.network.http['east']}/events",
        )  # fmt: skip
        async with connect(self.network.addresses["south"], identity="the curious") as client:
            filters_before = (await self._status("east"))["remote_filters"]
            subscription = await client.subscribe("mood = 'curious'")
            await self._until("the subscription is known at east", self._knows("east", filters_before + 1))
            self.say(f"  {shlex.join(command)}")
            process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
            if exit_code := await process.wait():
                raise StoryError(f"curl failed with exit code {exit_code}; its message is above")
            async with asyncio.timeout(PATIENCE_S):
                self.show("the curious", await subscription.get())

    async def _explain_a_near_miss(self) -> None:
        self.chapter("Why somebody got nothing")
        missed = Notification({"symbol": "DIS", "exchange": "NASDAQ", "price": 101.25, "change": 0.5})
        async with connect(self.network.addresses["south"]) as client:
            verdicts = await client.look("explain", missed)
        misses = [verdict for verdict in verdicts if verdict["identity"] == "Ana" and not verdict["matches"]]
        if not misses:
            raise StoryError(f"Ana should have missed {missed!r}")
        self.say(f"  Ana wants {misses[0]['filter']}, and did not get {dict(missed)}:")
        self.say(f"  {misses[0]['explanation']}", "yellow")

    async def _kill_and_return(self) -> None:
        self.chapter("East is killed; what came through it takes the other way")
        forwarded = (await self._status("east"))["totals"]["forwarded"]
        self.say(f"  east has forwarded {forwarded:,} notifications; kill -9")
        await self.network.kill("east")
        await self._until("north has lost its link to east", self._has_links("north", {"south"}))
        await self._until("deliveries go on over the direct link", self._are_delivered(10))
        self.say("  deliveries go on: north sends to south directly now")
        await self.network.start("east")
        await self._until("east is linked again", self._has_links("north", {"south", "east"}))
        await self._until("deliveries go through east again", self._has_forwarded("east", 3))
        self.say("  east is back, and again forwards what goes to south")

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

    # --- what must come true ---

    async def _until(self, what: str, holds: Condition) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not await holds():
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise StoryError(f"within {PATIENCE_S:.0f} s it did not come true that {what}") from None

    async def _status(self, name: str) -> dict[str, Any]:
        async with connect(self.network.addresses[name], reconnect=False) as client:
            status: dict[str, Any] = await client.look()
            return status

    async def _all_are_linked(self) -> bool:
        return all([len((await self._status(name))["links"]) == 2 for name in NAMES])

    def _are_delivered(self, more: int) -> Condition:
        """That there are so many more deliveries than now."""
        wanted = self._deliveries + more

        async def holds() -> bool:
            return self._deliveries >= wanted

        return holds

    def _knows(self, name: str, filters: int) -> Condition:
        async def holds() -> bool:
            return bool((await self._status(name))["remote_filters"] >= filters)

        return holds

    def _has_links(self, name: str, neighbors: set[str]) -> Condition:
        async def holds() -> bool:
            return {link["neighbor"] for link in (await self._status(name))["links"]} == neighbors

        return holds

    def _has_forwarded(self, name: str, count: int) -> Condition:
        async def holds() -> bool:
            return bool((await self._status(name))["totals"]["forwarded"] >= count)

        return holds
