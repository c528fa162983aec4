"""What the parts of durable delivery at one broker share."""

from __future__ import annotations

from typing import Any, Final

from catchment.routing.durable.reach import Paths
from catchment.routing.durable.sending import Sending
from catchment.routing.durable.settings import DurableSettings
from catchment.routing.durable.storage import Storage
from catchment.routing.durable.table import Table
from catchment.routing.messages import Action, BrokerMessage, Neighbor, Send
from catchment.routing.stored import Opened

# Alarms that are remembered, for status pages.
ALARMS_MAX: Final = 100


class Shared:
    """A broker's name, the core inside, its paths, its table, and its storage; None if it has no store."""

    def __init__(self, name: str, inner: Any, opened: Opened | None, settings: DurableSettings) -> None:
        self.name, self.inner, self.settings = name, inner, settings
        self.paths = Paths(name, "" if opened is None else opened.log)
        self.table = Table(name)
        self.storage: Storage | None = None
        # Why the store takes nothing; empty if it works, or there is none.
        self.store_problem = ""
        # Whether it takes everything but records.
        self.is_full = False
        # What looks like a loss at a storage: texts for people.
        self.alarms: dict[str, None] = {}
        if opened is not None:
            self.open(opened)

    def open(self, opened: Opened) -> Storage:
        """The store works, and has this."""
        sending = Sending(self.name, opened, self.settings, self.is_reached)
        self.storage = Storage(opened, sending, self.settings.acknowledge_us, self.table.due_name)
        self.store_problem = ""
        return self.storage

    @property
    def working_storage(self) -> Storage | None:
        """The storage, if its store works."""
        return None if self.store_problem else self.storage

    def flooded(self, message: BrokerMessage, source: Neighbor | None) -> list[Action]:
        """The message to all neighbors except the one it came from."""
        return [Send(neighbor, message) for neighbor in self.paths.neighbors if neighbor != source]

    def is_reached(self, broker: str) -> bool:
        return broker == self.name or broker in self.paths.reached

    @property
    def refusal(self) -> str:
        """Why no record can be made; empty if it can."""
        return self.store_problem or ("it is full" if self.is_full else "")

    def alarm(self, text: str) -> None:
        self.alarms[text] = None
        if len(self.alarms) > ALARMS_MAX:
            del self.alarms[next(iter(self.alarms))]
