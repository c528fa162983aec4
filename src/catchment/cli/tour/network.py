"""The brokers of the tour: three processes in a ring.

The way from north to south through east is cheaper than the direct link. So when east is killed there is something to
see: what came through it takes the direct link.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
from pathlib import Path
from typing import Final

from catchment.errors import CatchmentError

NAMES: Final = ("north", "east", "south")
COSTS: Final = {("north", "east"): 1, ("east", "south"): 1, ("north", "south"): 10}
# Each part of the story must come true within this time, on a slow machine too.
PATIENCE_S: Final = 60.0
# A broker that has not ended this long after SIGTERM is killed.
STOP_S_MAX: Final = 10.0


class StoryError(CatchmentError):
    """A part of the story did not come true."""


class Network:
    """Starts, kills and stops brokers. Their configuration and logs are in `directory`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        ports = _free_ports(2 * len(NAMES))
        self.addresses = {name: f"127.0.0.1:{port}" for name, port in zip(NAMES, ports, strict=False)}
        self.http = {name: f"127.0.0.1:{port}" for name, port in zip(NAMES, ports[len(NAMES) :], strict=True)}
        self._processes: dict[str, asyncio.subprocess.Process] = {}

    async def start(self, name: str) -> None:
        """Starts a broker and returns when it listens."""
        config = self.directory / f"{name}.toml"
        config.write_text(self._config(name), "utf-8")
        log = (self.directory / f"{name}.log").open("ab")
        command = (sys.executable, "-m", "catchment", "serve", str(config), "--json", "--log", "json")
        # In a session of its own: Ctrl-C must reach only us, and we stop the brokers ourselves.
        self._processes[name] = process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=log, start_new_session=True
        )
        log.close()
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            # `serve` prints a line when it listens. Without one it has ended.
            if not await process.stdout.readline():
                raise StoryError(f"{name} did not start:\n{(self.directory / f'{name}.log').read_text('utf-8')}")

    def _config(self, name: str) -> str:
        neighbors = [second for first, second in COSTS if first == name]
        costs = ", ".join(f'"{self.addresses[neighbor]}" = {COSTS[name, neighbor]}' for neighbor in neighbors)
        return (
            f'name = "{name}"\nlisten = "{self.addresses[name]}"\nhttp = "{self.http[name]}"\n'
            f"neighbors = {json.dumps([self.addresses[neighbor] for neighbor in neighbors])}\ncosts = {{ {costs} }}\n"
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
                async with asyncio.timeout(STOP_S_MAX):
                    await process.wait()
            except TimeoutError:
                process.kill()
        self._processes.clear()


def _free_ports(count: int) -> list[int]:
    """Ports that nobody uses now. All are taken before any is given back, so that no two are the same."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for taken in sockets:
            taken.bind(("127.0.0.1", 0))
        return [taken.getsockname()[1] for taken in sockets]
    finally:
        for taken in sockets:
            taken.close()
