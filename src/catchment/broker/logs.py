"""Logs of a broker: a line each, for people or for machines."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Final, Literal, TextIO

LogFormat = Literal["human", "json"]

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


class HumanFormatter(logging.Formatter):
    """`02:42:57 info link up neighbor=south`"""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S")
        fields = " ".join(f"{name}={value}" for name, value in _fields(record).items())
        line = f"{at} {record.levelname.lower()} {record.getMessage()} {fields}".rstrip()
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        found = {"time": at, "level": record.levelname.lower(), "message": record.getMessage(), **_fields(record)}
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        return json.dumps(found, default=str)


def set_up(format: LogFormat, stream: TextIO, level: str = "INFO") -> None:
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if format == "json" else HumanFormatter())
    logger = logging.getLogger("catchment")
    logger.handlers[:] = [handler]
    logger.setLevel(level)
    logger.propagate = False
