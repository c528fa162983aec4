"""Who waits until something is stored."""

import asyncio

import pytest

from catchment.broker.keeping import Keeping
from catchment.routing.stored import Opened, Stored, StoreDown, StoreUp
from catchment.store.interface import StoreError


def test_everybody_waits_for_what_was_given_before():
    async def scene():
        keeping = Keeping()
        await keeping.all_stored()  # nothing was given: nothing to wait for
        keeping.gave(1)
        first = asyncio.ensure_future(keeping.all_stored())
        await asyncio.sleep(0)
        keeping.gave(2)
        second = asyncio.ensure_future(keeping.all_stored())
        await asyncio.sleep(0)
        keeping.heard(Stored(1))
        await asyncio.sleep(0)
        assert (first.done(), second.done()) == (True, False)
        keeping.heard(Stored(2))
        await second

    asyncio.run(scene())


def test_a_store_that_fails_fails_them_all():
    async def scene():
        keeping = Keeping()
        keeping.gave(7)
        waiting = [asyncio.ensure_future(keeping.all_stored()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()  # its client has gone
        keeping.heard(StoreDown("full"))
        keeping.heard(StoreUp(Opened("log", serial=5)))
        for task in waiting[1:]:
            with pytest.raises(StoreError, match="full"):
                await task
        # What was given is gone, so nobody waits for it.
        await keeping.all_stored()
        keeping.gave(6)
        last = asyncio.ensure_future(keeping.all_stored())
        await asyncio.sleep(0)
        assert not last.done()
        keeping.heard(Stored(6))
        await last

    asyncio.run(scene())
