"""Brokers as peers in a network without cycles, with subscription forwarding (SIENA §4.2, §5.2.3).

Interest goes to all neighbors as equation (1) says, and notifications back along it. There is one path between any
two brokers, so nothing comes twice and nothing can loop; a broker or link that fails parts the network until it is
back. Nothing besides `SienaCore` is needed: every neighbor may be told of everything.
"""

from __future__ import annotations

from catchment.routing.siena.base import SienaCore


class AcyclicCore(SienaCore):
    """A peer in a network without cycles."""
