"""Content graphs with small limits: what goes in parts, and what is forgotten early."""

import pytest

from catchment.routing.content_graph import copies, core, inbox, loss, router, stream
from catchment.sim.conformance.entries import ENTRIES, Run
from catchment.sim.conformance.runs import outcome_of

OWN = [name for name, entry in ENTRIES.items() if entry.system == "content graph"]


def test_all_forwarders_are_run():
    forwarding = {ENTRIES[name].settings.get("forwarding", "labels") for name in OWN}
    assert forwarding == {"labels", "minimal", "stored", "lists"}


@pytest.mark.parametrize("entry", ["content graph", "content graph scoped"])
def test_long_lists_go_in_parts(entry: str, monkeypatch: pytest.MonkeyPatch):
    """With room for two in each message, and one message in each piece of the inbox, everything is as before."""
    monkeypatch.setattr(core, "CHANGE_NODES_MAX", 2)
    monkeypatch.setattr(copies, "CHANGE_NODES_MAX", 2)
    monkeypatch.setattr(router, "MESSAGE_NODES_MAX", 2)
    monkeypatch.setattr(inbox, "PIECE", 1)
    for seed, network in enumerate(ENTRIES[entry].networks, 20):
        outcome = outcome_of(Run(entry, network, seed))
        assert outcome.violation is None, str(outcome)


@pytest.mark.parametrize("entry", ["content graph", "content graph adaptive"])
def test_small_logs_and_short_memories_lose_nothing_that_is_promised(entry: str, monkeypatch: pytest.MonkeyPatch):
    """What is to be recovered is soon gone, and little is held: clients are told, and nothing comes out of order."""
    monkeypatch.setattr(loss, "RECOVERY_LOG_MAX", 1)
    monkeypatch.setattr(loss, "RECOVERY_HELD_MAX", 1)
    monkeypatch.setattr(stream, "RECOVERY_HELD_MAX", 1)
    monkeypatch.setattr(loss, "ORPHANS_MAX", 1)
    for seed, network in enumerate(ENTRIES[entry].networks, 40):
        outcome = outcome_of(Run(entry, network, seed))
        assert outcome.violation is None, str(outcome)
