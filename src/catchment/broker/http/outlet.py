"""The outlet of a client of the HTTP side, which overrides what it wants to hear."""

from __future__ import annotations

from collections.abc import Sequence

from catchment.routing.durable.messages import Confirm, TakeEffect, TellLostLog
from catchment.routing.messages import Deliver, DeliverSequence, Gap, Refuse


class QuietOutlet:
    """A `ClientOutlet` that sends nothing. The HTTP response answers a request, so the node need not."""

    __slots__ = ()

    def deliver(self, delivery: Deliver) -> None:
        pass

    def deliver_sequence(self, delivery: DeliverSequence) -> None:
        """There are no patterns over HTTP."""

    def confirm(self, confirm: Confirm) -> None:
        """Publishers over HTTP have no numbers."""

    def take_effect(self, effect: TakeEffect) -> None:
        pass

    def tell_lost_log(self, lost: TellLostLog) -> None:
        pass

    def tell_lost(self, identity: str, count: int) -> None:
        pass

    def tell_gap(self, gap: Gap) -> None:
        pass

    def answer(self, number: int, refusals: Sequence[Refuse]) -> None:
        pass

    def is_behind(self) -> bool:
        """Never: what is not read in time is dropped, or kept, by whoever overrides `deliver`."""
        return False

    def pause(self) -> None:
        """Each request over HTTP is answered before the next one of the same client is made."""

    def resume(self) -> None:
        pass

    def end(self, reason: str) -> None:
        pass
