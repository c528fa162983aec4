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
new log       A client with a position in a log that its storage has no longer is told (`TellLostLog`).
"""

from __future__ import annotations

from collections.abc import Mapping

from catchment.errors import shown
from catchment.routing.durable.messages import Place, TellLostLog, session_after
from catchment.routing.durable.serving import Serving
from catchment.routing.durable.shared import Shared
from catchment.routing.messages import Action, Client, ClientUp, Neighbor, Time
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
                self.move(PlaceRow(place.identity, place.session, None), {}, 0)
            else:
                storage.sending.place(place.identity, place.session, place.broker, None, 0)

    # --- clients ---

    def client_up(self, client: Client, message: ClientUp, now: Time) -> list[Action]:
        self._connected[message.identity] = (client, message)
        actions: list[Action] = []
        if self._shared.table.knows(message.identity):
            actions += self._serve(message.identity, now)
        for log in sorted(message.positions):
            if storage := self._shared.paths.lost_by(log):
                actions.append(TellLostLog(client, message.identity, storage, log))
        return actions

    def client_down(self, client: Client, now: Time) -> list[Action]:
        for identity in [identity for identity, (each, _) in self._connected.items() if each == client]:
            del self._connected[identity]
        actions: list[Action] = []
        for served in self._serving.of(client):
            self._serving.end(served.identity)
            actions += self.move(PlaceRow(served.identity, served.session, None), {}, now)
        return actions

    def serve_if_connected(self, identity: str, now: Time) -> list[Action]:
        """The identity has its first durable subscription: if its client is here, it is served here."""
        return self._serve(identity, now) if identity in self._connected and identity not in self._serving else []

    def _serve(self, identity: str, now: Time) -> list[Action]:
        client, message = self._connected[identity]
        before = self._shared.table.place(identity).session
        session = message.session if message.session > before else session_after(before, now)
        self._serving.begin(identity, client, session, message.positions)
        return self.move(PlaceRow(identity, session, self._shared.name), message.positions, now)

    def told_lost(self, storage: str, log: str) -> list[Action]:
        """A storage has a new log: tells those who are served here."""
        return [TellLostLog(served.client, served.identity, storage, log) for served in self._serving.all()]

    # --- places ---

    def heard(self, message: Place, source: Neighbor, now: Time) -> list[Action]:
        if not is_plausible(message.session, now):
            return []
        identity, session = message.identity, message.session
        served = self._serving.get(identity)
        if message.broker != self._shared.name:
            row = PlaceRow(identity, session, message.broker)
            actions = self.move(row, message.positions, now, source)
            if served is not None and self._shared.table.place(identity) == row:
                self._serving.end(identity)  # It has gone elsewhere.
            return actions
        if served is None:
            # From before a crash: nobody of that name is here. The neighbor must hear it too.
            return self.move(PlaceRow(identity, session, None), {}, now)
        if session > served.session:
            # The clock has gone back since a crash: others would prefer the session from before.
            served.session = session_after(session, now)
            return self.move(PlaceRow(identity, served.session, self._shared.name), served.positions, now)
        return []

    def move(
        self, row: PlaceRow, positions: Mapping[str, int], now: Time, source: Neighbor | None = None
    ) -> list[Action]:
        """An identity is somewhere else, or away."""
        shared = self._shared
        if not shared.table.move(row, positions):
            return []
        storage = shared.working_storage
        if storage is not None:
            storage.moved(row)
            if not storage.sending.place(row.identity, row.session, row.broker, positions.get(storage.log), now):
                self.alarm(row.identity)
        return shared.flooded(shared.table.place_message(row.identity), source)

    def alarm(self, identity: str) -> None:
        """The client knows more of our log than there is (rule 6)."""
        name = self._shared.name
        what = f"{shown(identity)} has taken more of the log of {name} than there is: records are lost"
        self._shared.alarm(f"{what}; run `catchment store check` at {name}")
