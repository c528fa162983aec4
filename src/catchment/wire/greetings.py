"""Names, versions and routing systems: which `Hello` and which `Welcome` is refused, and why.

Everything here follows from what the two ends say of themselves. What depends on who else is connected (a second link,
two brokers of one name) is the broker's to decide.

Names cannot cheat: whoever connects, as a broker or as a client, and whatever identity a client asks for, has a name
that `model/names.py` allows.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from catchment.errors import BadIdError, shown
from catchment.model.names import HTTP_PUBLISHER, length_refusal, name_refusal, spelling_refusal
from catchment.routing.durable.messages import POSITIONS_MAX, DurableRequest
from catchment.routing.messages import LINK_COST_MAX, ClientRequest, MapIdentity
from catchment.wire.frames import VERSION
from catchment.wire.messages import Hello, Welcome


class ThisBroker(Struct, frozen=True):
    """What a broker says of itself, and the messages of its network."""

    name: str
    routing: str
    # What its neighbors may say: `messages.between_brokers`.
    language: Any
    # A new one at each start of the process.
    instance: str = ""


# Each function returns the reason for a refusal, and nothing if there is none.


def hello_refusal(broker: ThisBroker, hello: Hello) -> str:
    """Why the broker does not welcome whoever says this."""
    low, high = hello.versions
    if not low <= VERSION <= high:
        return f"this broker speaks version {VERSION}, you speak {low} to {high}"
    if hello.role == "broker":
        return _neighbor_refusal(broker, hello)
    if len(hello.positions) > POSITIONS_MAX:
        return f"positions in {len(hello.positions):,} logs: POSITIONS_MAX is {POSITIONS_MAX:,}"
    return name_refusal(hello.name) or (name_refusal(hello.storage) if hello.storage else "")


def neighbor_welcome_refusal(broker: ThisBroker, welcome: Welcome) -> str:
    """Why the broker does not keep the link to whoever answers with this."""
    return _version_refusal(shown(welcome.name), welcome) or _neighbor_refusal(broker, welcome)


def client_welcome_refusal(welcome: Welcome) -> str:
    """Why a client does not stay with a broker that answers with this."""
    if refusal := _version_refusal("the broker", welcome) or name_refusal(welcome.name):
        return refusal
    return f"a credit of {welcome.credit}" if welcome.credit < 0 else ""


def request_problem(request: ClientRequest | DurableRequest) -> BadIdError | None:
    """What is wrong with the names that a client asks for something under. How long they may be is a limit, which the
    node checks with the others."""
    names = [request.identity]
    # HTTP publishers are the only clients of the broker's own that an identity can be mapped to.
    if isinstance(request, MapIdentity) and request.handler != HTTP_PUBLISHER:
        names.append(request.handler)
    refusals = filter(None, map(spelling_refusal, names))
    return next((BadIdError(refusal) for refusal in refusals), None)


def _version_refusal(who: str, welcome: Welcome) -> str:
    return "" if welcome.version == VERSION else f"{who} speaks version {welcome.version}, {VERSION} was offered"


def _neighbor_refusal(broker: ThisBroker, other: Hello | Welcome) -> str:
    if refusal := name_refusal(other.name) or length_refusal(other.instance or "none"):
        return refusal
    if other.routing != broker.routing:
        return f"{broker.name} runs {broker.routing}, {shown(other.name)} runs {shown(other.routing)}"
    if other.name == broker.name:
        return f"two brokers are named {shown(other.name)}"
    if not 1 <= other.cost <= LINK_COST_MAX:
        return f"a link costs 1 to {LINK_COST_MAX:,}, found {other.cost}"
    return ""
