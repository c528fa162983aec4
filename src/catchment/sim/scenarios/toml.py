"""Scenarios in TOML, our own notation: `docs/simulator.md` lists all that a file may say.

A file is read into tables, which check names and types (`toml_tables.py`), and these into the scenario. Whatever is
wrong is reported with its place: the table, its number among those of its name, and the key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from msgspec import Struct, ValidationError, convert

from catchment.errors import CatchmentError, InputError, shown
from catchment.model.advertisement import Advertisement
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.model.pattern import Pattern
from catchment.model.values import Value, checked
from catchment.sim.network import MILLISECOND, Quality
from catchment.sim.scenarios.groups import Drawn, Publication, Publishers, Subscribers
from catchment.sim.scenarios.networks import toml_of
from catchment.sim.scenarios.scenario import (
    CHANGE_KINDS,
    FAULT_KINDS,
    Change,
    ChangeKind,
    Fault,
    FaultKind,
    Scenario,
    UnitOf,
)
from catchment.sim.scenarios.toml_tables import (
    ChangeTable,
    FaultTable,
    LinksTable,
    PublishersTable,
    ScenarioTable,
    SubscribersTable,
    UnitTable,
)

K = TypeVar("K", ChangeKind, FaultKind)


def scenario_from_toml(path: Path) -> Scenario:
    """A scenario in our own notation. InputError says what is wrong with it, where, and what to do."""
    with _at(str(path)):
        try:
            table = convert(toml_of(path), ScenarioTable)
        except ValidationError as problem:
            raise InputError(_located(str(problem))) from None
        if (table.network is None) != bool(table.units):
            raise InputError("a scenario has a network, or units: write one of them")
        with _at("links"):
            quality = _quality(table.links)
        return Scenario(
            routing=table.routing,
            network=table.network or f"hybrid of {len(table.units)} units",
            seed=table.seed,
            settings=table.settings,
            quality=quality,
            publishers=tuple(_publishers(row, number) for number, row in enumerate(table.publishers, 1)),
            subscribers=tuple(_subscribers(row, number, table) for number, row in enumerate(table.subscribers, 1)),
            changes=tuple(_change(row, number) for number, row in enumerate(table.changes, 1)),
            faults=tuple(_fault(row, number) for number, row in enumerate(table.faults, 1)),
            units=tuple(UnitOf(unit.name, unit.kind, unit.network, unit.gateway, unit.root) for unit in table.units),
            stop_s=table.stop_s,
            warm_up_s=table.warm_up_s,
            sample_every_s=table.sample_every_s,
            dump_at_s=tuple(table.dump_at_s),
        )


# --- where something is wrong -------------------------------------------------------------------

_TABLES: Final[dict[str, type[Struct]]] = {
    "": ScenarioTable,
    "links": LinksTable,
    "units": UnitTable,
    "publishers": PublishersTable,
    "subscribers": SubscribersTable,
    "changes": ChangeTable,
    "faults": FaultTable,
}
# As msgspec says it: what is wrong, then `$.publishers[0].count`.
_PROBLEM: Final = re.compile(r"(?P<what>.*?)(?: - at `\$\.?(?P<table>\w*)(?:\[(?P<place>\d+)\])?\.?(?P<key>[^`]*)`)?$")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`$")


@contextmanager
def _at(*place: str) -> Iterator[None]:
    """What is found wrong within is found at this place."""
    try:
        yield
    except CatchmentError as problem:
        raise InputError(f"{': '.join(place)}: {problem}") from None


def _table(name: str, number: int | None = None) -> str:
    """A table as errors name it: the second of the publishers is [[publishers]] 2."""
    return f"[{name}]" if number is None else f"[[{name}]] {number}"


def _located(problem: str) -> str:
    parts = _PROBLEM.match(problem)
    assert parts is not None, "every part of the expression may be missing"
    name, what = parts["table"] or "", parts["what"]
    if (unknown := _UNKNOWN.match(what)) is not None and name in _TABLES:
        what = f"there is no key {shown(unknown[1])}; the keys are {', '.join(_TABLES[name].__struct_fields__)}"
    if name not in _TABLES:
        # A key of the scenario itself.
        return f"{name}: {what}"
    number = None if parts["place"] is None else int(parts["place"]) + 1
    where = [_table(name, number)] if name else []
    return ": ".join([*where, *([parts["key"]] if parts["key"] else []), what])


# --- tables -------------------------------------------------------------------------------------


def _quality(links: LinksTable) -> Quality:
    return Quality(
        max(1, round(links.delay_ms * MILLISECOND)),
        round(links.jitter_ms * MILLISECOND),
        links.loss,
        links.duplicates,
        links.reordered,
        links.transport,
    )


def _publishers(table: PublishersTable, number: int) -> Publishers:
    with _at(_table("publishers", number)):
        if table.attributes is None and not table.publish:
            raise InputError("publishers have attributes that they draw, or publish = [{ at_s = 1.0, … }], or both")
        drawn = None if table.attributes is None else _attributes(table.attributes)
        with _at("advertises"):
            advertises = None if table.advertises is None else Advertisement(table.advertises)
        return Publishers(
            **table.common(),
            attributes=drawn,
            advertises=advertises,
            publications=table.publications,
            period_ms=table.period_ms,
            cycles=table.cycles,
            publish=tuple(_publication(row, place) for place, row in enumerate(table.publish, 1)),
        )


def _attributes(table: dict[str, Any]) -> dict[str, Value | Drawn]:
    with _at("attributes"):
        values = {name: _attribute(name, value) for name, value in table.items()}
        # Whether these can be the names of a notification.
        Notification({name: 0 if isinstance(value, Drawn) else value for name, value in values.items()})
        return values


def _attribute(name: str, value: Any) -> Value | Drawn:
    if not isinstance(value, dict):
        return checked(value)
    if set(value) == {"from", "to"} and all(isinstance(end, int | float) for end in value.values()):
        if value["from"] >= value["to"]:
            raise InputError(f"attribute {shown(name)}: from is less than to; for one value write it alone")
        return Drawn(float(value["from"]), float(value["to"]))
    if set(value) == {"one_of"} and isinstance(value["one_of"], list) and value["one_of"]:
        return Drawn(one_of=tuple(map(checked, value["one_of"])))
    raise InputError(f"attribute {shown(name)}: a value, {{ from = 0, to = 20 }}, or {{ one_of = [...] }}")


def _publication(table: dict[str, Any], place: int) -> Publication:
    with _at(f"publish, number {place}"):
        at_s, attributes = table.get("at_s"), {name: value for name, value in table.items() if name != "at_s"}
        if isinstance(at_s, bool) or not isinstance(at_s, int | float) or at_s < 0:
            raise InputError("at_s says when: a number of seconds that is not negative, as in { at_s = 1.0, x = 9 }")
        return Publication(float(at_s), dict(Notification(attributes)))


def _subscribers(table: SubscribersTable, number: int, whole: ScenarioTable) -> Subscribers:
    with _at(_table("subscribers", number)):
        with _at("filters"):
            wanted: list[Filter | Pattern] = [Filter(text) for text in table.filters]
        with _at("patterns"):
            wanted += map(Pattern, table.patterns)
        if not wanted and not any(table.name is not None and _means(row, table.name) for row in whole.changes):
            raise InputError("subscribers have filters or patterns, or a name by which [[changes]] subscribe for them")
        return Subscribers(
            **table.common(), filters=tuple(wanted), notifications=table.notifications, cycles=table.cycles
        )


def _means(change: ChangeTable, name: str) -> bool:
    """Whether a change is for clients of a table of this name, and subscribes."""
    return change.subscribe is not None and (change.client == name or change.client.startswith(f"{name}."))


def _change(table: ChangeTable, number: int) -> Change:
    with _at(_table("changes", number)):
        kind = _kind_of(table, "a change", CHANGE_KINDS)
        if (table.id is not None) != (kind == "subscribe"):
            raise InputError('a new subscription has an id, as in id = "2", subscribe = "x > 5"; others have none')
        with _at(kind):
            match kind:
                case "subscribe":
                    arguments: tuple[object, ...] = (table.id, _wanted(str(table.subscribe)))
                case "unsubscribe":
                    arguments = (_wanted(str(table.unsubscribe)),)
                case "advertise" | "unadvertise":
                    arguments = (Advertisement(getattr(table, kind)),)
                case "cancel" | "connect":
                    arguments = (getattr(table, kind),)
                case "disconnect" | "suspend" | "resume":
                    arguments = ()
        return Change(table.at_s, table.client, kind, arguments)


def _kind_of(table: ChangeTable | FaultTable, what: str, kinds: tuple[K, ...]) -> K:
    """What a table of a change or a fault does: exactly one of `kinds`, which are names of its keys."""
    given = [kind for kind in kinds if getattr(table, kind) is not None]
    if len(given) != 1:
        raise InputError(f"{what} is one of {', '.join(kinds)}; each has a table of its own")
    return given[0]


def _wanted(text: str) -> Filter | Pattern:
    return Pattern(text) if text.lstrip().startswith("[") and "->" in text else Filter(text)


def _fault(table: FaultTable, number: int) -> Fault:
    with _at(_table("faults", number)):
        kind = _kind_of(table, "a fault", FAULT_KINDS)
        names = getattr(table, kind)
        return Fault(table.at_s, kind, (names,) if isinstance(names, str) else names)
