"""The last number of each publisher: what tells the new from what was there before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from catchment.model.notification import Notification

# All the names that one remembers: a name may be as long as a string.
NAMES_CODEPOINTS_MAX: Final = 16 * 1_048_576


class Newest:
    """Remembers so many publishers; the longest silent are forgotten first."""

    def __init__(self, publishers_max: int) -> None:
        self._publishers_max = publishers_max
        self._last: dict[str, int] = {}
        self._codepoints = 0
        # The one that was heard last, if it is remembered.
        self._latest: str | None = None

    def is_new(self, notification: Notification) -> bool:
        """Whether it is newer than all that its publisher has sent; remembers it. Without source or number it is."""
        source, seq = notification.source, notification.seq
        if source is None or seq is None:
            return True
        known = self._last
        if source == self._latest:  # most come one after the other: it stands last already
            if seq <= known[source]:
                return False
            known[source] = seq
            return True
        last = known.pop(source, None)
        self._latest = source
        if last is not None and seq <= last:
            known[source] = last
            return False
        known[source] = seq
        if last is None:
            self._remembered(source)
        return True

    def merge(self, others: Mapping[str, int]) -> None:
        """As if those had been sent, in this order."""
        known = self._last
        self._latest = None
        for source, seq in others.items():
            last = known.pop(source, None)
            known[source] = seq if last is None else max(seq, last)
            if last is None:
                self._remembered(source)

    def _remembered(self, source: str) -> None:
        known = self._last
        self._codepoints += len(source)
        while len(known) > self._publishers_max or self._codepoints > NAMES_CODEPOINTS_MAX:
            oldest = next(iter(known))
            del known[oldest]
            if oldest == self._latest:
                self._latest = None
            self._codepoints -= len(oldest)

    @property
    def last(self) -> dict[str, int]:
        """Of each publisher the last number, the longest silent first."""
        return self._last
