"""The broker that serves an identity: what its client was given of each log, and what it has taken.

All of it is soft: a client that comes again, here or elsewhere, brings its positions along, and storages begin where
they know that the client is.

position     For each identity and log: all up to there was given to the client. It begins with what the client says,
             or with the `floor` of the first share: what the storage knows to be acknowledged. A position below the
             floor rises to it: what lies between was taken, or is nothing that the identity is due.
share        The accept rule (`spans.py`). What is taken becomes deliveries. What is known is answered with what the
             client has taken: perhaps an acknowledgement was lost. A gap is answered with `again`, once until the
             position moves, and whenever the storage asks: more pieces that follow the same gap say nothing new.
taken        The client has taken all that it was given up to an epoch. Only what the application has taken is
             acknowledged (rule 5), never what was only given. When it has taken all, everything up to the position is
             acknowledged, silence included.
group        Each entry goes to the member that has the fewest to take. What a member has not taken when it leaves goes
             to the others. What is acknowledged is what has been taken without a hole. With one member the order is
             that of the log; with several, two notifications of one publisher may be taken by two members at once.
session      A share of another session than that of the client's connection is ignored: the storage has not heard yet
             that the client has moved.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from catchment.model.notification import Notification
from catchment.routing.durable.messages import At, Share, Taken
from catchment.routing.durable.spans import Verdict, verdict
from catchment.routing.messages import Action, Client, Deliver, Missed


@dataclass(slots=True)
class Given:
    """What a client was given of one log. `position` is -1 as long as nobody has said where to begin."""

    position: int = -1
    storage: str = ""
    # Epochs that were given and are not taken, in order.
    outstanding: deque[int] = field(default_factory=deque)
    # Whether this broker has asked the storage to send again, since the position moved last.
    has_asked: bool = False

    @property
    def taken(self) -> int:
        """Everything up to here was taken."""
        return self.outstanding[0] - 1 if self.outstanding else self.position


@dataclass(slots=True)
class Served:
    """An identity that is served here."""

    identity: str
    client: Client
    session: int
    logs: dict[str, Given] = field(default_factory=dict)
    # Of a group: what each member was given and has not taken, by log and epoch. None if it is no group.
    members: dict[Client, dict[tuple[str, int], Deliver]] | None = None

    @property
    def clients(self) -> Collection[Client]:
        return (self.client,) if self.members is None else self.members

    def go_back(self, log: str) -> None:
        """Forgets what was given of a log, or without a name, of all logs."""
        for gone in [log] if log else list(self.logs):
            self.logs.pop(gone, None)
            for held in (self.members or {}).values():
                for key in [key for key in held if key[0] == gone]:
                    del held[key]

    def receiver(self) -> Client:
        """Who gets the next delivery: of a group, the member that has the fewest to take."""
        members = self.members
        return self.client if members is None else min(members, key=lambda client: (len(members[client]), client))

    @property
    def positions(self) -> dict[str, int]:
        """By log, what the client has taken."""
        return {log: given.taken for log, given in self.logs.items() if given.position >= 0}


class Serving:
    """The identities that are served here."""

    def __init__(self) -> None:
        self._served: dict[str, Served] = {}

    def __contains__(self, identity: str) -> bool:
        return identity in self._served

    def get(self, identity: str) -> Served | None:
        return self._served.get(identity)

    def of(self, client: Client) -> list[Served]:
        """The identities that are served for a client, by name."""
        served = [self._served[identity] for identity in sorted(self._served)]
        return [each for each in served if client in each.clients]

    def all(self) -> list[Served]:
        return [self._served[identity] for identity in sorted(self._served)]

    def begin(self, identity: str, client: Client, session: int, positions: Mapping[str, int]) -> None:
        logs = {log: Given(position) for log, position in positions.items()}
        self._served[identity] = Served(identity, client, session, logs)

    def begin_group(self, identity: str, member: Client, session: int) -> None:
        self._served[identity] = Served(identity, member, session, members={member: {}})

    def end(self, identity: str) -> Served | None:
        return self._served.pop(identity, None)

    # --- shares ---

    def share(
        self, storage: str, log: str, share: Share, entries: tuple[tuple[int, Notification], ...]
    ) -> tuple[list[Action], At | None]:
        """What a storage says: the deliveries that follow, and what to answer."""
        served = self._served.get(share.identity)
        if served is None or served.session != share.session:
            return [], None
        given = served.logs.setdefault(log, Given())
        given.storage = storage
        given.position = max(given.position, share.floor)
        match verdict(given.position, share.after, share.upto):
            case Verdict.TAKE:
                actions = self._take(served, log, given, share, entries)
                # If nothing has to be taken by the client, all of it is taken.
                return actions, None if given.outstanding else self._at(served, log, given)
            case Verdict.KNOWN:
                return [], self._at(served, log, given)
            case Verdict.GAP:
                # A question is always answered: the last answer may have been lost.
                if given.has_asked and share.after != share.upto:
                    return [], None
                given.has_asked = True
                return [], self._at(served, log, given, again=True)

    def _take(
        self, served: Served, log: str, given: Given, share: Share, entries: tuple[tuple[int, Notification], ...]
    ) -> list[Action]:
        actions: list[Action] = []
        position, lost = given.position, share.lost
        for place, ids in share.entries:
            epoch, notification = entries[place]
            # A piece may begin below the position: what lies there is known.
            if epoch > position:
                receiver = served.receiver()
                delivery = Deliver(receiver, served.identity, notification, ids, log, epoch, lost)
                actions.append(delivery)
                given.outstanding.append(epoch)
                if served.members is not None:
                    served.members[receiver][log, epoch] = delivery
                lost = 0
        if lost:
            actions.append(Missed(served.receiver(), served.identity, lost))
        # To `upto`, not to the last entry: that there is nothing in between was said too.
        given.position = share.upto
        given.has_asked = False
        return actions

    def _at(self, served: Served, log: str, given: Given, again: bool = False) -> At:
        return At(given.storage, log, served.identity, served.session, given.taken, again)

    # --- what clients say ---

    def skipped(self, delivery: Deliver) -> At | None:
        """The client does not get a delivery: what to tell the storage."""
        served = self._served.get(delivery.identity)
        given = None if served is None else served.logs.get(delivery.log)
        if served is None or given is None or delivery.epoch not in given.outstanding:
            return None
        given.outstanding.remove(delivery.epoch)
        if served.members is not None:
            served.members.get(delivery.client, {}).pop((delivery.log, delivery.epoch), None)
        return self._at(served, delivery.log, given)

    def given_to_others(self, served: Served, client: Client) -> list[Action]:
        """A member leaves its group: what it has not taken goes to other members."""
        assert served.members is not None, "it is a group"
        actions: list[Action] = []
        for key, delivery in sorted(served.members.pop(client).items()):
            receiver = served.receiver()
            served.members[receiver][key] = again = replace(delivery, client=receiver)
            actions.append(again)
        return actions

    def taken(self, client: Client, message: Taken) -> At | None:
        """What to tell the storage; None if the client was given nothing of that."""
        served = self._served.get(message.identity)
        given = None if served is None else served.logs.get(message.log)
        if served is None or given is None or client not in served.clients or not given.storage:
            return None
        before = given.taken
        if served.members is None:
            while given.outstanding and given.outstanding[0] <= message.epoch:
                given.outstanding.popleft()
        else:
            # A member takes what it was given itself; only what all before has been taken too is acknowledged.
            held = served.members[client]
            for key in [key for key in held if key[0] == message.log and key[1] <= message.epoch]:
                del held[key]
                given.outstanding.remove(key[1])
        return self._at(served, message.log, given) if given.taken > before else None
