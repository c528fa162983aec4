"""The report on a filter, a pattern or an advertisement: for people a headline and a table, for programs JSON."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from catchment.cli.check.checked import Checked, Relation
from catchment.cli.terminal import console

if TYPE_CHECKING:
    from rich.table import Table


def print_report(checked: Checked, relation: Relation | None, as_json: bool, *, more_follows: bool = False) -> None:
    """Prints the report. If verdicts or days follow it, JSON has it as the field `report`, and text an empty line."""
    report = checked.report()
    if relation is not None:
        report["relation"] = relation.to_json()
    if as_json:
        print(json.dumps({"report": report} if more_follows else report, allow_nan=False))
        return
    from rich.text import Text

    out = console()
    out.print(Text(str(report["text"]), style="bold"), soft_wrap=True)
    out.print(_facts(report))
    if more_follows:
        out.print()
    # What follows may be written to the stream directly, past the console.
    sys.stdout.flush()


def _facts(report: dict[str, Any]) -> Table:
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, fact in _rows(report):
        table.add_row(f"  {name}", fact)
    return table


def _rows(report: dict[str, Any]) -> list[tuple[str, str | Table]]:
    rows: list[tuple[str, str | Table]] = [(report["kind"], f"{report['dialect']} dialect")]
    if "implies" in report:
        rows.append(("implies", report["implies"]["text"]))
    # Brokers route a CESQL expression by the filter that it implies: the facts are about that filter.
    routed = report.get("implies", report)
    if "empty" in routed:
        rows.append(("matches", _extent(routed)))
    rows.append(("attributes", _attributes(routed["attributes"])))
    rows += [(name, f"{routed[name]:,}") for name in ("alternatives", "comparisons") if name in routed]
    if "normal" in routed:
        rows.append(("routing", _routing(routed)))
    rows += [(name, _listed(report[name])) for name in ("within", "by") if report.get(name)]
    if "relation" in report:
        rows.append(("relation", report["relation"]["sentence"]))
    return rows


def _extent(report: dict[str, Any]) -> str:
    if report["empty"]:
        return "nothing: it contradicts itself"
    if report.get("everything"):
        return "everything"
    return "some sequences" if "filters" in report else "some notifications"


def _routing(report: dict[str, Any]) -> str:
    """What brokers can know of a filter, and what that means for traffic."""
    if report["normal"]:
        return "exact: brokers compare it with other filters by what it means"
    return (
        "by a wider filter: this one is too large for exact comparisons. Clients get exactly what it matches; brokers "
        f"may carry more than that between them. Brokers route it by: {report['routed_by']}"
    )


def _listed(words: str | list[str]) -> str:
    return words if isinstance(words, str) else ", ".join(words)


def _attributes(attributes: dict[str, Any]) -> str | Table:
    from rich.table import Table

    from catchment.model.constraint import quoted_name

    if not attributes:
        return "none"
    table = Table.grid(padding=(0, 2))
    for name, accepted in attributes.items():
        table.add_row(quoted_name(name), _types(accepted["types"], accepted["absent"]))
    return table


def _types(types: list[str], absent: bool) -> str:
    """The types in words. A number in a filter means int and float together, so both together are `number`."""
    if len(types) == 5:
        words = ["any type"]
    elif {"int", "float"} <= set(types):
        words = ["number" if name == "int" else name for name in types if name != "float"]
    else:
        words = types
    return ", ".join(words + (["absent"] if absent else []))
