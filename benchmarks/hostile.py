"""How long a broker works without a break on messages that are made to cost much.

    ./dev bench hostile
    ./dev bench hostile --others 20000 --slowest 20

Each message has at most 10 kB and asks for a subscription, an unsubscription or an advertisement
(`src/catchment/sim/hostile.py`). A *turn* is what the broker does before it serves anybody else. The time
is that of the processor, so that it means the same on a busy machine.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable
from time import process_time
from typing import Any

from catchment.routing.siena.acyclic import AcyclicCore
from catchment.routing.siena.advertising import AdvertisingCore
from catchment.routing.siena.general import GeneralCore
from catchment.sim.hostile import walk

CORES: dict[str, Callable[[], Any]] = {
    "siena acyclic": lambda: AcyclicCore("broker"),
    "siena advertising": lambda: AdvertisingCore("broker"),
    "siena general": lambda: GeneralCore("broker"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="the time of each turn of a broker, with hostile messages")
    parser.add_argument("--others", type=int, default=2_000, help="other subscriptions of the same client")
    parser.add_argument("--slowest", type=int, default=10, help="how many of the slowest turns to print")
    given = parser.parse_args()
    # Warm: the first call of a kernel loads it.
    for _ in walk(AcyclicCore("warm"), 200, process_time):
        pass
    # A broker freezes what lives long (`broker/garbage.py`); here the collector is simply off.
    gc.disable()
    for name, make in CORES.items():
        turns = sorted(walk(make(), given.others, process_time), key=lambda turn: -turn.cost)
        total = sum(turn.cost for turn in turns)
        print(f"{name}: {len(turns):,} turns, {total:.1f} s in all, worst {1_000 * turns[0].cost:.1f} ms")
        for turn in turns[: given.slowest]:
            print(f"  {1_000 * turn.cost:6.1f} ms  {turn.message}")


if __name__ == "__main__":
    main()
