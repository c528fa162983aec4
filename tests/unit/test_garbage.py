"""What a broker decides about the garbage collector: it looks at no object twice while subscriptions come."""

from catchment.broker.garbage import COLLECT_S_MIN, FEW_FILTERS, FREEZE_MESSAGES, Freezing


def test_it_freezes_after_many_messages():
    freezing = Freezing(0.0)
    steps = [freezing.step(0.1 * tick, tick * FREEZE_MESSAGES // 2, 100_000) for tick in range(1, 7)]
    assert steps == [None, "freeze", None, "freeze", None, "freeze"]


def test_it_collects_once_when_few_filters_are_left():
    freezing = Freezing(0.0)
    assert freezing.step(1.0, FREEZE_MESSAGES, FEW_FILTERS) == "freeze"
    assert freezing.step(COLLECT_S_MIN + 1, FREEZE_MESSAGES, FEW_FILTERS) is None
    assert freezing.step(COLLECT_S_MIN + 2, FREEZE_MESSAGES, FEW_FILTERS - 1) == "collect"
    assert freezing.step(2 * COLLECT_S_MIN + 3, FREEZE_MESSAGES, 0) is None


def test_it_does_not_collect_often():
    freezing = Freezing(0.0)
    assert freezing.step(1.0, FREEZE_MESSAGES, 0) == "freeze"
    assert freezing.step(COLLECT_S_MIN - 1, FREEZE_MESSAGES, 0) is None
