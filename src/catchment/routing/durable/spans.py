"""The accept rule: what a receiver does with a piece of a log, given how far it is.

A piece of a log says: of (after, upto], exactly these entries are for you. So silence is said too, and a receiver can
tell what was filtered out from what was lost. At position p:

    upto <= p           known: ignore
    after <= p < upto   take the entries above p, in order; p becomes upto, not the number of the last entry
    after > p           gap: something is missing between p and after; ignore, and ask for what follows p

Whatever is lost, doubled or reordered on the way, the receiver takes each entry of (start, p] once and in order.

The rule is used in three places: by a storage for what publishers send (the log is the source, numbers are `$seq`), by
the broker that serves an identity for what storages send, and by a relay for what other storages send.
"""

from __future__ import annotations

from enum import Enum


class Verdict(Enum):
    """What the rule says about a piece."""

    KNOWN = "known"
    TAKE = "take"
    GAP = "gap"


def verdict(position: int, after: int | None, upto: int) -> Verdict:
    """The accept rule. `after` is None if the sender does not know what came before: then there is no gap."""
    # The gap comes first: a question (after equal to upto) above the position is a gap, not something known.
    if after is not None and after > position:
        return Verdict.GAP
    return Verdict.KNOWN if upto <= position else Verdict.TAKE
