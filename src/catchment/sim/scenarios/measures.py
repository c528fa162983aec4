"""What a run comes to, as plain data: numbers, texts, and tuples and dicts of them. `meter.py` measures it."""

from __future__ import annotations

from msgspec import Struct


class NotificationCount(Struct, frozen=True):
    """`link`: messages that carried notifications over a link, those sent again too. `logical`: hops between brokers
    that handle a notification; brokers between them that only relay it are not counted."""

    link: int
    logical: int


class MessageCount(Struct, frozen=True):
    """Of the messages of one name. `cost` is each message times the cost of its link, as in the SIENA text."""

    messages: int
    bytes: int
    cost: int


class Size(Struct, frozen=True):
    """Of the broker that has most, and of all brokers together."""

    largest: int
    total: int


class TableSizes(Struct, frozen=True):
    """The most that was there at any look. A look is taken each simulated second, and at the end."""

    filters: Size
    bytes: Size


class Latency(Struct, frozen=True):
    """From a publication to its delivery."""

    mean: float
    p99: float


class Convergence(Struct, frozen=True):
    """From a change (what a client asks, a fault) to the arrival of the last control message that it caused."""

    mean: float
    most: float


class WorkDone(Struct, frozen=True):
    """Notifications that brokers matched, pairs of filters that they compared, rows and ids of summaries that they
    looked up: in all, and for each notification published. None if nothing was published."""

    matched: int
    compared: int
    looked_up: int
    matched_per_notification: float | None
    compared_per_notification: float | None
    looked_up_per_notification: float | None


class LinkLoad(Struct, frozen=True):
    """What went over a link, both ways."""

    between: tuple[str, str]
    messages: int
    bytes: int


class Sample(Struct, frozen=True):
    """What happened since the last sample; of `filters`, how many all tables hold at this time."""

    at_s: float
    published: int
    delivered: int
    link: int
    control: int
    bytes: int
    false_positives: int
    filters: int


class Measures(Struct, frozen=True, kw_only=True):
    """What a run came to since the end of its warm-up. What cannot be known, because nothing happened, is None."""

    simulated_s: float
    warm_up_s: float
    published: int
    # Notifications and completed sequences that clients got.
    delivered: int
    # Requests and publications that brokers refused.
    refused: int
    notifications: NotificationCount
    # Messages between brokers that are not notifications, by name.
    control: dict[str, int]
    # Of those that arrived, how many a change caused, how many a notification, and how many an idle timer.
    control_caused: dict[str, int]
    # Of all messages between brokers.
    bytes: int
    cost: int
    # By name; what carries notifications is there too.
    messages: dict[str, MessageCount]
    tables: TableSizes
    # Links between publisher and subscriber, by the way that deliveries took.
    hops_mean: float | None
    latency_ms: Latency | None
    convergence_ms: Convergence | None
    # Notifications that a broker got from another and neither delivered nor passed on nor kept.
    false_positives: int
    work: WorkDone
    samples: tuple[Sample, ...]
    links: tuple[LinkLoad, ...]
