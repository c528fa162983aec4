"""Which names clients, identities, sources and brokers may have.

Names stand in logs, in messages of other brokers and on status pages, and some names mean something to brokers. So a
name cannot pretend to be one of those, nor break a line of a log:

- It has 1 to IDENTITY_CODEPOINTS_MAX characters.
- It has no control character and no line end.
- It does not begin with `@`: those names belong to a broker's own clients (those of its HTTP side) and to the inner
  neighbors of a gateway.
- It is not `*`, which is kept for "everybody".
"""

from __future__ import annotations

from typing import Final
from unicodedata import category

from catchment.errors import shown
from catchment.model.pattern import IDENTITY_CODEPOINTS_MAX

# Names that begin with this are a broker's own.
RESERVED: Final = "@"
EVERYBODY: Final = "*"
# The client that everybody who publishes over HTTP is to a node.
HTTP_PUBLISHER: Final = "@http"

# Control characters, line and paragraph separators, lone surrogates.
_UNPRINTABLE: Final = frozenset({"Cc", "Zl", "Zp", "Cs"})


def name_refusal(name: str) -> str:
    """Why nobody can have this name; nothing if somebody can."""
    return length_refusal(name) or spelling_refusal(name)


def spelling_refusal(name: str) -> str:
    """The same for a name whose length is right."""
    if name.startswith(RESERVED):
        return f"{shown(name)}: names that begin with {RESERVED} are the broker's own"
    if name == EVERYBODY:
        return f"{shown(name)} is reserved: it stands for everybody"
    # `isprintable` is quick and nearly always true. It also refuses some harmless characters: only then look closely.
    if not name.isprintable() and any(category(character) in _UNPRINTABLE for character in name):
        return f"{shown(name)}: a name has no control characters and no line ends"
    return ""


def length_refusal(name: str) -> str:
    """Why a text is too short or too long for a name or an id."""
    if 1 <= len(name) <= IDENTITY_CODEPOINTS_MAX:
        return ""
    return f"a name has 1 to {IDENTITY_CODEPOINTS_MAX:,} characters, found {len(name):,}"
