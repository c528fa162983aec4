"""The degrees of brokers, and what follows from them: who gets a broker's summary, and where a notification goes next.

The degree of a broker is the number of its links that both ends state, or its virtual degree (§6): a number that an
operator gives a broker with many links, so that fewer summaries and notifications go to it. It travels with the record
of links, so all brokers compute with the same degrees.

Where the text leaves a choice between brokers of equal degree, the lesser name decides: names are compared as strings,
so "11" comes before "8".
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from catchment.routing.messages import Neighbor
from catchment.routing.parts.link_states import LinkStates
from catchment.routing.parts.paths import tie_of
from catchment.routing.summary.messages import WeighedLinks


class Degrees:
    """Degrees by the records of `links`. All answers are kept until a record changes."""

    def __init__(self, links: LinkStates) -> None:
        self._links = links
        self._version = -1
        self._degrees: dict[str, int] = {}
        self._distances: dict[str, int] = {}
        # By broker: whom it sends its summary to, and who sends it theirs.
        self._ups: dict[str, str | None] = {}
        self._senders: dict[str | None, list[str]] = {}

    def of(self, broker: str) -> int:
        self._refresh()
        if broker not in self._degrees:
            self._degrees[broker] = self._computed(broker)
        return self._degrees[broker]

    def _refresh(self) -> None:
        if self._version != self._links.version:
            self._version = self._links.version
            for computed in (self._degrees, self._distances, self._ups, self._senders):
                computed.clear()

    def _computed(self, broker: str) -> int:
        record = self._links.records.get(broker)
        if isinstance(record, WeighedLinks) and record.degree is not None:
            return record.degree
        return 0 if record is None else sum(self._is_agreed(broker, other) for other, _ in record.costs)

    def _is_agreed(self, broker: str, other: str) -> bool:
        """Whether the other end states the link too."""
        record = self._links.records.get(other)
        return record is not None and any(end == broker for end, _ in record.costs)

    @property
    def highest(self) -> int:
        return max(map(self.of, self._links.reached))

    def is_lower(self, neighbor: Neighbor) -> bool:
        """Whether a neighbor has a lower degree than this broker."""
        return self.of(neighbor.name) < self.of(self._links.name)

    def up(self) -> Neighbor | None:
        """Algorithm 2: whom this broker sends its summary to."""
        up = self.up_of(self._links.name)
        return None if up is None else Neighbor(up)

    def up_of(self, broker: str) -> str | None:
        """Whom a broker sends its summary to: of its neighbors of equal or higher degree, the one of smallest
        degree."""
        self._refresh()
        if broker not in self._ups:
            # A neighbor may not have stated its links yet.
            record = self._links.records.get(broker)
            costs = () if record is None else record.costs
            own = self.of(broker)
            linked = [(self.of(other), other) for other, _ in costs if self._is_agreed(broker, other)]
            eligible = [(degree, other) for degree, other in linked if degree >= own]
            self._ups[broker] = min(eligible)[1] if eligible else None
        return self._ups[broker]

    def sent_by(self, broker: str) -> frozenset[str]:
        """Merged_Brokers of the summary that a broker sends, when nothing is under way: itself, and what is sent by
        those of lower degree that send to it. Since all know all links, everybody can say it of everybody."""
        self._refresh()
        if not self._senders:
            for other in self._links.records:
                self._senders.setdefault(self.up_of(other), []).append(other)
        brokers, waiting = {broker}, [broker]
        while waiting:
            here = waiting.pop()
            lower = [other for other in self._senders.get(here, ()) if self.of(other) < self.of(here)]
            brokers.update(lower)
            waiting += lower
        return frozenset(brokers)

    def next_broker(self, checked: Collection[str], choice: Literal["degree", "nearest", "spread"]) -> str | None:
        """Algorithm 3: the broker that a notification goes to next; None if all that can be reached are checked. By
        default the one of highest degree, the nearest on ties."""
        here = self._links.name
        candidates = [broker for broker in self._links.reached if broker not in checked and broker != here]
        if not candidates:
            return None
        match choice:
            case "degree":
                return min(candidates, key=lambda broker: (-self.of(broker), self.distance(broker), broker))
            case "nearest":
                return min(candidates, key=lambda broker: (self.distance(broker), -self.of(broker), broker))
            case "spread":
                # Another order from each broker, and always the same: a walk must not depend on the notification.
                return min(candidates, key=lambda broker: (tie_of(here, broker), broker))

    def distance(self, broker: str) -> int:
        """The cost of the path from here to a broker that can be reached."""
        self._refresh()
        if not self._distances:
            for other, before in self._links.tree(self._links.name).items():
                # The tree lists a broker after the one before it on the path.
                start = 0 if before is None else self._distances[before] + self._cost(before, other)
                self._distances[other] = start
        return self._distances[broker]

    def _cost(self, first: str, second: str) -> int:
        ends = ((first, second), (second, first))
        return max(dict(self._links.records[end].costs)[other] for end, other in ends)
