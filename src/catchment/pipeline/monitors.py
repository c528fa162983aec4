"""The model's Monitor, fed by Spark: in a task of a batch, and with state in a stream.

A Monitor here has one key, that of the rows it is given, so it holds one wait at most.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Row
from pyspark.sql import types as st
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from catchment.model.monitor import Monitor, Sequence
from catchment.model.notification import Notification
from catchment.model.pattern import Pattern
from catchment.model.values import Json, time_from_key, time_key
from catchment.pipeline.rows import ORDER, TIME, OrderKey, order_key

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues

# Real keys are JSON objects: rows with this one are not for any pattern.
NO_KEY: Final = ""
# A sequence; times in microseconds, which no time zone of a worker can bend.
FOUND: Final = st.StructType(
    [
        st.StructField("pattern", st.StringType()),
        st.StructField("key", st.StringType()),
        st.StructField("notifications", st.ArrayType(st.StringType())),
        st.StructField("first_at", st.LongType()),
        st.StructField("last_at", st.LongType()),
    ]
)
# Rows of one micro-batch as one JSON text: state is slow for each value, not for each byte.
_HELD: Final = st.StructType([st.StructField("rows", st.StringType())])
_WAITS: Final = st.StructType([st.StructField("waits", st.StringType())])

# Time, steps, and the notification.
Held = list[tuple[int, int, str]]


def step_bits(steps: Iterable[int]) -> int:
    """Steps as the bits of a 64-bit integer, of which the last is the sign."""
    found = sum(1 << step for step in set(steps))
    return found - (1 << 64) if found >> 63 else found


class Carried(Notification):
    """A notification of which only the time is read, as a Monitor for one key does; the rest stays text."""

    __slots__ = ("text",)

    def __init__(self, text: str, at: int) -> None:
        super().__init__(time=time_from_key(at))
        self.text = text

    def to_json(self) -> dict[str, Json]:
        found: dict[str, Json] = json.loads(self.text)
        return found


def monitor_of(pattern: Pattern, waits: list[Json] | None = None) -> Monitor:
    """For the rows of one key, which need not be asked for it again."""
    return Monitor.from_json(Pattern.of(*pattern.filters, within=pattern.within), waits or [])


def fed(monitor: Monitor, text: str, at: int, bits: int) -> list[Sequence]:
    """The sequences it completes; on Spark a notification arrives when it is published."""
    carried = Carried(text, at)
    assert carried.time is not None
    steps = [step for step in range(len(monitor.pattern.filters)) if bits >> step & 1]
    return monitor.on_notification(carried, carried.time, steps)


def _text_of(notification: Notification) -> str:
    return notification.text if isinstance(notification, Carried) else json.dumps(notification.to_json())


def found_row(pattern: str, key: str, sequence: Sequence) -> dict[str, Any]:
    """A row of FOUND."""
    return {
        "pattern": pattern,
        "key": key,
        "notifications": [_text_of(one.notification) for one in sequence],
        "first_at": time_key(sequence[0].published),
        "last_at": time_key(sequence[-1].published),
    }


class PatternProcessor(StatefulProcessor):
    """Holds rows until the watermark passes them, then feeds them in publication order.

    State of a key: `held`, rows not yet fed, in no order; `waits`, the Monitor as JSON. There is a timer no later
    than the first time held, and one for the moment when `within` makes the wait hopeless.
    """

    def __init__(self, patterns: Mapping[str, Pattern]) -> None:
        self._patterns = dict(patterns)

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._held = handle.getListState("held", _HELD)
        self._waits = handle.getValueState("waits", _WAITS)

    def handleInputRows(  # noqa: N802  # Spark's name
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[Row]:
        if key[1] != NO_KEY:
            held = [(row.at, row.steps, row.notification) for row in rows]
            self._held.appendValue((json.dumps(held),))
            self._wake(min(at for at, _, _ in held))
        return iter(())

    def handleExpiredTimer(  # noqa: N802  # Spark's name
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[Row]:
        until = timerValues.getCurrentWatermarkInMs() * 1000
        monitor = self._monitor(key[0])
        found = [found_row(key[0], key[1], one) for one in self._released(monitor, until)]
        monitor.forget(time_from_key(until))
        self._keep(monitor)
        return iter([Row(**one) for one in found])

    def _released(self, monitor: Monitor, until: int) -> Iterator[Sequence]:
        held: Held = [(at, steps, text) for (rows,) in self._held.get() for at, steps, text in json.loads(rows)]
        due = [(at, _ties(text), text, steps) for at, steps, text in held if at <= until]
        later = [one for one in held if one[0] > until]
        self._hold(later)
        for at, _, text, steps in sorted(due):
            yield from fed(monitor, text, at, steps)

    def _hold(self, later: Held) -> None:
        if later:
            self._held.put([(json.dumps(later),)])
            self._wake(min(at for at, _, _ in later))
        else:
            self._held.clear()

    def _monitor(self, pattern: str) -> Monitor:
        found = self._waits.get() if self._waits.exists() else None
        return monitor_of(self._patterns[pattern], json.loads(found[0]) if found else [])

    def _keep(self, monitor: Monitor) -> None:
        if not len(monitor):
            self._waits.clear()
            return
        waits = monitor.to_json()
        self._waits.update((json.dumps(waits),))
        if monitor.pattern.within is not None:
            first = Notification.from_json(waits[0][0]["notification"])  # type: ignore[index, call-overload]
            assert first.time is not None
            self._wake(time_key(first.time + monitor.pattern.within))

    def _wake(self, at: int) -> None:
        # A timer goes off when the watermark is past its millisecond: rounded up, so that `at` is past too.
        self._handle.registerTimer(-(-at // 1000))


def _ties(text: str) -> OrderKey:
    """What orders notifications of one time."""
    found = json.loads(text)
    return order_key([found.get(name) for name in ORDER if name != TIME])
