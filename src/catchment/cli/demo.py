"""`catchment demo`: the fullest thing that works, on bundled data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Final

from catchment.cli.terminal import console
from catchment.demo import DemoSubscription, notifications, subscriptions
from catchment.matching import Matcher
from catchment.model.cesql import Cesql
from catchment.model.conjunction import Conjunction
from catchment.model.constraint import constraint, quoted_name
from catchment.model.explanation import Clause, ExplainedAlternative, Explanation, shown_literal
from catchment.model.notification import Notification
from catchment.model.values import Json
from catchment.sim import benchmark_data

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text


# Enough to show, made and matched within a few seconds.
SCALE: Final = 100_000
SCALE_NOTIFICATIONS: Final = 5_000


@dataclass(frozen=True, slots=True)
class Delivery:
    """A notification and those who get it."""

    number: int
    notification: Notification
    receivers: tuple[DemoSubscription, ...]

    def to_json(self) -> dict[str, Json]:
        return {
            "number": self.number,
            "notification": self.notification.to_json(),
            "delivered_to": [one.id for one in self.receivers],
        }


@dataclass(frozen=True, slots=True)
class NearMiss:
    """A subscription that one clause kept from a notification."""

    delivery: Delivery
    subscription: DemoSubscription
    explanation: Explanation

    def to_json(self) -> dict[str, Json]:
        found: dict[str, Json] = {"number": self.delivery.number, "subscription": self.subscription.id}
        return found | {"explanation": self.explanation.to_json()}


@dataclass(frozen=True, slots=True)
class Scale:
    """What the matcher did with many subscriptions."""

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


def run_demo(as_json: bool) -> int:
    people = {one.id: one for one in subscriptions()}
    matcher = Matcher()
    matcher.add_many(list(people), [one.wanted for one in people.values()])
    deliveries = [_delivery(number, found, matcher, people) for number, found in enumerate(notifications(), 1)]
    miss = nearest_miss(deliveries, matcher, people)
    if as_json:
        _print_json(list(people.values()), deliveries, miss, at_scale())
    else:
        _print_tables(console(), list(people.values()), deliveries, miss)
    return 0


def _delivery(
    number: int, notification: Notification, matcher: Matcher, people: Mapping[str, DemoSubscription]
) -> Delivery:
    found = set(matcher.match(notification))
    return Delivery(number, notification, tuple(one for one in people.values() if one.id in found))


def nearest_miss(deliveries: Sequence[Delivery], matcher: Matcher, people: Mapping[str, DemoSubscription]) -> NearMiss:
    """The first that one clause kept away."""
    return next(
        NearMiss(delivery, people[str(id)], explanation)
        for delivery in deliveries
        for id, explanation in matcher.nearest(delivery.notification)
    )


def at_scale() -> Scale:
    """Stock alerts of the benchmark's second workload: many subscriptions, loaded and matched."""
    subscriptions = benchmark_data.subscriptions("W2", SCALE)
    wanted = [Conjunction(tuple(constraint(*triple) for triple in triples)) for triples in subscriptions]
    ticks = benchmark_data.notifications("W2", SCALE_NOTIFICATIONS)
    matcher = Matcher()
    started = perf_counter()
    matcher.add_many(range(SCALE), wanted)
    loaded = perf_counter()
    matches = len(matcher.match_batch(ticks).ids)
    return Scale(SCALE, SCALE_NOTIFICATIONS, matches, loaded - started, perf_counter() - loaded)


def _nearest(miss: NearMiss) -> ExplainedAlternative:
    found = miss.explanation.nearest
    assert found is not None, "no bundled filter contradicts itself"
    return found


def _print_json(
    people: Sequence[DemoSubscription], deliveries: Sequence[Delivery], miss: NearMiss, scale: Scale
) -> None:
    found = {
        "subscriptions": [
            {"id": one.id, "client": one.client, "dialect": one.dialect, "text": one.text} for one in people
        ],
        "deliveries": [delivery.to_json() for delivery in deliveries],
        "near_miss": miss.to_json(),
        "scale": scale.to_json(),
    }
    print(json.dumps(found, allow_nan=False))


# --- for people ---------------------------------------------------------------------------------


def _print_tables(
    out: Console, people: Sequence[DemoSubscription], deliveries: Sequence[Delivery], miss: NearMiss
) -> None:
    from rich.text import Text

    out.print(Text("Subscribers say what they want, by content:", style="bold"))
    out.print(_people_table(people))
    out.print(Text("Publishers send notifications; each goes to whoever wants it, once:", style="bold"))
    out.print(_delivery_table(deliveries))
    client, number = miss.subscription.client, miss.delivery.number
    out.print(Text(f"Why did {client} not get number {number}?", style="bold"))
    out.print(_miss_table(out, miss))
    with out.status(f"Making {SCALE:,} stock alerts …"):
        scale = at_scale()
    out.print(Text("\nAnd with many more:", style="bold"))
    out.print(_scale_text(scale), highlight=False)
    out.print(Text.assemble("\nTry your own: ", (_suggestion(miss), "cyan")), soft_wrap=True)


def _scale_text(scale: Scale) -> str:
    rate = scale.notifications / scale.matched_seconds
    return (
        f"  {scale.subscriptions:,} stock alerts loaded in {scale.loaded_seconds:.1f} s; {scale.notifications:,} ticks "
        f"matched in {scale.matched_seconds:.2f} s ({rate:,.0f} a second), {scale.matches:,} matches."
    )


def _suggestion(miss: NearMiss) -> str:
    return f'catchment check "{miss.subscription.text}"'


def _plain_table(*headings: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, header_style="dim", pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _people_table(people: Sequence[DemoSubscription]) -> Table:
    from rich.text import Text

    table = _plain_table("subscriber", "filter")
    for one in people:
        note = ("  (CESQL)", "dim") if isinstance(one.wanted, Cesql) else ""
        table.add_row(Text(one.client, style="green"), Text.assemble(one.text, note))
    return table


def _delivery_table(deliveries: Sequence[Delivery]) -> Table:
    from rich.text import Text

    table = _plain_table("", "notification", "delivered to")
    for delivery in deliveries:
        names = ", ".join(one.client for one in delivery.receivers)
        receivers = Text(names, style="green") if names else Text("nobody", style="dim")
        table.add_row(str(delivery.number), _attributes(delivery.notification), receivers)
    return table


def _attributes(notification: Notification) -> Text:
    from rich.text import Text

    parts = [
        Text.assemble((f"{quoted_name(name)}=", "dim"), shown_literal(value)) for name, value in notification.items()
    ]
    return Text(" ").join(parts)


def _miss_table(out: Console, miss: NearMiss) -> Table:
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for clause in _nearest(miss).clauses:
        table.add_row(*_clause_cells(clause, out.options.ascii_only))
    return table


def _clause_cells(clause: Clause, ascii_only: bool) -> tuple[Text, Text, Text]:
    from rich.text import Text

    good, bad = ("+", "-") if ascii_only else ("✓", "✗")
    if clause.held:
        return Text(f"  {good}", style="green"), Text(str(clause.constraint)), Text("holds", style="green")
    advice = "" if clause.example is None else f"; {shown_literal(clause.example)} would have done"
    return (
        Text(f"  {bad}", style="red"),
        Text(str(clause.constraint)),
        Text.assemble((clause.reason, "red"), advice),
    )
