"""Records of a run for somebody who looks for a mistake: routing tables beside the ideal ones, and a trace.

These are the diagnostics of the filter-propagation text (§4.4, Figure 4.3), as plain rows.

A *dump* has a row for each broker, publisher and child in the publisher's tree, and one for the broker itself: the
filter that the broker holds for it, and the ideal one, which is what is wanted behind that child at this moment. If
there is one tree for all publishers, its root is in the place of the publisher, and parents have rows too. The
ideal is found by going through the network, as in the conformance suite; it shares no code with the cores.

A *trace* has a row for each message that a core was given and answered: when, which broker, from whom, and what the
core did. Notifications are in it only where a broker answered one with a message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

from catchment.errors import InputError
from catchment.model.expression import Or
from catchment.model.filter import Filter
from catchment.routing.core import Inspection, RoutingCore
from catchment.routing.messages import (
    SECOND,
    Action,
    ClientRequest,
    Deliver,
    DeliverSequence,
    Forward,
    HostMessage,
    Interface,
    Refuse,
    Routed,
    Send,
    SetTimer,
    Time,
)
from catchment.routing.parts.clients import ClientSide
from catchment.routing.parts.recall import RecallingMatcher
from catchment.sim.conformance.ideals.multicast import behind, tree_of
from catchment.sim.conformance.ideals.tables import filters_wanted, roots
from catchment.sim.simulation import MakeCore, Simulation

Row = dict[str, Any]
# The child of the rows that say what the broker's own clients want.
SELF: Final = "self"


@runtime_checkable
class TablesByPublisher(Protocol):
    """A core that holds a filter for each publisher and child."""

    @property
    def infinity(self) -> int: ...

    @property
    def is_filtering(self) -> bool:
        """Whether filters say what is wanted; else they are `true` or `false`."""
        ...

    def rows(self) -> Iterator[tuple[str, str, Filter]]:
        """Publisher, child, and the filter of that child, also of those that get everything."""
        ...


@dataclass(frozen=True, slots=True)
class Recorder:
    """Writes the records of a run. Without `dump` there are no tables, without `trace` no trace."""

    dump: Callable[[Row], None] | None = None
    trace: Callable[[Row], None] | None = None

    def traced(self, make_core: MakeCore) -> MakeCore:
        write = self.trace
        if write is None:
            return make_core
        return lambda broker: TracedCore(make_core(broker), broker, write)

    def dump_tables(self, simulation: Simulation, **about: object) -> None:
        """`about` says in each row which run it is."""
        if self.dump is not None:
            for row in table_rows(simulation):
                self.dump({**about, "at_s": simulation.now / SECOND, **row})


# --- tables -------------------------------------------------------------------------------------


def has_tables_by_publisher(core: RoutingCore[Any]) -> bool:
    return isinstance(_untraced(core), TablesByPublisher)


def table_rows(simulation: Simulation) -> Iterator[Row]:
    """The rows of all brokers that are up, sorted. InputError if their system has no such tables."""
    trees: dict[tuple[str, int], dict[str, str | None]] = {}
    for broker, traced in sorted(simulation.cores.items()):
        if traced is None:
            continue
        core = _untraced(traced)
        if not isinstance(core, TablesByPublisher):
            raise InputError("this routing system has no tables by publisher: dump those of propagation or dvmrp")
        for publisher, child, actual in core.rows():
            key = publisher, core.infinity
            if key not in trees:
                trees[key] = tree_of(simulation, *key)
            brokers = {broker} if child == SELF else behind(trees[key], broker, child)
            ideal = _ideal(filters_wanted(simulation, brokers), core.is_filtering or child == SELF)
            yield _row(broker, publisher, child, actual, ideal)


def _row(broker: str, publisher: str, child: str, actual: Filter, ideal: Filter) -> Row:
    is_sound = actual.covers(ideal)
    return {
        "broker": broker,
        "publisher": publisher,
        "child": child,
        "actual": str(actual),
        "ideal": str(ideal),
        "is_sound": is_sound,
        "is_ideal": is_sound and ideal.covers(actual),
    }


def _ideal(wanted: Sequence[Filter], is_filtering: bool) -> Filter:
    if not is_filtering:
        return Filter.everything() if wanted else Filter.nothing()
    widest = roots(wanted)
    return Filter.of_expression(Or(tuple(filter.canonical for filter in widest))) if widest else Filter.nothing()


# --- traces -------------------------------------------------------------------------------------


class TracedCore:
    """A core that writes what it is told and what it does."""

    def __init__(self, inner: RoutingCore[Any], broker: str, write: Callable[[Row], None]) -> None:
        self.inner = inner
        self._broker = broker
        self._write = write

    @property
    def clients(self) -> ClientSide:
        return self.inner.clients

    def on_message(self, message: ClientRequest | HostMessage | Any, source: Interface, now: Time) -> list[Action]:
        actions = self.inner.on_message(message, source, now)
        self._note(str(message), source, now, actions)
        return actions

    def on_notifications(self, batch: Sequence[Routed], source: Interface, now: Time) -> list[Action]:
        actions = self.inner.on_notifications(batch, source, now)
        if any(isinstance(action, Send) for action in actions):
            self._note("; ".join(str(routed.notification) for routed in batch), source, now, actions)
        return actions

    def _note(self, heard: str, source: Interface, now: Time, actions: Sequence[Action]) -> None:
        does = [_shown(action) for action in actions]
        self._write({"at_s": now / SECOND, "broker": self._broker, "from": str(source), "heard": heard, "does": does})

    def matchers(self) -> Sequence[RecallingMatcher[Any]]:
        return self.inner.matchers()

    def inspect(self) -> Inspection:
        return self.inner.inspect()

    def leftovers(self) -> list[str]:
        return self.inner.leftovers()


def _untraced(core: RoutingCore[Any]) -> RoutingCore[Any]:
    return core.inner if isinstance(core, TracedCore) else core


def _shown(action: Action) -> str:
    match action:
        case Send():
            return f"sends {action.interface}: {action.message}"
        case Forward():
            return f"forwards {len(action.batch)} to {action.interface}"
        case Deliver() | DeliverSequence():
            return f"delivers to {action.identity}"
        case SetTimer():
            return f"sets the timer {action.name!r} to {action.at / SECOND:g} s"
        case Refuse():
            return f"refuses {action.source}: {action.error}"
        case _:
            return str(action)
