"""Every interleaving of a small world, with the real code: `./dev explore durable`.

Two storages with a link, a publisher with three publications, and a reader that may go from one to the other
(`sim/explore/world.py`). Every order of steps within the bounds is taken, and in every state the invariants of durable
delivery must hold. A path that leads to a violation is printed, one of the shortest.

./dev explore durable                              some hundred thousand states, several minutes
./dev explore durable --short                      what `./dev test` explores, under a minute
./dev explore durable --world silent --bounds crashes=1,losses=1,doublings=0,moves=1
                                                   one world with other bounds; --states-max ends it earlier
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from msgspec.structs import replace
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from catchment.sim.explore.parts import Bounds
from catchment.sim.explore.search import LONG, NOTHING_FAILS, SHORT, Exploration, Explored, explored


def made(exploration: Exploration, states_max: int | None) -> Explored:
    """Explores, with a line that shows how far it is."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, transient=True) as progress:
        task = progress.add_task(f"{exploration}")

        def show(explored: Explored, waiting: int) -> None:
            if explored.states % 256 == 0:
                seen = f"{explored.states:,} states, {waiting:,} wait, {explored.depth} steps deep"
                progress.update(task, description=seen)

        return explored(exploration, states_max=states_max or exploration.states_max, progress=show)


def bounds_of(text: str) -> Bounds:
    """`crashes=1,losses=2`; what is not named is 0. ValueError if it cannot be read."""
    given = dict(part.split("=", 1) for part in text.split(",") if part)
    if unknown := set(given) - set(Bounds.__struct_fields__):
        raise ValueError(f"there are no bounds {', '.join(sorted(unknown))}: use {', '.join(Bounds.__struct_fields__)}")
    return replace(NOTHING_FAILS, **{name: int(count) for name, count in given.items()})


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["durable"], help="which world")
    parser.add_argument("--short", action="store_true", help="what ./dev test explores")
    parser.add_argument("--world", choices=["plain", "silent"], default="plain", help="for --bounds: which world")
    parser.add_argument("--bounds", help="other bounds, for example crashes=1,losses=1")
    parser.add_argument("--states-max", type=int, help="end each exploration after so many states")
    given = parser.parse_args(arguments)
    explorations = SHORT if given.short else LONG
    if given.bounds is not None:
        try:
            explorations = (Exploration(bounds_of(given.bounds), given.world == "silent"),)
        except ValueError as problem:
            parser.error(str(problem))
    states = transitions = wrong = 0
    start = time.perf_counter()
    for exploration in explorations:
        result = made(exploration, given.states_max)
        print(result)
        states, transitions = states + result.states, transitions + result.transitions
        wrong += result.violation is not None
    seconds = time.perf_counter() - start
    print(f"in all {states:,} states, {transitions:,} transitions, {wrong} violations, {seconds:,.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
