"""The log of a broker: one line for each message, for people or for machines."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Final, Literal, TextIO

LogFormat = Literal["human", "json"]

# The longest field. Names and reasons come from other programs, and people must be able to read the line.
FIELD_CHARACTERS_MAX: Final = 1_024

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: _bounded(value) for name, value in vars(record).items() if name not in _STANDARD}


def _bounded(value: object) -> object:
    if not isinstance(value, str) or len(value) <= FIELD_CHARACTERS_MAX:
        return value
    return value[: FIELD_CHARACTERS_MAX - 1] + "…"


def _on_one_line(value: object) -> str:
    """The value with line ends and control characters escaped, so that nobody can forge a line of our log."""
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in str(value))


class HumanFormatter(logging.Formatter):
    """`02:42:57 info link up neighbor=south`"""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S")
        fields = " ".join(f"{name}={_on_one_line(value)}" for name, value in _fields(record).items())
        line = f"{at} {record.levelname.lower()} {record.getMessage()} {fields}".rstrip()
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        members = {"time": at, "level": record.levelname.lower(), "message": record.getMessage(), **_fields(record)}
        if record.exc_info:
            members["exception"] = self.formatException(record.exc_info)
        return json.dumps(members, default=str)


def set_up(format: LogFormat, stream: TextIO, level: str = "INFO") -> None:
    """Sends what Catchment logs to `stream`, and nowhere else."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if format == "json" else HumanFormatter())
    logger = logging.getLogger("catchment")
    logger.handlers[:] = [handler]
    logger.setLevel(level)
    logger.propagate = False
