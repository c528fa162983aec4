"""The numbers of a client's publications: by the broker's clock, whatever the clock of the client's machine says."""

import pytest

from catchment.client import numbering as numbering_module
from catchment.client.numbering import Numbering

SECOND = 1_000_000
BROKER = 1_800_000_000 * SECOND


class Clock:
    now_s = 50.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def wrong_clock(monkeypatch: pytest.MonkeyPatch):
    """The machine's clock is an hour ahead."""
    monkeypatch.setattr(numbering_module, "time_ns", lambda: (BROKER + 3_600 * SECOND) * 1_000)


def test_numbers_follow_the_clock_of_the_broker(clock: Clock):
    numbering = Numbering(clock)
    numbering.welcomed(BROKER, None)
    assert [numbering.next() for _ in range(3)] == [BROKER, BROKER + 1, BROKER + 2]
    clock.now_s += 2
    assert numbering.next() == BROKER + 2 * SECOND


def test_numbers_go_on_after_the_last_that_the_broker_knows(clock: Clock):
    numbering = Numbering(clock)
    numbering.welcomed(BROKER, BROKER + 40 * SECOND)
    assert numbering.next() == BROKER + 40 * SECOND + 1


def test_numbers_do_not_go_back_at_another_broker(clock: Clock):
    numbering = Numbering(clock)
    numbering.welcomed(BROKER, None)
    last = numbering.next()
    # The clock of the other broker is half a minute behind, and it does not know this client.
    numbering.welcomed(BROKER - 30 * SECOND, None)
    assert numbering.next() == last + 1


def test_numbers_go_on_after_what_a_refusal_names(clock: Clock):
    numbering = Numbering(clock)
    numbering.welcomed(BROKER, None)
    numbering.next()
    numbering.refused(BROKER + 500, may_go_back=True)
    assert numbering.next() == BROKER + 501


def test_numbers_go_back_if_the_broker_takes_no_others(clock: Clock, caplog: pytest.LogCaptureFixture):
    numbering = Numbering(clock)
    numbering.welcomed(BROKER, None)
    numbering.next()
    earlier = BROKER - 3_600 * SECOND
    # The refused number may have been the caller's: ours stay.
    numbering.refused(earlier, may_go_back=False)
    assert numbering.next() == BROKER + 1
    assert not caplog.records
    numbering.refused(earlier, may_go_back=True)
    assert numbering.next() == earlier + 1
    clock.now_s += 1
    assert numbering.next() == earlier + SECOND
    assert [record.message for record in caplog.records] == ["numbers go back"]


def test_without_a_clock_of_the_broker_there_is_our_own(clock: Clock):
    numbering = Numbering(clock)
    numbering.welcomed(0, None)
    assert numbering.next() == BROKER + 3_600 * SECOND
