"""What a broker says of itself: for `catchment top`, `catchment explain` and the pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import asdict

from catchment.errors import BadNotificationError
from catchment.model.explanation import explain
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.routing.core import CLIENTS_TABLE

if TYPE_CHECKING:
    from catchment.broker.server import Broker
    from catchment.node import Node

# Subscriptions that are explained at once, those that match first: what fits a screen or two.
EXPLAINED_MAX: Final = 100


def status_of(broker: Broker) -> dict[str, Any]:
    """Plain values: numbers since the start, for a reader to make rates of."""
    node, inspection = broker.node, broker.node.core.inspect()
    return {
        "name": node.name,
        "instance": broker.instance,
        "routing": broker.config.routing,
        "address": str(broker.address),
        "up_s": round(broker.uptime_s, 3),
        "subscriptions": node.core.clients.subscriptions_count,
        "tables": [
            {"holder": table.holder, "filters": table.filters, "bytes": table.bytes} for table in inspection.tables
        ],
        "table_filters": inspection.filters,
        "table_bytes": inspection.bytes,
        "remote_filters": sum(table.filters for table in inspection.tables if table.holder != CLIENTS_TABLE),
        "work": asdict(inspection.work),
        "timers": broker.timers_count,
        "publishers_held": len(broker.credits.held),
        "links_given_up": broker.credits.links_given_up,
        "bytes_given_up": broker.credits.bytes_given_up,
        "totals": {name: getattr(node.totals, name) for name in node.totals.__slots__},
        "links": [
            {
                "neighbor": neighbor.name,
                "instance": broker.link_of(neighbor).instance,
                "cost": link.cost,
                "received": link.received,
                "forwarded": link.forwarded,
                "messages_sent": link.sent,
                "messages_heard": link.heard,
                "outbox_bytes": broker.link_of(neighbor).outbox_bytes,
                "is_congested": broker.link_of(neighbor).is_congested,
            }
            for neighbor, link in sorted(node.links.items())
        ],
        "clients": [
            {"name": client.name, "delivered": state.delivered, "published": state.published}
            for client, state in sorted(node.clients.items())
        ],
    }


def topology_of(broker: Broker) -> dict[str, Any]:
    """What the broker knows of the network: its own links, and with routing by link states those of all."""
    own = {
        "name": broker.node.name,
        "instance": broker.instance,
        "routing": broker.config.routing,
        "address": str(broker.address),
        "links": [
            {"neighbor": neighbor.name, "cost": link.cost} for neighbor, link in sorted(broker.node.links.items())
        ],
    }
    known = broker.node.core.inspect().brokers
    if known is None:
        return own
    brokers = [
        {
            "name": each.name,
            "is_reached": each.is_reached,
            "links": [{"neighbor": neighbor, "cost": cost} for neighbor, cost in each.links],
        }
        for each in known
    ]
    return {**own, "brokers": brokers}


def explained(node: Node, notification: Notification | None) -> list[dict[str, Any]]:
    """Why the subscriptions of local clients match a notification or do not, those that match first."""
    if notification is None:
        raise BadNotificationError("explain needs a notification")
    rows = []
    for identity in node.core.clients:
        for id, wanted in identity.subscriptions.items():
            if isinstance(wanted, Filter):
                explanation = explain(wanted, notification)
                rows.append(
                    {
                        "identity": identity.name,
                        "subscription": id,
                        "filter": str(wanted),
                        "matches": explanation.matched,
                        "explanation": str(explanation),
                    }
                )
    rows.sort(key=lambda row: (not row["matches"], row["identity"], row["subscription"]))
    return rows[:EXPLAINED_MAX]
