"""What a durable subscription over HTTP asks for, now and before.

The network is asked for a filter that covers what was asked for (`filters.py`). Where it is wider, this broker decides,
at the delivery. What was published before a change goes by the filter of that time, also in this decision. So each
revision is a durable subscription with an id of its own, `r1`, `r2`, …: the ids of a delivery say by which revisions it
came.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from catchment.broker.http.filters import Selection
from catchment.broker.http.subscriptions import selection_of_members
from catchment.model.notification import Notification

# Earlier revisions whose deliveries are still decided by their own filters. What comes by an older one is delivered
# though it may not match: more is better than less.
REVISIONS_KEPT_MAX: Final = 8


class Revisions(Struct, frozen=True):
    """As it is kept. `given` has the members `source`, `types` and `filters` that were given."""

    given: dict[str, Any]
    number: int = 1
    earlier: dict[str, dict[str, Any]] = {}

    @property
    def id(self) -> str:
        return _id(self.number)

    def edited(self, given: dict[str, Any]) -> Revisions:
        if given == self.given:
            return self
        earlier = {**self.earlier, self.id: self.given}
        kept = dict([*earlier.items()][-REVISIONS_KEPT_MAX:])
        return replace(self, given=given, number=self.number + 1, earlier=kept)


class Interest:
    def __init__(self, revisions: Revisions) -> None:
        self.revisions = revisions
        given_by_id: Mapping[str, dict[str, Any]] = {**revisions.earlier, revisions.id: revisions.given}
        self._selections = {id: selection_of_members(given) for id, given in given_by_id.items()}

    @property
    def selection(self) -> Selection:
        """What is asked for now."""
        return self._selections[self.revisions.id]

    def wants(self, ids: Iterable[str], notification: Notification) -> bool:
        """Whether a notification that came by these revisions is to be delivered."""
        return any(id not in self._selections or self._selections[id].matches(notification) for id in ids)


def _id(number: int) -> str:
    return f"r{number}"
