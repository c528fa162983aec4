"""Settings of routing systems in scenarios: checked, read from a command line, and what publishers draw.

A setting is kept as it would be written in a file; the typed struct of the system says which there are
(`routing/systems.py`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import ValidationError, convert
from msgspec.structs import fields

from catchment.errors import InputError, shown
from catchment.model.values import Value
from catchment.routing.systems import SYSTEMS, system_named
from catchment.sim.scenarios.groups import Drawn, Publishers

# A system that has this setting wants to know how the values of attributes are spread.
EXPECTED: Final = "expected"


def setting_types(system: str) -> dict[str, Any]:
    """The settings that a routing system has, with their types."""
    return {field.encode_name: field.type for field in fields(system_named(system).settings)}


def check_settings(system: str, settings: Mapping[str, Any]) -> None:
    """InputError if the system has no such settings. What depends on a broker's place may be missing."""
    types = setting_types(system)
    for name, value in settings.items():
        if name not in types:
            known = f"its settings are {', '.join(types)}" if types else "it has no settings"
            raise InputError(f"[settings]: {system} has no setting {shown(name)}; {known}")
        try:
            convert(value, types[name])
        except ValidationError as problem:
            raise InputError(f"[settings]: {name} of {system}: {problem}") from None


def settings_for(system: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those that a system has, of the settings of another."""
    types = setting_types(system)
    return {name: value for name, value in settings.items() if name in types}


def assigned(systems: Sequence[str], texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """For each system what `NAME=VALUE` set, typed as its settings are. InputError if none of them has the name."""
    given: dict[str, dict[str, Any]] = {system: {} for system in systems}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name:
            raise InputError(f"--set {shown(text)}: write NAME=VALUE, as in batch_ms=20")
        having = [system for system in systems if name in setting_types(system)]
        if not having:
            able = ", ".join(system for system in SYSTEMS if name in setting_types(system))
            advice = f"use --routing with one of {able}" if able else _known(systems)
            raise InputError(f"--set {name}: no system of this run has that setting; {advice}")
        for system in having:
            given[system][name] = _typed(system, name, value)
    return given


def _known(systems: Sequence[str]) -> str:
    having = {system: ", ".join(setting_types(system)) or "none" for system in systems}
    return "there are " + "; ".join(f"{names} of {system}" for system, names in having.items())


def _typed(system: str, name: str, text: str) -> Any:
    """The text itself if that is allowed, else what it means in TOML."""
    type = setting_types(system)[name]
    try:
        return convert(text, type)
    except ValidationError:
        pass
    try:
        value = tomllib.loads(f"value = {text}")["value"]
        convert(value, type)
    except (tomllib.TOMLDecodeError, ValidationError) as problem:
        reason = problem if isinstance(problem, ValidationError) else "is no value of this setting"
        raise InputError(f"--set {name}={text}: {name} of {system}: {reason}") from None
    return value


# --- what publishers draw -----------------------------------------------------------------------


def with_expected(system: str, settings: Mapping[str, Any], publishers: Sequence[Publishers]) -> dict[str, Any]:
    """With how attributes are spread, if the system wants to know that and the scenario does not say."""
    if EXPECTED in settings or EXPECTED not in setting_types(system):
        return dict(settings)
    return {**settings, EXPECTED: expected_of(publishers)}


def expected_of(publishers: Sequence[Publishers]) -> dict[str, Any]:
    """How the attributes are spread that all publishers draw alike, as a setting says it."""
    drawn: dict[str, list[Value | Drawn]] = {}
    for group in publishers:
        for attributes in (group.attributes or {}, *(publication.attributes for publication in group.publish)):
            for name, value in attributes.items():
                drawn.setdefault(name, []).append(value)
    alike = {name: values[0] for name, values in drawn.items() if all(value == values[0] for value in values)}
    return {name: spread for name, value in alike.items() if (spread := _spread(value)) is not None}


def _spread(value: Value | Drawn) -> dict[str, Any] | None:
    """None if a setting cannot say it, because it is a time."""
    if isinstance(value, Drawn) and not value.one_of:
        return {"from": value.low, "to": value.high}
    choices = value.one_of if isinstance(value, Drawn) else (value,)
    return {"one_of": list(choices)} if all(isinstance(choice, str | int | float) for choice in choices) else None
