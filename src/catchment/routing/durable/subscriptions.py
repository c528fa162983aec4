"""Durable subscriptions: what clients ask for, and what other brokers tell.

subscribe   The row gets a version above all that are known, is applied, stored, and flooded (rule 9). The same id with
            another filter edits the subscription. Asked for again as it is, it is only confirmed again.
forget      A row of its own (FORGOTTEN) voids all earlier rows of the identity; storages drop what it is due.
cancel      The row loses its filter, and gets a greater version. What was published before is still delivered.
Durable     If it is newer than what is known, it is applied, stored by a storage, and flooded on.
Knows, Ask  When a change takes effect: `effects.py`.

All subscriptions of an identity are durable, or none (rule 12). Patterns cannot be durable.
"""

from __future__ import annotations

from collections.abc import Sequence

from catchment.errors import BadIdError, CatchmentError, RemoteProtocolError, UnavailableError, shown
from catchment.routing.durable.effects import EFFECT_TIMER, Effects
from catchment.routing.durable.messages import Ask, CancelDurable, Durable, Knows, SubscribeDurable
from catchment.routing.durable.places import Places
from catchment.routing.durable.reach import PREFIX
from catchment.routing.durable.shared import Shared
from catchment.routing.durable.table import FORGOTTEN, durable_of, row_of
from catchment.routing.messages import Action, Client, Neighbor, Refuse, SetTimer, Subscribe, Time
from catchment.routing.parts.link_states import following, is_plausible
from catchment.routing.stored import DurableRow


class Subscriptions:
    """The durable subscriptions of all identities, as one broker knows them."""

    def __init__(self, shared: Shared, places: Places) -> None:
        self._shared, self._places = shared, places
        self._effects = Effects(shared.name)

    def client_down(self, client: Client) -> None:
        self._effects.client_down(client)

    # --- what clients ask for ---

    def refusal(self, request: Subscribe, client: Client) -> list[Action]:
        """Why a client cannot have a subscription that is not durable; nothing if it can."""
        if not self._shared.table.is_durable(request.identity):
            return []
        what = f"the subscriptions of {shown(request.identity)} are durable: all of an identity are, or none"
        return [Refuse(client, BadIdError(f"{what}; use another name for others"))]

    def subscribe(self, message: SubscribeDurable, client: Client, now: Time) -> list[Action]:
        """CatchmentError if it cannot be done."""
        table, identity, id = self._shared.table, message.identity, message.id
        if not self._shared.paths.storages:
            raise UnavailableError("no broker of this network has a store: nothing can be durable")
        if self._shared.inner.clients.wants_of(identity):
            what = f"{shown(identity)} has subscriptions that are not durable: all of an identity are, or none"
            raise BadIdError(f"{what}; cancel them first, or use another name")
        if table.is_durable(identity) and table.is_group(identity) != message.is_group:
            kind = "no group" if message.is_group else "a group"
            raise BadIdError(f"{shown(identity)} is {kind}: an identity is a group for all its subscriptions, or none")
        if message.via and message.via not in self._shared.paths.storages:
            raise BadIdError(f"there is no storage {shown(message.via)} here: a relay is a broker with a store")
        known = table.row(identity, id)
        version = following(0 if known is None else known.version, now)
        row = DurableRow(identity, id, version, message.wanted, self._shared.name, message.via, message.is_group)
        table.check(row)
        if known is not None and (known.wanted, known.via) == (row.wanted, row.via):
            return self._ask_again(known, client, now)
        return self._change(row, client, now)

    def cancel(self, message: CancelDurable, client: Client, now: Time) -> list[Action]:
        """CatchmentError if there is none."""
        known = self._shared.table.row(message.identity, message.id)
        if known is None or known.id == FORGOTTEN:
            raise BadIdError(f"{shown(message.identity)} has no durable subscription {shown(message.id)}")
        if known.wanted is None:
            return self._ask_again(known, client, now)
        version, by = following(known.version, now), self._shared.name
        row = DurableRow(known.identity, known.id, version, None, by, known.via, known.is_group)
        return self._change(row, client, now)

    def forget(self, identity: str, now: Time) -> list[Action]:
        """BadIdError if there is nothing to forget."""
        rows = self._shared.table.rows_of(identity)
        if not any(id != FORGOTTEN for id in rows):
            raise BadIdError(f"{shown(identity)} has no durable subscriptions")
        version = following(max(row.version for row in rows.values()), now)
        return self._apply(DurableRow(identity, FORGOTTEN, version, None, self._shared.name), None, now)

    def _change(self, row: DurableRow, client: Client, now: Time) -> list[Action]:
        self._effects.wait(client, row)
        return self._apply(row, None, now) + self.effective(now)

    def _ask_again(self, row: DurableRow, client: Client, now: Time) -> list[Action]:
        """A change is asked for that was made already: perhaps the answer was lost."""
        self._effects.wait(client, row)
        storage = self._shared.working_storage
        if storage is not None and storage.knows(row):
            self._effects.known(self._shared.name, row.identity, row.id, row.version)
        return self._asked() + self.effective(now)

    # --- what brokers tell ---

    def heard(self, message: Durable, source: Neighbor, now: Time) -> list[Action]:
        if not is_plausible(message.version, now):
            return []
        row = row_of(message)
        try:
            self._shared.table.check(row)
        except CatchmentError as problem:
            what = f"told a durable subscription of {shown(message.identity)}: {problem}"
            return [Refuse(source, RemoteProtocolError(source.name, what))]
        return self._apply(row, source, now)

    def _apply(self, row: DurableRow, source: Neighbor | None, now: Time) -> list[Action]:
        if not self._shared.table.apply(row):
            return []
        storage, table = self._shared.working_storage, self._shared.table
        if storage is not None and row.id == FORGOTTEN:
            storage.forgotten(row.identity, table.rows_of(row.identity).values(), table.place(row.identity))
            self._places.enter(row.identity, now)
        # Before anything relies on it: what is recorded from now on is written after it.
        elif storage is not None and storage.subscribed(row):
            self._places.enter(table.due_name(row), now)
        actions = self._shared.flooded(durable_of(row), source)
        return actions + self._places.serve_if_connected(row.identity, now) + self._places.serve_relay(now)

    # --- effects ---

    def stored(self, rows: Sequence[DurableRow], now: Time) -> list[Action]:
        """Our own store has these now."""
        actions: list[Action] = []
        for row in rows:
            if row.by == self._shared.name:
                self._effects.known(self._shared.name, row.identity, row.id, row.version)
            else:
                actions += self._knows(row, row.by)
        return actions + self.effective(now)

    def on_knows(self, message: Knows, now: Time) -> list[Action]:
        self._effects.known(message.storage, message.identity, message.id, message.version)
        return self.effective(now)

    def on_ask(self, message: Ask) -> list[Action]:
        row, storage = self._shared.table.row(message.identity, message.id), self._shared.working_storage
        if row is None or storage is None or row.version < message.version or not storage.knows(row):
            return []
        return self._knows(row, message.by)

    def _knows(self, row: DurableRow, by: str) -> list[Action]:
        return self._shared.paths.sent(Knows(by, self._shared.name, row.identity, row.id, row.version), by)

    def on_timer(self, now: Time) -> list[Action]:
        """Asks those who have not answered."""
        self._effects.asked += 1
        self._effects.has_timer = False
        return self._asked() + self.effective(now)

    def _asked(self) -> list[Action]:
        paths = self._shared.paths
        questions = self._effects.questions(paths.storages, paths.reached)
        return [action for ask in questions for action in paths.sent(ask, ask.storage)]

    def rerouted(self, now: Time) -> list[Action]:
        """Who can be reached has changed."""
        self._effects.rerouted()
        return self.effective(now)

    def effective(self, now: Time) -> list[Action]:
        """Tells clients what has taken effect; while something has not, a timer runs."""
        if not self._effects:
            return []
        paths = self._shared.paths
        actions: list[Action] = list(self._effects.effective(paths.storages, paths.reached))
        if self._effects and not self._effects.has_timer:
            self._effects.has_timer = True
            at = now + self._shared.settings.retry_us
            actions.append(SetTimer(PREFIX + EFFECT_TIMER, at, is_idle=self._effects.is_idle))
        return actions
