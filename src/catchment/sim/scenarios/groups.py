"""The clients of a scenario, in groups that behave alike: a group is a table of the file.

A client's name is its identity. If a group has a name and one client, the client has that name; several clients have
the name and a number (`alice.0`, `alice.1`). If a group has no name, a number always follows what stands in for it
(`p0.0`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from catchment.errors import InputError
from catchment.model.advertisement import Advertisement
from catchment.model.filter import Filter
from catchment.model.pattern import Pattern
from catchment.model.values import Value

# The subscription that a subscriber has by its group; those of `[[changes]]` have other ids.
SUBSCRIPTION_ID: Final = "1"


@dataclass(frozen=True, slots=True)
class Drawn:
    """A value that is drawn for each notification: from a range, or one of some."""

    low: float = 0.0
    high: float = 0.0
    one_of: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class Publication:
    """A notification that is published at a stated time, as it stands."""

    at_s: float
    attributes: Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Clients that behave alike."""

    count: int = 1
    name: str | None = None
    # The brokers that they are at, in turn. Without these each is at a random broker.
    at: tuple[str, ...] = ()
    # Whether no two of the group are at the same broker.
    is_distinct: bool = False
    start_s: float = 0.0
    stop_s: float | None = None
    # They move to another broker so often.
    roams_every_s: float | None = None

    def identities(self, unnamed: str) -> Iterator[str]:
        """The names of the clients; `unnamed` stands in for the name of a group that has none."""
        if self.name is not None and self.count == 1:
            yield self.name
        else:
            yield from (f"{self.name or unnamed}.{number}" for number in range(self.count))


@dataclass(frozen=True, slots=True, kw_only=True)
class Publishers(Group):
    """They publish in cycles what they draw, if they have `attributes`, and literally what `publish` says."""

    attributes: Mapping[str, Value | Drawn] | None = None
    advertises: Advertisement | None = None
    publications: int = 10
    period_ms: tuple[float, float] = (1_000.0, 1_000.0)
    cycles: int = 1
    publish: tuple[Publication, ...] = ()

    def __post_init__(self) -> None:
        low, high = self.period_ms
        if not 0 < low <= high:
            raise InputError(f"period_ms is a range of more than 0 ms, the lower end first: not {low:g} to {high:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscribers(Group):
    """Each takes one of the filters. `notifications` is None for those who stay until `stop_s`, or for ever."""

    filters: tuple[Filter | Pattern, ...] = ()
    notifications: int | None = None
    cycles: int = 1
