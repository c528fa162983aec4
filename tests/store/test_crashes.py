"""Power cuts and damage, from recordings of what a real process told the kernel."""

from collections import Counter

import pytest

from tests.store import disks
from tests.store.runs import StoreRun, outcome_of, recording

needs_strace = pytest.mark.skipif(disks.missing() is not None, reason=str(disks.missing()))
POWER_CUTS = 120
DAMAGES = 150


def outcomes(kind, count):
    made = [outcome_of(StoreRun(kind, seed)) for seed in range(count)]
    wrong = [str(outcome) for outcome in made if outcome.violation is not None]
    assert not wrong, "\n\n".join(wrong[:5])
    return Counter(outcome.ending for outcome in made)


@needs_strace
def test_a_recording_has_everything():
    names = Counter((call.name, call.file[8:]) for call in recording(0).calls)
    assert names["write", "-wal"] > 100
    assert names["write", ""] > 20
    assert names["sync", "-witness"] > 40
    assert not recording(0).problems


@needs_strace
def test_power_cuts_lose_nothing_that_was_promised():
    endings = outcomes("power", POWER_CUTS)
    # Both happen: the promise was the last thing, and the power failed between the commit and the promise.
    assert len(endings) == 2


@needs_strace
def test_damage_is_found_or_harmless():
    endings = outcomes("damage", DAMAGES)
    assert {ending.split(":")[0] for ending in endings} == {"db", "-wal", "-witness"}
    assert any("refused" in ending for ending in endings)
    assert any("lost" in ending for ending in endings)
