"""Takes one notification to a sink, as often as it needs: what to do after each attempt.

A notification ends in one of three ways: the sink accepted it, it becomes a dead letter, or the sink is retired. It
becomes a dead letter after `attempts_max` failed attempts, or when it is not accepted `giveup_s` after the first
attempt, or at once if the sink will never accept it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from catchment.broker.http.webhooks.answers import Accepted, Failed, Gone, Hopeless, NotNow, Outcome
from catchment.broker.http.webhooks.pacing import backoff_s


@dataclass(frozen=True, slots=True)
class Done:
    """The sink has it."""


@dataclass(frozen=True, slots=True)
class Dead:
    reason: str


@dataclass(frozen=True, slots=True)
class Retired:
    reason: str


Verdict = Done | Dead | Retired


@dataclass(slots=True)
class Courier:
    """Times are of the loop's clock. The next attempt is due at `due_at`."""

    attempts_max: int
    giveup_s: float
    due_at: float
    began_at: float | None = None
    attempts: int = 0
    failures: int = 0
    # Why the last attempt failed.
    problem: str = ""

    def start(self, now: float) -> None:
        """A request goes out."""
        self.attempts += 1
        self.began_at = now if self.began_at is None else self.began_at

    def finish(self, outcome: Outcome, now: float, chance: float) -> Verdict | None:
        """The end of an attempt. None: it is to be tried again at `due_at`."""
        match outcome:
            case Accepted():
                return Done()
            case Gone(reason):
                return Retired(reason)
            case Hopeless(reason):
                return Dead(reason)
            case NotNow(reason, wait_s):
                # The sink is well and asks for patience: only the time counts, not the attempt.
                return self._later(reason, now + wait_s, now)
            case Failed(reason):
                self.failures += 1
                if self.failures >= self.attempts_max:
                    return Dead(f"{reason}; attempt {self.failures} of {self.attempts_max}")
                return self._later(reason, now + backoff_s(self.failures, chance), now)
            case _:
                assert_never(outcome)

    def _later(self, reason: str, due_at: float, now: float) -> Dead | None:
        assert self.began_at is not None
        self.problem = reason
        if now - self.began_at >= self.giveup_s:
            return Dead(f"{reason}; not accepted within {self.giveup_s:,.0f} s")
        self.due_at = due_at
        return None
