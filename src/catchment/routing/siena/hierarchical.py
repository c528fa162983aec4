"""Brokers as clients of a master (SIENA §4.1, §5.2.2).

Interest goes to the master alone; a notification goes to those below that want it, and always to the master unless
it came from there. Advertisements go nowhere: the master would never answer with subscriptions. A broker without a
master is the root.
"""

from __future__ import annotations

from catchment.model.filter import Filter
from catchment.routing.messages import Action, Interface, Neighbor, Time
from catchment.routing.siena.hop_by_hop import HopByHopCore
from catchment.routing.siena.messages import Interest


class HierarchicalCore(HopByHopCore[Interest]):
    """A broker with at most one master; all its other neighbors are below it."""

    def __init__(self, name: str, master: str | None = None) -> None:
        super().__init__(name)
        self.master = None if master is None else Neighbor(master)

    def _heard(self, message: Interest, source: Neighbor, now: Time) -> list[Action]:
        return self._on_interest(message, source, now)

    def _may_tell(self, filter: Filter, neighbor: Neighbor) -> bool:
        return neighbor == self.master

    def _always_to(self, source: Interface) -> tuple[Neighbor, ...]:
        up = self.master is not None and self.master != source and self.master in self.interest.neighbors
        return (self.master,) if up and self.master is not None else ()
