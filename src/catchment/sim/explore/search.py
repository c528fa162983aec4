"""Explores a world breadth first: every state that steps within the bounds lead to, each once.

Two states that differ only in what makes no difference (`FOLDING`) count as one. So does a state that was seen before
with more of the bounds left: whatever follows from it has been seen too.

In each state the invariants hold (`checks.py`). From each quiet state that has not reached its goal, and from one in
SAMPLE of all others, everything must be confirmed and taken if nothing fails any more (`steps.check_arrives`).

The path to a violation is one of the shortest: breadth first finds it first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from catchment.sim.explore.disk import ExplorationError
from catchment.sim.explore.parts import Bounds
from catchment.sim.explore.steps import Step, after, check_arrives, described, has_arrived, is_quiet, possible
from catchment.sim.explore.world import World, beginning

# States of which one is tried for whether everything arrives in the end.
SAMPLE: Final = 32


@dataclass(slots=True)
class Explored:
    """What an exploration has seen. `violation` is what must not be, `path` the steps that lead there."""

    bounds: Bounds
    is_silent: bool
    states: int = 0
    transitions: int = 0
    # States from which it was tried whether everything arrives.
    tried: int = 0
    depth: int = 0
    is_complete: bool = False
    violation: str | None = None
    path: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kind = "silent" if self.is_silent else "plain"
        whole = "all of them" if self.is_complete else "not all of them"
        seen = f"{self.states:,} states ({whole}), {self.transitions:,} transitions, {self.depth} steps deep"
        text = f"{kind} world, {self.bounds}: {seen}, {self.tried:,} tried to their end"
        if self.violation is None:
            return f"{text}; nothing wrong"
        steps = "\n".join(f"  {number:>3}. {step}" for number, step in enumerate(self.path, 1))
        return f"{text}\n{self.violation}\nthe steps that lead there:\n{steps}"


class Exploration(Struct, frozen=True):
    """What to explore: the world, its bounds, and after how many states to end."""

    bounds: Bounds
    is_silent: bool = False
    states_max: int | None = None

    def __str__(self) -> str:
        return f"{'silent' if self.is_silent else 'plain'} world, {self.bounds}"


NOTHING_FAILS: Final = Bounds(crashes=0, losses=0, doublings=0, moves=0)


def _bounds(**some: int) -> Bounds:
    return replace(NOTHING_FAILS, **some)


# What tests explore: each bound is used at least once, alone or with another. All but those with a limit are complete.
SHORT: Final = (
    Exploration(_bounds(losses=1, doublings=1)),
    Exploration(_bounds(losses=1, doublings=1), is_silent=True),
    Exploration(_bounds(losses=1, delays=1, cuts=1), is_silent=True),
    Exploration(_bounds(losses=2, early_timers=1, partial_syncs=1)),
    Exploration(_bounds(publisher_moves=1, losses=1)),
    Exploration(_bounds(moves=1, stale_takes=1), states_max=6_000),
    Exploration(_bounds(crashes=1), states_max=6_000),
    Exploration(_bounds(crashes=1, publisher_moves=1), is_silent=True, states_max=4_000),
)
LONG: Final = (
    *(replace(exploration, states_max=None) for exploration in SHORT),
    Exploration(_bounds(losses=2, doublings=2, delays=1, early_timers=1)),
    Exploration(_bounds(publisher_moves=1, losses=1, doublings=1)),
    Exploration(_bounds(moves=1, losses=1, doublings=1, stale_takes=1), states_max=150_000),
    Exploration(_bounds(moves=2), is_silent=True, states_max=150_000),
    Exploration(_bounds(crashes=1, losses=1, moves=1), states_max=150_000),
    Exploration(_bounds(crashes=2, partial_syncs=1), states_max=150_000),
    Exploration(_bounds(publisher_moves=2, losses=1, doublings=1, early_timers=1), states_max=150_000),
)


# A state that was reached: from which one, by which step.
_Reached = tuple[int, Step | None]


class _Search:
    def __init__(self, bounds: Bounds, is_silent: bool) -> None:
        self.explored = Explored(bounds, is_silent)
        self.reached: list[_Reached] = [(-1, None)]
        self.seen: dict[int, list[Bounds]] = {}
        self.waiting: deque[tuple[int, int, World]] = deque()

    def begin(self) -> None:
        world = beginning(self.explored.bounds, self.explored.is_silent)
        self.is_new(world)
        self.waiting.append((0, 0, world))

    def is_new(self, world: World) -> bool:
        """Whether nobody has been here with as much left of the bounds."""
        known = self.seen.setdefault(world.digest(), [])
        if any(bounds.covers(world.bounds) for bounds in known):
            return False
        known.append(world.bounds)
        return True

    def expand(self) -> None:
        """Takes all steps from the state that has waited longest."""
        number, depth, world = self.waiting.popleft()
        self.explored.states += 1
        self.explored.depth = depth
        step: Step | None = None
        try:
            self._try_end(number, world)
            for step in possible(world):
                self.explored.transitions += 1
                following = after(world, step)
                if self.is_new(following):
                    self.reached.append((number, step))
                    self.waiting.append((len(self.reached) - 1, depth + 1, following))
        except ExplorationError as problem:
            self.explored.violation = str(problem)
            self.explored.path = self._path(number, step)

    def _try_end(self, number: int, world: World) -> None:
        if (is_quiet(world) and not has_arrived(world)) or number % SAMPLE == 0:
            self.explored.tried += 1
            check_arrives(world)

    def _path(self, number: int, last: Step | None) -> list[str]:
        """The steps to a state and one more, as people read them."""
        steps: list[Step] = [] if last is None else [last]
        while number > 0:
            number, step = self.reached[number]
            assert step is not None, "only the first state was reached by no step"
            steps.append(step)
        texts = list(_texts(beginning(self.explored.bounds, self.explored.is_silent), steps[::-1]))
        return texts if last is not None else [*texts, "from here on nothing fails, and all timers fire"]


def _texts(world: World, steps: list[Step]) -> Iterator[str]:
    for step in steps:
        yield described(world, step)
        try:
            world = after(world, step)
        except ExplorationError:
            return


def explored(
    exploration: Exploration,
    *,
    states_max: int | None = None,
    progress: Callable[[Explored, int], None] = lambda explored, waiting: None,
) -> Explored:
    """Explores until everything was seen, something is wrong, or `states_max` states were seen."""
    search = _Search(exploration.bounds, exploration.is_silent)
    try:
        search.begin()
    except ExplorationError as problem:
        search.explored.violation = str(problem)
        return search.explored
    while search.waiting and search.explored.violation is None:
        if states_max is not None and search.explored.states >= states_max:
            return search.explored
        search.expand()
        progress(search.explored, len(search.waiting))
    search.explored.is_complete = search.explored.violation is None
    return search.explored
