"""What is done ahead of time changes no answer: indexes that are built and merged when nobody waits, kernels that are
loaded at the start."""

import asyncio
import subprocess
import sys
import threading

import pytest

from catchment.broker import idle
from catchment.broker.config import Config
from catchment.broker.idle import keep_prepared
from catchment.matching import Matcher, matcher
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.node import Node
from catchment.routing.messages import Client, ClientUp, Deliver, LinkUp, Neighbor, Routed, Subscribe
from catchment.routing.systems import live_systems

ROWS = [{"x": x, "y": x % 7} for x in range(40)]


def filled(count, group=None):
    found = Matcher()
    for i in range(count):
        found.add(i, Filter.of(("x", ">=", i % 50), ("y", "=", i % 7)), group)
    return found


@pytest.mark.parametrize("count", [0, 1, 40, 64, 70, 500, 1_000])
def test_prepared_it_is_one_index_and_finds_the_same(count):
    found, same = filled(count), filled(count)
    found.prepare()
    assert len(found.stats().segments) <= 1
    assert not found.stats().pending
    assert list(found.match_batch(ROWS)) == list(same.match_batch(ROWS)) == [same.match(row) for row in ROWS]
    assert [found.match(row) for row in ROWS] == [same.match(row) for row in ROWS]
    assert len(found) == count


def test_prepared_by_group():
    found, same = filled(300, "some"), filled(300, "some")
    found.prepare(by_group=True)
    assert list(found.match_groups(ROWS)) == list(same.match_groups(ROWS))


def test_little_beside_much_is_not_merged_into_it():
    """Else each change of a large index would build all of it anew."""
    found = filled(1_000)
    found.prepare()
    (large,) = found._snapshot.segments
    found.add("late", Filter("x = 1"))
    found.prepare()
    assert found.stats().segments == (1_000, 1)
    assert found._snapshot.segments[0] is large
    assert "late" in found.match({"x": 1})
    found.remove("late")
    assert "late" not in found.match({"x": 1})


def test_prepared_again_and_again_while_others_change_and_match(monkeypatch):
    monkeypatch.setattr(matcher, "PENDING_MAX", 8)
    found, stop = filled(200), threading.Event()

    def prepare():
        while not stop.is_set():
            found.prepare()

    beside = threading.Thread(target=prepare)
    beside.start()
    try:
        for i in range(300):
            found.add(f"a{i}", Filter.of(("x", "=", 1_000 + i)))
            assert found.match({"x": 1_000 + i}) == [f"a{i}"]
            assert list(found.match_batch([{"x": 1_000 + i}, {"x": 999}])) == [[f"a{i}"], []]
            if i % 2:
                found.remove(f"a{i}")
                assert found.match({"x": 1_000 + i}) == []
    finally:
        stop.set()
        beside.join()
    assert len(found) == 350
    found.prepare()
    assert len(found.stats().segments) <= 2
    assert [found.match({"x": 1_000 + i}) for i in range(4)] == [["a0"], [], ["a2"], []]


UNITS = [{"unit": unit, "kind": "acyclic", "neighbors": [f"{unit}1"]} for unit in ("east", "west")]
SETTINGS: dict[str, dict[str, object]] = {
    "siena hybrid": {"units": UNITS},
    "centralized": {"center": "b"},
    "content graph": {"rendezvous": "b"},
}


@pytest.mark.parametrize("routing", live_systems())
def test_every_core_can_be_prepared(routing):
    core = Config("b", routing=routing, settings=SETTINGS.get(routing, {})).make_core()
    reader, neighbor = Client("reader"), Neighbor("east1")
    core.on_message(ClientUp("reader"), reader, 1)
    core.on_message(LinkUp(), neighbor, 2)
    for i in range(100):
        core.on_message(Subscribe("reader", f"s{i:02}", Filter.of(("x", ">=", i))), reader, 3 + i)
    for each in core.matchers():
        each.prepare()
    batch = [Routed(Notification({"x": x}, source="p", seq=x + 1)) for x in range(3)]
    actions = core.on_notifications(batch, reader, 1_000)
    if "advertising" not in routing and "delegating" not in routing:
        given = [one.subscriptions for one in actions if isinstance(one, Deliver)]
        assert given == [("s00",), ("s00", "s01"), ("s00", "s01", "s02")]


def test_a_broker_prepares_once_when_changes_have_ceased(monkeypatch):
    monkeypatch.setattr(idle, "IDLE_S", 0.001)
    asyncio.run(prepares_once(monkeypatch))


async def prepares_once(monkeypatch):
    node = Node("b", Config("b").make_core(), lambda: 1, lambda timer: None)
    loop, calls, called = asyncio.get_running_loop(), [], asyncio.Event()

    def prepare():
        calls.append(node.messages_count)
        loop.call_soon_threadsafe(called.set)

    monkeypatch.setattr(node.core.clients.matcher, "prepare", prepare)
    task = asyncio.create_task(keep_prepared(node))
    for i in (1, 2):
        node.timer_fired(f"t{i}")
        await asyncio.wait_for(called.wait(), 10)
        called.clear()
    for _ in range(20):
        await asyncio.sleep(0.001)
    task.cancel()
    assert calls == [1, 2]


# Kernels that have been loaded, by what they were compiled for.
LOADED = """
import sys
from catchment.routing.parts.recall import warm
from catchment.broker.config import Config
from catchment import Filter, Notification
from catchment.routing.messages import *
from catchment.routing.siena.messages import Wants

def loaded():
    kernels = (one for name, module in list(sys.modules.items()) if name.startswith("catchment.matching.kernels")
               for one in vars(module).values() if hasattr(one, "signatures"))
    return {(one.__module__, one.__name__): len(one.signatures) for one in kernels}

warm()
before = loaded()
core, me = Config("b").make_core(), Client("me")
core.on_message(ClientUp("me"), me, 1)
core.on_message(LinkUp(), Neighbor("other"), 1)
texts = "a = {i}", "a > {i} and b <= 2.5", "s >* 'x{i}' or s *< 'y{i}'", "s * 'z{i}'", "s glob '?{i}*'", "exists(b)"
for i in range(400):
    core.on_message(Subscribe("me", str(i), Filter(texts[i % 6].format(i=i))), me, i)
wants = tuple(Filter(f"a = {i} and s = 'x'") for i in range(200))
core.on_message(Wants("other", 1, wants), Neighbor("other"), 500)
for size in (1, 1, 5, 70):
    batch = [Routed(Notification({"a": i, "b": 1.5, "s": "x1z", "f": True})) for i in range(size)]
    assert core.on_notifications(batch, me, 1_000)
for matcher in core.matchers():
    matcher.prepare()
core.on_notifications(batch, me, 1_000)
for i in range(0, 400, 3):
    core.on_message(Cancel("me", str(i)), me, 2_000)
core.on_notifications(batch, me, 3_000)
assert before and sum(before.values()) > 20
print([one for one, count in loaded().items() if count > before.get(one, 0)])
"""


def test_nothing_is_loaded_when_somebody_waits():
    """A kernel takes some milliseconds to load: a broker does it before it listens."""
    found = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=False, timeout=300)
    assert (found.stdout.strip(), found.stderr) == ("[]", "")
