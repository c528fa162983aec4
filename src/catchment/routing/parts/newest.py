"""The last number (`$seq`) of each publisher: a notification is new if its number is greater."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from catchment.model.notification import Notification

# The names of publishers that one `Newest` remembers, together: a single name may be as long as any string.
NAMES_CODEPOINTS_MAX: Final = 16 * 1_048_576


class Newest:
    """Remembers the last number of at most `publishers_max` publishers. The publisher that has been silent longest is
    forgotten first."""

    def __init__(self, publishers_max: int) -> None:
        self._publishers_max = publishers_max
        # In the order in which publishers were heard last: the longest silent one stands first.
        self._last: dict[str, int] = {}
        self._codepoints = 0
        # Notifications that were not new, since the start: copies that came another way, and numbers that went back.
        self.old_count = 0
        # The publisher that was heard last. If it is not None, it stands last in `_last`.
        self._latest: str | None = None

    def is_new(self, notification: Notification) -> bool:
        """Whether a notification is newer than all that its publisher has sent before; remembers its number. A
        notification without source or number is always new."""
        source, seq = notification.source, notification.seq
        if source is None or seq is None:
            return True
        known = self._last
        # The fast path: a publisher often sends several in a row. It stands last in the order already.
        if source == self._latest:
            if seq <= known[source]:
                self.old_count += 1
                return False
            known[source] = seq
            return True
        # Popping and setting again moves the publisher to the end of the order.
        last = known.pop(source, None)
        self._latest = source
        if last is not None and seq <= last:
            known[source] = last
            self.old_count += 1
            return False
        known[source] = seq
        if last is None:
            self._remembered(source)
        return True

    def merge(self, last_numbers: Mapping[str, int]) -> None:
        """Remembers the last number of each of these publishers, as if their notifications had come in this order."""
        known = self._last
        self._latest = None
        for source, seq in last_numbers.items():
            last = known.pop(source, None)
            known[source] = seq if last is None else max(seq, last)
            if last is None:
                self._remembered(source)

    def _remembered(self, source: str) -> None:
        """A publisher was added: forgets the longest silent ones if there are too many, or their names are too long."""
        known = self._last
        self._codepoints += len(source)
        while len(known) > self._publishers_max or self._codepoints > NAMES_CODEPOINTS_MAX:
            oldest = next(iter(known))
            del known[oldest]
            # Even the publisher just added may go, if its name alone is too long.
            if oldest == self._latest:
                self._latest = None
            self._codepoints -= len(oldest)

    @property
    def last(self) -> dict[str, int]:
        """The last number of each publisher, the longest silent publisher first. Not a copy."""
        return self._last
