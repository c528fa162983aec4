"""Checks that what a core writes follows what is there: serials and epochs, each one more than the last."""

from __future__ import annotations

from collections.abc import Sequence

from catchment.routing.stored import Persist, Record
from catchment.store.interface import StoreError


def check_follows(batch: Sequence[Persist], serial: int, head: int) -> None:
    """StoreError if a serial or an epoch does not follow the one before it."""
    for persist in batch:
        serial += 1
        if persist.serial != serial:
            raise StoreError(f"write {persist.serial} does not follow: the next one is {serial}")
        for write in persist.writes:
            if type(write) is Record:
                head += 1
                if write.epoch != head:
                    raise StoreError(f"epoch {write.epoch} does not follow: the next one is {head}")
