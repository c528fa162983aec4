"""What a broker says of itself: for `catchment top`, `catchment explain` and the pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import asdict

from catchment.broker.store_status import store_status
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
# Subscriptions that do not match and that are considered: some of these may be patterns, which are not explained.
OTHERS_LOOKED_AT_MAX: Final = 10 * EXPLAINED_MAX


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
        "filters_apart": inspection.apart,
        "jobs": {"running": node.jobs.count, "clients_waiting": node.jobs.waiting_count},
        "dropped_records": inspection.dropped_records,
        "timers": broker.timers_count,
        "publishers_held": len(broker.credits.held),
        "greedy_connections": broker.turns.greedy_count,
        "half_sent_bytes": broker.half_sent.bytes,
        "half_sent_given_up": broker.half_sent.given_up,
        "outboxes_bytes": broker.outboxes.bytes,
        "outboxes_closed": broker.outboxes.closed_count,
        "links_given_up": broker.credits.links_given_up,
        "bytes_given_up": broker.credits.bytes_given_up,
        "suspended_bytes": node.core.clients.waiting_bytes,
        "monitors_bytes": node.core.clients.watching.bytes_count,
        "totals": node.counts(inspection.work),
        "store": None if broker.storing is None else store_status(broker.storing, node.now()),
        "storages": [
            {"name": name, "log": log, "is_reached": is_reached} for name, log, is_reached in broker.core.storages()
        ],
        "alarms": broker.core.alarms,
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
        "webhooks": [] if broker.http is None else broker.http.webhook_statuses,
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


def explained(node: Node, notification: Notification | None) -> Iterator[dict[str, Any]]:
    """Why subscriptions of local clients match a notification or do not: up to EXPLAINED_MAX, those that match first.
    Each is some work: the caller lets others run in between."""
    if notification is None:
        raise BadNotificationError("explain needs a notification")
    clients = node.core.clients
    (interested,) = clients.matcher.answers([notification])
    matching = [(identity.name, id) for identity, ids, _ in interested for id in ids]
    others = ((identity.name, id) for identity in clients for id in list(identity.subscriptions))
    looked_at = islice(others, OTHERS_LOOKED_AT_MAX)
    chosen = dict.fromkeys(islice(chain(sorted(matching), looked_at), EXPLAINED_MAX + len(matching)))
    return _explained_rows(node, notification, list(chosen))


def _explained_rows(
    node: Node, notification: Notification, subscriptions: Sequence[tuple[str, str]]
) -> Iterator[dict[str, Any]]:
    left = EXPLAINED_MAX
    for identity, id in subscriptions:
        # It may have been cancelled since the last row.
        wanted = node.core.clients.wants_of(identity).get(id)
        if isinstance(wanted, Filter) and left:
            left -= 1
            explanation = explain(wanted, notification)
            yield {
                "identity": identity,
                "subscription": id,
                "filter": str(wanted),
                "matches": explanation.matched,
                "explanation": str(explanation),
            }


def in_order(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that match first."""
    return sorted(rows, key=lambda row: (not row["matches"], row["identity"], row["subscription"]))
