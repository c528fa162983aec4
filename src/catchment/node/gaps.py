"""Gaps: what a node tells its clients and neighbors when notifications may have been lost between brokers.

Delivery is best effort. But nobody shall take silence for completeness: when something may be missing, those who may
miss it are told a `Gap`, with its time span. The node does this, not the cores: so it holds for all routing systems.

Numbers. A link carries each notification once, in order, as long as it is up. So only the end of a link, or of a
process, can lose something. A process has an *incarnation*, a number that differs from those of earlier processes of
that broker. Both ends count the notifications that they have sent and heard over a link. When the link comes up again,
each end tells what it knows of the last one (`LinkReport`). If both are the same processes as before, what one has sent
and the other has not heard is the number that was lost.

Time. From time to time (`beat`) each end sends its time and its count, behind everything else on the link (`Beat`). So
the other end knows: all that was sent before that time has come. The other end sends the time back with its own next
beat. A count that is too great shows that the link has lost something while it was up.

link down    The receiving end does not know what it misses from now on. It opens a gap, from the last beat on, and
             tells it. If the neighbor has said that it leaves (`Parting`), the gap begins there. If it said besides
             that it has no other neighbor, nothing can be missed: there is no gap. If the core says that the neighbor
             can be reached on another way, the gap ends SETTLE_US later.
another way  Where there was another way before a link came up, paths change with it, and what is under way may be
             lost: a short gap.
link up      The gap ends, SETTLE_US later than now: so long it may take until all brokers know again what is wanted.
             The sending end knows what the receiving end cannot: whether it has handled notifications meanwhile, or had
             some under way to a process that is gone. Then it sends a gap over the link: the receiving end may have
             been started again and know nothing of it.
start        Links that come up for the first time lose nothing that anybody is owed. But a process that was started a
             short time ago may have been there before: if it has handled notifications without the link, it says so.
Gap          Each has an id, and a revision that grows when it changes. A node that hears a revision for the first time
             tells it to its clients, and to all neighbors but the one that it came from. What lies within a gap that it
             has told already, it does not tell again. A neighbor that comes back is told what it has not heard.

Bounds. A link that fails again before its gap is over keeps it: the gap becomes longer. Gaps that one link gives cause
for, its own and those that come over it, are told at most BURST at once and then one in PERIOD_US; what comes faster is
told as one gap that spans all of it. A node remembers the last KNOWN_MAX gaps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from catchment.routing.messages import SECOND, Beat, Gap, LinkMessage, LinkReport, Neighbor, Parting, Time

# How long it takes, after a link has come up, until all brokers know what is wanted behind it.
SETTLE_US: Final = 5 * SECOND
# How old a notification may be when it comes to a broker: what the broker had not read when it ended is that old.
TRANSIT_US: Final = 5 * SECOND
# A process that is so young may have been started again.
STARTING_US: Final = 60 * SECOND
# How many gaps are told at once because of one link, and then in which time one more.
BURST: Final = 32
PERIOD_US: Final = SECOND
# Gaps that are remembered, so that each is told once.
KNOWN_MAX: Final = 256
# A gap that is not over, and was told too fast to be told by itself, is taken to last so long.
MERGED_US: Final = 60 * SECOND
# How often a broker looks for another way to a neighbor that is gone.
LOOK_US: Final = 60 * SECOND
# How far the end of a gap may lie ahead: as far as clocks may differ.
AHEAD_US: Final = 24 * 3_600 * SECOND
# Beats that are not echoed yet.
BEATS_MAX: Final = 64
# The timer of this module.
TIMER: Final = "@gaps"


@dataclass(frozen=True, slots=True)
class GapTimes:
    """How long things take in a network. A simulation whose links are quick has shorter ones."""

    settle_us: Time = SETTLE_US
    transit_us: Time = TRANSIT_US


@dataclass(slots=True)
class Budget:
    """How many gaps may be told now because of one link."""

    left: int = BURST
    since: Time = 0

    def takes(self, now: Time) -> bool:
        periods = (now - self.since) // PERIOD_US
        if periods > 0:
            self.left, self.since = min(BURST, self.left + periods), self.since + periods * PERIOD_US
        if self.left == 0:
            return False
        self.left -= 1
        return True


@dataclass(frozen=True, slots=True)
class Known:
    """A gap, when it was heard or made, and whether all were told: not if it lies within another."""

    gap: Gap
    at: Time
    is_told: bool


@dataclass(slots=True)
class Past:
    """What a node knows of its links to one neighbor. Counts are those of the link that is up, or was up last."""

    # Of the neighbor; 0 if there has been no link.
    incarnation: int = 0
    sent: int = 0
    heard: int = 0
    # All that the neighbor had sent before this time has come, by its clock.
    stamp: Time = 0
    up_at: Time = 0
    # Our beats that it has not echoed, with what had been sent before each; and the last one that it has.
    beats: deque[tuple[Time, int]] = field(default_factory=lambda: deque(maxlen=BEATS_MAX))
    echoed: tuple[Time, int] = (0, 0)
    # What beats have shown to be lost while the link was up.
    lost: int = 0
    # Whether it has said that it leaves, and that it has no other neighbor.
    is_parted: bool = False
    is_alone: bool = False
    # Since when there is no link, and how many notifications this node had handled then.
    down_at: Time = 0
    handled: int = 0
    # Whether the other end has reported on this link.
    is_reported: bool = False
    # Whether there was another way when the link came up.
    is_shortcut: bool = False
    # Of this link: the one that is open, or was told last.
    gap: Gap | None = None
    # What is known to be lost in that gap; None if that is not known of all.
    missed: int | None = 0
    # What came over this link too fast to be told by itself.
    merged: Gap | None = None
    is_late: bool = False
    budget: Budget = field(default_factory=Budget)

    def good_until(self, now: Time) -> Time:
        """Until when all that the neighbor has sent has come. Its clock may be wrong: it cannot say more than we
        know."""
        return max(self.up_at, min(self.stamp, now))


class Gaps:
    """`tell` tells a gap to all clients and to all neighbors but one. `send` sends a message over a link that is up.
    `handled` says how many notifications the node has handled, `is_reached` whether the core knows a way to a broker
    (None if it does not know such things)."""

    def __init__(
        self,
        name: str,
        incarnation: int,
        now: Time,
        *,
        tell: Callable[[Gap, Neighbor | None], None],
        send: Callable[[Neighbor, LinkMessage], None],
        set_timer: Callable[[str, Time], None],
        handled: Callable[[], int],
        is_reached: Callable[[str], bool | None],
        times: GapTimes | None = None,
    ) -> None:
        self._times = times or GapTimes()
        self.name = name
        self.incarnation = incarnation
        self._started = now
        self._tell, self._send, self._set_timer = tell, send, set_timer
        self._handled, self._is_reached = handled, is_reached
        self._past: dict[Neighbor, Past] = {}
        # By id; the one that was heard or told last stands last.
        self._known: dict[str, Known] = {}
        self._made = 0
        # Neighbors that miss what this node handles before a time, which nobody has told them yet.
        self._owed: dict[Neighbor, Time] = {}
        self._timer_at: Time = 0

    # --- links ---

    def link_up(self, neighbor: Neighbor, now: Time) -> None:
        past = self._past.setdefault(neighbor, Past())
        # Paths change when there is another way already: what is under way on the old ones may be lost.
        past.is_reported = False
        past.is_shortcut = bool(self._handled() and self._is_reached(neighbor.name))
        self._send(neighbor, LinkReport(self.incarnation, past.incarnation, past.sent, past.heard))
        # What was told while it was away.
        told_since = past.down_at if past.incarnation else now - STARTING_US
        for known in list(self._known.values()):
            # A gap of this very link is for the others: the neighbor has its own, or hears more with the reports.
            is_for_others = known.gap.link == (self.name, neighbor.name)
            if known.is_told and not is_for_others and (known.at >= told_since or not known.gap.until):
                self._send(neighbor, known.gap)

    def link_down(self, neighbor: Neighbor, sent: int, heard: int, now: Time) -> None:
        past = self._past[neighbor]
        self._owed.pop(neighbor, None)
        past.sent, past.heard = sent, heard
        past.down_at, past.handled = now, self._handled()
        if not past.incarnation or (past.is_parted and past.is_alone):
            # There was no word from the other end yet; or it takes all that it could send with it.
            return
        last = past.gap
        if last is not None and (not last.until or now <= last.until):
            past.gap = replace(last, revision=last.revision + 1, until=0)
        else:
            past.missed = 0
            past.gap = self._new(neighbor, past.good_until(now) - self._times.transit_us, 0)
        self._tell_own(neighbor, past, now)
        self._wake(now + self._times.settle_us)

    def heard(self, neighbor: Neighbor, message: LinkMessage, heard: int, now: Time) -> None:
        """A message of the node at the other end. `heard` notifications have come over this link until now."""
        past = self._past[neighbor]
        match message:
            case Gap():
                self._on_gap(neighbor, past, message, now)
            case LinkReport():
                # Only the first: the link has one beginning.
                if not past.is_reported:
                    past.is_reported = True
                    self._on_report(neighbor, past, message, now)
            case Beat():
                self._on_beat(neighbor, past, message, heard, now)
            case Parting():
                past.is_parted, past.is_alone, past.stamp = True, message.is_alone, message.at

    def _on_report(self, neighbor: Neighbor, past: Past, report: LinkReport, now: Time) -> None:
        """The first message on a link: both ends know now what became of the last one."""
        is_same = report.incarnation == past.incarnation and report.known == self.incarnation
        if past.gap is not None and not past.gap.until:
            # A gap in which the link has failed several times: all losses, if each is known.
            is_counted = is_same and past.missed is not None
            past.missed = (past.missed or 0) + max(0, report.sent - past.heard) if is_counted else None
            until = now + self._times.settle_us
            past.gap = replace(past.gap, revision=past.gap.revision + 1, until=until, missed=past.missed)
            self._tell_own(neighbor, past, now)
        elif past.is_shortcut:
            past.gap = self._new(neighbor, now - self._times.transit_us, now + self._times.settle_us)
            self._tell_own(neighbor, past, now)
        if not is_same:
            # If it is the same process, it has a gap of its own for this link.
            self._own_up(neighbor, past, report, now)
        past.incarnation, past.up_at, past.stamp = report.incarnation, now, now
        past.is_parted = past.is_alone = False
        past.lost = 0
        past.beats.clear()
        past.echoed = (now, 0)

    def _own_up(self, neighbor: Neighbor, past: Past, report: LinkReport, now: Time) -> None:
        """Tells the neighbor, one of the two being another process, what it may have missed."""
        risks: list[Time] = []
        if past.incarnation:
            if self._handled() > past.handled:
                risks.append(past.down_at)
            if past.sent > past.echoed[1]:
                # It was under way to a process that is gone.
                risks.append(past.echoed[0] - self._times.transit_us)
            if not past.is_alone:
                # Those behind it have had no way to those behind us.
                risks.append(now)
        elif self._handled() and now - self._started <= STARTING_US:
            risks.append(self._started)
        if risks:
            self._tell_one(neighbor, min(risks), now + self._times.settle_us, now)
        elif past.incarnation or report.known:
            # What is handled before all know what is wanted is missed too. Perhaps there is nothing.
            self._owed[neighbor] = now

    def handles(self, now: Time) -> None:
        """The node is handling notifications."""
        owed, self._owed = self._owed, {}
        for neighbor, since in owed.items():
            until = since + self._times.settle_us
            if now <= until:
                self._tell_one(neighbor, since, until, now)

    @property
    def is_owing(self) -> bool:
        """Whether `handles` must be called."""
        return bool(self._owed)

    # --- beats ---

    def beat(self, neighbor: Neighbor, sent: int, now: Time) -> None:
        past = self._past[neighbor]
        past.beats.append((now, sent))
        self._send(neighbor, Beat(now, sent, past.stamp))

    def _on_beat(self, neighbor: Neighbor, past: Past, beat: Beat, heard: int, now: Time) -> None:
        lost = beat.sent - heard - past.lost
        if lost > 0:
            past.lost += lost
            since = past.good_until(now) - self._times.transit_us
            gap = replace(self._new(neighbor, since, now), missed=lost)
            self._tell_all(gap, neighbor, now)
        past.stamp = beat.at
        for at, sent in past.beats:
            if at == beat.echo:
                past.echoed = (at, sent)

    def part(self, neighbor: Neighbor, is_alone: bool, now: Time) -> None:
        """This process ends, and has sent all that it had for the neighbor."""
        self._send(neighbor, Parting(now, is_alone))

    # --- gaps ---

    def _new(self, neighbor: Neighbor, since: Time, until: Time) -> Gap:
        self._made += 1
        return Gap(f"{self.name}/{self.incarnation}/{self._made}", 1, (self.name, neighbor.name), max(0, since), until)

    def _tell_own(self, neighbor: Neighbor, past: Past, now: Time) -> None:
        """Tells the gap of a link, now or later: as it is then."""
        assert past.gap is not None
        if past.budget.takes(now):
            past.is_late = False
            self._tell_all(past.gap, neighbor, now)
        else:
            past.is_late = True
            self._wake(now + PERIOD_US)

    def _on_gap(self, neighbor: Neighbor, past: Past, gap: Gap, now: Time) -> None:
        known = self._known.get(gap.id)
        is_sound = (not gap.until or gap.since <= gap.until) and max(gap.since, gap.until) <= now + AHEAD_US
        if not is_sound or (known is not None and known.gap.revision >= gap.revision):
            return
        # Those who were told that it is not over must hear that it is.
        is_awaited = known is not None and known.is_told
        if not is_awaited and self._is_told(gap):
            self._remember(gap, now, is_told=False)
        elif past.budget.takes(now):
            self._tell_all(gap, neighbor, now)
        else:
            self._merge(neighbor, past, gap, now)

    def _is_told(self, gap: Gap) -> bool:
        """Whether it lies within another that was told, and is over."""
        return bool(gap.until) and any(
            known.gap.since <= gap.since and gap.until <= known.gap.until
            for known in self._known.values()
            if known.is_told and known.gap.id != gap.id
        )

    def _merge(self, neighbor: Neighbor, past: Past, gap: Gap, now: Time) -> None:
        until = gap.until or now + MERGED_US
        merged = past.merged or self._new(neighbor, gap.since, until)
        past.merged = replace(merged, since=min(merged.since, gap.since), until=max(merged.until, until))
        self._wake(now + PERIOD_US)

    def _tell_all(self, gap: Gap, source: Neighbor, now: Time) -> None:
        """Tells a gap to all but the neighbor that it came from, or whose link it is of."""
        self._remember(gap, now, is_told=True)
        self._tell(gap, source)

    def _tell_one(self, neighbor: Neighbor, since: Time, until: Time, now: Time) -> None:
        """Tells a neighbor a gap that only those behind it have."""
        gap = self._new(neighbor, since, until)
        self._remember(gap, now, is_told=False)
        self._send(neighbor, gap)

    def _remember(self, gap: Gap, now: Time, *, is_told: bool) -> None:
        self._known.pop(gap.id, None)
        self._known[gap.id] = Known(gap, now, is_told)
        if len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]

    # --- time ---

    def _wake(self, at: Time) -> None:
        if not self._timer_at or at < self._timer_at:
            self._timer_at = at
            self._set_timer(TIMER, at)

    def on_timer(self, now: Time) -> None:
        self._timer_at = 0
        for neighbor, past in list(self._past.items()):
            if past.gap is not None and not past.gap.until:
                self._look_for_another_way(neighbor, past, now)
            if past.is_late:
                self._tell_own(neighbor, past, now)
            if past.merged is not None and past.budget.takes(now):
                merged, past.merged = past.merged, None
                self._tell_all(merged, neighbor, now)
            elif past.merged is not None:
                self._wake(now + PERIOD_US)

    def _look_for_another_way(self, neighbor: Neighbor, past: Past, now: Time) -> None:
        assert past.gap is not None
        settled_at = past.down_at + self._times.settle_us
        if now < settled_at:
            self._wake(settled_at)
        elif is_reached := self._is_reached(neighbor.name):
            past.gap = replace(past.gap, revision=past.gap.revision + 1, until=now)
            self._tell_own(neighbor, past, now)
        elif is_reached is not None:
            self._wake(now + LOOK_US)
