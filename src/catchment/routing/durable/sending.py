"""What a storage sends to each identity: windows, retries, and pieces of its log.

For each identity that is, or was, due anything there is an `Outflow`:

acknowledged   The identity has taken everything up to there. Persisted, but lazily: after a crash it may be less, and
               the serving broker says again what it knows.
told           The end of the last piece that was sent in this session: the next piece begins there, so silence lies
               within a piece.
sent           How far entries were looked for. It may be past `told`, if nothing was found.
window         Entries that were sent and are not acknowledged: at most `window_entries` and `window_bytes`.
ready          Entries above `base` that wait to be sent. In steady state what was just stored goes from there. It is
               None when too much waits, or nobody is there: then entries are fetched from the store up to the head,
               and those that are made meanwhile collect in `ready`.

Nothing above the durable head is ever sent: if the storage crashed, it could use those epochs again.

back      A place may say that the identity goes back: then less is acknowledged than before, and records that are
          still kept are sent again.
begin     A place with a new session, or `again`: everything begins anew from `acknowledged`, with an empty window.
retry     When something was sent and nothing acknowledged for a while, the storage asks (a piece from `told` to
          `told`). The serving broker answers with what was taken, or, if it misses something, with `again`. So a slow
          client is not sent everything again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from catchment.routing.durable.messages import Share, Span
from catchment.routing.durable.reach import PREFIX
from catchment.routing.durable.settings import DurableSettings
from catchment.routing.messages import Action, Neighbor, Send, SetTimer, Time, instant_of
from catchment.routing.stored import Entry, Fetch, Fetched, Opened, Record

# Entries that wait in memory for one identity whose window is full; more are fetched from the store.
READY_MAX: Final = 1_024
# Bytes of notifications in one span: a frame between brokers holds much more, but nothing else passes meanwhile.
SPAN_BYTES_MAX: Final = 1_048_576
# Questions without an answer, after which a network counts as quiet although the storage goes on asking.
ASKED_BUSY_MAX: Final = 6
RETRY_TIMER: Final = "retry"


class Piece(NamedTuple):
    """A piece of the log for an identity."""

    identity: str
    session: int
    broker: str
    after: int
    upto: int
    entries: tuple[Entry, ...]
    lost: int
    floor: int


@dataclass(slots=True)
class Outflow:
    """What one identity is sent."""

    identity: str
    acknowledged: int
    # The epoch of the last record that it is due.
    last_due: int = 0
    session: int = 0
    broker: str | None = None
    told: int = 0
    sent: int = 0
    window: deque[tuple[int, int]] = field(default_factory=deque)
    window_bytes: int = 0
    ready: deque[Entry] | None = None
    base: int = 0
    # The `after` of the fetch that is under way.
    fetching: int | None = None
    asked_at: Time = 0
    asked: int = 0
    # Whether the client has a position above our head: records of ours are lost. It is sent nothing.
    is_ahead: bool = False
    # It has gone back, and gets nothing again that was published before this.
    since: Time | None = None

    @property
    def is_behind(self) -> bool:
        """Whether it is due something that it has not acknowledged."""
        return self.last_due > self.acknowledged


class Sending:
    """All outflows of a storage. `is_reached` says whether a broker can be reached."""

    def __init__(self, name: str, opened: Opened, settings: DurableSettings, is_reached: Callable[[str], bool]) -> None:
        self._name, self._settings, self._is_reached = name, settings, is_reached
        self.head = opened.head
        # Records above the durable head.
        self.tail: deque[Record] = deque()
        identities = {*opened.acknowledged, *opened.last_due, *(row.identity for row in opened.durables)}
        self._flows: dict[str, Outflow] = {
            identity: Outflow(identity, opened.acknowledged.get(identity, 0), opened.last_due.get(identity, 0))
            for identity in sorted(identities)
        }
        # Outflows whose acknowledged epoch is not persisted.
        self.dirty: dict[str, None] = {}
        # Outflows that wait for an acknowledgement of another broker.
        self._waiting: dict[str, None] = {}
        # Whether the timer runs: idle, busy, or None.
        self._timer_is_idle: bool | None = None
        self._pieces: list[Piece] = []
        self._fetches: list[Fetch] = []
        self._least: int | None = None

    def get(self, identity: str) -> Outflow | None:
        return self._flows.get(identity)

    def flows(self) -> Iterable[Outflow]:
        return self._flows.values()

    def enter(self, identity: str, epoch: int) -> bool:
        """An identity has its first durable subscription here: it begins at the head. Whether it is new."""
        if identity in self._flows:
            return False
        self._flows[identity] = Outflow(identity, epoch)
        return True

    # --- records ---

    def appended(self, record: Record) -> None:
        self.tail.append(record)
        for identity, ids in record.due:
            flow = self._flows.get(identity)
            if flow is None:
                flow = self._flows[identity] = Outflow(identity, record.epoch - 1)
            flow.last_due = record.epoch
            if flow.ready is not None:
                flow.ready.append(Entry(record.epoch, record.notification, ids))
                if len(flow.ready) > READY_MAX:
                    flow.ready = None
        self._least = None

    def raise_head(self, head: int, now: Time) -> None:
        """Records up to `head` are durable: they may be sent."""
        self.head = head
        due: dict[str, None] = {}
        while self.tail and self.tail[0].epoch <= head:
            due.update(dict.fromkeys(identity for identity, _ in self.tail.popleft().due))
        for identity in sorted(due):
            self._pump(self._flows[identity], now)

    # --- places and acknowledgements ---

    def place(
        self,
        identity: str,
        session: int,
        broker: str | None,
        position: int | None,
        now: Time,
        back: int | None = None,
        since: Time | None = None,
    ) -> bool:
        """The identity is served somewhere, or nowhere. With `back` it goes back to there, and is sent again what was
        published at `since` or later. False if its client knows more of the log than there is."""
        flow = self._flows.get(identity)
        if flow is None:
            if broker is None:
                return True
            flow = self._flows[identity] = Outflow(identity, self.head)
        flow.session, flow.broker = session, broker
        flow.is_ahead = position is not None and position > self.head
        if position is not None and not flow.is_ahead:
            self._acknowledge(flow, position, now)
        flow.since = since
        if back is not None and back < flow.acknowledged:
            flow.acknowledged = back
            self.dirty[identity] = None
            self._least = None
        self._begin(flow, now)
        return not flow.is_ahead

    def at(self, identity: str, session: int, position: int, again: bool, now: Time) -> bool:
        """What the serving broker says. False if it has more of the log than there is."""
        flow = self._flows.get(identity)
        if flow is None or flow.session != session or flow.broker is None:
            return True  # An older session: the identity is elsewhere now.
        if position > self.head:
            flow.is_ahead = True
            return False
        self._acknowledge(flow, position, now)
        if again:
            self._begin(flow, now)
        else:
            self._pump(flow, now)
        return True

    def _acknowledge(self, flow: Outflow, position: int, now: Time) -> None:
        # Also if it is known already: entries that were fetched before it came may have been sent after it.
        window = flow.window
        while window and window[0][0] <= max(position, flow.acknowledged):
            flow.window_bytes -= window.popleft()[1]
        if not window:
            self._waiting.pop(flow.identity, None)
        if position <= flow.acknowledged:
            return
        flow.acknowledged = position
        flow.asked, flow.asked_at = 0, now
        self.dirty[flow.identity] = None
        self._least = None

    def forget(self, identity: str) -> None:
        self._flows.pop(identity, None)
        self.dirty.pop(identity, None)
        self._waiting.pop(identity, None)
        self._least = None

    def reached(self, brokers: frozenset[str], now: Time) -> None:
        """These brokers have become reachable: what was sent before may be lost."""
        for flow in self._flows.values():
            if flow.broker in brokers and flow.broker != self._name:
                self._begin(flow, now)

    def _begin(self, flow: Outflow, now: Time) -> None:
        """From what is acknowledged, with an empty window."""
        flow.told = flow.sent = flow.acknowledged
        flow.window.clear()
        flow.window_bytes = 0
        flow.ready = flow.fetching = None
        flow.asked_at, flow.asked = now, 0
        self._waiting.pop(flow.identity, None)
        self._pump(flow, now)

    # --- pieces ---

    def _pump(self, flow: Outflow, now: Time) -> None:
        """Sends what may be sent to an identity now."""
        if flow.broker is None or flow.is_ahead or flow.fetching is not None or not self._is_reached(flow.broker):
            return
        if flow.last_due <= flow.sent:
            # Nothing is due. What comes next is to go out without a fetch.
            if flow.ready is None:
                self._collect(flow)
                flow.sent = flow.base
            return
        entries_room = self._settings.window_entries - len(flow.window)
        bytes_room = self._settings.window_bytes - flow.window_bytes
        if entries_room <= 0 or bytes_room <= 0:
            return
        if flow.ready is None:
            self._collect(flow)
        if flow.sent < flow.base:
            flow.fetching = flow.sent
            self._fetches.append(Fetch(flow.identity, flow.sent, flow.base, entries_room, bytes_room))
            return
        self._send_ready(flow, entries_room, bytes_room, now)

    def _collect(self, flow: Outflow) -> None:
        """From now on, what is made for the identity waits in `ready`. What was made before is in the store, or in the
        tail."""
        flow.base = max(self.head, flow.sent)
        flow.ready = deque(
            Entry(record.epoch, record.notification, ids)
            for record in self.tail
            for identity, ids in record.due
            if identity == flow.identity
        )

    def _send_ready(self, flow: Outflow, entries_room: int, bytes_room: int, now: Time) -> None:
        ready, entries = flow.ready, []
        assert ready is not None, "it was collected"
        while ready and ready[0].epoch <= self.head and entries_room > 0 and bytes_room > 0:
            entry = ready.popleft()
            entries.append(entry)
            entries_room -= 1
            bytes_room -= len(entry.notification.packed)
        if entries:
            # If everything durable was taken, the piece reaches to the head; else to its last entry.
            is_all = not ready or ready[0].epoch > self.head
            self._tell(flow, self.head if is_all else entries[-1].epoch, tuple(entries), 0, now)

    def fetched(self, message: Fetched, now: Time) -> None:
        """The store has answered."""
        flow = self._flows.get(message.identity)
        if flow is None or flow.fetching != message.after or flow.sent != message.after or flow.broker is None:
            return  # It was asked before something else began.
        flow.fetching = None
        entries = message.entries
        if flow.since is not None:
            entries = tuple(entry for entry in entries if _is_since(entry, flow.since))
        if entries or message.lost:
            self._tell(flow, message.upto, entries, message.lost, now)
        flow.sent = max(flow.sent, message.upto)
        self._pump(flow, now)

    def _tell(self, flow: Outflow, upto: int, entries: tuple[Entry, ...], lost: int, now: Time) -> None:
        assert flow.broker is not None, "it is served somewhere"
        for entry in entries:
            size = len(entry.notification.packed)
            flow.window.append((entry.epoch, size))
            flow.window_bytes += size
        if not entries:
            # Something that has to be acknowledged: that entries are lost must not get lost.
            flow.window.append((upto, 0))
        if flow.identity not in self._waiting:
            flow.asked_at = now
        self._pieces.append(self._piece(flow, upto, entries, lost))
        flow.told = flow.sent = upto
        if flow.broker != self._name:
            self._waiting[flow.identity] = None

    def _piece(self, flow: Outflow, upto: int, entries: tuple[Entry, ...], lost: int) -> Piece:
        assert flow.broker is not None
        return Piece(flow.identity, flow.session, flow.broker, flow.told, upto, entries, lost, flow.acknowledged)

    def drained(self) -> tuple[list[Piece], list[Fetch]]:
        """What has come together since the last call."""
        pieces, self._pieces = self._pieces, []
        fetches, self._fetches = self._fetches, []
        return pieces, fetches

    # --- retries ---

    def retry_timer(self, now: Time) -> list[Action]:
        """Sets the timer, if somebody is waited for and it is not set."""
        if not self._waiting or self._timer_is_idle is False:
            return []
        is_idle = all(self._flows[identity].asked >= ASKED_BUSY_MAX for identity in self._waiting)
        if self._timer_is_idle is not None and is_idle:
            return []
        self._timer_is_idle = is_idle
        return [SetTimer(PREFIX + RETRY_TIMER, now + self._settings.retry_us, is_idle)]

    def retry(self, now: Time) -> None:
        """The timer has fired: asks those who have been silent for too long."""
        self._timer_is_idle = None
        for identity in list(self._waiting):
            flow = self._flows[identity]
            if flow.broker is None or not self._is_reached(flow.broker):
                # It begins anew when it can be reached.
                del self._waiting[identity]
                continue
            pause = min(self._settings.retry_us << min(flow.asked, 30), self._settings.retry_us_max)
            if now - flow.asked_at >= pause:
                flow.asked, flow.asked_at = flow.asked + 1, now
                self._pieces.append(self._piece(flow, flow.told, (), 0))

    # --- settling ---

    def is_settled(self, epoch: int) -> bool:
        """Whether everybody who is due anything has acknowledged the record with this epoch."""
        if self._least is None:
            behind = (flow.acknowledged for flow in self._flows.values() if flow.is_behind)
            self._least = min(behind, default=self.head)
        return epoch <= self._least or epoch == 0


def _is_since(entry: Entry, since: Time) -> bool:
    # A notification without a time may have been published at any time.
    time = entry.notification.time
    return time is None or time >= instant_of(since)


def spans(pieces: Iterable[Piece], storage: str, log: str, hop: Callable[[str], Neighbor | None]) -> list[Action]:
    """The messages that carry pieces to other brokers: each notification once for each link."""
    by_hop: dict[Neighbor, list[Piece]] = {}
    for piece in pieces:
        neighbor = hop(piece.broker)
        if neighbor is not None:
            by_hop.setdefault(neighbor, []).append(piece)
    actions: list[Action] = []
    for neighbor in sorted(by_hop):
        for some in _fitting(by_hop[neighbor]):
            actions.append(Send(neighbor, _span(some, storage, log)))
    return actions


def _fitting(pieces: list[Piece]) -> Iterable[list[Piece]]:
    """The pieces in groups that are not too large for one message. The pieces of one identity stay in order."""
    some: list[Piece] = []
    epochs: set[int] = set()
    size = 0
    for piece in pieces:
        more = sum(len(entry.notification.packed) for entry in piece.entries if entry.epoch not in epochs)
        if some and size + more > SPAN_BYTES_MAX:
            yield some
            some, epochs, size = [], set(), 0
            more = sum(len(entry.notification.packed) for entry in piece.entries)
        some.append(piece)
        epochs.update(entry.epoch for entry in piece.entries)
        size += more
    if some:
        yield some


def _span(pieces: list[Piece], storage: str, log: str) -> Span:
    notifications = {entry.epoch: entry.notification for piece in pieces for entry in piece.entries}
    epochs = sorted(notifications)
    places = {epoch: place for place, epoch in enumerate(epochs)}
    shares: dict[str, list[Share]] = {}
    for piece in pieces:
        shares.setdefault(piece.broker, []).append(share_of(piece, places))
    by_broker = tuple((broker, tuple(shares[broker])) for broker in sorted(shares))
    return Span(storage, log, tuple((epoch, notifications[epoch]) for epoch in epochs), by_broker)


def share_of(piece: Piece, places: Mapping[int, int]) -> Share:
    """The share of a piece, whose entries have these places in the span."""
    entries = tuple((places[entry.epoch], entry.ids) for entry in piece.entries)
    return Share(piece.identity, piece.session, piece.after, piece.upto, entries, piece.lost, piece.floor)
