"""Who may ask for something, and publish, under which name.

There is no authentication yet: a name belongs to whoever uses it first at this broker, for as long as it is there.

owner      A client owns its own name, and the identities that it introduces by asking for something under a name that
           nobody has.
handler    The owner may map an identity to another client of this broker, its handler. From then on both may speak for
           the identity: subscribe, cancel, suspend, publish. Only the owner may map it again.
publisher  The owner may map an identity to `@http`: that lets everybody who publishes over HTTP at this broker use the
           name as a source. Nothing else changes.
$source    A client publishes under its own name, an identity that it may speak for, or a name that nobody here has. A
           notification without a source gets the client's name.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, Final

from catchment.errors import BadIdError, BadNumberError, CatchmentError, ForeignIdentityError, LimitError, shown
from catchment.model.names import HTTP_PUBLISHER, RESERVED, name_refusal, spelling_refusal
from catchment.model.notification import Notification
from catchment.model.pattern import IDENTITY_CODEPOINTS_MAX
from catchment.node.numbers import Numbers
from catchment.routing.core import RoutingCore
from catchment.routing.durable.core import DurableCore
from catchment.routing.durable.messages import DurableRequest, SubscribeDurable
from catchment.routing.durable.table import RELAYS
from catchment.routing.messages import Client, ClientRequest, MapIdentity, Time

# Identities that one client may own, and identities of others that may be mapped to it. A client that serves more users
# than that uses several connections.
CLIENT_IDENTITIES_MAX: Final = 1_000


class Access:
    """What the core cannot know of names: who is connected, and which names are reserved."""

    def __init__(self, broker: str, core: RoutingCore[Any], connected: Container[Client]) -> None:
        self._broker, self._core, self._connected = broker, core, connected
        self.numbers = Numbers()

    # --- names ---

    def name_refusal(self, client: Client) -> str:
        """Why a client cannot connect under its name: another client has introduced an identity of this name."""
        known = self._core.clients.get(client.name)
        if known is None or known.owner == client:
            return ""
        return f"{shown(client.name)} is an identity of another client at {self._broker}: take another name, or wait"

    def _is_foreign(self, client: Client, name: str) -> bool:
        """Whether a name belongs to somebody else."""
        if name == client.name:
            return False
        # A client keeps its name even if the core has forgotten the identity, with a handler that is gone.
        is_others = Client(name) in self._connected
        known = self._core.clients.get(name)
        return is_others if known is None else client not in (known.owner, known.client)

    # --- requests ---

    def check_request(self, client: Client, request: ClientRequest) -> None:
        """Raises what the client is refused with. Changes nothing."""
        id = getattr(request, "id", request.identity)
        for text in (request.identity, id):
            if not 1 <= len(text) <= IDENTITY_CODEPOINTS_MAX:
                raise LimitError("IDENTITY_CODEPOINTS_MAX", IDENTITY_CODEPOINTS_MAX, f"a name of {len(text):,}")
        if self._is_foreign(client, request.identity):
            raise _foreign(client, request.identity, self._broker)
        # The broker's own clients have reserved names, and ask under no others.
        if request.identity != client.name and (refusal := spelling_refusal(request.identity)):
            raise BadIdError(refusal)
        clients = self._core.clients
        if request.identity not in clients and len(clients.owned_by(client)) >= CLIENT_IDENTITIES_MAX:
            raise LimitError("CLIENT_IDENTITIES_MAX", CLIENT_IDENTITIES_MAX, "one more", "use another connection")
        if isinstance(request, MapIdentity):
            self._check_mapping(client, request)

    def _check_mapping(self, client: Client, request: MapIdentity) -> None:
        handler, clients = Client(request.handler), self._core.clients
        known = clients.get(request.identity)
        if known is not None and known.owner != client:
            raise ForeignIdentityError(
                f"{shown(request.identity)} was mapped to {shown(client.name)}: only its owner can map it again"
            )
        if handler.name != HTTP_PUBLISHER and (refusal := spelling_refusal(handler.name)):
            raise BadIdError(refusal)
        if handler not in self._connected:
            raise BadIdError(f"there is no client {shown(request.handler)} at {self._broker}")
        if handler.name == HTTP_PUBLISHER and known is None:
            raise BadIdError(f"there is no identity {shown(request.identity)}: advertise or subscribe under it first")
        # Counted apart from what the handler owns: others cannot use up what it may introduce itself.
        mapped = clients.mapped_to(handler)
        if handler != client and request.identity not in mapped and len(mapped) >= CLIENT_IDENTITIES_MAX:
            raise LimitError("CLIENT_IDENTITIES_MAX", CLIENT_IDENTITIES_MAX, "one more", "map it to another client")

    def check_durable(self, client: Client, request: DurableRequest) -> None:
        """The same for what is durable. A durable identity belongs to whoever is connected under its name, at any
        broker. A group belongs to everybody."""
        for text in (request.identity, getattr(request, "id", request.identity)):
            if not 1 <= len(text) <= IDENTITY_CODEPOINTS_MAX:
                raise LimitError("IDENTITY_CODEPOINTS_MAX", IDENTITY_CODEPOINTS_MAX, f"a name of {len(text):,}")
        if getattr(request, "id", "").startswith(RESERVED):
            raise BadIdError(f"ids of durable subscriptions do not begin with {RESERVED}")
        if request.identity == client.name and not request.identity.startswith(RELAYS):
            return
        if refusal := spelling_refusal(request.identity):
            raise BadIdError(refusal)
        if self._is_shared(client, request):
            return
        what = f"{shown(request.identity)} is durable for whoever connects under that name"
        raise ForeignIdentityError(f"{what}: connect as {shown(request.identity)}")

    def _is_shared(self, client: Client, request: DurableRequest) -> bool:
        """Whether a request is about a group: any client may subscribe for one, and speak for one that there is. The
        name of somebody who is here is no group's."""
        if isinstance(request, SubscribeDurable):
            return request.is_group and Client(request.identity) not in self._connected
        return isinstance(self._core, DurableCore) and self._core.table.is_group(request.identity)

    def granted(self, request: ClientRequest) -> bool:
        """Whether a request, which was checked, only grants HTTP publishers a name: the core need not hear of it."""
        if not isinstance(request, MapIdentity) or request.handler != HTTP_PUBLISHER:
            return False
        known = self._core.clients.get(request.identity)
        assert known is not None, "the request was checked"
        known.publishers.add(Client(HTTP_PUBLISHER))
        return True

    # --- publications ---

    def admitted_stored(self, client: Client, batch: Sequence[Notification], now: Time) -> Sequence[Notification]:
        """A batch that a client wants to be stored, with its source. CatchmentError if it has several sources, one that
        is not the client's, or numbers that do not grow or are out of range. Numbers that were published before may
        come again: whoever stores them knows which are new."""
        if not batch:
            raise BadNumberError("a publication that is to be stored has at least one notification", 0)
        batch = [each if each.source is not None else each.stamped(source=client.name) for each in batch]
        source = batch[0].source
        assert source is not None
        if (problem := self._source_problem(client, source)) is not None:
            raise problem
        self.numbers.remember({source: self.numbers.checked_stored(batch, source, now)})
        return batch

    def admitted(self, client: Client, batch: Sequence[Notification], now: Time) -> Sequence[Notification]:
        """A batch that a client publishes, with sources. Remembers its numbers. CatchmentError if one of the sources is
        not the client's, or one of the numbers is out of range: then nothing of the batch is published."""
        name = client.name
        is_sourceless = False
        # The source that was checked last: publishers send many in a row from one. A client that connects has a name
        # that is good as a source; the broker's own clients have not.
        before = None if name.startswith(RESERVED) else name
        for notification in batch:
            source = notification.source
            if source is None:
                is_sourceless = True
            elif source != before:
                if (problem := self._source_problem(client, source)) is not None:
                    raise problem
                before = source
        if is_sourceless:
            batch = [each if each.source is not None else each.stamped(source=name) for each in batch]
        self.numbers.remember(self.numbers.checked(batch, now))
        return batch

    def _source_problem(self, client: Client, source: str) -> CatchmentError | None:
        if refusal := name_refusal(source):
            return BadIdError(f"$source: {refusal}")
        known = self._core.clients.get(source)
        if not self._is_foreign(client, source) or (known is not None and client in known.publishers):
            return None
        return _foreign(client, source, self._broker)


def _foreign(client: Client, name: str, broker: str) -> ForeignIdentityError:
    return ForeignIdentityError(
        f"{shown(name)} belongs to another client at {broker}: use {shown(client.name)} or another name of your own, "
        "or let its owner map it to you"
    )
