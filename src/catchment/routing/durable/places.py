"""Where identities are: clients that come and go here, and places that other brokers tell.

client up     If the name has, or had, durable subscriptions, this broker serves it from now on. It floods that, with
              what the client has taken (`Place`), and each storage sends from there (rule 10). The session is what the
              client says; if that is not above what is known, one more than that: whoever has just connected is the
              newest, even if its clock has gone back.
client down   The broker floods that the identity is away.
Place         If it is newer than what is known, it is applied, stored by a storage, and flooded on. A broker that hears
              that an identity has gone elsewhere serves it no longer.
own place     A place that names this broker, which does not serve the identity, is from before a crash: the broker says
              that the identity is away. If it does serve it, with a smaller session, it says so with a greater one.
group         Its members are clients of one broker, which serves it as long as there are any. Members that want to
              join elsewhere are refused, and told where the others are. If two brokers serve it for a moment, the
              greater session wins, and the members of the other are told.
going back    `Rewind`: a new session, in which storages set back what is acknowledged. The broker forgets its position
              in those logs; positions in others stay.
new log       A client with a position in a log that its storage has no longer is told (`TellLostLog`).
"""

from __future__ import annotations

from catchment.errors import BadIdError, shown
from catchment.routing.durable.messages import Place, Rewind, TellLostLog, session_after
from catchment.routing.durable.serving import Served, Serving
from catchment.routing.durable.shared import Shared
from catchment.routing.durable.table import NOTHING_SAID, RELAYS, Arrival
from catchment.routing.messages import Action, Client, ClientUp, Neighbor, Refuse, Time
from catchment.routing.parts.link_states import is_plausible
from catchment.routing.stored import Opened, PlaceRow


class Places:
    """The places of all identities, as one broker knows them."""

    def __init__(self, shared: Shared, serving: Serving) -> None:
        self._shared, self._serving = shared, serving
        # By identity: the client that is connected under this name, and what it said.
        self._connected: dict[str, tuple[Client, ClientUp]] = {}

    def load(self, opened: Opened) -> None:
        """The places as they were stored."""
        storage, table = self._shared.storage, self._shared.table
        assert storage is not None, "it was opened"
        for place in opened.places:
            table.move(place)
            if place.broker == self._shared.name:
                # Whoever was served here before this process began is away.
                self.move(PlaceRow(place.identity, place.session, None), NOTHING_SAID, 0)
            else:
                storage.sending.place(place.identity, place.session, place.broker, None, 0)

    # --- clients ---

    def client_up(self, client: Client, message: ClientUp, now: Time) -> list[Action]:
        self._connected[message.identity] = (client, message)
        actions = self.serve_if_connected(message.identity, now, is_new=True)
        for log in sorted(message.positions):
            if storage := self._shared.paths.lost_by(log):
                actions.append(TellLostLog(client, message.identity, storage, log))
        return actions

    def client_down(self, client: Client, now: Time) -> list[Action]:
        for identity in [identity for identity, (each, _) in self._connected.items() if each == client]:
            del self._connected[identity]
        actions: list[Action] = []
        for served in self._serving.of(client):
            actions += self.left(served, client, now)
        return actions

    def left(self, served: Served, client: Client, now: Time) -> list[Action]:
        """A client has gone, or leaves a group. If it was the last, the identity is away."""
        if served.members is not None and len(served.members) > 1:
            return self._serving.given_to_others(served, client)
        self._serving.end(served.identity)
        return self.move(PlaceRow(served.identity, served.session, None), NOTHING_SAID, now)

    def serve_if_connected(self, identity: str, now: Time, *, is_new: bool = False) -> list[Action]:
        """If an identity has durable subscriptions, and its client is here, it is served here. A group is served where
        its members are (`join`)."""
        table = self._shared.table
        is_durable = table.knows(identity) and not table.is_group(identity)
        if identity not in self._connected or not is_durable or identity in self._serving:
            return []
        if not is_new and self._shared.table.place(identity).broker not in (None, self._shared.name):
            return []  # Its connection here is dead, although nobody has noticed: it has gone elsewhere.
        client, message = self._connected[identity]
        before = table.place(identity).session
        session = message.session if message.session > before else session_after(before, now)
        self._serving.begin(identity, client, session, message.positions)
        return self.move(PlaceRow(identity, session, self._shared.name), Arrival(message.positions), now)

    def serve_relay(self, now: Time) -> list[Action]:
        """If this broker is a relay, it reads other logs like a client that is always here."""
        storage, identity = self._shared.working_storage, RELAYS + self._shared.name
        if storage is None or identity in self._serving or not self._shared.table.is_relay:
            return []
        session = session_after(self._shared.table.place(identity).session, now)
        self._serving.begin(identity, Client(identity), session, {})
        return self.move(PlaceRow(identity, session, self._shared.name), NOTHING_SAID, now)

    def enter(self, identity: str, now: Time) -> None:
        """The identity is new at our storage: it is sent what it is due from now on, wherever it is."""
        storage, place = self._shared.working_storage, self._shared.table.place(identity)
        if storage is not None and place.broker is not None:
            storage.sending.place(identity, place.session, place.broker, None, now)

    def told_lost(self, storage: str, log: str) -> list[Action]:
        """A storage has a new log: tells those who are served here, and those who came with a position in the old one:
        if it was our disk, we may not know yet what they want."""
        served = {(client, each.identity) for each in self._serving.all() for client in each.clients}
        came = {(client, identity) for identity, (client, up) in self._connected.items() if log in up.positions}
        return [TellLostLog(client, identity, storage, log) for client, identity in sorted(served | came)]

    # --- groups ---

    def join(self, identity: str, client: Client, now: Time) -> list[Action]:
        """The client takes part in a group. BadIdError if there is none, or its members are elsewhere."""
        table, name = self._shared.table, self._shared.name
        if not table.is_group(identity):
            raise BadIdError(f"there is no group {shown(identity)}: subscribe under this name for a group first")
        served, place = self._serving.get(identity), table.place(identity)
        if served is not None and served.members is not None:
            served.members.setdefault(client, {})
            return []
        if place.broker is not None and place.broker != name and self._shared.is_reached(place.broker):
            raise BadIdError(f"the members of {shown(identity)} are at {place.broker}: connect there to join them")
        session = session_after(place.session, now)
        self._serving.begin_group(identity, client, session)
        return self.move(PlaceRow(identity, session, name), NOTHING_SAID, now)

    def leave(self, identity: str, client: Client, now: Time) -> list[Action]:
        """BadIdError if the client is no member."""
        served = self._serving.get(identity)
        if served is None or served.members is None or client not in served.members:
            raise BadIdError(f"{shown(client.name)} is no member of {shown(identity)} at {self._shared.name}")
        return self.left(served, client, now)

    # --- going back ---

    def go_back(self, message: Rewind, client: Client, now: Time) -> list[Action]:
        """The identity goes back, in a session of its own: nothing that is under way interferes. BadIdError if it is
        not served here."""
        served = self._serving.get(message.identity)
        if served is None or client not in served.clients:
            raise BadIdError(f"{shown(message.identity)} is not served at {self._shared.name}: it cannot go back here")
        if not message.log and message.since is None:
            raise BadIdError("say where to go back to: a log and an epoch, or a time")
        served.go_back(message.log)
        served.session = session_after(served.session, now)
        back = {message.log: message.epoch} if message.log else {}
        arrival = Arrival(served.positions, back, None if message.log else message.since)
        return self.move(PlaceRow(message.identity, served.session, self._shared.name), arrival, now)

    # --- places ---

    def heard(self, message: Place, source: Neighbor, now: Time) -> list[Action]:
        if not is_plausible(message.session, now):
            return []
        identity, session = message.identity, message.session
        served = self._serving.get(identity)
        # If it is away by what others know, and is here: that was an earlier connection.
        is_ours = message.broker is None and served is not None and session > served.session
        if message.broker != self._shared.name and not is_ours:
            row = PlaceRow(identity, session, message.broker)
            arrival = Arrival(message.positions, message.back, message.since)
            actions = self.move(row, arrival, now, source)
            if served is not None and self._shared.table.place(identity) == row:
                actions += self._gone(served, message.broker)
            # It was only by a clock that went back that it was taken for gone: it is still here.
            return actions + (self.serve_if_connected(identity, now) if message.broker is None else [])
        if served is None:
            # From before a crash: nobody of that name is here. The neighbor must hear it too.
            return self.move(PlaceRow(identity, session, None), NOTHING_SAID, now)
        if session > served.session:
            # A clock has gone back, ours or the client's: others would prefer the session from before.
            served.session = session_after(session, now)
            row = PlaceRow(identity, served.session, self._shared.name)
            return self.move(row, Arrival(served.positions), now)
        return []

    def _gone(self, served: Served, broker: str | None) -> list[Action]:
        """An identity that was served here is elsewhere. Members of a group are told: they have to join there."""
        self._serving.end(served.identity)
        where = "have gone" if broker is None else f"are at {broker}: connect there to join them"
        problem = BadIdError(f"the members of {shown(served.identity)} {where}")
        return [Refuse(client, problem) for client in served.members or ()]

    def move(self, row: PlaceRow, arrival: Arrival, now: Time, source: Neighbor | None = None) -> list[Action]:
        """An identity is somewhere else, or away, or goes back."""
        shared = self._shared
        if not shared.table.move(row, arrival):
            return []
        storage = shared.working_storage
        if storage is not None:
            storage.moved(row)
            back = 0 if arrival.since is not None else arrival.back.get(storage.log)
            position = arrival.positions.get(storage.log)
            is_plain = storage.sending.place(row.identity, row.session, row.broker, position, now, back, arrival.since)
            if not is_plain:
                self.alarm(row.identity)
        return shared.flooded(shared.table.place_message(row.identity), source)

    def alarm(self, identity: str) -> None:
        """The client knows more of our log than there is (rule 6)."""
        name = self._shared.name
        what = f"{shown(identity)} has taken more of the log of {name} than there is: records are lost"
        self._shared.alarm(f"{what}; run `catchment store check` at {name}")
