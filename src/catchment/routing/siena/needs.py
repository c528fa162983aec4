"""What a broker records about delegated patterns (`delegating.py`): who needs a pattern, whom a delegated part serves,
and which withdrawals are not answered yet.

Patterns come from downstream: a local client or a neighbor needs a pattern here (`Need`). Parts go upstream: this
broker delegates a part of a needed pattern to a neighbor, and the part serves one or several *users* (`Users`). When a
neighbor downstream withdraws a pattern, this broker owes it a last `Part` (`Ending`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from catchment.model.notification import Notification
from catchment.model.pattern import Pattern
from catchment.routing.messages import Action, Neighbor, Send, Time
from catchment.routing.siena.available import Runs
from catchment.routing.siena.messages import Held, Part
from catchment.routing.siena.thinning import Thinner, in_order

# A run of a needed pattern: the pattern, and the place of the first filter of the run in it.
User = tuple[Pattern, int]
# For each part the users that it is to serve.
Parts = dict[Pattern, list[User]]


@dataclass(slots=True)
class Need:
    """A pattern that somebody needs here: `monitors` of local clients, by identity and subscription id, each with the
    time since when; and `delegators`, the neighbors that delegated the pattern to this broker."""

    pattern: Pattern
    monitors: dict[tuple[str, str], Time] = field(default_factory=dict)
    delegators: dict[Neighbor, None] = field(default_factory=dict)
    # There is one while there are delegators.
    thinner: Thinner | None = None
    # The runs that this broker has delegated further upstream.
    runs: Runs = ()
    # Whether interest, monitors and thinner follow `runs`.
    is_stated: bool = False


@dataclass(slots=True)
class Ending:
    """A pattern that a neighbor has withdrawn and that is not answered yet. `held` is what was held for it, here and
    upstream. `awaited` counts the parts, delegated upstream, whose last `Part` has not come."""

    neighbor: Neighbor
    pattern: Pattern
    held: dict[Notification, Held]
    awaited: int


@dataclass(slots=True)
class Users:
    """Whom a delegated part serves: runs of needed patterns, each with the time since when; and endings, each with the
    place of the part in the withdrawn pattern."""

    runs: dict[User, Time] = field(default_factory=dict)
    endings: list[tuple[Ending, int]] = field(default_factory=list)
    # Whether a user may have received the first notifications of this part on another way. Then the part must be
    # delegated again, as ongoing.
    is_outrun: bool = False


def is_sound(part: Part) -> bool:
    """Whether a neighbor can have held what a part brings: each notification has a time, and its steps are places of
    filters of the pattern."""
    places = set(range(len(part.pattern.filters)))
    return all(held.notification.time is not None and set(held.steps) <= places for held in part.held)


def moved(arrivals: Sequence[Held], places: Iterable[int]) -> list[Held]:
    """Notifications that were held for a part, as they count in a whole pattern that has the part at these places."""
    return [
        Held(
            held.notification,
            held.arrived,
            tuple(sorted({step + first for first in places for step in held.steps})),
        )
        for held in arrivals
    ]


def last_came(users: Users) -> list[Action]:
    """The last `Part` of a delegated part has come, or never will: answers the endings that waited only for it."""
    for ending, _ in users.endings:
        ending.awaited -= 1
    # A pattern that has the part in several places waits in each of them, and is answered once.
    distinct = {id(ending): ending for ending, _ in users.endings}
    return [action for ending in distinct.values() for action in ended(ending)]


def ended(ending: Ending) -> list[Action]:
    """The answer to a withdrawal, if nothing more is awaited for it."""
    if ending.awaited:
        return []
    return [Send(ending.neighbor, Part(ending.pattern, tuple(in_order(ending.held)), True))]
