"""Durable subscriptions that are read: each stream goes on exactly where the reader says it was.

A durable subscription is a durable identity. While somebody reads it, it is a client of the node; while nobody does,
its entries stay in the storages. The newest reader is *the* reader: an older stream ends, because a browser that comes
back may be faster than the news that its old connection is lost.

A *place* is `d:LOG:EPOCH,LOG:EPOCH,…~MAC`: everything of these logs up to there was read. Every event of a stream has
the place after it, as its id and as `catchmentplace`. A reader that comes back names the last place it has, and gets
exactly what follows. A reader that names none, or something that is no place of this subscription, gets what was not
acknowledged. The end of a place is a keyed hash: a storage that hears of a position that it never gave raises the alarm
that it has lost records, and no made-up text should do that.

Acknowledging. The storages keep an entry until the reader has acknowledged it: by naming a place when it comes back
(`Last-Event-ID`, `?after=`), with `POST …/ack`, or in a message of its WebSocket. Sending is not acknowledging. A
storage sends only so much that is not acknowledged. A stream of Server-Sent Events that has sent PASS_ENTRIES_MAX or
PASS_BYTES_MAX ends and tells the reader to come back at once: browsers do that by themselves, and their `Last-Event-ID`
acknowledges. So a reader that never heard of acknowledging loses nothing either. A WebSocket waits for its reader.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Mapping
from hashlib import blake2b
from hmac import compare_digest
from secrets import token_hex
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from catchment.broker.http.delivery_log import PORTION_BYTES_MAX, PORTION_ENTRIES_MAX, LogEntry, Portion
from catchment.broker.http.durable_client import DurableClient, DurableEntry
from catchment.broker.http.interest import Interest, Revisions
from catchment.broker.http.subscriptions import FullError, UnknownSubscriptionError, interest_members
from catchment.broker.http.tables import TablesThread
from catchment.errors import CatchmentError, InputError, shown
from catchment.model.notification import Notification
from catchment.node import Node
from catchment.routing.durable.messages import LOG_ID_CODEPOINTS
from catchment.routing.stored import FETCH_BYTES_MAX, FETCH_ENTRIES_MAX
from catchment.store.http_tables import Resource

# Durable subscriptions of one broker. Each may have a window of entries in memory while it is read: FETCH_BYTES_MAX.
DURABLE_STREAMS_MAX: Final = 128
# What a stream of Server-Sent Events sends before its reader must acknowledge: three quarters of a storage's window.
PASS_ENTRIES_MAX: Final = FETCH_ENTRIES_MAX * 3 // 4
PASS_BYTES_MAX: Final = FETCH_BYTES_MAX * 3 // 4
# Logs that a place names: most networks have fewer storages. If there are more, the logs that were read longest ago are
# left out; what was acknowledged of them and not yet written down when the broker is killed is then sent twice.
PLACE_LOGS_MAX: Final = 64
PLACE_CHARACTERS_MAX: Final = PLACE_LOGS_MAX * (LOG_ID_CODEPOINTS + 21) + 32

_PLACE: Final = re.compile(rf"d:((?:[0-9A-Za-z_-]{{1,{LOG_ID_CODEPOINTS}}}:[0-9]{{1,18}},?)*)~[0-9a-f]{{16}}")
_DELETED: Final = "deleted"


class KeptStream(Struct, frozen=True):
    """A durable subscription as it is kept. `key` is the secret of its places. `born` is drawn when it is made.
    `gone`: it is being deleted."""

    revisions: Revisions
    key: str
    born: str
    gone: str = ""


class Places:
    """The places of one subscription."""

    def __init__(self, key: str) -> None:
        self._key = key.encode("ascii")

    def text(self, positions: Mapping[str, int]) -> str:
        text = "d:" + ",".join(f"{log}:{epoch}" for log, epoch in positions.items())
        return f"{text}~{self._mac(text)}"

    def positions(self, place: object) -> dict[str, int] | None:
        """The positions that a place names; None if it is no place of this subscription."""
        if not isinstance(place, str) or len(place) > PLACE_CHARACTERS_MAX:
            return None
        parts = _PLACE.fullmatch(place)
        if parts is None or not compare_digest(self._mac(place.rpartition("~")[0]), place.rpartition("~")[2]):
            return None
        pairs = (pair.split(":") for pair in parts[1].split(",") if pair)
        return {log: int(epoch) for log, epoch in pairs}

    def _mac(self, text: str) -> str:
        return blake2b(text.encode("ascii"), key=self._key, digest_size=8).hexdigest()


class DurableReader:
    """Reads a durable subscription. It has what streams.py needs of a `Reader` and of its log. An entry's number counts
    the entries of this stream."""

    def __init__(
        self,
        id: str,
        places: Places,
        positions: Mapping[str, int],
        interest: Callable[[], Interest],
        encode: Callable[[Notification], bytes],
        taken: Callable[[str, int], None],
        must_return: bool,
    ) -> None:
        self.id, self.places = id, places
        self._interest, self._encode, self._taken = interest, encode, taken
        self._must_return = must_return
        self.last_number = 0
        self.end_reason: str | None = None
        # Whether the reader should come back at once, to acknowledge.
        self.is_pass_over = False
        self.has_gap = False
        self._positions = dict(positions)
        self._entries: deque[DurableEntry] = deque()
        # By log, what was sent and not acknowledged: epochs and bytes. The bytes of what was not wanted are 0.
        self._unacknowledged: dict[str, deque[tuple[int, int]]] = {}
        # By number of an entry of the last portion.
        self._place_after: dict[int, str] = {}
        self._ready = asyncio.Event()
        # What was lost and the reader has not heard of.
        self._lost_untold = 0

    @property
    def log(self) -> DurableReader:
        return self

    # --- from the node ---

    def enqueue(self, entry: DurableEntry) -> None:
        self._entries.append(entry)
        self._ready.set()

    def lose(self, count: int) -> None:
        """So many entries are gone. The reader hears of it before the next entry."""
        self._lost_untold += count

    def end(self, reason: str) -> None:
        self.end_reason = self.end_reason or reason
        self._ready.set()

    # --- from the reader ---

    def acknowledge(self, positions: Mapping[str, int]) -> None:
        """All entries up to these positions are done with; what was not sent cannot be."""
        for log, position in positions.items():
            waiting = self._unacknowledged.get(log, deque())
            epoch = 0
            while waiting and waiting[0][0] <= position:
                epoch = waiting.popleft()[0]
            # What follows and was not wanted is done with too: the reader will never hear of it.
            while waiting and not waiting[0][1]:
                epoch = waiting.popleft()[0]
            if epoch:
                self._taken(log, epoch)
        self._ready.set()

    async def take(self, timeout_s: float) -> Portion | None:
        """As `Reader.take`."""
        while True:
            if (portion := self._portion()) is not None:
                return portion
            if self.end_reason is None and self._must_return and self._is_full():
                self.is_pass_over = True
                self.end_reason = "come back with Last-Event-ID: that acknowledges what you have read"
            if self.end_reason is not None:
                return None
            self._ready.clear()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._ready.wait()
            except TimeoutError:
                return Portion(0, ())

    def place(self, number: int) -> str:
        """The place after an entry of the last portion; 0 is before the first."""
        return self._place_after.get(number) or self.places.text(self._positions)

    def _is_full(self) -> bool:
        waiting = [size for entries in self._unacknowledged.values() for _, size in entries]
        return len(waiting) >= PASS_ENTRIES_MAX or sum(waiting) >= PASS_BYTES_MAX

    def _portion(self) -> Portion | None:
        """The next entries, or None. If some were lost before an entry, that entry begins a portion."""
        entries: list[LogEntry] = []
        size = 0
        self._place_after = {self.last_number: self.places.text(self._positions)}
        while self._entries and len(entries) < PORTION_ENTRIES_MAX and size < PORTION_BYTES_MAX:
            if self.end_reason is not None or (self._must_return and self._is_full()):
                break
            if self._entries[0].lost and entries:
                break
            entry = self._entries.popleft()
            self._lost_untold += entry.lost
            if (open_json := self._read(entry)) is not None:
                self.last_number += 1
                entries.append(LogEntry(self.last_number, (self.id,), open_json))
                self._place_after[self.last_number] = self.places.text(self._positions)
                size += len(open_json)
        if not entries:
            return None
        lost, self._lost_untold = self._lost_untold, 0
        return Portion(lost, tuple(entries))

    def _read(self, entry: DurableEntry) -> bytes | None:
        """The entry as JSON, or None if it is not wanted."""
        # The log that was read last is the last: the first one goes if there are too many.
        self._positions.pop(entry.log, None)
        self._positions[entry.log] = entry.epoch
        if len(self._positions) > PLACE_LOGS_MAX:
            del self._positions[next(iter(self._positions))]
        waiting = self._unacknowledged.setdefault(entry.log, deque())
        if self._interest().wants(entry.ids, entry.notification):
            open_json = self._encode(entry.notification)
            waiting.append((entry.epoch, len(open_json)))
            return open_json
        if waiting:
            waiting.append((entry.epoch, 0))
        else:
            self._taken(entry.log, entry.epoch)
        return None


class DurableStream:
    """A durable subscription that is read."""

    def __init__(self, id: str, kept: KeptStream, node: Node, encode: Callable[[Notification], bytes]) -> None:
        self.id, self.kept, self._encode = id, kept, encode
        self.interest = Interest(kept.revisions)
        self.places = Places(kept.key)
        self.reader: DurableReader | None = None
        self.missing: tuple[str, ...] = ()
        identity = f"@http/{node.name}/{id}/{kept.born}"
        self.client = DurableClient(node, identity, self._on_entry, self._on_lost, self._on_lost_log)

    def read(self, after: str | None, must_return: bool) -> DurableReader:
        """A new reader, in the place of the one there is."""
        self.close("another reader has come")
        positions = self.places.positions(after) or {}
        reader = DurableReader(
            self.id, self.places, positions, lambda: self.interest, self._encode, self.client.taken, must_return
        )
        self.reader = reader
        # To come with positions is to acknowledge them.
        self.client.up(positions)
        return reader

    def left(self, reader: DurableReader) -> None:
        if self.reader is reader:
            self.close("its stream has ended")

    def close(self, reason: str) -> None:
        if self.reader is not None:
            self.reader.end(reason)
            self.reader = None
        self.client.down()

    def acknowledge(self, place: object) -> None:
        positions = self.places.positions(place)
        if positions is None:
            raise InputError(f"{shown(place)} is no place: name a catchmentplace of this subscription")
        if self.reader is not None:
            self.reader.acknowledge(positions)
            return
        self.client.up(positions)
        self.client.down()

    def _on_entry(self, entry: DurableEntry) -> None:
        if self.reader is not None:
            self.reader.enqueue(entry)

    def _on_lost(self, count: int) -> None:
        if self.reader is not None:
            self.reader.lose(count)

    def _on_lost_log(self, storage: str) -> None:
        if self.reader is not None:
            self.reader.end(f"the storage {storage} has lost its log: what it kept is gone; come back for the rest")

    @property
    def kept_resource(self) -> Resource:
        return Resource("stream", self.id, msgspec.json.encode(self.kept))

    @property
    def resource(self) -> dict[str, Any]:
        path = f"/subscriptions/{self.id}"
        delivery = {"sse": f"{path}/events", "websocket": f"{path}/ws", "ack": f"{path}/ack"}
        status = {"state": "read" if self.reader is not None else "away", "missing": list(self.missing)}
        return {"id": self.id, **self.kept.revisions.given, "durable": True, "delivery": delivery, "status": status}


class DurableStreams:
    """All durable subscriptions of a broker that are read over HTTP."""

    def __init__(self, node: Node, tables: TablesThread, encode: Callable[[Notification], bytes]) -> None:
        self._node, self._tables, self._encode = node, tables, encode
        self._by_id: dict[str, DurableStream] = {}
        self._changing = asyncio.Lock()

    async def open(self, resources: list[Resource]) -> None:
        for resource in resources:
            if resource.kind == "stream":
                kept = msgspec.json.decode(resource.body, type=KeptStream)
                stream = DurableStream(resource.id, kept, self._node, self._encode)
                self._by_id[resource.id] = stream
                if kept.gone:
                    await self._finish_delete(stream)
                else:
                    # The broker may have been killed before the network knew. Asking again changes nothing.
                    await self._subscribe(stream, 0.0)

    def close(self, reason: str) -> None:
        for stream in self._by_id.values():
            stream.close(reason)

    async def create(self, id: str, given: Mapping[str, Any]) -> DurableStream:
        async with self._changing:
            if len(self._by_id) >= DURABLE_STREAMS_MAX:
                raise FullError(f"DURABLE_STREAMS_MAX is {DURABLE_STREAMS_MAX:,}: delete some first")
            kept = KeptStream(Revisions(interest_members(given)), token_hex(16), token_hex(4))
            stream = DurableStream(id, kept, self._node, self._encode)
            self._by_id[id] = stream
            try:
                await self._keep(stream)
                await self._subscribe(stream)
            except BaseException:
                del self._by_id[id]
                await self._tables.call(lambda tables: tables.drop("stream", id))
                raise
            return stream

    async def edit(self, id: str, given: Mapping[str, Any]) -> DurableStream:
        """What was published before goes by the old filters."""
        async with self._changing:
            stream = self[id]
            before = stream.kept.revisions
            revisions = before.edited(interest_members(given))
            interest = Interest(revisions)
            if revisions != before:
                stream.kept, stream.interest = replace(stream.kept, revisions=revisions), interest
                await self._keep(stream)
                await self._subscribe(stream)
                self._with_client(stream, lambda client: client.cancel(before.id))
            return stream

    async def delete(self, id: str) -> dict[str, Any]:
        async with self._changing:
            stream = self[id]
            resource = stream.resource
            stream.close("the subscription is deleted")
            stream.kept = replace(stream.kept, gone=_DELETED)
            await self._keep(stream)
            await self._finish_delete(stream)
            return resource

    async def _finish_delete(self, stream: DurableStream) -> None:
        self._with_client(stream, lambda client: client.forget(stream.kept.revisions.id))
        await self._tables.call(lambda tables: tables.drop("stream", stream.id))
        del self._by_id[stream.id]

    async def _subscribe(self, stream: DurableStream, wait_s: float | None = None) -> None:
        was_up = stream.client.is_up
        if not was_up:
            stream.client.up()
        try:
            wanted = stream.interest.selection.wanted
            waits = {} if wait_s is None else {"wait_s": wait_s}
            stream.missing = await stream.client.subscribe(stream.kept.revisions.id, wanted, **waits)
        except CatchmentError:
            if wait_s is None:
                raise
        finally:
            # A reader that has come meanwhile keeps it.
            if not was_up and stream.reader is None:
                stream.client.down()

    def _with_client(self, stream: DurableStream, work: Callable[[DurableClient], None]) -> None:
        was_up = stream.client.is_up
        if not was_up:
            stream.client.up()
        try:
            work(stream.client)
        finally:
            if not was_up:
                stream.client.down()

    async def _keep(self, stream: DurableStream) -> None:
        resource = stream.kept_resource
        await self._tables.call(lambda tables: tables.keep(resource))

    def __getitem__(self, id: str) -> DurableStream:
        try:
            return self._by_id[id]
        except KeyError:
            raise UnknownSubscriptionError(f"there is no durable subscription {shown(id)}") from None

    def __contains__(self, id: object) -> bool:
        return id in self._by_id

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def ids(self) -> list[str]:
        return sorted(self._by_id)

    @property
    def readers_count(self) -> int:
        return sum(stream.reader is not None for stream in self._by_id.values())
