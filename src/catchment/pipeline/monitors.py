"""The model's Monitor, fed by Spark: in a task of a batch job, and with state in a stream.

Here a Monitor gets the rows of one key only, so it has at most one partial match (the Monitor calls it a *wait*).
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

# Keys are JSON objects, so this is the key of no pattern. Rows with it only advance the watermark.
NO_KEY: Final = ""
# A sequence that completes a pattern. Times are in microseconds: no time zone of a worker can change them.
SEQUENCES: Final = st.StructType(
    [
        st.StructField("pattern", st.StringType()),
        st.StructField("key", st.StringType()),
        st.StructField("notifications", st.ArrayType(st.StringType())),
        st.StructField("first_at", st.LongType()),
        st.StructField("last_at", st.LongType()),
    ]
)
# The rows of one micro-batch are stored as one JSON text: Spark's state costs time for each value, not for each byte.
_HELD: Final = st.StructType([st.StructField("rows", st.StringType())])
_WAITS: Final = st.StructType([st.StructField("waits", st.StringType())])

# Rows that wait for the watermark: time, steps, and the notification as JSON.
HeldRows = list[tuple[int, int, str]]


def step_bits(steps: Iterable[int]) -> int:
    """Steps of a pattern as the bits of a signed 64-bit integer."""
    bits = sum(1 << step for step in set(steps))
    return bits - (1 << 64) if bits >> 63 else bits  # the highest bit is the sign


class TextNotification(Notification):
    """A notification that stays JSON text, but for its time: a Monitor for one key reads nothing else."""

    __slots__ = ("text",)

    def __init__(self, text: str, at: int) -> None:
        super().__init__(time=time_from_key(at))
        self.text = text

    def to_json(self) -> dict[str, Json]:
        attributes: dict[str, Json] = json.loads(self.text)
        return attributes


def monitor_of(pattern: Pattern, waits: list[Json] | None = None) -> Monitor:
    """A Monitor for the rows of one key. It leaves out `by`, because all its rows have the same key."""
    return Monitor.from_json(Pattern.of(*pattern.filters, within=pattern.within), waits or [])


def feed(monitor: Monitor, text: str, at: int, bits: int) -> list[Sequence]:
    """Gives a notification to a Monitor, and returns the sequences that it completes. On Spark the arrival time of a
    notification is its publication time."""
    notification = TextNotification(text, at)
    assert notification.time is not None
    steps = [step for step in range(len(monitor.pattern.filters)) if bits >> step & 1]
    return monitor.on_notification(notification, notification.time, steps)


def _text_of(notification: Notification) -> str:
    return notification.text if isinstance(notification, TextNotification) else json.dumps(notification.to_json())


def sequence_row(pattern: str, key: str, sequence: Sequence) -> dict[str, Any]:
    """A row of SEQUENCES."""
    return {
        "pattern": pattern,
        "key": key,
        "notifications": [_text_of(step.notification) for step in sequence],
        "first_at": time_key(sequence[0].published),
        "last_at": time_key(sequence[-1].published),
    }


class PatternProcessor(StatefulProcessor):
    """Holds rows until the watermark passes them, then feeds them to the Monitor in publication order.

    The state of a key is `held`, the rows not yet fed, in no order; and `waits`, the Monitor as JSON. There is a timer
    no later than the earliest held row, and one for the moment when `within` makes the wait hopeless.
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
            self._set_timer(min(at for at, _, _ in held))
        return iter(())

    def handleExpiredTimer(  # noqa: N802  # Spark's name
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[Row]:
        until = timerValues.getCurrentWatermarkInMs() * 1000
        monitor = self._monitor(key[0])
        completed = [sequence_row(key[0], key[1], sequence) for sequence in self._feed_due(monitor, until)]
        monitor.forget(time_from_key(until))
        self._save_monitor(monitor)
        return iter([Row(**row) for row in completed])

    def _feed_due(self, monitor: Monitor, until: int) -> Iterator[Sequence]:
        """Feeds the held rows up to a time, in order, and holds the others."""
        held: HeldRows = [(at, steps, text) for (rows,) in self._held.get() for at, steps, text in json.loads(rows)]
        # Spark gives the rows of a micro-batch in no order, so those that are due are sorted here.
        due = [(at, _tie_key(text), text, steps) for at, steps, text in held if at <= until]
        self._hold([row for row in held if row[0] > until])
        for at, _, text, steps in sorted(due):
            yield from feed(monitor, text, at, steps)

    def _hold(self, later: HeldRows) -> None:
        if later:
            self._held.put([(json.dumps(later),)])
            self._set_timer(min(at for at, _, _ in later))
        else:
            self._held.clear()

    def _monitor(self, pattern: str) -> Monitor:
        saved = self._waits.get() if self._waits.exists() else None
        return monitor_of(self._patterns[pattern], json.loads(saved[0]) if saved else [])

    def _save_monitor(self, monitor: Monitor) -> None:
        if not len(monitor):
            self._waits.clear()
            return
        waits = monitor.to_json()
        self._waits.update((json.dumps(waits),))
        if monitor.pattern.within is not None:
            first = Notification.from_json(waits[0][0]["notification"])  # type: ignore[index, call-overload]
            assert first.time is not None
            self._set_timer(time_key(first.time + monitor.pattern.within))

    def _set_timer(self, at: int) -> None:
        # A timer fires when the watermark passes its millisecond. Rounded up, so that the watermark has passed `at`
        # too.
        self._handle.registerTimer(-(-at // 1000))


def _tie_key(text: str) -> OrderKey:
    """The order of notifications that have the same time."""
    fields = json.loads(text)
    return order_key([fields.get(name) for name in ORDER if name != TIME])
