"""Other ways to match, measured beside ours in the same run: each takes triples and gives the matching places.

naive   every subscription against every notification, in plain Python: the unit of all figures
dict    plain Python with an index: each subscription under its rarest equality, the rest by attribute name
numpy   every constraint against every notification, column by column, then counted
duckdb  constraints and notifications as tables, one join, grouped and counted

Found on PyPI and not better than `naive` at many subscriptions, so not measured: event-ruler (one pattern a
call), rule-engine and business-rules (one rule a call), durable-rules (a rule network without an index of values).
"""

from __future__ import annotations

import operator
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

Triple = tuple[str, str, Any]
Subscription = Sequence[Triple]
Row = dict[str, Any]

HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "prefix": str.startswith,
    "suffix": str.endswith,
    "substring": operator.contains,
}


class Peer(Protocol):
    def __init__(self, subscriptions: Sequence[Subscription]) -> None: ...

    def match(self, rows: Sequence[Row]) -> list[list[int]]: ...


def _holds(constraints: Subscription, row: Row) -> bool:
    for name, operation, operand in constraints:
        value = row.get(name)
        if value is None or not HOLDS[operation](value, operand):
            return False
    return True


class Naive:
    def __init__(self, subscriptions: Sequence[Subscription]) -> None:
        self._subscriptions = subscriptions

    def match(self, rows: Sequence[Row]) -> list[list[int]]:
        return [[i for i, constraints in enumerate(self._subscriptions) if _holds(constraints, row)] for row in rows]


class DictIndex:
    def __init__(self, subscriptions: Sequence[Subscription]) -> None:
        popular = Counter(
            (name, operand) for constraints in subscriptions for name, o, operand in constraints if o == "="
        )
        self._equal: dict[tuple[str, Any], list[tuple[Subscription, int]]] = defaultdict(list)
        self._named: dict[str, list[tuple[Subscription, int]]] = defaultdict(list)
        for i, constraints in enumerate(subscriptions):
            equalities = [triple for triple in constraints if triple[1] == "="]
            if equalities:
                best = min(equalities, key=lambda triple: popular[triple[0], triple[2]])
                self._equal[best[0], best[2]].append(([t for t in constraints if t is not best], i))
            else:
                self._named[constraints[0][0]].append((constraints, i))

    def match(self, rows: Sequence[Row]) -> list[list[int]]:
        matches = []
        for row in rows:
            candidates = [self._equal.get(item, ()) for item in row.items()]
            candidates += [self._named.get(name, ()) for name in row]
            matches.append(sorted(i for listed in candidates for constraints, i in listed if _holds(constraints, row)))
        return matches


class NumpyScan:
    """Constraints grouped by attribute and operator; a subscription matches when all of its own hold."""

    def __init__(self, subscriptions: Sequence[Subscription]) -> None:
        groups: dict[tuple[str, str], tuple[list[Any], list[int]]] = defaultdict(lambda: ([], []))
        for i, constraints in enumerate(subscriptions):
            for name, operation, operand in constraints:
                operands, owners = groups[name, operation]
                operands.append(operand)
                owners.append(i)
        self._by_name: dict[str, list[tuple[str, Any, Any]]] = defaultdict(list)
        for (name, operation), (operands, owners) in groups.items():
            self._by_name[name].append((operation, np.array(operands), np.array(owners)))
        self._wanted = np.array([len(constraints) for constraints in subscriptions])

    def match(self, rows: Sequence[Row]) -> list[list[int]]:
        return [self._match(row) for row in rows]

    def _match(self, row: Row) -> list[int]:
        held = [
            owners[_NUMPY[operation](operands, value)]
            for name, value in row.items()
            for operation, operands, owners in self._by_name.get(name, ())
        ]
        if not held:
            return []
        counts = np.bincount(np.concatenate(held), minlength=len(self._wanted))
        matches: list[int] = np.flatnonzero(counts == self._wanted).tolist()
        return matches


_NUMPY: dict[str, Callable[[Any, Any], Any]] = {
    "=": lambda operands, value: operands == value,
    "<": lambda operands, value: operands > value,
    "<=": lambda operands, value: operands >= value,
    ">": lambda operands, value: operands < value,
    ">=": lambda operands, value: operands <= value,
    "prefix": lambda operands, value: np.strings.startswith(value, operands),
    "suffix": lambda operands, value: np.strings.endswith(value, operands),
    "substring": lambda operands, value: np.strings.find(value, operands) >= 0,
}


class DuckDb:
    """One thread; numbers and strings in columns of their own."""

    def __init__(self, subscriptions: Sequence[Subscription]) -> None:
        import duckdb
        import pyarrow as pa

        self._connection = duckdb.connect()
        self._connection.execute("SET threads = 1")
        flat = [(i, *triple) for i, constraints in enumerate(subscriptions) for triple in constraints]
        table = pa.table(
            {
                "subscription": [row[0] for row in flat],
                "name": [row[1] for row in flat],
                "operator": [row[2] for row in flat],
                "number": pa.array([None if isinstance(row[3], str) else float(row[3]) for row in flat], pa.float64()),
                "text": pa.array([row[3] if isinstance(row[3], str) else None for row in flat], pa.string()),
            }
        )
        self._connection.register("incoming", table)
        self._connection.execute("CREATE TABLE c AS SELECT * FROM incoming")
        self._connection.execute("CREATE TABLE wanted AS SELECT subscription, count(*) n FROM c GROUP BY ALL")

    def match(self, rows: Sequence[Row]) -> list[list[int]]:
        import pyarrow as pa

        flat = [(i, name, value) for i, row in enumerate(rows) for name, value in row.items()]
        attributes = pa.table(
            {
                "row": [entry[0] for entry in flat],
                "name": [entry[1] for entry in flat],
                "number": pa.array(
                    [None if isinstance(entry[2], str) else float(entry[2]) for entry in flat], pa.float64()
                ),
                "text": pa.array([entry[2] if isinstance(entry[2], str) else None for entry in flat], pa.string()),
            }
        )
        self._connection.register("e", attributes)
        pairs = self._connection.execute(_JOIN).fetchall()
        matches: list[list[int]] = [[] for _ in rows]
        for row, subscription in pairs:
            matches[row].append(subscription)
        return [sorted(subscriptions) for subscriptions in matches]


_JOIN = """
SELECT m.row, m.subscription FROM (
    SELECT e.row, c.subscription, count(*) n FROM e JOIN c ON e.name = c.name WHERE CASE c.operator
        WHEN '=' THEN e.number = c.number OR e.text = c.text
        WHEN '<' THEN e.number < c.number WHEN '<=' THEN e.number <= c.number
        WHEN '>' THEN e.number > c.number WHEN '>=' THEN e.number >= c.number
        WHEN 'prefix' THEN starts_with(e.text, c.text)
        WHEN 'suffix' THEN suffix(e.text, c.text)
        ELSE contains(e.text, c.text) END
    GROUP BY ALL
) m JOIN wanted w ON m.subscription = w.subscription AND m.n = w.n
"""

PEERS: dict[str, type[Peer]] = {"naive": Naive, "dict": DictIndex, "numpy": NumpyScan, "duckdb": DuckDb}
