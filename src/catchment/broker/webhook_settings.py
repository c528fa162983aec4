"""What an operator says about webhooks, in the table `[webhooks]` of the configuration.

[webhooks]
allow = ["10.0.0.0/8", "sink.internal"]   # sinks that need not be public, nor HTTPS
trusted = ["sink.internal"]               # sinks that need not agree: no handshake
origin = "broker.example"                 # who this broker is to sinks; default: its first allowed host, or its address
callback = "https://broker.example"       # where a sink reaches this broker's HTTP side; default: its address
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from catchment.broker.hosts import host_name
from catchment.broker.targets import TargetRules
from catchment.errors import InputError, shown

# Names of sinks that need not agree.
TRUSTED_MAX: Final = 1_000


class WebhookSettings(Struct, frozen=True, forbid_unknown_fields=True):
    allow: tuple[str, ...] = ()
    trusted: tuple[str, ...] = ()
    origin: str = ""
    callback: str = ""

    def __post_init__(self) -> None:
        TargetRules(self.allow)
        if len(self.trusted) > TRUSTED_MAX:
            raise InputError(f"webhooks.trusted has {len(self.trusted):,} names: TRUSTED_MAX is {TRUSTED_MAX:,}")
        for name in self.trusted:
            if not host_name(name):
                raise InputError(
                    f"webhooks.trusted: {shown(name)} is no host: write a name or an address, without a port"
                )
        if self.origin and not host_name(self.origin):
            raise InputError(f"webhooks.origin: {shown(self.origin)} is no DNS name")
        if self.callback and not self.callback.startswith(("https://", "http://")):
            raise InputError(f"webhooks.callback: {shown(self.callback)} must be a URL with https:// or http://")
