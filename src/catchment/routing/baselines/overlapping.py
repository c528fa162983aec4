"""Multicast with overlapping identifiers: one copy for each topic that matches (F3 §4.1, Figure 4-1).

Equal subscriptions have the same topic, others have different ones, also if one covers the other (`topics.py`). A
notification carries one topic. So its source sends as many copies as there are topics that match it, each down its
tree to the brokers that want that topic. A broker whose clients want several of the topics gets several copies; its
clients get one delivery.

notifications   published here   Local clients get it. For each topic that matches, a copy goes down the tree.
                a copy           If a client here subscribed to its topic, the clients here get it. The copy goes on to
                                 all others that want the topic.
"""

from __future__ import annotations

from collections.abc import Sequence

from catchment.model.notification import Notification
from catchment.routing.baselines.informed import Copies
from catchment.routing.baselines.messages import TopicHeader
from catchment.routing.baselines.topics import TopicCore, topic_of
from catchment.routing.messages import Action, Interface, Neighbor, Routed, Time
from catchment.routing.parts.wanted import filters_for


class OverlappingCore(TopicCore):
    """A broker that sends one copy for each topic."""

    def on_notifications(self, batch: Sequence[Routed], source: Interface, now: Time) -> list[Action]:
        if isinstance(source, Neighbor):
            return self._on_copies(batch, source, now)
        self._matched += len(batch)
        notifications = [routed.notification for routed in batch]
        copies = Copies()
        for notification, topics in zip(notifications, self.topics.of(notifications), strict=True):
            for topic in topics:
                copy = Routed(notification, TopicHeader(1, self.name, topic))
                for neighbor in self.way(self.name, (topic,)):
                    copies.add(neighbor, copy)
        return self.clients.due(notifications, now) + copies.forwards()

    def _on_copies(self, batch: Sequence[Routed], source: Neighbor, now: Time) -> list[Action]:
        copies, here = Copies(), []
        for routed in batch:
            header = routed.header
            assert isinstance(header, TopicHeader)
            if not self._is_on_its_way(header, header.origin, source):
                continue
            if self._is_wanted_here((header.topic,)) and self._is_first(routed.notification, header.topic):
                here.append(routed.notification)
            further = Routed(routed.notification, TopicHeader(header.hops + 1, header.origin, header.topic))
            for neighbor in self.way(header.origin, (header.topic,)):
                copies.add(neighbor, further)
        return self.clients.due(here, now) + copies.forwards()

    def _is_first(self, notification: Notification, topic: int) -> bool:
        """Whether this copy is the one to deliver. A client side leaves out what it has delivered already, by the
        number of the notification. One without a number is delivered with the copy of its least topic here."""
        if notification.source is not None and notification.seq is not None:
            return True
        wants = self.subscriptions.of(self.name).values()
        filters = [filter for wanted in wants for filter in filters_for(wanted) if filter.matches(notification)]
        return topic == min(map(topic_of, filters), default=topic)
