"""Paths to other brokers, and which of them are storages.

Durable delivery has link states of its own (`parts/link_states.py`), because not every routing system knows more than
its neighbors. The record of a broker (`Reach`) also says the id of its log, so each broker knows all storages, whether
they can be reached or not.

directed   A message to one broker goes to the neighbor that leads to it, on the shortest path. Brokers on the way keep
           nothing. Without a path it is dropped: whoever needs an answer asks again. A message that has crossed
           DIRECTED_HOPS_MAX links is dropped too: for a moment brokers may disagree about the paths.
new log    A storage whose record names another log than before has lost the log that it had. The former logs of each
           storage are remembered (FORMER_LOGS_MAX), so that a client which comes later with a position in one of them
           can be told. A broker whose own disk is new learns its former log from the record that its neighbors still
           have of it.
"""

from __future__ import annotations

from typing import Final, cast

from msgspec.structs import replace

from catchment.routing.durable.messages import DIRECTED_HOPS_MAX, Directed, Reach
from catchment.routing.messages import Action, Neighbor, Send, SetTimer, Time
from catchment.routing.parts.link_states import LinkStates

# Timers of durable delivery begin with this: those of the core inside have other names.
PREFIX: Final = "durable "
# Logs that are remembered, current and former: each storage has one, and a new one only after a loss.
FORMER_LOGS_MAX: Final = 10_000


class Paths:
    """The link states of the broker `name`, whose log is `log`; empty if it has no store."""

    def __init__(self, name: str, log: str) -> None:
        self.name = name
        self._log = log
        self._links = LinkStates(name, record=lambda origin, seq, costs: Reach(origin, seq, costs, self._log))
        # By log: the storage that has or had it.
        self._storage_of: dict[str, str] = {log: name} if log else {}
        # What was computed for this version of the link states.
        self._version = -1
        self._reached: frozenset[str] = frozenset()
        self._storages: dict[str, str] = {}

    # --- records ---

    def up(self, neighbor: Neighbor, cost: int, now: Time) -> list[Action]:
        return _prefixed(self._links.up(neighbor, cost, now))

    def down(self, neighbor: Neighbor, now: Time) -> list[Action]:
        return _prefixed(self._links.down(neighbor, now))

    def heard(self, record: Reach, source: Neighbor, now: Time) -> list[Action]:
        actions = _prefixed(self._links.heard(record, source, now))
        if self._links.records.get(record.origin) is record and record.log:
            self._storage_of.pop(record.log, None)
            self._storage_of[record.log] = record.origin
            if len(self._storage_of) > FORMER_LOGS_MAX:
                del self._storage_of[next(iter(self._storage_of))]
        return actions

    def learn_former(self, record: Reach) -> bool:
        """Whether a record of our own, from before a crash, names a log that we do not know: our disk was lost."""
        is_new = record.origin == self.name and bool(record.log) and record.log not in self._storage_of
        if is_new:
            self._storage_of[record.log] = self.name
        return is_new and record.log != self._log

    def on_timer(self, name: str, now: Time) -> list[Action]:
        return _prefixed(self._links.on_timer(name, now))

    # --- asking ---

    def _refresh(self) -> None:
        if self._version != self._links.version:
            self._version = self._links.version
            self._reached = frozenset(self._links.tree(self.name))
            records = cast("dict[str, Reach]", self._links.records)
            self._storages = {origin: records[origin].log for origin in sorted(records) if records[origin].log}

    @property
    def reached(self) -> frozenset[str]:
        """The brokers that can be reached; this one is one of them."""
        self._refresh()
        return self._reached

    @property
    def storages(self) -> dict[str, str]:
        """The log of each storage that is known, reachable or not."""
        self._refresh()
        return self._storages

    @property
    def neighbors(self) -> list[Neighbor]:
        return sorted(self._links.costs)

    @property
    def dropped(self) -> int:
        return self._links.dropped

    def nearest_storage(self) -> str:
        """The storage that can be reached at the least cost; empty if there is none."""
        # The tree has the nearest first: Dijkstra finds them in that order.
        return next((name for name in self._links.tree(self.name) if name in self.storages), "")

    def lost_by(self, log: str) -> str:
        """The storage that had this log and has another now; empty if there is none."""
        storage = self._storage_of.get(log, "")
        return storage if storage and self.storages.get(storage, log) != log else ""

    def former_logs(self, storage: str) -> list[str]:
        """The logs that a storage had before."""
        current = self.storages.get(storage)
        return [log for log, name in self._storage_of.items() if name == storage and log != current]

    # --- sending ---

    def hop(self, destination: str) -> Neighbor | None:
        """The neighbor that leads to a broker; None if there is no path."""
        hop = self._links.hops_from(self.name).get(destination)
        return None if hop is None else Neighbor(hop)

    def sent(self, message: Directed, destination: str) -> list[Action]:
        """The message on its way to a broker; nothing if there is no path."""
        hop = self.hop(destination)
        return [] if hop is None else [Send(hop, message)]

    def passed_on(self, message: Directed, destination: str) -> list[Action]:
        """A message that this broker is not the destination of."""
        if message.hops >= DIRECTED_HOPS_MAX:
            return []
        return self.sent(replace(message, hops=message.hops + 1), destination)


def _prefixed(actions: list[Action]) -> list[Action]:
    return [
        replace(action, name=PREFIX + action.name) if isinstance(action, SetTimer) else action for action in actions
    ]
