"""A relay: a storage that consumes other storages, exactly as a client does, for identities that name it (`via`).

It is for readers and publishers that are never connected at once: the relay takes what is published while the reader is
away, and serves it when the publisher's storage is gone.

At other storages all identities that name the relay are due as one, `@relay/NAME`; the ids of its entries say for whom
and by which subscription. So `due` is fixed where it was published, and the relay only reads it. The relay takes pieces
of another log by the accept rule (`spans.py`), and makes records of its own of them. It writes how far it has consumed
that log in the same `Persist` (`Consumed`): a crash can neither lose nor double anything. It acknowledges only when
that is durable. What it has consumed, another storage may delete.
"""

from __future__ import annotations

from catchment.model.notification import Notification
from catchment.routing.durable.messages import At, Share
from catchment.routing.durable.spans import Verdict, verdict
from catchment.routing.durable.storage import Storage
from catchment.routing.durable.table import RELAYS, relayed_due
from catchment.routing.messages import Time


class Relay:
    """The relay of one broker."""

    def __init__(self, name: str) -> None:
        self.identity = RELAYS + name
        # By log: its storage, and whether that was asked to send again since the position moved.
        self._storages: dict[str, str] = {}
        self._asked: set[str] = set()

    def share(
        self,
        consumer: Storage,
        storage: str,
        log: str,
        share: Share,
        entries: tuple[tuple[int, Notification], ...],
        now: Time,
    ) -> At | None:
        """A piece of another log. `consumer` is our own storage. Returns what to answer at once."""
        self._storages[log] = storage
        position = max(consumer.consumed(log), share.floor)
        match verdict(position, share.after, share.upto):
            case Verdict.TAKE:
                for place, ids in share.entries:
                    epoch, notification = entries[place]
                    if epoch > position:
                        due = relayed_due(ids)
                        consumer.take(notification.source or "", [(notification, due)], None, now)
                consumer.consume(log, share.upto)
                self._asked.discard(log)
                return None
            case Verdict.KNOWN:
                return self.at(log, share.session, consumer.consumed_durably(log))
            case Verdict.GAP:
                if log in self._asked and share.after != share.upto:
                    return None
                self._asked.add(log)
                return self.at(log, share.session, consumer.consumed_durably(log), again=True)

    def at(self, log: str, session: int, position: int, again: bool = False) -> At:
        return At(self._storages[log], log, self.identity, session, position, again)
