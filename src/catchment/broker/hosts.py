"""Which names this broker answers to over HTTP, and which pages may use it.

A page of any site may send requests to any address that its browser can reach. Two checks keep strangers' pages out:

Host     A page can make its own name lead to this broker's address ("DNS rebinding"). To the browser such a page and
         the broker are one site. But the header `Host` still has the page's name. So the broker answers only to the
         address where it listens, the address where the connection arrived, `localhost`, and `allowed_hosts`.
Origin   A browser says which site a page is from. A page may use the broker if it is from the very site that it asks,
         name and port, or from a name of `allowed_hosts`. Programs that are no browsers send no Origin.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from typing import Final

from catchment.errors import InputError, shown

# Names in the configuration.
ALLOWED_HOSTS_MAX: Final = 1_000

_AUTHORITY: Final = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::([0-9]{1,5}))?", re.ASCII)
_ORIGIN: Final = re.compile(r"([a-z]{1,10})://(.+)", re.IGNORECASE | re.ASCII)
_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")


class WrongHostError(InputError):
    """A request for a host that this broker is not."""


class ForeignPageError(InputError):
    """A request of a page of another site."""


def host_name(text: str) -> str:
    """A name or an address as it is compared, or nothing if it is neither."""
    match = _AUTHORITY.fullmatch(f"[{text}]" if text.count(":") > 1 and not text.startswith("[") else text)
    return "" if match is None or match[2] is not None else _normal(match[1])


def _normal(host: str) -> str:
    bare = host.strip("[]").lower().removesuffix(".")
    try:
        return str(ip_address(bare))
    except ValueError:
        # What stands in brackets must be an address.
        return "" if host.startswith("[") else bare


def _authority(text: str) -> tuple[str, int | None] | None:
    """Host and port of `host:port`."""
    match = _AUTHORITY.fullmatch(text)
    if match is None or not (host := _normal(match[1])):
        return None
    return host, None if match[2] is None else int(match[2])


class AllowedHosts:
    """`listen` is the address where the broker listens for HTTP, `names` are its configured `allowed_hosts`."""

    def __init__(self, listen: str, names: Iterable[str] = ()) -> None:
        self._names = frozenset(map(host_name, names))
        self._hosts = frozenset({host_name(listen), *map(host_name, _LOCAL), *self._names}) - {""}

    def check(self, hosts: Sequence[str], origins: Sequence[str], arrived_at: str) -> None:
        """Raises if the request is not for this broker, or of a page that may not use it. `hosts` and `origins` are
        the values of these headers, `arrived_at` is the broker's own address of the connection."""
        if len(hosts) != 1:
            raise WrongHostError(f"a request has one header Host, found {len(hosts)}")
        asked = _authority(hosts[0])
        if asked is None or (asked[0] not in self._hosts and asked[0] != host_name(arrived_at)):
            raise WrongHostError(
                f"this broker is not {shown(hosts[0])}: if it is a name of this broker, put it into allowed_hosts"
            )
        for origin in origins:
            if not self._may_use(origin, asked):
                raise ForeignPageError(f"a page of {shown(origin)} may not use this broker: see allowed_hosts")

    def _may_use(self, origin: str, asked: tuple[str, int | None]) -> bool:
        match = _ORIGIN.fullmatch(origin)
        site = None if match is None else _authority(match[2])
        if match is None or site is None:
            return False
        port = _PORTS.get(match[1].lower())
        return site[0] in self._names or (site[0], site[1] or port) == (asked[0], asked[1] or port)
