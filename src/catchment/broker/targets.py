"""Where webhooks may go. Whoever can make a webhook can make the broker send requests: this module says to whom.

Without a word from the operator a sink must be reached by HTTPS, at a public address. A name is resolved when the
broker connects, its addresses are checked, and the broker connects to one that passed: so a name that leads somewhere
else the second time gains nothing. `[webhooks] allow` lists names and networks for which this does not hold, for
example the sinks of your own network: `http:` and private addresses are fine there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final
from urllib.parse import urlsplit

from catchment.broker.hosts import host_name
from catchment.errors import InputError, shown

# A URL of a sink: longer ones are cut by proxies and servers.
SINK_CHARACTERS_MAX: Final = 2_048
# Entries of `allow` in the configuration.
ALLOWED_TARGETS_MAX: Final = 1_000

_PORTS: Final = {"http": 80, "https": 443}
# IPv6 addresses that carry an IPv4 address in their last 32 bits: the gateways of NAT64.
_NAT64: Final = (ip_network("64:ff9b::/96"), ip_network("64:ff9b:1::/48"))
_Address = IPv4Address | IPv6Address
_Network = IPv4Network | IPv6Network


class ForbiddenTargetError(InputError):
    """The broker must not send to this address."""


@dataclass(frozen=True, slots=True)
class Target:
    """The sink of a webhook: a URL, in parts. `path` has the query too."""

    url: str
    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """As it stands in the header `Host`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def target_of(url: object) -> Target:
    """The parts of a URL. An InputError says what is wrong with it."""
    if not isinstance(url, str) or not url:
        raise InputError(f"sink must be a URL, found {shown(url)}")
    if len(url) > SINK_CHARACTERS_MAX:
        raise InputError(f"SINK_CHARACTERS_MAX is {SINK_CHARACTERS_MAX:,}, found a sink of {len(url):,}")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise InputError(f"sink {shown(url)}: write a name in its xn-- form, and other characters percent-encoded")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as problem:
        raise InputError(f"sink {shown(url)} is no URL: {problem}") from None
    if parts.scheme not in _PORTS or not parts.hostname or not host_name(parts.hostname):
        raise InputError(f"sink {shown(url)} must be a URL with https:// or http:// and a host")
    if "@" in parts.netloc or parts.fragment:
        raise InputError(f"sink {shown(url)} must have no user, password or #; use sinkCredential for a password")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(url, parts.scheme, host_name(parts.hostname), port or _PORTS[parts.scheme], path)


@dataclass(frozen=True, slots=True)
class TargetRules:
    """`allow` has names, addresses and networks, as an operator writes them."""

    allow: tuple[str, ...] = ()
    _names: frozenset[str] = field(init=False)
    _networks: tuple[_Network, ...] = field(init=False)

    def __post_init__(self) -> None:
        if len(self.allow) > ALLOWED_TARGETS_MAX:
            raise InputError(f"ALLOWED_TARGETS_MAX is {ALLOWED_TARGETS_MAX:,}, found {len(self.allow):,} in allow")
        names, networks = set(), []
        for text in self.allow:
            try:
                networks.append(ip_network(text))
            except ValueError:
                if not (name := host_name(text)):
                    raise InputError(
                        f"allow: {shown(text)} is neither a name nor a network: write sink.example or 10.0.0.0/8"
                    ) from None
                names.add(name)
        object.__setattr__(self, "_names", frozenset(names))
        object.__setattr__(self, "_networks", tuple(networks))

    def check_target(self, target: Target) -> None:
        """What can be said before the name is resolved. A name that is not listed may still lead to a listed network,
        but must be reached by HTTPS."""
        address = _parsed(target.host)
        if address is not None and not self.is_allowed_address(target.host, address):
            raise ForbiddenTargetError(f"{target.host} is not a public address, and allow does not list it")
        is_listed = target.host in self._names or (address is not None and self._is_in_network(address))
        if target.scheme != "https" and not is_listed:
            raise ForbiddenTargetError(f"{target.host} must be reached by https:, unless allow lists it")

    def checked(self, host: str, addresses: Iterable[str]) -> list[str]:
        """The addresses of a host that the broker may connect to; an error if there is none."""
        given = list(addresses)
        fit = [text for text in given if (found := _parsed(text)) is not None and self.is_allowed_address(host, found)]
        if not fit:
            raise ForbiddenTargetError(
                f"{host} leads to {shown(given)}: not a public address, and allow does not list it"
            )
        return fit

    def is_allowed_address(self, host: str, address: _Address) -> bool:
        return host in self._names or self._is_in_network(address) or _is_public(address)

    def _is_in_network(self, address: _Address) -> bool:
        # An address of the other family is in no network: Python says so without an error.
        return any(inner in network for inner in (address, _inner(address)) for network in self._networks)


def _parsed(text: str) -> _Address | None:
    try:
        # A zone (`fe80::1%eth0`) says by which of our own networks: nothing public has one.
        return None if "%" in text else ip_address(text)
    except ValueError:
        return None


def _inner(address: _Address) -> _Address:
    """The IPv4 address that an IPv6 address leads to, if it does; else the address itself."""
    if isinstance(address, IPv4Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
    if inner is None and any(address in network for network in _NAT64):
        inner = IPv4Address(int(address) & 0xFFFF_FFFF)
    return inner or address


def _is_public(address: _Address) -> bool:
    inner = _inner(address)
    return inner.is_global and not (inner.is_multicast or inner.is_reserved or inner.is_unspecified)
