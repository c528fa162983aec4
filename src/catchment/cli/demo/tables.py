"""The demo for people: tables of subscriptions, deliveries and a near miss."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from catchment.cli.demo.facts import SPEED_SUBSCRIPTIONS, NearMiss, NumberedDelivery, Speed, measured_speed
from catchment.demo import DemoSubscription
from catchment.model.cesql import Cesql
from catchment.model.constraint import quoted_name
from catchment.model.explanation import Clause, ExplainedAlternative, shown_literal
from catchment.model.notification import Notification


def print_tables(
    out: Console, subscribed: Sequence[DemoSubscription], deliveries: Sequence[NumberedDelivery], miss: NearMiss
) -> None:
    out.print(Text("Subscribers say what they want, by content:", style="bold"))
    out.print(_subscription_table(subscribed))
    out.print(Text("Publishers send notifications; each goes to whoever wants it, once:", style="bold"))
    out.print(_delivery_table(deliveries))
    client, number = miss.subscription.client, miss.delivery.number
    out.print(Text(f"Why did {client} not get number {number}?", style="bold"))
    out.print(_miss_table(out, miss))
    with out.status(f"Making {SPEED_SUBSCRIPTIONS:,} stock alerts …"):
        speed = measured_speed()
    out.print(Text("\nAnd with many more:", style="bold"))
    out.print(_speed_text(speed), highlight=False)
    suggestion = f'catchment check "{miss.subscription.text}"'
    out.print(Text.assemble("\nTry your own: ", (suggestion, "cyan")), soft_wrap=True)


def _speed_text(speed: Speed) -> str:
    rate = speed.notifications / speed.matched_seconds
    return (
        f"  {speed.subscriptions:,} stock alerts loaded in {speed.loaded_seconds:.1f} s; {speed.notifications:,} ticks "
        f"matched in {speed.matched_seconds:.2f} s ({rate:,.0f} a second), {speed.matches:,} matches."
    )


def _table(*headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="dim", pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _subscription_table(subscribed: Sequence[DemoSubscription]) -> Table:
    table = _table("subscriber", "filter")
    for subscription in subscribed:
        dialect = ("  (CESQL)", "dim") if isinstance(subscription.wanted, Cesql) else ""
        table.add_row(Text(subscription.client, style="green"), Text.assemble(subscription.text, dialect))
    return table


def _delivery_table(deliveries: Sequence[NumberedDelivery]) -> Table:
    table = _table("", "notification", "delivered to")
    for delivery in deliveries:
        names = ", ".join(receiver.client for receiver in delivery.receivers)
        receivers = Text(names, style="green") if names else Text("nobody", style="dim")
        table.add_row(str(delivery.number), _attributes(delivery.notification), receivers)
    return table


def _attributes(notification: Notification) -> Text:
    parts = [
        Text.assemble((f"{quoted_name(name)}=", "dim"), shown_literal(value)) for name, value in notification.items()
    ]
    return Text(" ").join(parts)


def _miss_table(out: Console, miss: NearMiss) -> Table:
    table = Table.grid(padding=(0, 2))
    for clause in _nearest_alternative(miss).clauses:
        table.add_row(*_clause_cells(clause, out.options.ascii_only))
    return table


def _nearest_alternative(miss: NearMiss) -> ExplainedAlternative:
    alternative = miss.explanation.nearest
    assert alternative is not None, "no bundled filter contradicts itself"
    return alternative


def _clause_cells(clause: Clause, ascii_only: bool) -> tuple[Text, Text, Text]:
    good, bad = ("+", "-") if ascii_only else ("✓", "✗")
    if clause.held:
        return Text(f"  {good}", style="green"), Text(str(clause.constraint)), Text("holds", style="green")
    advice = "" if clause.example is None else f"; {shown_literal(clause.example)} would have done"
    return (
        Text(f"  {bad}", style="red"),
        Text(str(clause.constraint)),
        Text.assemble((clause.reason, "red"), advice),
    )
