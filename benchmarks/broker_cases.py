"""What `./dev bench broker` measures, and what it has found."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

# Bindings that RabbitMQ's headers exchange is asked for at the most: each notification is compared with all of them.
RABBITMQ_CROWD_MAX = 10_000


@dataclass(frozen=True)
class Case:
    """So many notifications, to so many connections, with so many subscriptions of others, over so many brokers."""

    name: str
    count: int
    fan_out: int = 1
    crowd: int = 0
    hops: int = 1

    def count_for(self, peer: str) -> int:
        """Some seconds of each; where RabbitMQ compares each with all bindings, some twenty seconds."""
        if peer == "RabbitMQ":
            return self.count // 60 if self.crowd else self.count // 4
        return self.count // 10 if peer == "Mosquitto" and self.fan_out > 1 else self.count

    def is_for(self, peer: str) -> bool:
        if peer not in ("RabbitMQ", "NATS", "Mosquitto"):
            return True
        return self.hops == 1 and not (peer == "RabbitMQ" and self.crowd > RABBITMQ_CROWD_MAX)


CASES = (
    Case("1 subscription", 150_000),
    Case("10,000 subscriptions", 150_000, crowd=10_000),
    Case("100,000 subscriptions", 150_000, crowd=100_000),
    Case("fan-out 100", 4_000, fan_out=100),
    Case("3 hops", 60_000, hops=3),
)
PROFILED = CASES[1]


@dataclass
class Result:
    """One broker in one case, run by run."""

    case: Case
    peer: str
    rates: list[float] = field(default_factory=list)
    p50s_ms: list[float] = field(default_factory=list)
    p99s_ms: list[float] = field(default_factory=list)
    worst_ms: float = 0.0
    kept: float = 1.0
    missed: int = 0

    @property
    def rate(self) -> float:
        return median(self.rates)

    def ratios(self, ours: Result) -> list[float]:
        return sorted(mine / theirs for mine, theirs in zip(ours.rates, self.rates, strict=False))
