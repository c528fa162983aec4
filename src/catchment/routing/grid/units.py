"""Units and their contexts (Grid §2.3).

A broker is a unit of level 0. Brokers form a *cluster* (level 1), clusters a *super-cluster* (level 2), and so on up to
level N. A unit is named by its *path*: the names of the units that it is in, from level N down, and its own name last.
In a system of three levels, `("A", "SC-1", "c", "6")` is broker 6 of cluster c, and `("A", "SC-1")` is the
super-cluster. The *context* of a broker is the path of its cluster; people write it with dots: `A.SC-1.c`.

A broker sees another one as the largest unit that the other is in and it is not itself (`seen_from`): a broker of its
own cluster as that broker, one of another cluster as that cluster, and so on.

A unit holds at most BLOCK_LIMIT units of the level below. The text has no rule for joining; here, whoever joins a full
unit is refused and told a context with room (`free_context`): the lowest number that no cluster of the super-cluster
has as its name; if the super-cluster is full too, cluster 1 of a new super-cluster; and so on upward.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from catchment.errors import InputError, shown

# The block limit of the text (§2.3): units within a unit, and units of the highest level.
BLOCK_LIMIT: Final = 64
# Levels above brokers: so many hold 64⁹ brokers, more than there are devices. Paths on the wire are not longer.
LEVELS_MAX: Final = 8

# The names of units, from the highest level down.
Path = tuple[str, ...]


def capacity(levels: int) -> int:
    """How many brokers a system of so many levels can have."""
    return int(BLOCK_LIMIT ** (levels + 1))


def context_of(text: str) -> Path:
    """The path of a cluster, as people write it; InputError if it is none."""
    names = tuple(text.split("."))
    if not all(name and name == name.strip() and name.isprintable() for name in names):
        raise InputError(f"context {shown(text)}: write the names of units with dots between them, as in A.SC-1.c")
    if len(names) > LEVELS_MAX:
        raise InputError(f"context {shown(text)}: it has {len(names)} levels, there may be {LEVELS_MAX}")
    return names


def shown_path(path: Path) -> str:
    return ".".join(path)


def level_of(unit: Path, levels: int) -> int:
    """The level of a unit in a system of so many levels."""
    return levels + 1 - len(unit)


def contains(unit: Path, other: Path) -> bool:
    """Whether a unit is another one, or has it inside."""
    return other[: len(unit)] == unit


def link_level(end: Path, other_end: Path) -> int:
    """The level of a link between two brokers: the highest level at which their contexts differ (§2.3.2)."""
    differing = next(place for place, (a, b) in enumerate(zip(end, other_end, strict=True)) if a != b)
    return len(end) - 1 - differing


def seen_from(unit: Path, broker: Path) -> Path | None:
    """The largest unit that has `unit` inside and not `broker`. None if the broker is in `unit`."""
    for length in range(1, len(unit) + 1):
        if unit[:length] != broker[:length]:
            return unit[:length]
    return None


def free_context(context: Path, taken: Collection[Path]) -> Path:
    """A context near a full one that has room. `taken` are the units that are known, of any level."""
    for length in range(len(context), 0, -1):
        above = context[: length - 1]
        names = {unit[length - 1] for unit in taken if len(unit) >= length and contains(above, unit)}
        free = [str(number) for number in range(1, BLOCK_LIMIT + 1) if str(number) not in names]
        # A unit that has room for one more unit inside: the new one is empty, so all units below it are number 1.
        if len(names) < BLOCK_LIMIT and free:
            return (*above, free[0], *("1",) * (len(context) - length))
    raise InputError(f"all {capacity(len(context)):,} places of the system are taken: it needs another level")
