"""Jobs: work for a client or a neighbor that is cut into slices, between which others are served.

Some requests are more work than one turn may take: a client goes that has a hundred thousand subscriptions, a filter is
to be compared with all of them, a pattern has filters that take long to normalize, a frame has thousands of
publications. Such a request becomes a *job*, an
iterator: each step of it is a *slice*. The first slice runs at once, and most jobs end with it. The others run in
turns, one slice of one job in a turn; the node asks its host for a turn with a timer that is due at once. So whatever
else the host has to do comes between two slices, and a network with jobs is not quiescent.

While a job runs, the names that it is about (identities and clients) are *busy*. A client that names a busy identity,
and a client that comes back under a busy name, *waits*: all that it says from then on is kept, in order, and is done
when the name is free. So nobody ever sees half of a job. The node stops reading from a client that waits: what is kept
is at most what one read has brought. In the same way a neighbor waits that comes back while this broker still forgets
what it had said before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from catchment.node.outlets import ClientOutlet, LinkOutlet
from catchment.routing.messages import Client, Neighbor

# The timer of the next turn. A core's timers have other names.
TURN: Final = "@node/turn"
# The name that stands for the link to a neighbor, while a job is about it. No client or identity has such a name.
LINK: Final = "@link/"
# Subscriptions that are cancelled in one slice: some milliseconds.
SLICE_CANCELLED_MAX: Final = 64
# Steps of about a microsecond (`model/budget.py`) that a slice may take to compare and normalize filters. It ends with
# the first question that goes past them.
SLICE_STEPS_MAX: Final = 4_000
# Comparisons in a slice: most of them take few steps.
SLICE_COMPARED_MAX: Final = 256
# Notifications of one client that a core is given in one turn: some milliseconds, if each is delivered once.
SLICE_PUBLISHED_MAX: Final = 1_024
# Things that clients said while they waited, and that are done in one turn.
SLICE_SAID_MAX: Final = 32


class Job(NamedTuple):
    names: frozenset[str]
    slices: Iterator[None]


class Said(NamedTuple):
    """What a client or a neighbor said while it waited: the names that must be free before it is done."""

    names: frozenset[str]
    work: Callable[[], None]
    outlet: ClientOutlet | LinkOutlet


class Jobs:
    """`ask_for_turn` asks the host to call `turn` soon."""

    def __init__(self, ask_for_turn: Callable[[], None]) -> None:
        self._ask_for_turn = ask_for_turn
        self._jobs: deque[Job] = deque()
        self._busy: set[str] = set()
        self._waiting: dict[Client | Neighbor, deque[Said]] = {}
        self._is_asked = False
        # Slices that were put off to a later turn, since the start.
        self.slices_count = 0

    # --- what is under way ---

    @property
    def count(self) -> int:
        return len(self._jobs)

    @property
    def waiting_count(self) -> int:
        """How many clients and neighbors wait."""
        return len(self._waiting)

    def must_wait(self, speaker: Client | Neighbor, names: Iterable[str]) -> bool:
        """Whether what somebody says about these names has to wait."""
        return speaker in self._waiting or (bool(self._busy) and not self._busy.isdisjoint(names))

    # --- changes ---

    def begin(self, job: Job) -> None:
        """Runs the first slice now, and the others in later turns. The names of the job must be free."""
        if self._has_ended(job):
            return
        self._jobs.append(job)
        self._busy |= job.names
        self._need_turn()

    def wait(
        self,
        speaker: Client | Neighbor,
        outlet: ClientOutlet | LinkOutlet,
        names: Iterable[str],
        work: Callable[[], None],
    ) -> None:
        """Keeps what somebody has said until the names are free, and until what it said before is done."""
        self._waiting.setdefault(speaker, deque()).append(Said(frozenset(names), work, outlet))
        outlet.pause()

    def turn(self) -> None:
        """One slice of the oldest job, which then is the youngest; and some of what has waited for names that are
        free."""
        self._is_asked = False
        if self._jobs:
            self.slices_count += 1
            job = self._jobs.popleft()
            if self._has_ended(job):
                self._busy -= job.names
            else:
                self._jobs.append(job)
        self._catch_up()
        if self._jobs or any(map(self._is_free, self._waiting.values())):
            self._need_turn()

    def _catch_up(self) -> None:
        left = SLICE_SAID_MAX
        for speaker, waiting in list(self._waiting.items()):
            while left and self._is_free(waiting):
                left -= 1
                said = waiting[0]
                # It may begin a job: then the names of the next one are perhaps busy again. It is taken off only
                # afterwards: whoever said it waits until all is done.
                said.work()
                waiting.popleft()
                if not waiting:
                    del self._waiting[speaker]
                    said.outlet.resume()
                    break

    def _is_free(self, said: deque[Said]) -> bool:
        return self._busy.isdisjoint(said[0].names)

    def _need_turn(self) -> None:
        if not self._is_asked:
            self._is_asked = True
            self._ask_for_turn()

    def _has_ended(self, job: Job) -> bool:
        return next(job.slices, _ENDED) is _ENDED


_ENDED: Final = object()
