"""What the demo shows: who gets which notification, a near miss, and how fast many subscriptions are matched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Final

from catchment.demo import DemoSubscription, notifications
from catchment.matching import Matcher
from catchment.model.conjunction import Conjunction
from catchment.model.constraint import constraint
from catchment.model.explanation import Explanation
from catchment.model.notification import Notification
from catchment.model.values import Json
from catchment.sim import benchmark_data

# Enough to impress, and still made and matched within a few seconds.
SPEED_SUBSCRIPTIONS: Final = 100_000
SPEED_NOTIFICATIONS: Final = 5_000


@dataclass(frozen=True, slots=True)
class NumberedDelivery:
    """A notification, its number in the demo, and the subscriptions that get it."""

    number: int
    notification: Notification
    receivers: tuple[DemoSubscription, ...]

    def to_json(self) -> dict[str, Json]:
        return {
            "number": self.number,
            "notification": self.notification.to_json(),
            "delivered_to": [receiver.id for receiver in self.receivers],
        }


@dataclass(frozen=True, slots=True)
class NearMiss:
    """A notification that a subscription does not get because of a single clause."""

    delivery: NumberedDelivery
    subscription: DemoSubscription
    explanation: Explanation

    def to_json(self) -> dict[str, Json]:
        return {
            "number": self.delivery.number,
            "subscription": self.subscription.id,
            "explanation": self.explanation.to_json(),
        }


@dataclass(frozen=True, slots=True)
class Speed:
    """How long the matcher took with many subscriptions."""

    subscriptions: int
    notifications: int
    matches: int
    loaded_seconds: float
    matched_seconds: float

    def to_json(self) -> dict[str, Json]:
        return {
            "subscriptions": self.subscriptions,
            "notifications": self.notifications,
            "matches": self.matches,
            "loaded_seconds": round(self.loaded_seconds, 3),
            "matched_seconds": round(self.matched_seconds, 3),
        }


def deliveries_of(matcher: Matcher, subscribed: Sequence[DemoSubscription]) -> list[NumberedDelivery]:
    deliveries = []
    for number, notification in enumerate(notifications(), 1):
        matches = set(matcher.match(notification))
        receivers = tuple(subscription for subscription in subscribed if subscription.id in matches)
        deliveries.append(NumberedDelivery(number, notification, receivers))
    return deliveries


def first_near_miss(
    matcher: Matcher, subscribed: Sequence[DemoSubscription], deliveries: Sequence[NumberedDelivery]
) -> NearMiss:
    subscription_by_id = {subscription.id: subscription for subscription in subscribed}
    return next(
        NearMiss(delivery, subscription_by_id[str(id)], explanation)
        for delivery in deliveries
        for id, explanation in matcher.nearest(delivery.notification)
    )


def measured_speed() -> Speed:
    """Loads and matches the stock alerts of the benchmark's second workload."""
    alerts = [
        Conjunction(tuple(constraint(*parts) for parts in alert))
        for alert in benchmark_data.subscriptions("W2", SPEED_SUBSCRIPTIONS)
    ]
    ticks = benchmark_data.notifications("W2", SPEED_NOTIFICATIONS)
    matcher = Matcher()
    start_s = perf_counter()
    matcher.add_many(range(SPEED_SUBSCRIPTIONS), alerts)
    loaded_s = perf_counter()
    matches = len(matcher.match_batch(ticks).ids)
    return Speed(SPEED_SUBSCRIPTIONS, SPEED_NOTIFICATIONS, matches, loaded_s - start_s, perf_counter() - loaded_s)
