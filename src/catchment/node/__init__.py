"""A broker without its sockets: it performs the actions of a routing core. It is pure, like the core."""

from catchment.node.gaps import GapTimes
from catchment.node.node import Node
from catchment.node.outlets import ClientOutlet, LinkOutlet, StoreOutlet

__all__ = ["ClientOutlet", "GapTimes", "LinkOutlet", "Node", "StoreOutlet"]
