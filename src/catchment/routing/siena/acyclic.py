"""Brokers as peers in a network without cycles, with subscription forwarding (SIENA §4.2, §5.2.3).

Interest goes to all neighbors as equation (1) says, and notifications back along it. There is one path between any
two brokers, so nothing comes twice and nothing can loop; a broker or link that fails parts the network until it is
back. Nothing besides `HopByHopCore` is needed: every neighbor may be told of everything.
"""

from __future__ import annotations

from catchment.routing.messages import Action, Neighbor, Time
from catchment.routing.siena.hop_by_hop import HopByHopCore
from catchment.routing.siena.messages import Interest


class AcyclicCore(HopByHopCore[Interest]):
    """A peer in a network without cycles."""

    def _heard(self, message: Interest, source: Neighbor, now: Time) -> list[Action]:
        return self._on_interest(message, source, now)
