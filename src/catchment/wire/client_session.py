"""A client's end of the protocol: what was asked and is not answered, and the credit to publish."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from catchment.model.notification import Notification
from catchment.routing.durable.messages import DurableRequest
from catchment.routing.messages import ClientSaid, Said
from catchment.wire.frames import HELLO_BYTES_MAX, VERSION, frame
from catchment.wire.greetings import client_welcome_refusal
from catchment.wire.messages import (
    Accepted,
    Credit,
    Hello,
    Look,
    Publish,
    PublishStored,
    Refused,
    Request,
    Seen,
    Welcome,
)
from catchment.wire.session import Event, Session
from catchment.wire.states import HelloOf, State


class ClientSession(Session):
    """A client's end. LimitError if what it has seen is too long for a `Hello`."""

    def __init__(
        self,
        identity: str,
        seen: Mapping[str, int] | None = None,
        *,
        session: int = 0,
        positions: Mapping[str, int] | None = None,
        storage: str = "",
    ) -> None:
        super().__init__(State.DIALED)
        # How many notifications may be published now.
        self.credit = 0
        hello = Hello(
            (VERSION, VERSION),
            "client",
            identity,
            seen or {},
            session=session,
            positions=positions or {},
            storage=storage,
        )
        self._hello = frame(hello, HELLO_BYTES_MAX)
        self._numbers = itertools.count(1)
        # By number, what is not answered yet: the kind of the answer unless it is `Refused`.
        self._unanswered: dict[int, type[Accepted | Seen]] = {}

    def begin(self, now: float) -> bytes:
        super().begin(now)
        self._change("sends", HelloOf.CLIENT)
        return self._hello

    # --- asking ---

    def ask(self, body: ClientSaid | DurableRequest) -> tuple[int, bytes]:
        """A request: the number that its answer will have, and the frame."""
        return self._asked(Accepted, lambda number: Request(number, body))

    def look(self, what: Literal["status", "explain"], notification: Notification | None) -> tuple[int, bytes]:
        return self._asked(Seen, lambda number: Look(number, what, notification))

    def publish(self, batch: Sequence[Notification], is_answered: bool) -> tuple[int, bytes]:
        """At most `credit` notifications. The number is 0 if the publication is not answered."""
        assert len(batch) <= self.credit, f"{len(batch):,} notifications with a credit of {self.credit:,}"
        notifications = tuple(batch)
        if is_answered:
            asked = self._asked(Accepted, lambda number: Publish(number, notifications))
        else:
            asked = 0, self.say(Publish(0, notifications))
        self.credit -= len(batch)
        return asked

    def publish_stored(self, batch: Sequence[Notification], after: int | None) -> tuple[int, bytes]:
        """At most `credit` notifications of one source, with numbers that grow."""
        assert len(batch) <= self.credit, f"{len(batch):,} notifications with a credit of {self.credit:,}"
        notifications = tuple(batch)
        asked = self._asked(Accepted, lambda number: PublishStored(number, notifications, after))
        self.credit -= len(batch)
        return asked

    def _asked(self, answer: type[Accepted | Seen], message_of: Callable[[int], Said]) -> tuple[int, bytes]:
        number = next(self._numbers)
        # What is too long to be sent is not waited for.
        made = self.say(message_of(number))
        self._unanswered[number] = answer
        return number, made

    # --- answers ---

    def _answered(self, answer: Accepted | Refused | Seen) -> Event:
        if isinstance(answer, Refused) and answer.number == 0:
            # Of a publication without a number.
            return answer
        expected = self._unanswered.pop(answer.number, None)
        if expected is None or not isinstance(answer, Refused | expected):
            return self._ended(f"{type(answer).__name__} {answer.number} answers nothing that was asked")
        return answer

    def _credited(self, credit: Credit) -> Event:
        if credit.notifications < 0:
            return self._ended(f"a credit of {credit.notifications}")
        self.credit += credit.notifications
        return credit

    def _welcomed(self, welcome: Welcome) -> Event:
        if refusal := client_welcome_refusal(welcome):
            return self._ended(refusal, refused_name=welcome.name)
        self._change("receives", Welcome)
        self.credit = welcome.credit
        return welcome

    def _keep_alive(self) -> None:
        """Brokers ping; a client only answers."""

    handlers = {  # noqa: RUF012
        **Session.handlers,
        Welcome: _welcomed,
        Credit: _credited,
        Accepted: _answered,
        Refused: _answered,
        Seen: _answered,
    }
