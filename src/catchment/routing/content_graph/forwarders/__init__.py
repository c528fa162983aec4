"""Four ways to forward by a content graph (F3 §3.4.3), behind one interface (`base.py`).

lists      the header names all nodes that cover the notification; routers keep no edges (Fig 3-7, 3-8)
stored     the header names the lowest nodes; every router keeps the whole graph (Fig 3-11, 3-12)
minimal    the header names the lowest nodes that the next router asked for; a router keeps only the nodes that were
           asked for (Fig 3-15)
labels     as minimal, and for each node the headers to send are computed when somebody subscribes (Fig 3-18): F3
"""

from typing import Final

from catchment.routing.content_graph.forwarders.base import HERE, Forwarder, Output, Subscribers
from catchment.routing.content_graph.forwarders.labels import LabelForwarder
from catchment.routing.content_graph.forwarders.plain import ListForwarder, MinimalForwarder, StoredForwarder

FORWARDERS: Final[dict[str, type[Forwarder]]] = {
    "labels": LabelForwarder,
    "minimal": MinimalForwarder,
    "stored": StoredForwarder,
    "lists": ListForwarder,
}

__all__ = ["FORWARDERS", "HERE", "Forwarder", "Output", "Subscribers"]
