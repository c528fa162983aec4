"""What a routing system may be told about a broker: each has a struct of its own, derived from this."""

from __future__ import annotations

from msgspec import Struct


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """No settings at all."""
