"""The durable side of a client without a connection: the state file, what is not kept, what was taken."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment import Notification
from catchment.client import unkept as unkept_module
from catchment.client.state import Begun, Done, Position, StateError, StateFile, Stays
from catchment.client.taking import Taking
from catchment.client.unkept import Kept, Unkept, Waiter
from catchment.errors import BadNumberError, LimitError
from catchment.routing.durable.messages import Taken
from catchment.wire.messages import Confirmed


def noted(seq: int, source: str = "p") -> Notification:
    return Notification({"n": seq}, source=source, seq=seq)


# --- the state file -----------------------------------------------------------------------------


def filled(path: Path) -> bytes:
    state = StateFile(path, "alice")
    state.add(Begun(7))
    state.add(Position("log", 5))
    state.add(Stays("north"))
    for seq in (1, 2, 3):
        state.queue(noted(seq))
    state.add(Done("p", 1))
    state.flush()
    data = path.read_bytes()
    state.close()
    return data


def test_a_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    filled(tmp_path / "s")
    for _ in range(2):
        state = StateFile(tmp_path / "s", "alice")
        remembered = state.remembered
        assert (remembered.session, remembered.positions, remembered.storage) == (7, {"log": 5}, "north")
        assert [seq for seq, _ in remembered.queued["p"]] == [2, 3]
        assert remembered.done == {"p": 1}
        state.close()


def test_wherever_a_write_is_cut_off_all_before_it_is_there(tmp_path: Path) -> None:
    data = filled(tmp_path / "s")
    sessions = []
    first = 8 + int.from_bytes(data[:4], "big")
    for size in range(len(data) + 1):
        cut = tmp_path / f"cut-{size}"
        cut.write_bytes(data[:size])
        if 0 < size < first:
            # The first record says what the file is: it is written before the file has its name.
            continue
        state = StateFile(cut, "alice")
        sessions.append((state.remembered.session, len(state.remembered.queued.get("p", ()))))
        state.close()
        # What is added later is not lost behind the cut.
        state = StateFile(cut, "alice")
        state.add(Position("other", 1))
        state.close()
        assert StateFile(cut, "alice").remembered.positions["other"] == 1
    assert sessions[-1] == (7, 2)
    assert (7, 3) in sessions


def test_a_state_that_is_damaged_in_the_middle_is_refused(tmp_path: Path) -> None:
    data = bytearray(filled(tmp_path / "s"))
    data[60] ^= 1
    (tmp_path / "bad").write_bytes(data)
    with pytest.raises(StateError, match="damaged at byte"):
        StateFile(tmp_path / "bad", "alice")


def test_a_state_belongs_to_one_identity_and_one_process(tmp_path: Path) -> None:
    state = StateFile(tmp_path / "s", "alice")
    with pytest.raises(StateError, match="another process"):
        StateFile(tmp_path / "s", "alice")
    state.close()
    with pytest.raises(StateError, match="the state of 'alice'"):
        StateFile(tmp_path / "s", "bob")
    (tmp_path / "text").write_text("hello, this is no state at all")
    with pytest.raises(StateError):
        StateFile(tmp_path / "text", "alice")


def test_a_state_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("catchment.client.state.COMPACT_BYTES_MIN", 2_000)
    state = StateFile(tmp_path / "s", "alice")
    for epoch in range(1_000):
        state.add(Position("log", epoch))
        state.flush()
    assert (tmp_path / "s").stat().st_size < 4_000
    state.close()
    assert StateFile(tmp_path / "s", "alice").remembered.positions == {"log": 999}


# --- what was taken -----------------------------------------------------------------------------


class Told:
    """A client's taking whose turns of the loop are made by hand."""

    def __init__(self, identity: str = "r", positions: dict[str, int] | None = None) -> None:
        self.said: list[Taken] = []
        self._later: list[Callable[[], None]] = []
        self.taking = Taking(identity, positions or {}, None, self._later.append, self.said.extend)

    def turn(self) -> None:
        later, self._later[:] = list(self._later), []
        for call in later:
            call()


@given(st.permutations(range(1, 9)), st.integers(0, 8))
def test_a_position_is_the_end_of_what_was_taken_without_a_hole(order: list[int], pause: int) -> None:
    told = Told()
    log = told.taking.log("r", "L")
    receipts = {epoch: log.receipts(epoch, 1)[0] for epoch in range(1, 9)}
    taken: set[int] = set()
    for place, epoch in enumerate(order):
        receipts[epoch].give()
        receipts[epoch].give()  # a second time does nothing
        taken.add(epoch)
        expected = next(each for each in range(9) if each + 1 not in taken)
        assert told.taking.positions == {"L": expected}
        if place == pause:
            told.turn()
    told.turn()
    assert told.said[-1] == Taken("r", "L", 8)
    assert len(told.said) <= 2


def test_what_comes_again_is_no_news_and_what_two_read_is_taken_when_both_have() -> None:
    told = Told(positions={"L": 3})
    log = told.taking.log("r", "L")
    assert log.receipts(3, 1) == []
    first, second = log.receipts(4, 2)
    assert log.receipts(4, 2) == []
    first.give()
    assert log.position == 3
    second.give()
    assert log.position == 4


def test_in_a_group_a_lesser_epoch_may_come_later() -> None:
    told = Told()
    log = told.taking.log("group", "L")
    (later,) = log.receipts(10, 1)
    (left_by_another,) = log.receipts(7, 1)
    later.give()
    assert log.position == 6
    left_by_another.give()
    assert log.position == 10
    assert told.taking.positions == {}


# --- what is not kept ---------------------------------------------------------------------------


def unkept(state: Any = None) -> Unkept:
    numbers = iter(range(1, 1_000))
    return Unkept("p", lambda: next(numbers), state)


def sent(queue: Unkept, allowed: int = 1_000) -> list[tuple[list[int], int | None]]:
    return [([each.seq or 0 for each in part], after) for part, after, _ in queue.parts(allowed)]


def confirmed(seq: int, log: str = "L", settled: bool = False, storage: str = "s") -> Confirmed:
    return Confirmed("p", seq, storage, log, settled)


def test_what_is_not_confirmed_is_sent_again_with_the_same_numbers() -> None:
    queue = unkept()
    queue.connected("s")
    queue.add([Notification({}, source="p")] * 3, True, None)
    assert sent(queue, 2) == [([1, 2], None)]
    assert sent(queue) == [([3], 2)]
    assert sent(queue) == []
    assert queue.confirmed(confirmed(1))
    queue.connected("s")
    assert sent(queue) == [([2, 3], 1)]
    assert queue.bound_to == "s"
    queue.confirmed(confirmed(3, settled=True))
    assert (len(queue), queue.bound_to) == (0, "")


def test_a_storage_that_has_a_gap_is_sent_what_it_lacks() -> None:
    queue = unkept()
    queue.connected("s")
    queue.add([Notification({}, source="p")] * 4, True, None)
    ((part, after, chain),) = list(queue.parts(10))
    queue.confirmed(confirmed(1))
    # The storage has 2, and what it was sent said that it follows 3.
    queue.refused(chain, part[3:], 3, BadNumberError("gap", 2))
    assert sent(queue) == [([3, 4], 2)]
    assert after is None


def test_what_is_refused_for_good_fails_and_the_rest_goes_on() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        queue = unkept()
        queue.connected("s")
        good, bad = Waiter(loop.create_future(), 1), Waiter(loop.create_future(), 1)
        queue.add([Notification({}, source="p")], True, bad)
        queue.add([Notification({}, source="p")], True, good)
        ((part, after, chain),) = list(queue.parts(10))
        queue.refused(chain, part[:1], after, LimitError("X", 1, "one more"))
        assert isinstance(bad.future.exception(), LimitError)
        queue.connected("s")
        assert sent(queue) == [([2], None)]
        queue.confirmed(confirmed(2))
        assert good.future.result() == Kept("p", 2, "s", "L")

    asyncio.run(work())


def test_the_queue_is_bounded_and_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unkept_module, "UNKEPT_MAX", 2)
    queue = unkept()
    queue.add([Notification({}, source="p")] * 2, True, None)
    with pytest.raises(LimitError, match="wait until some are confirmed"):
        queue.check_room()
    queue.confirmed(confirmed(1))
    queue.check_room()


def test_a_storage_with_another_log_is_noticed() -> None:
    queue = unkept()
    queue.connected("s")
    queue.add([Notification({}, source="p")] * 2, True, None)
    assert queue.confirmed(confirmed(1, log="L"))
    assert not queue.confirmed(confirmed(1, log="another"))


def test_numbers_and_publications_survive_in_the_state(tmp_path: Path) -> None:
    state = StateFile(tmp_path / "s", "p")
    queue = unkept(state)
    # No broker has told its clock yet.
    queue.add([Notification({"n": n}, source="p") for n in (1, 2)], False, None)
    state.flush()
    state.close()
    state = StateFile(tmp_path / "s", "p")
    queue = unkept(state)
    queue.connected("s")
    assert sent(queue) == [([1, 2], None)]
    queue.confirmed(confirmed(1))
    state.flush()
    state.close()
    state = StateFile(tmp_path / "s", "p")
    queue = unkept(state)
    assert queue.bound_to == "s"
    queue.connected("s")
    assert sent(queue) == [([2], 1)]
    state.close()
