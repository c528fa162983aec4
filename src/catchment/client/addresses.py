"""The addresses of brokers, as a client is given them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from catchment.errors import InputError, shown

DEFAULT_PORT: Final = 7400


def parsed_addresses(url: str | Sequence[str]) -> list[tuple[str, int]]:
    """Host and port of each: one address, several separated by commas, or several texts."""
    texts = url.split(",") if isinstance(url, str) else list(url)
    if not texts:
        raise InputError("there is no address: write catchment://host:port")
    return [_parsed(text.strip()) for text in texts]


def _parsed(url: str) -> tuple[str, int]:
    scheme, separator, rest = url.partition("://")
    if separator and scheme != "catchment":
        raise InputError(f"{shown(url)}: a broker's address begins with catchment://")
    host, colon, port = (rest if separator else url).rstrip("/").rpartition(":")
    if not colon:
        host, port = port, str(DEFAULT_PORT)
    if not port.isdecimal():
        raise InputError(f"{shown(url)} is no address: write catchment://host:port")
    return host.strip("[]") or "127.0.0.1", int(port)
