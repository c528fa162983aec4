"""What people write on the command line, as values: filters, times, types, attributes, places.

If a text is wrong, each function raises BadUsage, which says where the mistake is and what to write instead. Where a
function takes `where`, that is the name of the argument in the message.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Literal

from catchment.cli.terminal import BadUsage
from catchment.errors import InputError, ParseError
from catchment.model.advertisement import Advertisement
from catchment.model.cesql import Cesql
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.model.pattern import Pattern
from catchment.model.values import Value, parse_duration, parse_time

# How much of a long line an error shows around the place where the mistake is.
EXCERPT_CHARACTERS_MAX: Final = 72

SubscriptionFormat = Literal["json", "csv", "parquet"]
NotificationFormat = Literal["json", "cloudevents", "cloudevents-lines", "csv", "parquet"]
FORMAT_BY_SUFFIX: Final[dict[str, SubscriptionFormat]] = {
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
}


# --- the filter language ------------------------------------------------------------------------


def parsed_filter(where: str, text: str, dialect: str) -> Filter | Cesql:
    try:
        return Cesql(text) if dialect == "cesql" else Filter(text)
    except InputError as problem:
        raise BadUsage(_described(problem, where, text)) from None


def parsed_pattern(where: str, text: str) -> Pattern:
    try:
        return Pattern(text)
    except InputError as problem:
        raise BadUsage(_described(problem, where, text)) from None


def parsed_advertisement(where: str, text: str) -> Advertisement:
    try:
        return Advertisement(text)
    except InputError as problem:
        raise BadUsage(_described(problem, where, text)) from None


def _described(problem: InputError, where: str, text: str) -> str:
    """The problem in words. For a ParseError also the line it is in, and a caret under the column."""
    if not isinstance(problem, ParseError):
        return f"{where}: {problem}"
    place = f"line {problem.line}, column {problem.column}" if "\n" in text else f"column {problem.column}"
    # If nothing was expected, `problem.found` is a whole sentence.
    complaint = f"found {problem.found}" if problem.expected else problem.found
    parts = [f"{where}, {place}: {complaint}", *_excerpt(text, problem.line, problem.column)]
    if problem.expected:
        parts.append(f"expected {', '.join(problem.expected)}")
    return "\n".join(parts)


def _excerpt(text: str, line: int, column: int) -> tuple[str, str]:
    """One line of a text, cut around the column, and below it a caret under that column."""
    from rich.cells import cell_len

    whole = text.split("\n")[line - 1] if line <= text.count("\n") + 1 else ""
    start = max(0, column - 1 - EXCERPT_CHARACTERS_MAX // 2)
    end = start + EXCERPT_CHARACTERS_MAX
    before = ("..." if start else "") + _visible(whole[start : column - 1])
    after = _visible(whole[column - 1 : end]) + ("..." if end < len(whole) else "")
    # A wide character takes two cells of the screen, and an escape several: the caret must move as far.
    return f"  {before}{after}", f"  {' ' * cell_len(before)}^"


def _visible(text: str) -> str:
    """The text as the screen will show it: what cannot be printed, or not in this locale, is escaped."""
    encoding = getattr(sys.stderr, "encoding", None) or "ascii"
    printable = (character if character.isprintable() else ascii(character)[1:-1] for character in text)
    return "".join(printable).encode(encoding, "backslashreplace").decode(encoding)


# --- notifications ------------------------------------------------------------------------------


def parsed_notification(attributes: Sequence[str], payload: bytes = b"") -> Notification:
    """The notification with these attributes, each written as `name=value`."""
    pairs = [_attribute(text) for text in attributes]
    try:
        return Notification(pairs, payload=payload)
    except InputError as problem:
        raise BadUsage(f"ATTRIBUTES: {problem}") from None


def _attribute(text: str) -> tuple[str, Value]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise BadUsage(f"ATTRIBUTES: {text!r} is not an attribute: write name=value, as in level=5 or place=north")
    return name, _value(value)


def _value(text: str) -> Value:
    """A number, true or false, or a time if it reads as one; otherwise a string. Text in quotes is always a string."""
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    for parse in (int, float, parse_time):
        try:
            value: Value = parse(text)
        except (ValueError, InputError):
            continue
        # Python also reads words such as `nan` and `infinity` as floats. Here they are strings.
        if not isinstance(value, float) or text[-1].isdigit() or text[-1] == ".":
            return value
    return text


# --- times, types, files ------------------------------------------------------------------------


def parsed_time(where: str, text: str | None) -> datetime | None:
    try:
        return None if text is None else parse_time(text)
    except InputError as problem:
        raise BadUsage(f"{where}: {problem}") from None


def parsed_duration(where: str, text: str | None) -> timedelta | None:
    """A duration such as `10m`. The filter language has no duration of zero; here `0` and `0s` are."""
    try:
        return None if text is None else timedelta(0) if text in ("0", "0s") else parse_duration(text)
    except InputError as problem:
        raise BadUsage(f"{where}: {problem}") from None


def parsed_types(text: str | None) -> dict[str, str] | None:
    """`price:float,symbol:string` as a mapping. A name may contain colons."""
    if text is None:
        return None
    types = {}
    for part in text.split(","):
        name, _, type_name = part.strip().rpartition(":")
        if not name:
            raise BadUsage(f"--types {text}: write name:type, separated by commas: price:float,symbol:string")
        types[name] = type_name
    return types


def format_by_name(path: str) -> SubscriptionFormat:
    """The format of a file or directory, by the ending of its name or of a name in the directory."""
    place = Path(path)
    for name in (place, *(place.iterdir() if place.is_dir() else ())):
        if name.suffix in FORMAT_BY_SUFFIX:
            return FORMAT_BY_SUFFIX[name.suffix]
    endings = ", ".join(FORMAT_BY_SUFFIX)
    raise BadUsage(f"{path}: its format is unknown, because no name ends in {endings}\nsay the format with --format")


def new_directory(path: str) -> Path:
    """A directory that does not exist yet: results never overwrite anything."""
    if Path(path).exists():
        raise BadUsage(f"--output {path}: this already exists; name a new directory")
    return Path(path)


def existing_archive(where: str, path: str) -> str:
    """The path of an archive. It is checked here, because Spark would take seconds to start and then fail."""
    from catchment.pipeline.archive.files import Archive

    try:
        Archive(path).required_schema_text()
    except (InputError, OSError, ValueError) as problem:
        raise BadUsage(f"{where}: {problem}") from None
    return path
