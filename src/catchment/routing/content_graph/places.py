"""A namespace at one broker: its router, its edge, and the way to its rendezvous point."""

from __future__ import annotations

from dataclasses import dataclass

from catchment.routing.content_graph.edge import Edge
from catchment.routing.content_graph.rendezvous import Rendezvous
from catchment.routing.content_graph.router import Router
from catchment.routing.content_graph.settings import Namespace


@dataclass(slots=True)
class Place:
    """`path` are the brokers from here to the rendezvous point, both included; empty if there is no way."""

    namespace: Namespace
    router: Router
    edge: Edge
    path: tuple[str, ...] = ()

    @property
    def rendezvous(self) -> Rendezvous | None:
        return self.router.rendezvous
