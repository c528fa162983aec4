"""How many bytes everybody holds, and who gives some up when that is too much.

What a broker keeps for its clients is bounded three times: for one item (a suspended identity, the monitor of a
pattern), for all items of one client, and for all clients together. `past_limit` names the item that must give
something up:

- An item that is past its own limit gives up its own.
- If a client is past its limit, its largest item does.
- If all are past their limit together, the largest item of the largest client does. So a client that holds much cannot
  make others lose what they hold.

"Largest" is so within a factor of two: holders are sorted into classes by the number of binary digits of their size.
So a holder changes its class rarely, and the largest is found without looking at all of them.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from msgspec import Struct

K = TypeVar("K")


class Limits(Struct, frozen=True):
    """In bytes."""

    item: int
    client: int
    broker: int


class BySize(Generic[K]):
    """Holders and their sizes. A holder of size 0 is forgotten."""

    def __init__(self) -> None:
        self._sizes: dict[K, int] = {}
        # By the number of binary digits of the size.
        self._classes: dict[int, dict[K, None]] = {}
        self.total = 0

    def __len__(self) -> int:
        return len(self._sizes)

    def size(self, key: K) -> int:
        return self._sizes.get(key, 0)

    def grow(self, key: K, amount: int) -> None:
        before = self._sizes.get(key, 0)
        after = before + amount
        assert after >= 0, f"{key} holds {after}"
        self.total += amount
        if before.bit_length() != after.bit_length():
            self._change_class(key, before.bit_length(), after.bit_length())
        if after:
            self._sizes[key] = after
        else:
            self._sizes.pop(key, None)

    def _change_class(self, key: K, before: int, after: int) -> None:
        if before:
            members = self._classes[before]
            del members[key]
            if not members:
                del self._classes[before]
        if after:
            self._classes.setdefault(after, {})[key] = None

    def largest(self) -> K:
        """There must be one."""
        # At most 64 classes, however many holders there are.
        return next(iter(self._classes[max(self._classes)]))


C = TypeVar("C")


class Shares(Generic[C, K]):
    """The bytes of items, by client. A client is whoever the items are counted for."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._clients: BySize[C] = BySize()
        self._items: dict[C, BySize[K]] = {}

    @property
    def total(self) -> int:
        return self._clients.total

    def size(self, client: C, item: K) -> int:
        items = self._items.get(client)
        return 0 if items is None else items.size(item)

    def grow(self, client: C, item: K, amount: int) -> None:
        """`amount` is negative if the item gives something up."""
        items = self._items.get(client)
        if items is None:
            items = self._items[client] = BySize()
        items.grow(item, amount)
        self._clients.grow(client, amount)
        if not items.total:
            del self._items[client]

    def past_limit(self, client: C, item: K) -> tuple[C, K] | None:
        """Who must give something up because this item has grown; nobody if all are within the limits."""
        limits, items = self._limits, self._items.get(client)
        if items is not None:
            if items.size(item) > limits.item:
                return client, item
            if items.total > limits.client:
                return client, items.largest()
        if self._clients.total > limits.broker:
            largest = self._clients.largest()
            return largest, self._items[largest].largest()
        return None
