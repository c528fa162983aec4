"""When the next request to a sink may go out. Time and chance are arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# The first pause after a failure is up to this long; each further one up to twice as long.
BACKOFF_S_FIRST: Final = 1.0
# No pause is longer: a sink that is back gets its notifications within five minutes.
BACKOFF_S_MOST: Final = 300.0
_DOUBLINGS_MAX: Final = 30


def backoff_s(failures: int, chance: float) -> float:
    """The pause after so many failures in a row. `chance` is in [0, 1): the whole pause is drawn ("full jitter"), so
    that webhooks whose sinks failed together do not come back together."""
    longest: float = BACKOFF_S_FIRST * 2 ** min(failures - 1, _DOUBLINGS_MAX)
    return chance * min(longest, BACKOFF_S_MOST)


@dataclass(slots=True)
class Pace:
    """The allowed rate: a bucket that holds one request and fills at the rate. So requests are evenly spaced, and in no
    minute are there more than allowed. `per_minute` None: as fast as the sink answers."""

    per_minute: int | None = None
    _next_at: float = 0.0

    def wait_s(self, now: float) -> float:
        """How long until a request may go out; 0 if one may now."""
        return 0.0 if self.per_minute is None else max(0.0, self._next_at - now)

    def spend(self, now: float) -> None:
        """A request goes out."""
        if self.per_minute is not None:
            self._next_at = now + 60.0 / self.per_minute
