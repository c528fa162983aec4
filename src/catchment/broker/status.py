"""What a broker says of itself: for `catchment top`, `catchment explain` and the pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from catchment.errors import BadNotificationError
from catchment.model.explanation import explain
from catchment.model.filter import Filter
from catchment.model.notification import Notification

if TYPE_CHECKING:
    from catchment.broker.node import Node
    from catchment.broker.server import Broker

# Subscriptions that are explained at once, those that match first: what fits a screen or two.
EXPLAINED_MAX: Final = 100


def status_of(broker: Broker) -> dict[str, Any]:
    """Plain values: numbers since the start, for a reader to make rates of."""
    node, sessions = broker.node, getattr(broker.node.core, "sessions", None)
    return {
        "name": node.name,
        "instance": broker.instance,
        "routing": broker.config.routing,
        "address": str(broker.address),
        "up_s": round(broker.uptime_s, 3),
        "subscriptions": 0 if sessions is None else sessions.subscriptions_count,
        "table_filters": len(getattr(node.core, "interest", ())),
        "remote_filters": getattr(node.core, "remote_filters", 0),
        "timers": broker.timers_count,
        "publishers_held": len(broker.credits.held),
        "links_given_up": broker.credits.links_given_up,
        "bytes_given_up": broker.credits.bytes_given_up,
        "totals": {name: getattr(node.totals, name) for name in node.totals.__slots__},
        "links": [
            {
                "neighbor": one.name,
                "instance": broker.link_of(one).instance,
                "cost": link.cost,
                "received": link.received,
                "forwarded": link.forwarded,
                "messages_sent": link.sent,
                "messages_heard": link.heard,
                "outbox_bytes": broker.link_of(one).outbox_bytes,
                "is_congested": broker.link_of(one).is_congested,
            }
            for one, link in sorted(node.links.items())
        ],
        "clients": [
            {"name": one.name, "delivered": state.delivered, "published": state.published}
            for one, state in sorted(node.clients.items())
        ],
    }


def topology_of(broker: Broker) -> dict[str, Any]:
    """What the broker knows of the network: its own links, and with routing by link states those of all."""
    found = {
        "name": broker.node.name,
        "instance": broker.instance,
        "routing": broker.config.routing,
        "address": str(broker.address),
        "links": [{"neighbor": one.name, "cost": link.cost} for one, link in sorted(broker.node.links.items())],
    }
    states = getattr(broker.node.core, "link_states", None)
    if states is None:
        return found
    reached = set(states.reached)
    brokers = [
        {
            "name": name,
            "is_reached": name in reached,
            "links": [{"neighbor": one, "cost": cost} for one, cost in record.costs],
        }
        for name, record in sorted(states.records.items())
    ]
    return {**found, "brokers": brokers}


def explained(node: Node, notification: Notification | None) -> list[dict[str, Any]]:
    """Why the subscriptions of local clients match a notification or do not, those that match first."""
    if notification is None:
        raise BadNotificationError("explain needs a notification")
    found = []
    for session in node.core.sessions:  # type: ignore[attr-defined]
        for id, wanted in session.subscriptions.items():
            if isinstance(wanted, Filter):
                told = explain(wanted, notification)
                found.append(
                    {
                        "identity": session.identity,
                        "subscription": id,
                        "filter": str(wanted),
                        "matches": told.matched,
                        "explanation": str(told),
                    }
                )
    found.sort(key=lambda one: (not one["matches"], one["identity"], one["subscription"]))
    return found[:EXPLAINED_MAX]
