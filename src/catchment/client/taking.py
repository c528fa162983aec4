"""What an application has taken of each log: receipts for durable deliveries, and positions.

A delivery is *taken* when all queues that hold it have said so: by `Delivered.ack`, when the next one is asked for, or
when the callback has returned. The position in a log is the greatest epoch up to which all that came is taken. It goes
into the state file, then to the broker, once in a turn of the loop.

What comes again after a reconnect, and is not newer than what has come before, waits in a queue already or is taken:
it is dropped. In a group a lesser epoch may come later, because another member has left it: there nothing is dropped,
and what was not taken when the connection is lost belongs to others from then on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from catchment.client.state import Position, StateFile
from catchment.routing.durable.messages import Taken


class _Coming:
    """A delivery that has come and is not taken yet."""

    __slots__ = ("epoch", "holders")

    def __init__(self, epoch: int, holders: int) -> None:
        self.epoch, self.holders = epoch, holders


class Receipt:
    """Of one delivery in one queue."""

    __slots__ = ("_coming", "_is_given", "_log")

    def __init__(self, log: TakenLog, coming: _Coming) -> None:
        self._log, self._coming = log, coming
        self._is_given = False

    def give(self) -> None:
        """The application has taken it. A second time does nothing."""
        if not self._is_given:
            self._is_given = True
            self._coming.holders -= 1
            if not self._coming.holders:
                self._log.advance()


class TakenLog:
    """How far an identity is in one log."""

    def __init__(self, log: str, position: int, is_group: bool, moved: Callable[[TakenLog], None]) -> None:
        self.log = log
        self.position = position
        self._is_group = is_group
        self._moved = moved
        # The greatest epoch that has come.
        self._came = position
        self._coming: deque[_Coming] = deque()

    def receipts(self, epoch: int, holders: int) -> list[Receipt]:
        """For a delivery that has come, one for each queue; none if it has come before."""
        if epoch <= self._came and not self._is_group:
            return []
        coming = _Coming(epoch, holders)
        self._coming.append(coming)
        self._came = max(self._came, epoch)
        return [Receipt(self, coming) for _ in range(holders)]

    def is_new(self, epoch: int) -> bool:
        return self._is_group or epoch > self._came

    def advance(self) -> None:
        while self._coming and not self._coming[0].holders:
            self._coming.popleft()
        if not self._coming:
            position = self._came
        elif self._is_group:
            # What comes later may have a lesser epoch.
            position = min(each.epoch for each in self._coming if each.holders) - 1
        else:
            position = self._coming[0].epoch - 1
        if position > self.position:
            self.position = position
            self._moved(self)

    def go_to(self, position: int) -> None:
        """From here on it comes again."""
        self.position = self._came = position
        self._coming.clear()

    def leave(self) -> None:
        """What has come and is not taken is no longer ours."""
        self._coming.clear()


class Taking:
    """All logs of the identities of a client. `later` calls once in the next turn of the loop; `say` sends messages if
    there is a connection."""

    def __init__(
        self,
        identity: str,
        positions: Mapping[str, int],
        state: StateFile | None,
        later: Callable[[Callable[[], None]], object],
        say: Callable[[Iterable[Taken]], None],
    ) -> None:
        self._identity, self._state, self._later, self._say = identity, state, later, say
        self._logs: dict[tuple[str, str], TakenLog] = {}
        self._moved: dict[tuple[str, str], TakenLog] = {}
        for log, position in positions.items():
            self._made(identity, log, position, is_group=False)

    def log(self, identity: str, log: str) -> TakenLog:
        known = self._logs.get((identity, log))
        return self._made(identity, log, 0, identity != self._identity) if known is None else known

    def _made(self, identity: str, log: str, position: int, is_group: bool) -> TakenLog:
        key = (identity, log)
        made = self._logs[key] = TakenLog(log, position, is_group, lambda taken: self._has_moved(key, taken))
        return made

    def _has_moved(self, key: tuple[str, str], taken: TakenLog) -> None:
        if not self._moved:
            self._later(self.tell)
        self._moved[key] = taken

    def tell(self) -> None:
        """Writes down what was taken, then tells it."""
        moved, self._moved = self._moved, {}
        if self._state is not None:
            for (identity, log), taken in moved.items():
                if identity == self._identity:
                    self._state.add(Position(log, taken.position))
            self._state.flush()
        self._say([Taken(identity, log, taken.position) for (identity, log), taken in moved.items()])

    @property
    def positions(self) -> dict[str, int]:
        """Of the client itself: members of a group have none."""
        return {log: taken.position for (identity, log), taken in self._logs.items() if identity == self._identity}

    def rewound(self, identity: str, log: str, epoch: int) -> None:
        """The broker sends again what follows `epoch` in the log, or in all logs from somewhere."""
        for (each, log_id), taken in self._logs.items():
            if each == identity and log in ("", log_id):
                self._moved.pop((each, log_id), None)
                taken.go_to(epoch if log else 0)
                if self._state is not None and each == self._identity:
                    self._state.add(Position(log_id, taken.position))
        if self._state is not None:
            self._state.flush()

    def disconnected(self) -> None:
        for (identity, _), taken in self._logs.items():
            if identity != self._identity:
                taken.leave()

    def forget(self, identity: str) -> None:
        for key in [key for key in self._logs if key[0] == identity]:
            del self._logs[key]
            self._moved.pop(key, None)
