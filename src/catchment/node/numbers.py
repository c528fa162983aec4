"""The numbers (`$seq`) that publishers give their notifications: which a broker takes, and the last one of each source.

Clients, and some cores, drop a notification whose number is not greater than the last one of its source: so nothing
comes twice, and nothing out of order. A number that is far too large would make them drop everything that the source
publishes afterwards. So the broker checks numbers where notifications are published, and refuses them with a reason and
with the number to go on after:

goes back     A number is greater than the last one of that source that this broker knows, whether it was published here
              or has come over a link.
leaps ahead   A number is at most SEQ_AHEAD_MAX past this broker's clock, in microseconds. A source whose last number is
              further ahead than that, because a clock was wrong, goes on in steps of one: nobody can get further ahead
              that way, for the clock is faster.

A broker knows the last numbers of the sources that it heard last. It tells a client that connects the last number of
its name, and its clock (`Welcome`). A client that numbers its notifications from there needs no clock of its own.

Between brokers a number may be LINK_SEQ_AHEAD_MAX past the clock: a broker whose clock was wrong is not cut off. What
is further ahead cannot be honest, and is dropped and counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from catchment.errors import BadNumberError, shown
from catchment.model.notification import Notification
from catchment.routing.messages import SECOND, Routed, Time
from catchment.routing.parts.newest import Newest

# How far a `$seq` may be ahead of the broker's clock, in microseconds: the clocks of brokers and publishers agree to
# within a minute. A forged number silences a source, at brokers that the source is not connected to, no longer.
SEQ_AHEAD_MAX: Final = 60 * SECOND
# The same for what a neighbor forwards: a day, for networks in which a clock is wrong.
LINK_SEQ_AHEAD_MAX: Final = 24 * 3_600 * SECOND
# Sources whose last number a broker knows. The one that has been silent longest is forgotten first.
NUMBERED_SOURCES_MAX: Final = 100_000


class Numbers:
    """The last number of each source that this broker has heard of."""

    def __init__(self) -> None:
        self._newest = Newest(NUMBERED_SOURCES_MAX)

    def last(self, source: str) -> int | None:
        return self._newest.last.get(source)

    def checked(self, batch: Sequence[Notification], now: Time) -> dict[str, int]:
        """The last number of each source in a batch that a client publishes, to `remember`. BadNumberError if one of
        the numbers is out of range. Nothing is remembered yet: the whole batch may be refused for another reason."""
        known, most = self._newest.last, now + SEQ_AHEAD_MAX
        numbers: dict[str, int] = {}
        # The source of the notification before, and its last number: publishers send many in a row from one source.
        before: str | None = None
        last: int | None = None
        for notification in batch:
            source, seq = notification.source, notification.seq
            if source is None or seq is None:
                continue
            if source != before:
                before, last = source, numbers.get(source, known.get(source))
            if last is not None and seq <= last:
                # Nothing of the batch is published, so its own numbers do not count for what to go on after.
                raise _gone_back(source, seq, last, known.get(source, _first(batch, source) - 1))
            if seq > most and (last is None or seq > last + 1):
                raise _leaped(source, seq, max(known.get(source, now), now), now)
            numbers[source] = last = seq
        return numbers

    def checked_stored(self, batch: Sequence[Notification], source: str, now: Time) -> int:
        """The last number of a batch of one source that is to be stored. BadNumberError if the numbers do not grow, or
        leap ahead. They may go back: what is not known to be stored is published again."""
        known = self._newest.last.get(source, 0)
        last = 0
        for notification in batch:
            seq = notification.seq
            if notification.source != source or seq is None or seq <= last:
                what = "publications that are to be stored have one source, and numbers ($seq) above 0 that grow"
                raise BadNumberError(f"{what}; found {shown(notification.source)}, {shown(seq)}", known)
            if seq > now + SEQ_AHEAD_MAX and seq > max(known, last) + 1:
                raise _leaped(source, seq, max(known, now), now)
            last = seq
        return last

    def remember(self, numbers: Mapping[str, int]) -> None:
        self._newest.merge(numbers)

    def plausible(self, batch: Sequence[Routed], now: Time) -> Sequence[Routed]:
        """What a neighbor has forwarded, without the notifications whose numbers are absurd. Remembers the others."""
        most = now + LINK_SEQ_AHEAD_MAX
        numbers: dict[str, int] = {}
        are_absurd = False
        for routed in batch:
            source, seq = routed.notification.source, routed.notification.seq
            if source is None or seq is None:
                continue
            if seq > most:
                are_absurd = True
            elif seq > numbers.get(source, seq - 1):
                numbers[source] = seq
        self._newest.merge(numbers)
        return [routed for routed in batch if not _is_past(routed, most)] if are_absurd else batch


def _is_past(routed: Routed, most: int) -> bool:
    seq = routed.notification.seq
    return routed.notification.source is not None and seq is not None and seq > most


def _first(batch: Sequence[Notification], source: str) -> int:
    """The first number of a source in a batch that has one."""
    return next(each.seq for each in batch if each.source == source and each.seq is not None)


def _gone_back(source: str, seq: int, last: int, after: int) -> BadNumberError:
    what = f"$seq {seq} of {shown(source)} goes back: the last number was {last}"
    return BadNumberError(f"{what}; go on with a number greater than {after}", after)


def _leaped(source: str, seq: int, after: int, now: Time) -> BadNumberError:
    return BadNumberError(
        f"$seq {seq} of {shown(source)} leaps ahead: a number is at most {SEQ_AHEAD_MAX:,} past the broker's clock, "
        f"which is {now} microseconds since 1970; go on with a number greater than {after}",
        after,
    )
