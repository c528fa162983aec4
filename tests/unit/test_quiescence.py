"""When a network is at rest: nothing is under way, and only idle timers wait."""

from collections.abc import Sequence
from typing import Any

import pytest

from catchment.errors import LimitError
from catchment.model.filter import Filter
from catchment.routing.baselines.flooding import FloodingCore
from catchment.routing.messages import Action, Interface, LinkUp, SetTimer, TimerFired
from catchment.sim.kernel import Kernel
from catchment.sim.simulation import Simulation
from catchment.sim.topology import line

# --- the queue ----------------------------------------------------------------------------------


def test_a_queue_with_only_idle_occurrences_is_at_rest():
    done: list[str] = []
    kernel = Kernel()
    at_rest = [kernel.is_at_rest]
    kernel.schedule(10, done.append, "idle", is_idle=True)
    at_rest.append(kernel.is_at_rest)
    kernel.schedule(20, done.append, "awaited")
    at_rest.append(kernel.is_at_rest)
    assert at_rest == [True, True, False]


def test_settling_performs_what_is_awaited_and_the_idle_before_it_alone():
    done: list[str] = []
    kernel = Kernel()
    for at, what, is_idle in ((10, "idle", True), (20, "awaited", False), (30, "idle later", True)):
        kernel.schedule(at, done.append, what, is_idle=is_idle)
    kernel.settle()
    assert (done, kernel.now, kernel.is_at_rest) == (["idle", "awaited"], 20, True)
    kernel.settle()
    assert (done, kernel.now) == (["idle", "awaited"], 20)
    kernel.run(30)
    assert (done, kernel.performed) == (["idle", "awaited", "idle later"], 3)


def test_what_an_idle_occurrence_schedules_is_awaited():
    done: list[str] = []
    kernel = Kernel()

    def say() -> None:
        kernel.schedule(kernel.now + 5, done.append, "said")

    kernel.schedule(10, say, is_idle=True)
    kernel.run(10)
    assert not kernel.is_at_rest
    kernel.settle()
    assert (done, kernel.now) == (["said"], 15)


@pytest.mark.parametrize("is_idle", [True, False])
def test_what_is_cancelled_does_not_happen_and_nobody_waits_for_it(is_idle: bool):
    done: list[str] = []
    kernel = Kernel()
    kernel.cancel(kernel.schedule(10, done.append, "cancelled", is_idle=is_idle))
    at_rest = [kernel.is_at_rest]
    kernel.schedule(20, done.append, "awaited")
    at_rest.append(kernel.is_at_rest)
    kernel.settle()
    at_rest.append(kernel.is_at_rest)
    assert at_rest == [True, False, True]
    assert (done, kernel.now, kernel.performed) == (["awaited"], 20, 1)


def test_a_cancelled_occurrence_does_not_move_the_clock():
    done: list[str] = []
    kernel = Kernel()
    later = kernel.schedule(50, done.append, "cancelled")
    kernel.schedule(10, done.append, "awaited")
    kernel.cancel(later)
    kernel.settle()
    assert kernel.now == 10


# --- timers of brokers --------------------------------------------------------------------------


class Timed(FloodingCore):
    """Sets these timers when a link comes up, after so long; and says when they fire. `again` sets one anew."""

    timers: Sequence[tuple[str, int, bool]] = ()
    again: tuple[str, int, bool] | None = None
    fired: list[tuple[str, str, int]]

    def on_message(self, message: Any, source: Interface, now: int) -> list[Action]:
        actions = super().on_message(message, source, now)
        match message:
            case LinkUp():
                actions += [SetTimer(name, now + after, is_idle) for name, after, is_idle in self.timers]
            case TimerFired():
                self.fired.append((self.name, message.name, now))
                if self.again is not None and self.again[0] == message.name:
                    name, after, is_idle = self.again
                    actions.append(SetTimer(name, now + after, is_idle))
            case _:
                pass
        return actions


def timed(*timers: tuple[str, int, bool], again: tuple[str, int, bool] | None = None) -> type[Timed]:
    return type("Timed", (Timed,), {"timers": timers, "again": again, "fired": []})


def test_a_network_with_idle_timers_is_quiescent():
    core = timed(("refresh", 100, True))
    simulation = Simulation(line(2), core)
    assert simulation.is_quiescent
    simulation.settle()
    assert (core.fired, simulation.now) == ([], 0)


def test_a_network_in_which_somebody_waits_for_a_timer_is_not():
    core = timed(("batch", 100, False))
    simulation = Simulation(line(2), core)
    at_rest = [simulation.is_quiescent]
    simulation.settle()
    at_rest.append(simulation.is_quiescent)
    assert at_rest == [False, True]
    assert core.fired == [("0", "batch", 100), ("1", "batch", 100)]


def test_an_idle_timer_fires_in_its_time():
    core = timed(("refresh", 100, True), again=("refresh", 100, True))
    simulation = Simulation(line(2), core)
    simulation.advance(250)
    assert core.fired == [("0", "refresh", 100), ("1", "refresh", 100), ("0", "refresh", 200), ("1", "refresh", 200)]
    assert simulation.is_quiescent


def test_a_timer_that_is_set_again_for_ever_and_is_not_idle_is_found():
    core = timed(("refresh", 100, False), again=("refresh", 100, False))
    simulation = Simulation(line(2), core, occurrences_max=1_000)
    with pytest.raises(LimitError, match="OCCURRENCES_MAX"):
        simulation.settle()


def test_nobody_waits_for_a_timer_that_an_idle_one_has_replaced():
    core = timed(("wait", 100, False), ("wait", 50, True))
    simulation = Simulation(line(2), core)
    assert simulation.is_quiescent
    simulation.advance(200)
    assert core.fired == [("0", "wait", 50), ("1", "wait", 50)]


def test_a_timer_that_replaces_an_idle_one_is_waited_for():
    core = timed(("wait", 50, True), ("wait", 100, False))
    simulation = Simulation(line(2), core)
    simulation.settle()
    assert core.fired == [("0", "wait", 100), ("1", "wait", 100)]


def test_the_timers_of_a_broker_that_crashes_are_gone():
    core = timed(("batch", 100, False))
    simulation = Simulation(line(2), core)
    simulation.crash("0")
    simulation.crash("1")
    assert simulation.is_quiescent
    simulation.settle()
    assert (core.fired, simulation.now) == ([], 0)


def test_a_broker_that_restarts_has_its_own_timers():
    core = timed(("batch", 100, False))
    simulation = Simulation(line(2), core)
    simulation.advance(40)
    simulation.crash("0")
    simulation.restart("0")
    simulation.settle()
    # The link has come up again at both ends.
    assert core.fired == [("0", "batch", 140), ("1", "batch", 140)]


def test_a_network_with_something_under_way_is_not_quiescent():
    simulation = Simulation(line(2), timed(("refresh", 1_000_000, True)))
    simulation.connect("alice", "0")
    simulation.connect("bob", "1")
    simulation.subscribe("bob", "all", Filter("x any"))
    at_rest = [simulation.is_quiescent]
    simulation.publish("alice", {"x": 1})
    at_rest.append(simulation.is_quiescent)
    simulation.settle()
    at_rest.append(simulation.is_quiescent)
    assert at_rest == [True, False, True]
    assert len(simulation.clients["bob"].received) == 1
