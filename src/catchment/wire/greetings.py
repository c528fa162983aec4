"""Names, versions and routing systems: which `Hello` and which `Welcome` is refused, and why.

Everything here follows from what the two ends say of themselves. What depends on who else is connected (a second link,
two brokers of one name) is the broker's to decide.

Names cannot cheat. A name that begins with `@` belongs to a broker's own clients (those of its HTTP side) and to the
inner neighbors of a gateway. So nobody who connects may use such a name: not as a broker, not as a client, and not for
the identities that a client asks for. `*` is no broker's name either: it is kept for "every broker".
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from catchment.errors import BadIdError, shown
from catchment.model.pattern import IDENTITY_CODEPOINTS_MAX
from catchment.routing.messages import LINK_COST_MAX, ClientRequest, MapIdentity
from catchment.wire.frames import VERSION
from catchment.wire.messages import Hello, Welcome

# Names that begin with this are a broker's own.
RESERVED: Final = "@"


class ThisBroker(Struct, frozen=True):
    """What a broker says of itself, and the messages of its network."""

    name: str
    routing: str
    # What its neighbors may say: `messages.between_brokers`.
    language: Any
    # A new one at each start of the process.
    instance: str = ""


# Each function returns the reason for a refusal, and nothing if there is none.


def broker_name_refusal(name: str) -> str:
    """Why no broker can have this name."""
    if name.startswith(RESERVED) or name == "*":
        return f"{shown(name)} cannot be a broker's name"
    return _length_refusal(name)


def hello_refusal(broker: ThisBroker, hello: Hello) -> str:
    """Why the broker does not welcome whoever says this."""
    low, high = hello.versions
    if not low <= VERSION <= high:
        return f"this broker speaks version {VERSION}, you speak {low} to {high}"
    if hello.role == "broker":
        return _neighbor_refusal(broker, hello)
    if hello.name.startswith(RESERVED):
        return f"names that begin with {RESERVED} are the broker's own"
    return _length_refusal(hello.name)


def neighbor_welcome_refusal(broker: ThisBroker, welcome: Welcome) -> str:
    """Why the broker does not keep the link to whoever answers with this."""
    return _version_refusal(shown(welcome.name), welcome) or _neighbor_refusal(broker, welcome)


def client_welcome_refusal(welcome: Welcome) -> str:
    """Why a client does not stay with a broker that answers with this."""
    if refusal := _version_refusal("the broker", welcome) or broker_name_refusal(welcome.name):
        return refusal
    return f"a credit of {welcome.credit}" if welcome.credit < 0 else ""


def request_problem(request: ClientRequest) -> BadIdError | None:
    """What is wrong with the names that a client asks for something under."""
    names = (request.identity, request.handler) if isinstance(request, MapIdentity) else (request.identity,)
    for name in names:
        if name.startswith(RESERVED):
            return BadIdError(f"{shown(name)}: names that begin with {RESERVED} are the broker's own")
    return None


def _version_refusal(who: str, welcome: Welcome) -> str:
    return "" if welcome.version == VERSION else f"{who} speaks version {welcome.version}, {VERSION} was offered"


def _neighbor_refusal(broker: ThisBroker, other: Hello | Welcome) -> str:
    if refusal := broker_name_refusal(other.name) or _length_refusal(other.instance or "none"):
        return refusal
    if other.routing != broker.routing:
        return f"{broker.name} runs {broker.routing}, {shown(other.name)} runs {shown(other.routing)}"
    if other.name == broker.name:
        return f"two brokers are named {shown(other.name)}"
    if not 1 <= other.cost <= LINK_COST_MAX:
        return f"a link costs 1 to {LINK_COST_MAX:,}, found {other.cost}"
    return ""


def _length_refusal(name: str) -> str:
    if 1 <= len(name) <= IDENTITY_CODEPOINTS_MAX:
        return ""
    return f"a name has 1 to {IDENTITY_CODEPOINTS_MAX:,} characters, found {len(name):,}"
