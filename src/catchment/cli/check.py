"""`catchment check`: the report, and the verdicts on notifications."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from catchment.cli.subjects import PatternSubject, Relation, Report, Subject, subject_of
from catchment.cli.terminal import BadUsage, console

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text


def run_check(
    text: str,
    covers: str | None,
    against: str | None,
    on: str | None,
    start: str | None,
    end: str | None,
    dialect: str,
    kind: str,
    as_json: bool,
) -> int:
    subject = subject_of("FILTER", text, dialect, kind)
    relation = None if covers is None else subject.relation(subject_of("--covers", covers, dialect, kind))
    if on is None and (start is not None or end is not None):
        raise BadUsage("--from and --to are for --on: name an archive")
    if on is not None:
        from catchment.cli.on import filter_for, opened_archive, run_on

        if against is not None:
            raise BadUsage("--against and --on: one at a time")
        from catchment.cli.replay import time_of

        first, until = time_of("--from", start), time_of("--to", end)
        wanted, archive = filter_for(subject), opened_archive("--on", on)
        _print_report(subject, relation, as_json, wrapped=True)
        return run_on(wanted, archive, as_json, first, until)
    if against is None:
        _print_report(subject, relation, as_json)
        return 0
    if isinstance(subject, PatternSubject):
        raise BadUsage("--against is for filters: a pattern matches sequences, not single notifications")
    from catchment.cli.against import opened, run_against

    with opened(against) as source:  # before anything is printed: a missing file is bad usage
        _print_report(subject, relation, as_json, wrapped=True)
        return run_against(subject, source, as_json)


def _print_report(subject: Subject, relation: Relation | None, as_json: bool, wrapped: bool = False) -> None:
    report = subject.report()
    if relation is not None:
        report["relation"] = relation.to_json()
    if as_json:
        print(json.dumps({"report": report} if wrapped else report, allow_nan=False))
        return
    out = console()
    out.print(_headline(report), soft_wrap=True)
    out.print(_facts(report))
    if wrapped:
        out.print()
    sys.stdout.flush()


def _headline(report: Report) -> Text:
    from rich.text import Text

    return Text(str(report["text"]), style="bold")


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
    routed = report.get("implies", report)
    if "empty" in routed:
        rows.append(("matches", _extent(routed)))
    rows.append(("attributes", _attributes(routed["attributes"])))
    rows += [(name, f"{routed[name]:,}") for name in ("alternatives", "comparisons") if name in routed]
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


def _listed(found: str | list[str]) -> str:
    return found if isinstance(found, str) else ", ".join(found)


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
    """The types in words: int and float together are what a number in a filter means."""
    if len(types) == 5:
        words = ["any type"]
    elif {"int", "float"} <= set(types):
        words = ["number" if one == "int" else one for one in types if one != "float"]
    else:
        words = types
    return ", ".join(words + (["absent"] if absent else []))
