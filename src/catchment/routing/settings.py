"""The settings that a broker is given for its routing system: each system derives its own struct from this."""

from __future__ import annotations

from msgspec import Struct


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """No settings: what systems use that need none."""
