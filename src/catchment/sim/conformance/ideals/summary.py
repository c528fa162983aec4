"""Subscription summaries: who has whose summary, and every row of it.

By brute force from what all clients want: degrees are counted from usable links; a broker's summary goes to the usable
neighbor of least degree among those of equal or higher degree; what it has is its own, and what comes from strictly
lower degrees. Each row is computed from the filters of all brokers in a summary at once, however they came there.
Patterns are told apart as single strings and prefixes: the scripts of the suite ask for nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache, reduce
from typing import Any, Final

from catchment.model.box import Box
from catchment.model.domain import Values
from catchment.model.filter import Filter
from catchment.model.ranges import is_subset
from catchment.model.strings import prefix_ranges, successor
from catchment.model.values import KEY_BOUNDS, Type, float_key
from catchment.routing.core import Table
from catchment.routing.summary.core import SummaryCore
from catchment.sim.conformance.ideals.tables import Checked, Ideal, alive, differences, filters_wanted
from catchment.sim.simulation import Simulation

# A subscription as broker and number, and what it asks of one attribute or a row: a tuple.
Id = tuple[str, int]
Row = tuple[Any, ...]
EVERYTHING: Final[Row] = ("",)
_KINDS: Final = {"number": Type.FLOAT, "bool": Type.BOOL, "time": Type.TIME}
_VALUE_BYTES: Final = {"number": 8, "time": 8, "bool": 1}
ID_BYTES: Final = 4


@Ideal
def summary_tables(simulation: Simulation) -> Iterator[str | Checked]:
    """Each broker knows the brokers that it should know, and each neighbor's summary has the rows it should have."""
    cores = dict(alive(simulation, SummaryCore))
    degrees = {broker: _degree(simulation, broker, core) for broker, core in cores.items()}
    up = {broker: _up(simulation, broker, degrees) for broker in cores}
    for broker, core in cores.items():
        yield from _own_differences(simulation, broker, core)
    for broker, core in cores.items():
        senders = [other for other in cores if up[other] == broker]
        brokers = {sender: _sent(sender, up, degrees) for sender in senders}
        known = {broker}.union(*brokers.values())
        if core.propagation.known() != known:
            yield f"{broker} knows {sorted(core.propagation.known())}, it should know {sorted(known)}"
        tables: list[Table] = []
        for neighbor, summary in core.propagation.received().items():
            merged = brokers.get(neighbor, set())
            if summary.merged_brokers != merged:
                yield f"{broker} has {sorted(summary.merged_brokers)} from {neighbor}, it should have {sorted(merged)}"
            ideal = _rows({other: cores[other].own.numbered for other in merged})
            actual = {tuple(row): ids for row, ids in core.rows_of(neighbor).items()}
            yield from _row_differences(f"{broker} from {neighbor}", ideal, actual)
            if ideal:
                tables.append(_table(neighbor, ideal))
        yield Checked(broker, {}, other=tuple(tables))


def _own_differences(simulation: Simulation, broker: str, core: SummaryCore) -> Iterator[str]:
    """What a broker numbers for its summary is what its clients want: all of it, or the roots."""
    wanted, numbered = filters_wanted(simulation, {broker}), core.own.numbered.values()
    if core.settings.subsumes:
        yield from differences(f"{broker} numbers", wanted, numbered)
    elif Counter(map(str, wanted)) != Counter(map(str, numbered)):
        yield f"{broker} numbers {sorted(map(str, numbered))}, its clients want {sorted(map(str, wanted))}"


# --- Algorithm 2 --------------------------------------------------------------------------------


def _degree(simulation: Simulation, broker: str, core: SummaryCore) -> int:
    links = sum(link.is_usable for link in simulation.links_of(broker))
    return core.settings.degree if isinstance(core.settings.degree, int) else links


def _up(simulation: Simulation, broker: str, degrees: Mapping[str, int]) -> str | None:
    neighbors = [link.end(broker) for link in simulation.links_of(broker) if link.is_usable]
    above = [(degrees[other], other) for other in neighbors if degrees[other] >= degrees[broker]]
    return min(above)[1] if above else None


def _sent(broker: str, up: Mapping[str, str | None], degrees: Mapping[str, int]) -> set[str]:
    """The brokers whose subscriptions are in what a broker sends."""
    lower = [other for other, to in up.items() if to == broker and degrees[other] < degrees[broker]]
    return {broker}.union(*(_sent(other, up, degrees) for other in lower))


# --- rows ---------------------------------------------------------------------------------------


def _rows(numbered: Mapping[str, Mapping[int, Filter]]) -> dict[Row, set[Id]]:
    demands: dict[Row, set[Id]] = {}
    for broker, filters in numbered.items():
        for number, filter in filters.items():
            for demand in _demands(filter):
                demands.setdefault(demand, set()).add((broker, number))
    rows: dict[Row, set[Id]] = {}
    for demand, ids in demands.items():
        rows.setdefault(_row(demand, demands), set()).update(ids)
    return rows


def _row(demand: Row, demands: Iterable[Row]) -> Row:
    """The row that a demand is in."""
    if demand == EVERYTHING:
        return demand
    if len(demand) == 2:
        name, (_, text) = demand
        prefixes = [other for other in demands if other[0] == name and len(other) == 2 and other[1][0] == "prefix"]
        wider = [other for other in prefixes if text.startswith(other[1][1])]
        return min(wider, key=lambda other: len(other[1][1]), default=demand)
    name, kind, low, high = demand
    alike = [other for other in demands if other[:2] == (name, kind) and len(other) == 4]
    while True:
        touched = [other for other in alike if other[2] < high and low < other[3]]
        hull = min(other[2] for other in touched), max(other[3] for other in touched)
        if hull == (low, high):
            return name, kind, low, high
        low, high = hull


@lru_cache(maxsize=100_000)
def _demands(filter: Filter) -> tuple[Row, ...]:
    """What a filter asks of each attribute that it needs."""
    box = reduce(Box.hull, filter.routed.boxes)
    demands: list[Row] = []
    for name, values in box.sets.items():
        if not values.absent:
            demands += [(name, kind, low, high) for kind in _KINDS for low, high in _keys(values, kind)]
            demands += [(name, pattern) for pattern in _patterns(values)]
    return tuple(demands) or (EVERYTHING,)


def _keys(values: Values, kind: str) -> list[tuple[int, int]]:
    most = KEY_BOUNDS[_KINDS[kind]][1]
    ranges = [(low, most + 1 if high is None else high) for low, high in values.keys_of(_KINDS[kind])]
    if kind == "number":
        for low, high in values.keys_of(Type.INT):
            last = KEY_BOUNDS[Type.INT][1] if high is None else high - 1
            ranges.append((float_key(float(low)), float_key(float(last)) + 1 if high is not None else most + 1))
    joined: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if joined and low <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(high, joined[-1][1])
        else:
            joined.append((low, high))
    return joined


def _patterns(values: Values) -> set[tuple[str, str]]:
    ranges = values.strings.ranges
    assert ranges is not None, "the scripts ask for nothing but ranges of strings"
    patterns = set()
    for low, high in ranges:
        if high == successor(low):
            patterns.add(("=", low))
        else:
            prefixes = [low[:length] for length in range(len(low), -1, -1)]
            patterns.add(("prefix", next(text for text in prefixes if is_subset(((low, high),), prefix_ranges(text)))))
    return patterns


def _row_differences(where: str, ideal: Mapping[Row, set[Id]], actual: Mapping[Row, set[Id]]) -> Iterator[str]:
    for row in sorted({*ideal, *actual}, key=str):
        if ideal.get(row) != actual.get(row):
            yield f"{where}: row {row} has {actual.get(row)}, it should have {ideal.get(row)}"


def _table(neighbor: str, rows: Mapping[Row, set[Id]]) -> Table:
    ids = set().union(*rows.values())
    size = sum(_row_bytes(row) + ID_BYTES * len(some) for row, some in rows.items())
    return Table(neighbor, len(ids), size)


def _row_bytes(row: Row) -> int:
    if len(row) == 4:
        return _VALUE_BYTES[row[1]] * (1 if row[3] == row[2] + 1 else 2)
    return len(row[1][1]) if len(row) == 2 else 0
