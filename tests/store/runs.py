"""Runs of power cuts and of damage, each from a seed: the tests make some, `./dev soak --store` makes many."""

import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

from catchment.store.interface import StoreError
from catchment.store.maintenance import accept_loss
from catchment.store.sqlite import open_sqlite
from tests.store.disks import after_power_cut, put, watched
from tests.store.expected import Expected
from tests.store.places import quick_folder, record, write_records
from tests.store.workload import READERS

# Different workloads: recording one takes a second.
WORKLOADS = 5
# How many of each kind `./dev soak --store` makes.
SOAK_COUNTS = {"power": 1_000, "damage": 1_000}


@dataclass
class StoreRun:
    """`kind` is power or damage."""

    kind: str
    seed: int


@dataclass
class StoreOutcome:
    run: StoreRun
    violation: str | None
    # What happened: for the counts that the soak prints.
    ending: str = ""

    def __str__(self):
        return f"./dev soak --store {self.run.kind} --seed {self.run.seed}\n{self.violation}"


@cache
def recording(seed):
    folder = quick_folder()
    try:
        return watched(folder, seed)
    finally:
        shutil.rmtree(folder)


def outcome_of(run: StoreRun) -> StoreOutcome:
    folder = quick_folder()
    try:
        if run.kind == "power":
            return _power_cut(run, folder / "disk")
        return _damage(run, folder / "disk")
    finally:
        shutil.rmtree(folder)


def _power_cut(run: StoreRun, folder: Path) -> StoreOutcome:
    chance, workload = Random(run.seed), run.seed % WORKLOADS
    calls = recording(workload).calls
    until = chance.randrange(1, len(calls) + 1)
    put(after_power_cut(calls[:until], chance), folder)
    promised = max((call.returned for call in calls[:until]), default=0)
    try:
        store = open_sqlite(folder / "store.db")
    except StoreError as refusal:
        return StoreOutcome(run, f"after {until} of {len(calls)} calls it does not open: {refusal}")
    serial = store.opened().serial
    if serial < promised:
        return StoreOutcome(run, f"write {promised} had returned, and {serial} is the last one")
    problem = Expected(workload, serial).difference(store) or _goes_on(store, folder)
    return StoreOutcome(run, problem, "opened" if serial == promised else "opened, with more than was promised")


def _goes_on(store, folder):
    """Writes once more, and looks whether that is there."""
    head = store.opened().head
    write_records(store, record(head + 1, *READERS))
    store.close()
    again = open_sqlite(folder / "store.db")
    problem = None if again.opened().head == head + 1 else "it does not go on"
    again.close()
    return problem


def _damage(run: StoreRun, folder: Path) -> StoreOutcome:
    """Something flips or is cut off in one of the files, while nobody has the store open."""
    chance, workload = Random(run.seed), run.seed % WORKLOADS
    calls = recording(workload).calls
    files = after_power_cut([*calls, *_syncs(calls)], chance)
    name = chance.choice([f"store.db{end}" for end in ("", "-wal", "-witness")])
    damaged, what = _damaged(files[name], chance)
    put(files | {name: damaged}, folder)
    ending, problem = _found(folder / "store.db", Expected(workload))
    if problem is None and chance.random() < 0.1:
        problem = _accepted(folder / "store.db")
    return StoreOutcome(run, None if problem is None else f"{name}, {what}: {problem}", f"{name[8:] or 'db'}: {ending}")


def _syncs(calls):
    return [type(call)("sync", call.file) for call in calls if call.name == "write"]


def _damaged(content, chance):
    if chance.random() < 0.25:
        length = chance.randrange(len(content))
        return content[:length], f"cut to {length}"
    place, bit = chance.randrange(len(content)), chance.randrange(8)
    changed = bytearray(content)
    changed[place] ^= 1 << bit
    return bytes(changed), f"bit {bit} of byte {place}"


def _found(path: Path, expected):
    """How it ended, and what is wrong: only silence is."""
    try:
        store = open_sqlite(path)
    except StoreError as refusal:
        return f"refused to open ({type(refusal).__name__})", None
    try:
        problem = expected.difference(store, may_lose=True)
        while problem is None and store.scrub(1_000):
            pass
        lost = sum(each.lost for each in store.status().identities)
        return "told as lost" if lost else "harmless", problem
    except StoreError as told:
        return f"refused to read ({type(told).__name__})", None
    finally:
        store.close()


def _accepted(path: Path):
    """Whatever has happened, one can go on with what is whole."""
    accept_loss(str(path))
    store = open_sqlite(path)
    try:
        write_records(store, record(store.opened().head + 1, "ada"))
        while store.scrub(1_000):
            pass
        return None if not store.status().quarantined else "what was made anew is damaged"
    finally:
        store.close()
