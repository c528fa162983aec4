"""Plays a scenario to its end, and measures it; in several variants, to compare routing systems.

A run ends when the network is quiescent and clients, changes and faults have nothing more to do, or at `stop_s`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from msgspec import to_builtins

from catchment.errors import InputError
from catchment.routing.messages import SECOND, Time
from catchment.routing.systems import SYSTEMS, system_named
from catchment.sim.scenarios.behaviour import Behaviour, Report
from catchment.sim.scenarios.measures import Measures
from catchment.sim.scenarios.meter import Meter
from catchment.sim.scenarios.ready import ReadyRun, ready_run
from catchment.sim.scenarios.records import Recorder
from catchment.sim.scenarios.scenario import Scenario
from catchment.sim.scenarios.settings import assigned, settings_for
from catchment.sim.simulation import Simulation

# What stands for all routing systems, in place of their names.
ALL_SYSTEMS: Final = "all"
# Tables are looked at so often.
LOOK_EVERY: Time = SECOND


def play(scenario: Scenario, directory: Path | None = None, report: Report = lambda done, total: None) -> Measures:
    """Plays a scenario. `report` is told how many publications are done, of how many."""
    measures, _ = play_ready(ready_run(scenario, directory), report)
    return measures


def play_ready(
    run: ReadyRun, report: Report = lambda done, total: None, recorder: Recorder | None = None
) -> tuple[Measures, tuple[str, ...]]:
    """What it came to, and what somebody who reads that should know."""
    records = recorder or Recorder()
    scenario = run.scenario
    meter = Meter(system_named(scenario.routing).messages, scenario.seed)
    behaviour = Behaviour(run, report)
    simulation = Simulation(
        run.topology,
        records.traced(run.make_core),
        seed=scenario.seed,
        quality=scenario.quality,
        observers=(meter, behaviour),
    )
    # First, so that at its time it comes before what clients do.
    if scenario.warm_up_s:
        simulation.at(round(scenario.warm_up_s * SECOND), meter.reset, simulation)
    _repeat(simulation, LOOK_EVERY, lambda: meter.look_at_tables(simulation))
    if scenario.sample_every_s is not None:
        _repeat(simulation, max(1, round(scenario.sample_every_s * SECOND)), lambda: meter.sample(simulation))
    about = {"routing": scenario.routing, "seed": scenario.seed}
    for at_s in scenario.dump_at_s:
        simulation.at(round(at_s * SECOND), partial(records.dump_tables, simulation, **about), is_idle=True)
    behaviour.set_up(simulation)
    simulation.settle(None if scenario.stop_s is None else round(scenario.stop_s * SECOND))
    if not scenario.dump_at_s:
        records.dump_tables(simulation, **about)
    meter.look_at_tables(simulation)
    if scenario.sample_every_s is not None and meter.is_sample_due(simulation):
        meter.sample(simulation)
    measures = meter.measured(simulation)
    return measures, (*run.notes, *_notes(scenario, simulation, measures))


def _repeat(simulation: Simulation, every: Time, work: Callable[[], None]) -> None:
    """Does something at each multiple of a time, after all else of that time. A run does not wait for it."""

    def due() -> None:
        # What clients do now was scheduled before: scheduled once more, the work comes after it.
        simulation.at(simulation.now, work, is_idle=True)
        simulation.at(simulation.now + every, due, is_idle=True)

    simulation.at(every, due, is_idle=True)


def _notes(scenario: Scenario, simulation: Simulation, measures: Measures) -> Iterator[str]:
    refused = [(name, error) for name, client in sorted(simulation.clients.items()) for error in client.refused]
    if refused:
        name, error = refused[0]
        yield f"{scenario.routing} refused {len(refused):,} requests or publications; {name} was told: {error}"
    if scenario.warm_up_s and not measures.published:
        yield f"nothing was published after the warm-up of {scenario.warm_up_s:g} s: make warm_up_s less"


# --- variants -----------------------------------------------------------------------------------


def variants(
    scenario: Scenario, routings: Sequence[str] = (), seeds: Sequence[int] = (), assignments: Sequence[str] = ()
) -> list[Scenario]:
    """The scenario for each routing system and each seed, its own unless others are given. ALL_SYSTEMS stands for
    all systems.

    `assignments` are texts NAME=VALUE. Each applies to the systems that have the setting, and so do the settings of
    the scenario. InputError if no system has a setting that is assigned."""
    systems = list(SYSTEMS) if list(routings) == [ALL_SYSTEMS] else list(routings) or [scenario.routing]
    for system in systems:
        system_named(system)
        if systems.count(system) > 1:
            raise InputError(f"--routing names {system} twice: name each system once")
    given = assigned(systems, assignments)
    made: list[Scenario] = []
    for system in systems:
        settings = {**settings_for(system, scenario.settings), **given[system]}
        made += [replace(scenario, routing=system, settings=settings, seed=seed) for seed in seeds or (scenario.seed,)]
    return made


def as_json(run: ReadyRun, measures: Measures, notes: Sequence[str]) -> dict[str, Any]:
    """A run as one plain object."""
    return {
        "routing": run.scenario.routing,
        "seed": run.scenario.seed,
        "network": run.scenario.network,
        "brokers": len(run.topology.brokers),
        "is_on_spanning_tree": run.is_on_spanning_tree,
        "settings": to_builtins(dict(run.settings)),
        "notes": list(notes),
        **to_builtins(measures),
    }
