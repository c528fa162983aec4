"""What the HTTP side of a broker keeps: durable subscriptions, webhooks, and dead letters.

The log of a storage has notifications and who is due (`interface.py`). This is the little that is kept besides: the
resources that users make over HTTP, and the notifications that a webhook's sink did not accept. They change a few times
a minute, not thousands of times a second, so each call is a transaction of its own.

Where they are: beside a SQLite store in a file of their own, `NAME-http`, because a store's file has one writer. With
PostgreSQL in tables of their own in the same database.

What a host may rely on:

keep, bury   When they return, a power cut loses nothing. StoreFullError: nothing was written, try again later.
             StoreBrokenError: what is on the disk is damaged, or it has failed.
bury         A dead letter is told from others by its owner, log and epoch. The same letter again is the same number:
             a broker that was killed before it could acknowledge an entry buries it twice, and there is one letter.
numbers      of dead letters rise and are never used twice.

Each row has a hash of its key and content, which every read checks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import count
from typing import Final, Literal, Protocol

from msgspec import Struct
from msgspec.structs import replace

from catchment.routing.messages import Time
from catchment.store.interface import StoreBrokenError

# "stream": a durable subscription that is read. "webhook": one that is pushed.
ResourceKind = Literal["stream", "webhook"]
_HASH_BYTES: Final = 16


class Resource(Struct, frozen=True):
    """A thing that a user has made. `body` is JSON."""

    kind: ResourceKind
    id: str
    body: bytes


class DeadLetter(Struct, frozen=True):
    """A notification that the sink of the webhook `owner` did not accept: the entry `epoch` of `log`. `body` is the
    CloudEvent in JSON. A letter that is not buried yet has the number 0."""

    owner: str
    log: str
    epoch: int
    at: Time
    attempts: int
    reason: str
    body: bytes
    number: int = 0


class DeadTotal(Struct, frozen=True):
    """How many dead letters there are, and the bytes of their bodies."""

    count: int = 0
    bytes: int = 0


class HttpTables(Protocol):
    """Open tables. Every call blocks."""

    def resources(self) -> list[Resource]: ...

    def keep(self, resource: Resource) -> None:
        """Inserts it, or replaces the one of this kind and id."""
        ...

    def drop(self, kind: ResourceKind, id: str) -> None:
        """Deletes a resource, and its dead letters."""
        ...

    def bury(self, letter: DeadLetter) -> int:
        """Keeps a dead letter. Returns its number."""
        ...

    def dead(self, owner: str, after: int, count_max: int) -> list[DeadLetter]:
        """Dead letters in the order of their numbers, from those greater than `after`."""
        ...

    def letter(self, owner: str, number: int) -> DeadLetter | None: ...

    def unbury(self, owner: str, number: int | None) -> int:
        """Deletes a dead letter; with None, all of the owner. Returns how many."""
        ...

    def totals(self) -> Mapping[str, DeadTotal]:
        """By owner; those that have none are not listed."""
        ...

    def close(self) -> None: ...


def resource_hash(resource: Resource) -> bytes:
    return _hash(resource.kind, resource.id, resource.body)


def letter_hash(letter: DeadLetter) -> bytes:
    key = (letter.owner, letter.log, letter.epoch, letter.at, letter.attempts, letter.reason)
    return _hash(*key, letter.body)


def checked(found: bytes, expected: bytes, what: str) -> None:
    if found != expected:
        raise StoreBrokenError(f"{what} is damaged on the disk: its hash does not fit; delete it, or restore a backup")


def _hash(*parts: object) -> bytes:
    """Each part with its length before it, so that no two keys run together to the same bytes."""
    digest = blake2b(digest_size=_HASH_BYTES)
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.digest()


class MemoryHttpTables:
    """Survives the HTTP side that uses it, not the process."""

    def __init__(self) -> None:
        self._resources: dict[tuple[ResourceKind, str], Resource] = {}
        self._letters: dict[int, DeadLetter] = {}
        self._numbers = count(1)

    def resources(self) -> list[Resource]:
        return [self._resources[key] for key in sorted(self._resources)]

    def keep(self, resource: Resource) -> None:
        self._resources[resource.kind, resource.id] = resource

    def drop(self, kind: ResourceKind, id: str) -> None:
        self._resources.pop((kind, id), None)
        if kind == "webhook":
            self.unbury(id, None)

    def bury(self, letter: DeadLetter) -> int:
        for number, known in self._letters.items():
            if (known.owner, known.log, known.epoch) == (letter.owner, letter.log, letter.epoch):
                return number
        number = next(self._numbers)
        self._letters[number] = replace(letter, number=number)
        return number

    def dead(self, owner: str, after: int, count_max: int) -> list[DeadLetter]:
        return [letter for letter in self._of(owner) if letter.number > after][:count_max]

    def letter(self, owner: str, number: int) -> DeadLetter | None:
        return next((letter for letter in self._of(owner) if letter.number == number), None)

    def unbury(self, owner: str, number: int | None) -> int:
        numbers = [letter.number for letter in self._of(owner) if number in (None, letter.number)]
        for deleted in numbers:
            del self._letters[deleted]
        return len(numbers)

    def totals(self) -> Mapping[str, DeadTotal]:
        owners = sorted({letter.owner for letter in self._letters.values()})
        return {owner: _total(self._of(owner)) for owner in owners}

    def close(self) -> None:
        """There is nothing to close."""

    def _of(self, owner: str) -> list[DeadLetter]:
        return [letter for letter in self._letters.values() if letter.owner == owner]


def _total(letters: Sequence[DeadLetter]) -> DeadTotal:
    return DeadTotal(len(letters), sum(len(letter.body) for letter in letters))
