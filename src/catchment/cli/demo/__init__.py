"""`catchment demo`: the bundled notifications and subscriptions, who gets what, and how fast many are matched."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from catchment.cli.options import JsonFlag
from catchment.cli.terminal import console

if TYPE_CHECKING:
    from collections.abc import Sequence

    from catchment.cli.demo.facts import NearMiss, NumberedDelivery, Speed
    from catchment.demo import DemoSubscription


def demo(*, as_json: JsonFlag = False) -> int:
    """See it work: subscriptions, notifications, who gets which, and why somebody does not get one."""
    from catchment.cli.demo.facts import deliveries_of, first_near_miss, measured_speed
    from catchment.cli.demo.tables import print_tables
    from catchment.demo import subscriptions
    from catchment.matching import Matcher

    subscribed = subscriptions()
    matcher = Matcher()
    matcher.add_many([subscription.id for subscription in subscribed], [each.wanted for each in subscribed])
    deliveries = deliveries_of(matcher, subscribed)
    miss = first_near_miss(matcher, subscribed, deliveries)
    if as_json:
        _print_json(subscribed, deliveries, miss, measured_speed())
    else:
        print_tables(console(), subscribed, deliveries, miss)
    return 0


def _print_json(
    subscribed: Sequence[DemoSubscription], deliveries: Sequence[NumberedDelivery], miss: NearMiss, speed: Speed
) -> None:
    document = {
        "subscriptions": [
            {"id": each.id, "client": each.client, "dialect": each.dialect, "text": each.text} for each in subscribed
        ],
        "deliveries": [delivery.to_json() for delivery in deliveries],
        "near_miss": miss.to_json(),
        "scale": speed.to_json(),
    }
    print(json.dumps(document, allow_nan=False))
