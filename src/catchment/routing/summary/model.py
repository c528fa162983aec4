"""The text's model of what propagation costs in a network: summaries, SIENA's subsumption, broadcast (§5.2.1, §5.2.3).

Nothing is sent here: bytes and messages are expected values, computed from the links of a network, the number of
subscriptions of each broker (σ), and the greatest probability that a subscription is subsumed.

broadcast    Every subscription goes to every broker by itself.
siena        Every subscription goes down the shortest-path tree of its broker. Each broker keeps it from each of its
             neighbors below with a probability of its own: the greatest, times its degree, divided by the greatest
             degree. That is the text's model of subsumption, not a run of SIENA.
summary      Algorithm 2, iteration by iteration. A merged summary has the distinct values of all brokers in it, and the
             ranges once. The share of values that are subsumed is the greatest probability at all brokers: it depends
             on the values, not on links. (The text does not say.)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from statistics import fmean

from catchment.routing.parts.paths import Costs, tree
from catchment.routing.summary.sizes import TextParameters


@dataclass(frozen=True, slots=True)
class Cost:
    """Messages from one broker to another, their bytes, and the bytes that all brokers together store."""

    messages: float
    sent_bytes: float
    stored_bytes: float


@dataclass(frozen=True, slots=True)
class Sent:
    """A summary on its way in Algorithm 2. `merged` is Merged_Brokers."""

    sender: str
    receiver: str
    merged: frozenset[str]


def iterations(links: Costs) -> tuple[list[Sent], dict[str, frozenset[str]]]:
    """Algorithm 2 as the text writes it: what is sent, in order, and the brokers that each knows in the end."""
    degrees = {broker: len(neighbors) for broker, neighbors in links.items()}
    received: dict[str, set[str]] = {broker: {broker} for broker in links}
    sent: list[Sent] = []
    for degree in range(1, max(degrees.values()) + 1):
        # All brokers of one degree act at once: what they send now, they have received before.
        now = [
            Sent(broker, min(above)[1], frozenset(received[broker]))
            for broker in sorted(links)
            if degrees[broker] == degree
            and (above := [(degrees[other], other) for other in links[broker] if degrees[other] >= degree])
        ]
        for summary in now:
            received[summary.receiver] |= summary.merged
        sent += now
    return sent, {broker: frozenset(brokers) for broker, brokers in received.items()}


def subsumed_shares(links: Costs, greatest: float) -> dict[str, float]:
    """The probability of each broker that a subscription is subsumed there."""
    most = max(map(len, links.values()))
    return {broker: greatest * len(neighbors) / most for broker, neighbors in links.items()}


def summary_cost(links: Costs, subscriptions: int, greatest: float, text: TextParameters) -> Cost:
    def size(brokers: Collection[str]) -> float:
        return text.summary_bytes(subscriptions * len(brokers), greatest)

    sent, known = iterations(links)
    return Cost(len(sent), sum(size(each.merged) for each in sent), sum(map(size, known.values())))


def siena_cost(links: Costs, subscriptions: int, greatest: float, text: TextParameters) -> Cost:
    shares = subsumed_shares(links, greatest)
    messages = stored = 0.0
    for origin in links:
        reaching = _reaching(tree(links, origin), shares)
        # Each broker but the origin is reached by one message.
        messages += sum(reaching.values()) - 1
        stored += sum(reaching.values())
    each = subscriptions * text.subscription_bytes
    return Cost(messages, messages * each, stored * each)


def _reaching(parents: Mapping[str, str | None], shares: Mapping[str, float]) -> dict[str, float]:
    """The probability that a subscription reaches each broker. The tree lists a broker after the one before it."""
    reaching: dict[str, float] = {}
    for broker, before in parents.items():
        reaching[broker] = 1.0 if before is None else reaching[before] * (1 - shares[before])
    return reaching


def broadcast_cost(links: Costs, subscriptions: int, text: TextParameters) -> Cost:
    count = len(links)
    hops = fmean(_hops(tree(links, origin)) for origin in links)
    each = subscriptions * text.subscription_bytes
    pairs = count * (count - 1)
    return Cost(pairs * hops, pairs * hops * each, count * count * each)


def _hops(parents: Mapping[str, str | None]) -> float:
    """The mean number of links from the root of a tree to another broker."""
    hops: dict[str, int] = {}
    for broker, before in parents.items():
        hops[broker] = 0 if before is None else hops[before] + 1
    return sum(hops.values()) / (len(hops) - 1)
