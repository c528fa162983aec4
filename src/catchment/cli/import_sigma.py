"""`catchment import-sigma`: makes subscriptions of Sigma rules."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from catchment.cli.options import OUTPUT_NAMES, JsonFlag, flag
from catchment.cli.terminal import EXIT_FAILED, BadUsage, console, note

if TYPE_CHECKING:
    from catchment.sigma import ImportedRule, RejectedRule

ENDINGS: Final = (".yml", ".yaml")

RULES_HELP: Final = "Files of Sigma rules in YAML, or directories: all .yml and .yaml files in them are read."
OUTPUT_HELP: Final = "The file of subscriptions to write, as JSON Lines. If it exists, it is replaced."
LOWER_HELP: Final = "Write texts in lower case, for notifications whose texts are in lower case."
LOG_SOURCE_HELP: Final = (
    "Also require the log source of the rule, in the attributes logsource.category, logsource.product and "
    "logsource.service."
)


def import_sigma(
    *rules: Annotated[str, Parameter(help=RULES_HELP)],
    output: Annotated[str, Parameter(name=OUTPUT_NAMES, help=OUTPUT_HELP, metavar="SUBSCRIPTIONS")],
    subscriber: Annotated[str, Parameter(help="The subscriber of all the subscriptions.", metavar="NAME")] = "sigma",
    lower: Annotated[bool, flag(LOWER_HELP)] = False,
    logsource: Annotated[bool, flag(LOG_SOURCE_HELP)] = False,
    as_json: JsonFlag = False,
) -> int:
    """Make subscriptions of Sigma detection rules, for catchment compile and catchment sub.

    Says which rules no filter can express and why, and writes those to a file of rejects beside the output.
    """
    files = _files(rules)
    imported, rejected = _read(files, lower, logsource, quiet=as_json)
    for rule in rejected:
        note(f"{rule.file}: {rule.title or rule.id or f'document {rule.document}'}: {rule.reason}")
    place = Path(output)
    rejects_place = place.with_name(f"{place.stem}.rejects.jsonl")
    if imported:
        _write(place, [_subscription(rule, subscriber) for rule in imported])
    if rejected:
        _write(rejects_place, [_reject(rule) for rule in rejected])
    else:
        # Rejects of an earlier run would tell of rules that are imported now.
        rejects_place.unlink(missing_ok=True)
    _print_summary(imported, rejected, place, rejects_place, as_json)
    return 0 if imported else EXIT_FAILED


def _files(given: Sequence[str]) -> list[Path]:
    """The files that are given, and those in directories that are given, in order of their names."""
    files: list[Path] = []
    for path in map(Path, given):
        if path.is_dir():
            files += sorted(
                Path(directory, name)
                for directory, _, names in os.walk(path)
                for name in names
                if name.lower().endswith(ENDINGS)
            )
        elif path.exists():
            files.append(path)
        else:
            raise BadUsage(f"RULES: there is no file or directory {path}")
    if not files:
        raise BadUsage("RULES: give files of Sigma rules, or directories with .yml or .yaml files")
    return files


def _read(
    files: Sequence[Path], lower: bool, logsource: bool, quiet: bool
) -> tuple[list[ImportedRule], list[RejectedRule]]:
    from catchment.sigma import FILE_BYTES_MAX, ImportedRule, LetterCase, RuleReader

    reader = RuleReader(LetterCase.LOWER if lower else LetterCase.NOCASE, with_log_source=logsource)
    imported: list[ImportedRule] = []
    rejected: list[RejectedRule] = []
    with _progress(files, quiet) as shown_files:
        for path in shown_files:
            with path.open("rb") as file:
                # A byte more than the limit is enough for the reader to refuse the file.
                content = file.read(FILE_BYTES_MAX + 1)
            for rule in reader.read(path.as_posix(), content):
                if isinstance(rule, ImportedRule):
                    imported.append(rule)
                else:
                    rejected.append(rule)
    return imported, rejected


@contextmanager
def _progress(files: Sequence[Path], quiet: bool) -> Iterator[Iterator[Path]]:
    """The files, with a bar on standard error that grows as they are read, if that is a terminal."""
    errors = console(stderr=True)
    if quiet or not errors.is_terminal:
        yield iter(files)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True) as progress:
        yield iter(progress.track(files, description="reading rules"))


def _subscription(rule: ImportedRule, subscriber: str) -> dict[str, Any]:
    """A row for catchment compile. It leaves alone the columns that tell where the rule comes from."""
    told = {"title": rule.title, "author": rule.author, "level": rule.level, "rule": rule.file}
    return {
        "id": rule.id,
        "subscriber": subscriber,
        "filter": rule.filter,
        **{name: text for name, text in told.items() if text},
    }


def _reject(rule: RejectedRule) -> dict[str, Any]:
    return {
        "file": rule.file,
        "document": rule.document,
        "id": rule.id,
        "title": rule.title,
        "kind": rule.kind,
        "reason": rule.reason,
    }


def _write(place: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Writes the file whole or not at all: a reader never finds half of it."""
    unfinished = place.with_name(f".{place.name}.unfinished")
    try:
        with unfinished.open("w", encoding="utf-8") as lines:
            lines.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        unfinished.replace(place)
    finally:
        unfinished.unlink(missing_ok=True)


def _print_summary(
    imported: Sequence[ImportedRule], rejected: Sequence[RejectedRule], place: Path, rejects_place: Path, as_json: bool
) -> None:
    kinds = dict(Counter(rule.kind for rule in rejected).most_common())
    if as_json:
        written = {"output": str(place) if imported else None, "rejects": str(rejects_place) if rejected else None}
        print(json.dumps({"imported": len(imported), "rejected": len(rejected), "reasons": kinds, **written}))
        return
    print(f"{_counted(imported)} imported" + (f", written to {place}" if imported else ": nothing is written"))
    if rejected:
        print(f"{_counted(rejected)} rejected, written to {rejects_place}")
        for kind, count in kinds.items():
            print(f"{count:6,}  {kind}")


def _counted(rules: Sequence[object]) -> str:
    return "1 rule" if len(rules) == 1 else f"{len(rules):,} rules"
