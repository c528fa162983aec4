"""What waits for clients is bounded in bytes: for suspended identities, and for the monitors of patterns."""

import tracemalloc
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment import Filter, Notification, Pattern
from catchment.model import monitor as monitor_module
from catchment.model.monitor import HeldMonitor, key_bytes
from catchment.model.notification import PAYLOAD_BYTES_MAX, memory_bytes
from catchment.routing.messages import (
    Action,
    Cancel,
    Client,
    ClientUp,
    Deliver,
    DeliverSequence,
    MapIdentity,
    Missed,
    Resume,
    Subscribe,
    Suspend,
)
from catchment.routing.parts import clients, shares, watching
from catchment.routing.parts.clients import ClientSide
from catchment.routing.parts.shares import BySize, Limits, Shares
from catchment.routing.siena import thinning
from catchment.routing.siena.messages import Held
from catchment.routing.siena.thinning import Thinner

START = datetime(2026, 1, 1, tzinfo=UTC)
ALL = Filter("n any")
MIB = 1_048_576


def note(n: int, payload: int = 1_000, **attributes: object) -> Notification:
    time = START + timedelta(seconds=n)
    return Notification({"n": n, **attributes}, source="p", seq=n + 1, time=time, payload=bytes(payload))


def size_of(payload: int = 1_000) -> int:
    return memory_bytes(note(1, payload))


# --- shares -------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.integers(-8, 20)), max_size=60))
def test_shares_are_what_counting_each_item_gives(changes: list[tuple[str, str, int]]):
    made: Shares[str, str] = Shares(Limits(24, 40, 60))
    held: Counter[tuple[str, str]] = Counter()
    for client, item, amount in changes:
        change = max(amount, -held[client, item])
        made.grow(client, item, change)
        held[client, item] += change
        by_client = Counter[str]()
        for (owner, _), size in held.items():
            by_client[owner] += size
        assert made.total == sum(held.values())
        assert made.size(client, item) == held[client, item]
        past = made.past_limit(client, item)
        if held[client, item] > 24:
            assert past == (client, item)
        elif by_client[client] > 40:
            assert past is not None
            assert past[0] == client
            # Within a factor of two it is the largest.
            assert 2 * held[past] > max(size for (owner, _), size in held.items() if owner == client)
        elif sum(held.values()) > 60:
            assert past is not None
            assert 2 * by_client[past[0]] > max(by_client.values())
            assert 2 * held[past] > max(size for (owner, _), size in held.items() if owner == past[0])
        else:
            assert past is None


def test_the_largest_is_found_without_looking_at_all(monkeypatch: pytest.MonkeyPatch):
    made: BySize[int] = BySize()
    for n in range(10_000):
        made.grow(n, 1 + n % 1_000)
    looked = 0

    def counting(classes: dict[int, object]) -> int:
        nonlocal looked
        looked += len(classes)
        return max(classes)

    monkeypatch.setattr(shares, "max", counting, raising=False)
    assert made.size(made.largest()) >= 512
    assert looked <= 64
    for n in range(10_000):
        made.grow(n, -made.size(n))
    assert (len(made), made.total, made._classes) == (0, 0, {})


# --- suspended identities -----------------------------------------------------------------------


def side_of(monkeypatch: pytest.MonkeyPatch, item: int, client: int, broker: int) -> ClientSide:
    monkeypatch.setattr(clients, "SUSPENDED_BYTES_MAX", item)
    monkeypatch.setattr(clients, "CLIENT_SUSPENDED_BYTES_MAX", client)
    monkeypatch.setattr(clients, "BROKER_SUSPENDED_BYTES_MAX", broker)
    return ClientSide()


def suspended(side: ClientSide, client: Client, *identities: str, wanted: Filter = ALL) -> None:
    side.client_up(client, ClientUp(client.name))
    for identity in identities:
        side.request(Subscribe(identity, "s", wanted), client)
        side.request(Suspend(identity), client)


def waiting_bytes(side: ClientSide) -> int:
    """Counted anew, from what waits."""
    waiting = [due for identity in side for due in identity.waiting or ()]
    return sum(memory_bytes(notification) for due in waiting for notification in due.notifications)


def resumed(side: ClientSide, identity: str, client: Client) -> tuple[int, list[object]]:
    """How many were dropped, and those that were not."""
    actions = side.request(Resume(identity), client)
    missed = [action.count for action in actions if isinstance(action, Missed)]
    return sum(missed), [action.notification["n"] for action in actions if isinstance(action, Deliver)]


ALICE, BOB = Client("alice"), Client("bob")


def test_what_waits_for_an_identity_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch):
    side = side_of(monkeypatch, 10 * size_of(), 10**9, 10**9)
    suspended(side, ALICE, "alice")
    for n in range(50):
        side.due([note(n)], 0)
        assert waiting_bytes(side) <= side.waiting_bytes <= 10 * size_of()
    missed, left = resumed(side, "alice", ALICE)
    assert missed + len(left) == 50
    assert left == list(range(50 - len(left), 50))
    assert len(left) >= 8
    assert side.waiting_bytes == 0


def test_what_waits_for_all_identities_of_a_client_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch):
    side = side_of(monkeypatch, 10 * size_of(), 20 * size_of(), 10**9)
    names = [f"i{n}" for n in range(30)]
    suspended(side, ALICE, *names)
    # Mapping an identity to somebody else does not make room.
    side.client_up(BOB, ClientUp("bob"))
    side.request(MapIdentity("i0", "bob"), ALICE)
    for n in range(20):
        side.due([note(n)], 0)
        assert waiting_bytes(side) <= side.waiting_bytes <= 20 * size_of()
    outcomes = [resumed(side, name, ALICE) for name in names]
    assert all(missed + len(left) == 20 for missed, left in outcomes)
    assert 15 <= sum(len(left) for _, left in outcomes) <= 20
    assert side.waiting_bytes == 0


def test_what_waits_at_a_broker_is_bounded_in_bytes_and_who_holds_much_loses_first(monkeypatch: pytest.MonkeyPatch):
    side = side_of(monkeypatch, 10**9, 10**9, 40 * size_of())
    suspended(side, BOB, "bob", wanted=Filter("rare any"))
    side.due([note(0, rare=True)], 0)
    greedy = [Client(f"greedy {n}") for n in range(5)]
    for client in greedy:
        suspended(side, client, client.name)
    for n in range(1, 100):
        side.due([note(n, rare=True) if n in (50, 99) else note(n)], 0)
        assert waiting_bytes(side) <= side.waiting_bytes <= 40 * size_of()
    # Bob holds little, and loses nothing, also of what comes when the broker is full.
    assert resumed(side, "bob", BOB) == (0, [0, 50, 99])
    outcomes = [resumed(side, client.name, client) for client in greedy]
    assert all(missed + len(left) == 99 for missed, left in outcomes)
    # Those that hold much hold about the same.
    counts = [len(left) for _, left in outcomes]
    assert max(counts) <= 2 * min(counts) + 1


def test_what_waits_for_who_is_gone_is_not_counted(monkeypatch: pytest.MonkeyPatch):
    side = side_of(monkeypatch, 10**9, 10**9, 10**9)
    suspended(side, ALICE, "alice", "other")
    side.due([note(n) for n in range(5)], 0)
    assert side.waiting_bytes > 10 * size_of()
    assert side.client_down(ALICE) == ["alice", "other"]
    assert side.waiting_bytes == 0
    assert not side._by_owner
    assert not side._by_client


def test_many_small_deliveries_are_bounded_by_what_they_take(monkeypatch: pytest.MonkeyPatch):
    """The notifications are the same for all identities: what grows is what surrounds them."""
    side = side_of(monkeypatch, 8 * MIB, 2 * MIB, 10**9)
    suspended(side, ALICE, *(f"i{n}" for n in range(50)))
    tracemalloc.start()
    try:
        for n in range(400):
            side.due([note(n, 0)], 0)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2.5 * MIB


# --- monitors of patterns -----------------------------------------------------------------------

PATTERN = Pattern("[step = 1] -> [step = 2] by host")


def watching_side(monkeypatch: pytest.MonkeyPatch, item: int, client: int, broker: int) -> ClientSide:
    monkeypatch.setattr(watching, "MONITOR_BYTES_MAX", item)
    monkeypatch.setattr(watching, "CLIENT_MONITORS_BYTES_MAX", client)
    monkeypatch.setattr(watching, "BROKER_MONITORS_BYTES_MAX", broker)
    return ClientSide()


def watch(side: ClientSide, client: Client, *ids: str, pattern: Pattern = PATTERN) -> None:
    side.client_up(client, ClientUp(client.name))
    for id in ids:
        side.request(Subscribe(client.name, id, pattern), client)


def monitored_bytes(side: ClientSide) -> int:
    """Counted anew, from what the monitors keep."""
    monitors = [monitor for identity in side for monitor in side.watching.of(identity.name).values()]
    kept = [match for monitor in monitors for so_far in monitor._waiting.values() for match in so_far]
    return sum(memory_bytes(match.notification) for match in kept)


def missed_in(actions: list[Action]) -> Counter[str]:
    missed = Counter[str]()
    for action in actions:
        if isinstance(action, Missed):
            missed[action.identity] += action.count
    return missed


def test_a_monitor_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch):
    side = watching_side(monkeypatch, 10 * size_of(5_000), 10**9, 10**9)
    watch(side, ALICE, "s")
    missed = Counter[str]()
    for n in range(50):
        missed += missed_in(side.due([note(n, 5_000, step=1, host=n)], 0))
        assert monitored_bytes(side) == side.watching.bytes_count <= 10 * size_of(5_000)
    assert missed == {"alice": 41}
    # The oldest were given up; the others complete.
    for host in range(50):
        due = side.due([note(100 + host, step=2, host=host)], 0)
        assert [isinstance(action, DeliverSequence) for action in due].count(True) == (host >= 41)
    assert side.watching.bytes_count == 0


def test_a_wait_that_is_too_large_alone_is_given_up(monkeypatch: pytest.MonkeyPatch):
    side = watching_side(monkeypatch, size_of(60_000), 10**9, 10**9)
    watch(side, ALICE, "s", pattern=Pattern("[step = 1] -> [step = 2] -> [step = 3]"))
    assert missed_in(side.due([note(1, 50_000, step=1)], 0)) == {}
    assert missed_in(side.due([note(2, 50_000, step=2)], 0)) == {"alice": 1}
    assert side.watching.bytes_count == 0


def test_monitors_of_a_client_and_of_a_broker_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch):
    size = size_of(5_000)
    side = watching_side(monkeypatch, 10**9, 20 * size, 50 * size)
    watch(side, BOB, "s", pattern=Pattern("[rare = 1] -> [rare = 2] by host"))
    side.due([note(n, 5_000, rare=1, host=n) for n in range(3)], 0)
    greedy = [Client(f"greedy {n}") for n in range(4)]
    for client in greedy:
        watch(side, client, "s1", "s2", "s3")
    missed = Counter[str]()
    for n in range(3, 40):
        missed += missed_in(side.due([note(n, 5_000, step=1, host=n)], 0))
        assert monitored_bytes(side) == side.watching.bytes_count <= 50 * size
        for client in greedy:
            own = side.watching.of(client.name).values()
            assert sum(monitor.bytes_count for monitor in own) <= 20 * size
    waits = {client.name: sum(map(len, side.watching.of(client.name).values())) for client in greedy}
    # Nothing is given up without being counted, and who holds little loses nothing.
    assert missed == {name: 3 * 37 - count for name, count in waits.items()}
    assert len(side.watching.of("bob")["s"]) == 3


def test_a_suspended_identity_learns_later_what_its_monitors_gave_up(monkeypatch: pytest.MonkeyPatch):
    side = watching_side(monkeypatch, 2 * size_of(), 10**9, 10**9)
    watch(side, ALICE, "s")
    side.request(Suspend("alice"), ALICE)
    for n in range(5):
        assert missed_in(side.due([note(n, step=1, host=n)], 0)) == {}
    assert missed_in(side.request(Resume("alice"), ALICE))["alice"] >= 3


def test_a_monitor_that_is_gone_is_not_counted(monkeypatch: pytest.MonkeyPatch):
    side = watching_side(monkeypatch, 10**9, 10**9, 10**9)
    watch(side, ALICE, "s1", "s2")
    side.due([note(1, step=1, host=1)], 0)
    assert side.watching.bytes_count == monitored_bytes(side) > 0
    side.request(Cancel("alice", "s1"), ALICE)
    assert side.watching.bytes_count == monitored_bytes(side) > 0
    side.client_down(ALICE)
    assert side.watching.bytes_count == 0


def test_payloads_of_the_largest_size_fill_no_memory():
    """As the broker is: 64 of 1 MiB, of which a monitor keeps no more than its limit."""
    side = ClientSide()
    watch(side, ALICE, "s")
    tracemalloc.start()
    try:
        for n in range(64):
            notification = note(n, PAYLOAD_BYTES_MAX, step=1, host=n)
            # A broker keeps the bytes that a notification came in, besides its payload.
            assert len(notification.packed) > PAYLOAD_BYTES_MAX
            side.due([notification], 0)
        del notification
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Without a bound it would be 128 MiB.
    assert 8 * MIB < held < watching.MONITOR_BYTES_MAX + 4 * MIB


def test_the_keys_that_a_monitor_remembers_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(monitor_module, "BUSY_KEYS_BYTES_MAX", 200_000)
    made = HeldMonitor(PATTERN)
    for n in range(60):
        host = f"{n}" + "x" * 10_000
        for step in (1, 2):
            found = made.on_notification(note(2 * n + step, 0, step=step, host=host), START)
        assert len(found) == 1
        assert sum(len(str(value)) for key in made._busy_until for _, value in key) <= 200_000 // 4
    assert len(made) == 0
    assert 1 <= len(made._busy_until) <= 5


# --- what a broker holds back for a neighbor ----------------------------------------------------


def test_what_a_thinner_holds_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(thinning, "HELD_BYTES_MAX", 10 * size_of(5_000))
    made = Thinner(PATTERN)
    sent = 0
    for n in range(50):
        sent += len(made.on_notification(Held(note(n, 5_000, step=1, host=n), 0, (0,))))
        kept = [memory_bytes(arrival.notification) for arrival in made.held()]
        assert sum(kept) == made._held_bytes <= 10 * size_of(5_000)
    # What does not fit is sent on at once: the neighbor misses nothing.
    assert sent + len(made.held()) == 50
    made.on_notification(Held(note(100, 0, step=2, host=0), 0, (1,)))
    assert sum(memory_bytes(arrival.notification) for arrival in made.held()) == made._held_bytes


def test_the_keys_of_a_thinner_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(thinning, "KEYS_BYTES_MAX", 200_000)
    made = Thinner(PATTERN)
    sent = 0
    for n in range(20):
        sent += len(made.on_notification(Held(note(n, 0, step=1, host=f"{n}" + "x" * 10_000), 0, (0,))))
        assert sum(key_bytes(key) for key in made._keys) == made._keys_bytes <= 200_000
    assert (sent, len(made)) == (20, 0)
