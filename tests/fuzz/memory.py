"""A transport that exists only in memory: what is fed comes to the protocol, what is written is thrown away."""

from __future__ import annotations

import asyncio
from typing import Any


class MemoryTransport:
    def __init__(self, protocol: Any) -> None:
        self._protocol = protocol
        self._is_reading = True
        self._is_closing = False
        # The beginning of what was written: enough to see the answer.
        self.written = b""

    def feed(self, data: bytes) -> None:
        if not self._is_closing:
            self._protocol.data_received(data)

    def write(self, data: bytes) -> None:
        self.written = (self.written + data)[:4_096]

    def writelines(self, parts: list[bytes]) -> None:
        for part in parts:
            self.write(part)

    def write_eof(self) -> None:
        pass

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            asyncio.get_running_loop().call_soon(lambda: self._protocol.connection_lost(None))

    abort = close

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return self._is_reading

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True

    def get_protocol(self) -> Any:
        return self._protocol

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0
