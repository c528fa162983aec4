"""Five storing brokers, killed again and again under load. `./dev soak --kills` does this at length."""

from tests.live.hosts import Hosts
from tests.live.kills import KillRun, outcome_of


def test_brokers_and_readers_are_killed_and_nothing_is_lost_or_doubled() -> None:
    with Hosts() as hosts:
        outcome = outcome_of(KillRun(seed=1, kills=6), hosts)
    assert outcome.violation is None
    assert outcome.kept > 100
    assert outcome.delivered == 3 * outcome.kept
