"""Networks as a scenario names them: `ring 12`, `grid 4x5`, `transit-stub 100`, `file net.toml`."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final

from catchment.errors import CatchmentError, InputError, shown
from catchment.sim.hybrid import clusters_in_acyclic, hierarchies_in_general
from catchment.sim.topology import (
    Link,
    Topology,
    backbone,
    balanced_tree,
    grid,
    line,
    mesh,
    random_network,
    ring,
    star,
    transit_stub_of,
)

# The longest file that is read: a scenario or a network.
SCENARIO_BYTES_MAX: Final = 1_048_576

_BY_COUNT: Final = {
    "line": line,
    "star": star,
    "ring": ring,
    "mesh": mesh,
    "tree": balanced_tree,
}
_OTHERS: Final = (
    "grid", "transit-stub", "random", "backbone", "hierarchies-in-general", "clusters-in-acyclic", "file",
)  # fmt: skip


def network_named(text: str, seed: int, directory: Path) -> Topology:
    """The network of this name. A network that is drawn at random depends on the seed."""
    name, _, rest = text.strip().partition(" ")
    try:
        if name in _BY_COUNT:
            return _BY_COUNT[name](int(rest))
        match name:
            case "grid":
                columns, _, rows = rest.partition("x")
                return grid(int(columns), int(rows))
            case "hierarchies-in-general" | "clusters-in-acyclic":
                count, _, size = rest.partition("x")
                build = hierarchies_in_general if name == "hierarchies-in-general" else clusters_in_acyclic
                return build(int(count), int(size), seed)
            case "transit-stub":
                return transit_stub_of(int(rest), seed)
            case "random":
                return random_network(int(rest), seed, int(rest) // 2)
            case "backbone":
                return backbone(seed)
            case "file":
                return network_file(directory / rest)
    except ValueError as problem:
        if isinstance(problem, CatchmentError):
            raise InputError(f"network {shown(text)}: {problem}") from None
        raise InputError(f"network {shown(text)}: {name} needs a number, as in `ring 12` or `grid 4x5`") from None
    raise InputError(f"network {shown(text)}: use one of {', '.join([*_BY_COUNT, *_OTHERS])}")


def network_file(path: Path) -> Topology:
    """`links = [["a", "b", 3], …]`: two names, and a cost if it is not 1."""
    rows = toml_of(path).get("links")
    if not isinstance(rows, list) or not all(_is_link(row) for row in rows):
        raise InputError(f"{path} is no network: it has links = [[name, name, cost], …]")
    links = [Link(min(row[:2]), max(row[:2]), *(int(cost) for cost in row[2:])) for row in rows]
    return Topology(tuple(sorted({name for link in links for name in (link.first, link.second)})), tuple(sorted(links)))


def _is_link(row: object) -> bool:
    if not isinstance(row, list) or len(row) not in (2, 3):
        return False
    return all(isinstance(name, str) for name in row[:2]) and all(isinstance(cost, int) for cost in row[2:])


def toml_of(path: Path) -> dict[str, Any]:
    """What a TOML file says. InputError if it cannot be read."""
    try:
        if path.stat().st_size > SCENARIO_BYTES_MAX:
            raise InputError(f"{path} is too long: SCENARIO_BYTES_MAX is {SCENARIO_BYTES_MAX:,}")
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as problem:
        raise InputError(f"{path} cannot be read: {problem.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise InputError(f"{path}: {problem}") from None
