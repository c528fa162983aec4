"""A broker without its sockets: what performs the actions of a routing core. Pure, as the core is."""

from catchment.node.node import Node
from catchment.node.outlets import ClientOutlet, LinkOutlet

__all__ = ["ClientOutlet", "LinkOutlet", "Node"]
