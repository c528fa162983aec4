"""How fast the simulator runs cores on trivial filters: messages handled by cores in a second of processor time.

    ./dev bench simulator
    ./dev bench simulator --runs 1 --json FILE     for another program: what was measured, run by run

100 brokers in the tree of a transit-stub network, a client at each, all with one filter; each notification reaches
all. Every message that a core handles counts.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import median
from time import process_time

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.figures import Figure, write_figures
from catchment.model.filter import Filter
from catchment.routing.siena.acyclic import AcyclicCore
from catchment.sim.simulation import Simulation
from catchment.sim.topology import transit_stub_of

SEED, BROKERS, RUNS, PUBLICATIONS = 1, 100, 5, 200
WANTED = 150_000


def settled() -> Simulation:
    simulation = Simulation(transit_stub_of(BROKERS, SEED).spanning_tree(), AcyclicCore, seed=SEED)
    for number, broker in enumerate(simulation.topology.brokers):
        simulation.connect(f"c{number}", broker)
        simulation.subscribe(f"c{number}", "1", Filter("event = 'A'"))
    simulation.settle()
    return simulation


def rate(simulation: Simulation) -> float:
    before, start = simulation.core_messages, process_time()
    for number in range(PUBLICATIONS):
        simulation.publish(f"c{number % BROKERS}", {"event": "A"})
        simulation.settle()
    return (simulation.core_messages - before) / (process_time() - start)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file too")
    given = parser.parse_args()
    simulation = settled()
    rate(simulation)  # compiles, or loads what is compiled
    rates = [rate(simulation) for _ in range(given.runs)]
    if given.json:
        write_figures(given.json, [Figure("core messages/s", is_more_faster=True, values=rates)])
    print(f"{median(rates):,.0f} ({min(rates):,.0f}–{max(rates):,.0f}) core messages/s; wanted {WANTED:,}")
    return 0 if median(rates) >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
