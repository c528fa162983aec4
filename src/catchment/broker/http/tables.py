"""The tables of the HTTP side, from the broker's loop: every call runs in one thread of their own, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from catchment.store.http_tables import HttpTables

_Result = TypeVar("_Result")


class TablesThread:
    def __init__(self, tables: HttpTables) -> None:
        self._tables = tables
        self._thread = ThreadPoolExecutor(1, "catchment-http-tables")

    async def call(self, work: Callable[[HttpTables], _Result]) -> _Result:
        """Runs it to its end, also if the caller is cancelled: a write that has begun is not given up."""
        loop = asyncio.get_running_loop()
        return await asyncio.shield(loop.run_in_executor(self._thread, work, self._tables))

    async def close(self) -> None:
        await self.call(lambda tables: tables.close())
        self._thread.shutdown()
