"""Multicast with disjunctive identifiers: one copy, on a channel for the combination of topics that match (F3 §4.1,
Figure 4-2).

The text divides what can be published into disjoint parts and gives each a number; a subscriber asks for the numbers of
all parts that its subscription covers. Two notifications are in the same part if the same topics match them. There may
be 2^n parts for n topics. So here a part gets a number when the first notification falls into it: its source *opens a
channel* for this combination of topics, tells all brokers which topics it is for, and then sends the notification on
it. A broker that wants one of these topics thereby subscribes to the channel. What this system costs is the number of
channels in the tables, and of topics in `Channels`.

State, besides that of `topics.py`: the channels of all brokers (`parts/records.py`), each with its topics; and the last
CLOSED_MAX channels that were closed.

notifications   published here     Local clients get it. It goes out on the channel of its combination of topics, after
                                   the message that opens the channel, if it is new.
                on a channel       If a client here wants one of its topics, the clients here get it. It goes on to all
                                   others that want one. If the channel is not known, it is lost.
Channels        enters what has changed in the channels of its origin, and is flooded on.
Subscribed      If nobody else wants a topic any more, its channels are closed: the combination cannot occur again.
too many        A broker that has CHANNELS_MAX channels closes its oldest for a new one.

A notification may be under way when its channel is closed, and the closing may take a shorter way. So routers keep the
channels that were closed last. A number is never used twice, also after a crash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from catchment.routing.baselines.informed import Copies
from catchment.routing.baselines.messages import ChannelHeader, Channels, SubscriptionKey
from catchment.routing.baselines.topics import TopicCore, topic_of
from catchment.routing.messages import Action, BrokerMessage, Interface, Neighbor, Routed, Time, Wanted
from catchment.routing.parts.link_states import following
from catchment.routing.parts.records import FloodedRecords
from catchment.routing.parts.wanted import filters_for

# Channels that one broker has open: it sends each of them to all brokers, which keep it.
CHANNELS_MAX: Final = 10_000
# Channels of all brokers, each counted with its topics: some hundred megabytes. Who tells of more loses its link.
KNOWN_CHANNELS_MAX: Final = 4_000_000
# Channels that are closed and still known: more than can be closed while a notification is under way.
CLOSED_MAX: Final = 1_000


class DisjunctiveCore(TopicCore):
    """A broker that sends one copy, on the channel of its combination of topics."""

    def __init__(self, name: str) -> None:
        # Our own: the channel of each combination, oldest first; and the combinations that each topic is in.
        self._opened: dict[tuple[int, ...], int] = {}
        self._combinations: dict[int, set[tuple[int, ...]]] = {}
        self._last_number = 0
        # Combinations with a topic that nobody else wants any more.
        self._stale: set[tuple[int, ...]] = set()
        self._closed: dict[tuple[str, int], tuple[int, ...]] = {}
        super().__init__(name)
        self.channels: FloodedRecords[Channels, int, tuple[int, ...]] = FloodedRecords(
            self.links,
            Channels,
            self._on_channels,
            "KNOWN_CHANNELS_MAX",
            KNOWN_CHANNELS_MAX,
            weight=lambda topics: 1 + len(topics),
        )

    # --- channels ---

    def _told(self, now: Time) -> list[BrokerMessage]:
        # After the subscriptions: who hears of a channel knows who wants its topics.
        return [*super()._told(now), *self.channels.wholes(now)]

    def _heard(self, message: BrokerMessage, source: Neighbor, now: Time) -> list[Action]:
        if isinstance(message, Channels):
            return self.channels.heard(message, source, now)
        return super()._heard(message, source, now)

    def _forget(self, origin: str) -> None:
        super()._forget(origin)
        self.channels.forget(origin)

    def _on_channels(
        self, origin: str, gone: Mapping[int, tuple[int, ...]], new: Mapping[int, tuple[int, ...]]
    ) -> None:
        for number, topics in gone.items():
            self._closed[origin, number] = topics
        while len(self._closed) > CLOSED_MAX:
            del self._closed[next(iter(self._closed))]

    def _on_subscriptions(
        self, origin: str, gone: Mapping[SubscriptionKey, Wanted], new: Mapping[SubscriptionKey, Wanted]
    ) -> None:
        super()._on_subscriptions(origin, gone, new)
        left = {topic_of(filter) for wanted in gone.values() for filter in filters_for(wanted)}
        for topic in left & self._combinations.keys():
            if not self.topics.is_wanted_elsewhere(topic):
                self._stale |= self._combinations[topic]

    def _settle(self, now: Time) -> list[Action]:
        """Closes the channels whose combination cannot occur any more."""
        stale = sorted(self._stale)
        self._stale.clear()
        return self._close(stale, now) if stale else []

    def _close(self, combinations: Sequence[tuple[int, ...]], now: Time) -> list[Action]:
        numbers = [self._opened.pop(combination) for combination in combinations]
        for combination in combinations:
            for topic in combination:
                self._combinations[topic].discard(combination)
                if not self._combinations[topic]:
                    del self._combinations[topic]
        return self.links.flooded(self.channels.state(numbers, {}, now))

    def _open(self, combination: tuple[int, ...], now: Time) -> list[Action]:
        """Opens the channel of a combination, if it has none."""
        if combination in self._opened:
            return []
        actions = self._close([next(iter(self._opened))], now) if len(self._opened) >= CHANNELS_MAX else []
        # Never less than the time: a broker that restarts does not use a number again that means something else.
        self._last_number = self._opened[combination] = following(self._last_number, now)
        for topic in combination:
            self._combinations.setdefault(topic, set()).add(combination)
        return actions + self.links.flooded(self.channels.state((), {self._last_number: combination}, now))

    # --- notifications ---

    def on_notifications(self, batch: Sequence[Routed], source: Interface, now: Time) -> list[Action]:
        if isinstance(source, Neighbor):
            return self._on_copies(batch, source, now)
        self._matched += len(batch)
        notifications = [routed.notification for routed in batch]
        actions, copies = self.clients.due(notifications, now), Copies()
        for notification, topics in zip(notifications, self.topics.of(notifications), strict=True):
            way = self.way(self.name, topics) if topics else ()
            if way:
                # Before the notification, on the same links: who gets it knows its channel.
                actions += self._open(topics, now)
                copy = Routed(notification, ChannelHeader(1, self.name, self._opened[topics]))
                for neighbor in way:
                    copies.add(neighbor, copy)
        return actions + copies.forwards()

    def _on_copies(self, batch: Sequence[Routed], source: Neighbor, now: Time) -> list[Action]:
        copies, here = Copies(), []
        for routed in batch:
            header = routed.header
            assert isinstance(header, ChannelHeader)
            topics = self.topics_of(header.origin, header.channel)
            if topics is None or not self._is_on_its_way(header, header.origin, source):
                continue
            if self._is_wanted_here(topics):
                here.append(routed.notification)
            further = Routed(routed.notification, ChannelHeader(header.hops + 1, header.origin, header.channel))
            for neighbor in self.way(header.origin, topics):
                copies.add(neighbor, further)
        return self.clients.due(here, now) + copies.forwards()

    def topics_of(self, origin: str, channel: int) -> tuple[int, ...] | None:
        """The topics of a channel; None if it is not known."""
        return self.channels.of(origin).get(channel, self._closed.get((origin, channel)))

    # --- looking in ---

    def leftovers(self) -> list[str]:
        return [*super().leftovers(), *(f"channel {number} of {origin}" for origin, number in self._left_channels())]

    def _left_channels(self) -> list[tuple[str, int]]:
        """Open channels, but those whose topics are wanted at brokers that cannot be reached: they are kept like the
        subscriptions there."""
        near = set(self.links.reached)
        return [
            (origin, number)
            for origin in self.links.reached
            for number, topics in sorted(self.channels.of(origin).items())
            if not all(self.topics.brokers_of(topic) - near for topic in topics)
        ]
