"""What one would write in Spark SQL instead: each takes subscriptions and notifications and gives pairs.

cross join     every subscription beside every notification, its constraints as columns, predicates on those; where
               attributes are too many for columns, as an array of constraints that must all hold
counting join  constraints joined with values by name (equalities by name and value), counted, and those kept that
               have as many as the subscription has constraints
mask hash      subscriptions by the set of attributes they compare for equality (the mask) and a hash of those values;
               a notification is looked up under each mask it has all attributes of; ranges and prefixes are then
               predicates on what was found. Only where masks are few.

Notifications of many attributes are given to SQL as arrays of (name, number, text), the form one would keep them in;
the others as columns.

A pair is (`row`, `subscription`), both numbers: less to write than the arrays of ids that `match` gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

Triple = tuple[str, str, Any]
Subscription = Sequence[Triple]

ROW, SUBSCRIPTION, VALUES = "row", "subscription", "values"
# Spark plans a predicate for each; with W3's thousand, planning alone takes minutes.
ATTRIBUTES_AS_COLUMNS_MAX = 50
# Each is a row that a notification is exploded into.
MASKS_MAX = 100


class Peer(Protocol):
    """Notifications have a column `row`, and one for each attribute or `values`, an array of them."""

    def __init__(self, spark: SparkSession, subscriptions: Sequence[Subscription]) -> None: ...

    def pairs(self, notifications: DataFrame) -> DataFrame: ...


def _flat(spark: SparkSession, subscriptions: Sequence[Subscription]) -> DataFrame:
    """A row for each constraint."""
    rows = [(i, len(constraints), *triple) for i, constraints in enumerate(subscriptions) for triple in constraints]
    table = pa.table(
        {
            SUBSCRIPTION: pa.array([row[0] for row in rows], pa.int64()),
            "wanted": pa.array([row[1] for row in rows], pa.int64()),
            "name": pa.array([row[2] for row in rows]),
            "operator": pa.array([row[3] for row in rows]),
            "number": pa.array([None if isinstance(row[4], str) else float(row[4]) for row in rows], pa.float64()),
            "text": pa.array([row[4] if isinstance(row[4], str) else None for row in rows], pa.string()),
        }
    )
    return spark.createDataFrame(table).cache()


def _values(notifications: DataFrame) -> Column:
    """The attributes that a notification has, as an array of (name, number, text)."""
    if VALUES in notifications.columns:
        return F.col(VALUES)
    types = dict(notifications.dtypes)
    pairs = [
        F.struct(
            F.lit(name).alias("name"),
            (F.lit(None) if types[name] == "string" else F.col(name)).cast("double").alias("number"),
            (F.col(name) if types[name] == "string" else F.lit(None)).cast("string").alias("text"),
        )
        for name in notifications.columns
        if name != ROW
    ]
    return F.filter(F.array(*pairs), lambda value: value["number"].isNotNull() | value["text"].isNotNull())


def _compared(operator: Column, number: Column, text: Column, value_number: Column, value_text: Column) -> Column:
    """Whether a value satisfies a constraint that is no equality."""
    return (
        F.when(operator == "<", value_number < number)
        .when(operator == "<=", value_number <= number)
        .when(operator == ">", value_number > number)
        .when(operator == ">=", value_number >= number)
        .when(operator == "prefix", F.startswith(value_text, text))
        .when(operator == "suffix", F.endswith(value_text, text))
        .otherwise(F.contains(value_text, text))
    )


class CountingJoin:
    def __init__(self, spark: SparkSession, subscriptions: Sequence[Subscription]) -> None:
        self._constraints = _flat(spark, subscriptions)

    def pairs(self, notifications: DataFrame) -> DataFrame:
        values = notifications.select(ROW, F.explode(_values(notifications)).alias("v"))
        values = values.select(ROW, "v.name", F.col("v.number").alias("vn"), F.col("v.text").alias("vt"))
        equal = self._constraints.where("operator = '='")
        other = self._constraints.where("operator != '='")
        of_numbers = values.join(equal, ["name"]).where("vn = number")
        of_texts = values.join(equal, ["name"]).where("vt = text")
        held = _compared(F.col("operator"), F.col("number"), F.col("text"), F.col("vn"), F.col("vt"))
        ranges = values.join(other, ["name"]).where(held)
        columns = (ROW, SUBSCRIPTION, "wanted")
        satisfied = of_numbers.select(*columns).union(of_texts.select(*columns)).union(ranges.select(*columns))
        return satisfied.groupBy(*columns).count().where("count = wanted").select(ROW, SUBSCRIPTION)


def _column_table(spark: SparkSession, subscriptions: Sequence[Subscription]) -> tuple[DataFrame, list[Triple]]:
    """A row for each subscription, a column for each attribute and operator; and those, each with its column."""
    kinds = sorted({(name, operator) for constraints in subscriptions for name, operator, _ in constraints})
    columns: dict[str, list[Any]] = {f"k{i}": [None] * len(subscriptions) for i in range(len(kinds))}
    place = {kind: f"k{i}" for i, kind in enumerate(kinds)}
    for i, constraints in enumerate(subscriptions):
        for name, operator, operand in constraints:
            column = columns[place[name, operator]]
            assert column[i] is None, "a subscription has one constraint of a kind"
            column[i] = operand
    table = pa.table({SUBSCRIPTION: pa.array(range(len(subscriptions)), pa.int64()), **columns})
    return spark.createDataFrame(table).cache(), [(*kind, place[kind]) for kind in kinds]


def _column_predicate(name: str, operator: str, column: str) -> Column:
    """Holds where a subscription has no such constraint, or its value satisfies it."""
    value, operand = F.col(name), F.col(column)
    match operator:
        case "=":
            held = value == operand
        case "<":
            held = value < operand
        case "<=":
            held = value <= operand
        case ">":
            held = value > operand
        case ">=":
            held = value >= operand
        case "prefix":
            held = F.startswith(value, operand)
        case "suffix":
            held = F.endswith(value, operand)
        case _:
            held = F.contains(value, operand)
    return operand.isNull() | held


class CrossJoin:
    def __init__(self, spark: SparkSession, subscriptions: Sequence[Subscription]) -> None:
        names = {name for constraints in subscriptions for name, _, _ in constraints}
        self._kinds: list[Triple] | None = None
        if len(names) <= ATTRIBUTES_AS_COLUMNS_MAX:
            self._table, self._kinds = _column_table(spark, subscriptions)
        else:
            constraint = F.struct("name", "operator", "number", "text")
            grouped = _flat(spark, subscriptions).groupBy(SUBSCRIPTION).agg(F.collect_list(constraint).alias("all"))
            self._table = grouped.cache()

    def pairs(self, notifications: DataFrame) -> DataFrame:
        if self._kinds is not None:
            held = reduce(and_, [_column_predicate(*kind) for kind in self._kinds])
            return notifications.join(F.broadcast(self._table), held).select(ROW, SUBSCRIPTION)
        keyed = F.map_from_entries(
            F.transform(_values(notifications), lambda v: F.struct(v["name"], F.struct(v["number"], v["text"])))
        )
        mapped = notifications.select(ROW, keyed.alias("by_name"))
        pairs = mapped.join(F.broadcast(self._table), F.forall("all", _holds_in_map))
        return pairs.select(ROW, SUBSCRIPTION)


def _holds_in_map(constraint: Column) -> Column:
    value = F.try_element_at(F.col("by_name"), constraint["name"])
    equal = (value["number"] == constraint["number"]) | (value["text"] == constraint["text"])
    other = _compared(constraint["operator"], constraint["number"], constraint["text"], value["number"], value["text"])
    return F.coalesce(F.when(constraint["operator"] == "=", equal).otherwise(other), F.lit(False))


class MaskHash:
    """ValueError where subscriptions have too many masks, or attributes too many columns."""

    def __init__(self, spark: SparkSession, subscriptions: Sequence[Subscription]) -> None:
        names = {name for constraints in subscriptions for name, _, _ in constraints}
        masks = {tuple(sorted(name for name, o, _ in constraints if o == "=")) for constraints in subscriptions}
        if len(masks) > MASKS_MAX or len(names) > ATTRIBUTES_AS_COLUMNS_MAX:
            raise ValueError(f"{len(masks):,} masks over {len(names):,} attributes")
        table, kinds = _column_table(spark, subscriptions)
        self._equal = {name: column for name, operator, column in kinds if operator == "="}
        self._others = [kind for kind in kinds if kind[1] != "="]
        self._masks = sorted(masks)
        mask = F.lit(None).cast("int")
        for number, some in enumerate(self._masks):
            here = [
                F.col(column).isNotNull() if name in some else F.col(column).isNull()
                for name, column in self._equal.items()
            ]
            mask = F.when(reduce(and_, here, F.lit(True)), number).otherwise(mask)
        hashed = F.xxhash64(mask, *(F.col(column) for column in self._equal.values()))
        self._table = table.withColumn("mask", mask).withColumn("hash", hashed).cache()

    def pairs(self, notifications: DataFrame) -> DataFrame:
        nothing = F.lit(None).cast("string")
        keys = []
        for number, some in enumerate(self._masks):
            values = [F.col(name) if name in some else nothing for name in self._equal]
            present = reduce(and_, [F.col(name).isNotNull() for name in some], F.lit(True))
            keys.append(F.when(present, F.xxhash64(F.lit(number), *values)))
        asked = notifications.withColumn("hash", F.explode(F.filter(F.array(*keys), lambda key: key.isNotNull())))
        held = [_column_predicate(*kind) for kind in self._others]
        # A hash is no proof.
        held += [_column_predicate(name, "=", column) for name, column in self._equal.items()]
        return asked.join(self._table, "hash").where(reduce(and_, held)).select(ROW, SUBSCRIPTION)


PEERS: dict[str, type[Peer]] = {"cross join": CrossJoin, "counting join": CountingJoin, "mask hash": MaskHash}
