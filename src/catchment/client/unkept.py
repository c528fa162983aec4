"""Publications that are to be stored (`ack="stored"`): the client keeps them until a storage has confirmed them.

State      For each source a chain: what is not confirmed, in the order of its numbers, how much of it was sent over
           this connection, and the last number that is confirmed. One storage for all chains (`Hello.storage`): the
           publisher stays with it until everything of it is settled.
Publish    The notification gets its number, goes to the end of its chain and into the state file. It is sent when there
           is a connection and credit. How much waits is bounded: past that, whoever publishes waits.
Connected  All chains are sent again from their beginning, with the same numbers; storages take each number once.
Confirmed  Everything up to that number is done; whoever waits for it goes on. With `settled`, the chain may go to
           another storage.
Refused    If the storage has not got what the publication says that it follows (`after`), it is sent again from there.
           Otherwise the publication failed: whoever waits for it gets the error, and the chain goes on without it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from catchment.client.state import Done, StateFile, Stays, notification_from
from catchment.errors import BadNumberError, CatchmentError, LimitError
from catchment.model.notification import Notification
from catchment.wire.frames import BATCH_MAX, PIECE_BYTES, bytes_of
from catchment.wire.messages import Confirmed

# What waits to be confirmed, sent or not: some seconds of a busy publisher, or what it says while no broker is there.
UNKEPT_MAX: Final = 100_000
UNKEPT_BYTES_MAX: Final = 64 * 1_048_576

log = logging.getLogger("catchment.client")


class Kept(Struct, frozen=True):
    """What `publish(…, ack="stored")` returns: the storage has the publication, and all before it of this source."""

    source: str
    seq: int
    storage: str
    log: str


class Waiter:
    """Waits until `left` publications are confirmed, or one of them is refused."""

    __slots__ = ("future", "left")

    def __init__(self, future: asyncio.Future[Kept], left: int) -> None:
        self.future, self.left = future, left

    def kept(self, kept: Kept) -> None:
        self.left -= 1
        if not self.left and not self.future.done():
            self.future.set_result(kept)

    def fail(self, problem: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(problem)
            self.future.exception()  # whoever awaits it still gets it; asyncio does not complain if nobody does


class Item(Struct, gc=False):
    notification: Notification
    seq: int
    size: int
    waiter: Waiter | None


class Chain:
    """The publications of one source."""

    __slots__ = ("confirmed", "is_settled", "items", "log", "sent", "source")

    def __init__(self, source: str, confirmed: int | None = None) -> None:
        self.source = source
        self.items: deque[Item] = deque()
        # How many of these were sent over this connection.
        self.sent = 0
        # The last number that is confirmed, by this log; None if this storage has confirmed none.
        self.confirmed = confirmed
        self.log = ""
        self.is_settled = True

    def next_part(self, count_max: int) -> tuple[list[Notification], int | None]:
        """What to send next, and the number that it follows."""
        part: list[Notification] = []
        size = 0
        for place in range(self.sent, min(len(self.items), self.sent + count_max)):
            if part and size >= PIECE_BYTES:
                break
            part.append(self.items[place].notification)
            size += self.items[place].size
        return part, self.items[self.sent - 1].seq if self.sent else self.confirmed


class Unkept:
    """`number` gives the next number. `state` is the file that survives the process, if there is one."""

    def __init__(self, identity: str, number: Callable[[], int], state: StateFile | None) -> None:
        self._identity, self._number, self._state = identity, number, state
        self._chains: dict[str, Chain] = {}
        # What was read from the state without a number: it was never sent.
        self._unnumbered: deque[Item] = deque()
        self._bytes = 0
        self._count = 0
        # The storage that has, or may have, something of this publisher that is not settled.
        self.storage = ""
        # Set when there is something to send; and when there is room.
        self.has_some = asyncio.Event()
        self.has_room = asyncio.Event()
        self.has_room.set()
        if state is not None:
            self._load(state)

    def _load(self, state: StateFile) -> None:
        self.storage = state.remembered.storage
        for source, seq in state.remembered.done.items():
            chain = self._chains[source] = Chain(source, seq if self.storage else None)
            # What was confirmed may not be settled: nobody has said so.
            chain.is_settled = not self.storage
        for source, queued in state.remembered.queued.items():
            for seq, packed in queued:
                notification = notification_from(packed)
                self._put(source, Item(notification, seq, bytes_of(notification), None))

    def _put(self, source: str, item: Item) -> None:
        if source:
            chain = self._chains.get(source)
            if chain is None:
                chain = self._chains[source] = Chain(source)
            chain.items.append(item)
            chain.is_settled = False
        else:
            self._unnumbered.append(item)
        self._count += 1
        self._bytes += item.size
        self.has_some.set()
        if self._count >= UNKEPT_MAX or self._bytes >= UNKEPT_BYTES_MAX:
            self.has_room.clear()

    def __len__(self) -> int:
        return self._count

    # --- publishing ---

    def check_room(self) -> None:
        if not self.has_room.is_set():
            limit, count = (
                ("UNKEPT_MAX", UNKEPT_MAX) if self._count >= UNKEPT_MAX else ("UNKEPT_BYTES_MAX", UNKEPT_BYTES_MAX)
            )
            raise LimitError(limit, count, "one more", "wait until some are confirmed, or use publish, which waits")

    def add(self, notifications: Sequence[Notification], is_numbered: bool, waiter: Waiter | None) -> None:
        """Notifications with source and time. They get their numbers here, unless no broker has told its clock yet."""
        self._state_storage(self.storage)
        for given in notifications:
            is_given = given.seq is not None or not is_numbered
            notification = given if is_given else given.stamped(seq=self._number())
            source = notification.source if notification.seq is not None else ""
            if self._state is not None:
                self._state.queue(notification)
            self._put(source or "", Item(notification, notification.seq or 0, bytes_of(notification), waiter))

    def connected(self, storage: str) -> None:
        """There is a new connection: everything is sent again. `storage` is who keeps what is published there."""
        if self._unnumbered:
            self._number_all()
        if not self.storage and storage:
            self._stay_with(storage)
        self.send_all_again()

    def send_all_again(self) -> None:
        for chain in self._chains.values():
            chain.sent = 0
        if self._count:
            self.has_some.set()

    def _number_all(self) -> None:
        unnumbered, self._unnumbered = self._unnumbered, deque()
        for item in unnumbered:
            self._count -= 1
            self._bytes -= item.size
            notification = item.notification.stamped(seq=self._number())
            self._put(
                notification.source or self._identity, Item(notification, notification.seq or 0, item.size, item.waiter)
            )
        if self._state is not None:
            remembered = self._state.remembered
            remembered.queued.pop("", None)
            for chain in self._chains.values():
                remembered.queued[chain.source] = deque((each.seq, each.notification.packed) for each in chain.items)
            self._state.rewrite()

    def parts(self, allowed: int) -> Iterator[tuple[list[Notification], int | None, Chain]]:
        """What to send now, at most so many notifications in all. Each is sent before the next is taken."""
        for chain in self._chains.values():
            while allowed > 0 and chain.sent < len(chain.items):
                part, after = chain.next_part(min(allowed, BATCH_MAX))
                chain.sent += len(part)
                allowed -= len(part)
                yield part, after, chain
        if all(chain.sent >= len(chain.items) for chain in self._chains.values()):
            self.has_some.clear()

    # --- what brokers say ---

    def confirmed(self, said: Confirmed) -> bool:
        """Whether this log is the one that has confirmed before. If not, what it had confirmed may be lost."""
        if said.storage != self.storage:
            self._stay_with(said.storage)
        chain = self._chains.get(said.source)
        if chain is None:
            return True
        is_same = chain.log in ("", said.log)
        chain.log = said.log
        if said.seq:
            before = chain.confirmed if is_same else None
            chain.confirmed = said.seq if before is None else max(before, said.seq)
        self._pop(chain, said.seq, Kept(said.source, said.seq, said.storage, said.log))
        chain.is_settled = said.settled and not chain.items
        if not self.bound_to:
            # It stays as long as it is connected here, but the next process may go elsewhere.
            self._state_storage("")
        return is_same

    def _pop(self, chain: Chain, seq: int, kept: Kept) -> None:
        has_popped = False
        while chain.items and chain.items[0].seq <= seq:
            item = chain.items.popleft()
            chain.sent = max(0, chain.sent - 1)
            self._forget(item)
            has_popped = True
            if item.waiter is not None:
                item.waiter.kept(kept)
        if has_popped and self._state is not None:
            self._state.add(Done(chain.source, seq))

    def _forget(self, item: Item) -> None:
        self._count -= 1
        self._bytes -= item.size
        if self._count < UNKEPT_MAX and self._bytes < UNKEPT_BYTES_MAX:
            self.has_room.set()

    def refused(self, chain: Chain, part: Sequence[Notification], after: int | None, problem: CatchmentError) -> None:
        """A storage, or the broker on the way to it, has not taken a part that said to follow `after`."""
        if isinstance(problem, BadNumberError) and after is not None and problem.after < after:
            self._send_again(chain, problem.after)
            return
        first, last = part[0].seq or 0, part[-1].seq or 0
        kept_items = deque[Item]()
        for item in chain.items:
            if first <= item.seq <= last:
                chain.sent = max(0, chain.sent - 1)
                self._forget(item)
                if item.waiter is not None:
                    item.waiter.fail(problem)
            else:
                kept_items.append(item)
        chain.items = kept_items
        chain.is_settled = chain.is_settled or (chain.confirmed is None and not chain.items)
        if self._state is not None:
            self._state.remembered.queued[chain.source] = deque(
                (each.seq, each.notification.packed) for each in chain.items
            )
            self._state.rewrite()

    def _send_again(self, chain: Chain, has: int) -> None:
        """The storage has what is up to the number `has`, and nothing after it."""
        if chain.confirmed is not None and has < chain.confirmed:
            log.error(
                "storage has lost publications", extra={"source": chain.source, "has": has, "kept": chain.confirmed}
            )
            chain.confirmed = has
        chain.sent = sum(1 for item in chain.items if item.seq <= has)
        self.has_some.set()

    # --- storages ---

    def _stay_with(self, storage: str) -> None:
        self.storage = storage
        if self.bound_to:
            self._state_storage(storage)

    def _state_storage(self, storage: str) -> None:
        if self._state is not None and self._state.remembered.storage != storage:
            self._state.add(Stays(storage))

    @property
    def bound_to(self) -> str:
        """The storage that the publisher must stay with at another broker; empty if everything is settled."""
        is_free = not self._count and all(chain.is_settled for chain in self._chains.values())
        return "" if is_free else self.storage

    def disconnected(self) -> None:
        """At another broker there may be another storage, if nothing binds the publisher to this one."""
        if not self.bound_to:
            self.storage = ""
            for chain in self._chains.values():
                chain.confirmed, chain.log = None, ""

    def leave(self) -> None:
        """The publisher gives its storage up, settled or not."""
        for chain in self._chains.values():
            chain.confirmed, chain.log, chain.sent = None, "", 0
            chain.is_settled = not chain.items
        self.storage = ""
        self._state_storage("")

    def fail(self, problem: BaseException) -> None:
        """The client is over: nobody will confirm anything. What is in the state file stays there."""
        for chain in self._chains.values():
            for item in chain.items:
                if item.waiter is not None:
                    item.waiter.fail(problem)
        for item in self._unnumbered:
            if item.waiter is not None:
                item.waiter.fail(problem)
        self.has_room.set()
