"""The steps of an explored world: which are possible in a state, what each does, and how people read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from catchment.sim.explore.disk import ExplorationError
from catchment.sim.explore.parts import BROKERS, PUBLICATIONS, Process
from catchment.sim.explore.world import DIRECTED, World

# Rounds in which a world without further faults must reach its goal: each fires all timers and does all that waits.
ROUNDS_MAX: Final = 24


class Step(Struct, frozen=True):
    """Something that may happen: what it is, where, how much; and which of the bounds it uses up."""

    what: str
    where: str = ""
    count: int = 0
    costs: str = ""


_TEXTS: Final = {
    "deliver": "{message} from {where} arrives",
    "lose": "{message} from {where} is lost",
    "double": "{message} from {where} arrives, and will arrive once more",
    "delay": "{message} from {where} falls behind the others",
    "sync": "{where} syncs {count} of its writes",
    "answer": "the disk of {where} answers a question",
    "crash": "{where} crashes; {count} of its unsynced writes survive",
    "restart": "{where} starts again",
    "cut": "the link is cut",
    "heal": "the link works again",
    "publish": "the publisher publishes the next",
    "resend": "the publisher publishes again what is not confirmed",
    "publisher": "the publisher connects to {where}",
    "take": "the reader takes a delivery",
    "leave": "the reader leaves",
    "come": "the reader connects to {where}",
    "appear": "the reader appears at {where}, its old process goes on",
    "stale take": "the old process of the reader takes a delivery",
    "stale end": "the old process of the reader ends",
}


def described(world: World, step: Step) -> str:
    """A step as people read it, in the state in which it is taken."""
    text = _TEXTS.get(step.what, f"{step.where}: the timer {step.what!r} fires")
    message = ""
    if "{message}" in text:
        message = _short(world.channels[step.where][0])
    return text.format(where=step.where, count=step.count, message=message)


def _short(message: object) -> str:
    fields = [f"{name}={getattr(message, name)!r}" for name in getattr(message, "__struct_fields__", ())]
    return f"{type(message).__name__}({', '.join(fields)})"


# --- which are possible -------------------------------------------------------------------------


def possible(world: World) -> list[Step]:
    """The steps that may be taken, those first that bring the world on."""
    steps = [*_progress(world), *_moves(world), *_faults(world), *_timers(world)]
    return [step for step in steps if world.bounds.allows(step.costs)]


def _progress(world: World) -> Iterator[Step]:
    """What happens by itself, without faults."""
    publisher = world.publisher
    for broker in BROKERS:
        if world.channels[broker]:
            yield Step("deliver", broker)
        if world.brokers[broker].disk.written and world.is_up(broker):
            yield Step("sync", broker, len(world.brokers[broker].disk.written))
        if world.brokers[broker].fetches:
            yield Step("answer", broker)
        if not world.is_up(broker):
            yield Step("restart", broker)
    if world.is_cut:
        yield Step("heal")
    if world.reader.inbox:
        yield Step("take")
    if publisher.broker is None:
        for broker in filter(world.is_up, BROKERS):
            yield Step("publisher", broker, costs="" if broker == publisher.at else "publisher_moves")
    elif publisher.must_resend:
        yield Step("resend")
    elif publisher.published < PUBLICATIONS:
        yield Step("publish")


def _moves(world: World) -> Iterator[Step]:
    reader, publisher = world.reader, world.publisher
    for broker in filter(world.is_up, BROKERS):
        if reader.broker is None:
            yield Step("come", broker)
        elif reader.broker != broker and world.stale is None:
            yield Step("appear", broker, costs="moves")
        if publisher.broker is not None:
            yield Step("publisher", broker, costs="publisher_moves")
    if reader.broker is not None:
        yield Step("leave", costs="moves")
    if world.stale is not None:
        yield Step("stale end")
        if world.stale.inbox:
            yield Step("stale take", costs="stale_takes")


def _faults(world: World) -> Iterator[Step]:
    for broker in BROKERS:
        channel = world.channels[broker]
        if channel and isinstance(channel[0], DIRECTED):
            yield Step("lose", broker, costs="losses")
            yield Step("double", broker, costs="doublings")
            if len(channel) > 1:
                yield Step("delay", broker, costs="delays")
        if world.is_up(broker):
            for kept in range(len(world.brokers[broker].disk.written) + 1):
                yield Step("crash", broker, kept, costs="crashes")
            if len(world.brokers[broker].disk.written) > 1:
                yield Step("sync", broker, 1, costs="partial_syncs")
    if world.is_linked:
        yield Step("cut", costs="cuts")


def _timers(world: World) -> Iterator[Step]:
    costs = "" if is_quiet(world) else "early_timers"
    for broker in BROKERS:
        for timer in sorted(world.brokers[broker].timers):
            yield Step(timer, broker, costs=costs)


def is_quiet(world: World) -> bool:
    """Whether nothing happens any more but timers: everybody is there, and nothing is under way."""
    publisher = world.publisher
    return (
        world.is_linked
        and not any(world.channels.values())
        and not any(each.disk.written or each.fetches for each in world.brokers.values())
        and world.reader.broker is not None
        and not world.reader.inbox
        and world.stale is None
        and publisher.broker is not None
        and not publisher.must_resend
        and publisher.published == PUBLICATIONS
    )


def has_arrived(world: World) -> bool:
    """Whether all is confirmed and taken."""
    return world.publisher.confirmed == PUBLICATIONS and world.due <= world.taken


# --- what they do -------------------------------------------------------------------------------


def after(world: World, step: Step) -> World:
    """The world after a step. ExplorationError if something happens that must not be."""
    world = world.copied()
    world.bounds = world.bounds.less(step.costs)
    _take_step(world, step)
    return world


def _take_step(world: World, step: Step) -> None:
    where = step.where
    match step.what:
        case "deliver":
            world.deliver(where)
        case "double":
            world.deliver(where, keeps=True)
        case "lose":
            world.channels[where] = world.channels[where][1:]
            world.settle_paths()
        case "delay":
            first, *rest = world.channels[where]
            world.channels[where] = (*rest, first)
            world.settle_paths()
        case "sync":
            world.sync(where, step.count)
        case "answer":
            world.answer(where)
        case "crash":
            world.crash(where, step.count)
        case "restart":
            world.start(where)
        case "cut" | "heal":
            world.is_cut = step.what == "cut"
            world.refresh_link()
        case _:
            _take_client_step(world, step)


def _take_client_step(world: World, step: Step) -> None:
    match step.what:
        case "publish":
            world.publish()
        case "resend":
            world.resend()
        case "publisher":
            world.connect_publisher(step.where)
        case "take":
            world.take(world.reader)
        case "leave":
            world.disconnect_reader(world.reader)
        case "come":
            if world.stale is not None and world.stale.broker == step.where:
                _end_stale(world)
            world.connect_reader(step.where)
        case "appear":
            world.stale, world.reader = world.reader, _forked(world)
            world.connect_reader(step.where)
        case "stale take":
            assert world.stale is not None
            world.take(world.stale)
        case "stale end":
            _end_stale(world)
        case timer:
            world.fire(step.where, timer)


def _forked(world: World) -> Process:
    old = world.reader
    return Process(None, old.session, dict(old.positions), {}, [], old.last)


def _end_stale(world: World) -> None:
    assert world.stale is not None
    world.disconnect_reader(world.stale)
    world.stale = None


# --- liveness -----------------------------------------------------------------------------------


def check_arrives(world: World) -> None:
    """Without further faults, everything is confirmed and taken in the end."""
    world = world.copied()
    for _ in range(ROUNDS_MAX):
        if has_arrived(world):
            return
        _bring_on(world)
        for broker in BROKERS:
            for timer in sorted(world.brokers[broker].timers):
                world.fire(broker, timer)
    lacking = sorted(world.due - world.taken)
    confirmed = f"publications are confirmed up to {world.publisher.confirmed} of {PUBLICATIONS}"
    raise ExplorationError(f"nothing fails any more, but {confirmed}, and the reader never gets {lacking}")


def _bring_on(world: World) -> None:
    """Takes steps that are no faults until there are none."""
    if world.stale is not None:
        _end_stale(world)
    while steps := [step for step in _progress(world) if not step.costs]:
        _take_step(world, steps[0])
    if world.reader.broker is None:
        world.connect_reader(next(filter(world.is_up, BROKERS)))
        _bring_on(world)
