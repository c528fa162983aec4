"""Publications of one read of a client's connection: which of them the node admits, and which answer each gets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from catchment.errors import CatchmentError
from catchment.model.notification import Notification
from catchment.routing.messages import Client, Refuse

# The number of its answer, or 0 if the client does not wait for one; and the notifications.
Publication = tuple[int, Sequence[Notification]]


class Publications:
    """`admit` checks the notifications of a publication, and returns them with what they lacked; CatchmentError if the
    publication is refused, as a whole."""

    def __init__(
        self,
        client: Client,
        publications: Sequence[Publication],
        admit: Callable[[Sequence[Notification]], Sequence[Notification]],
    ) -> None:
        self._checked: list[Publication] = []
        # By place: those that are refused before the core sees them.
        self._refused_before: dict[int, Refuse] = {}
        self.admitted: list[Notification] = []
        self.refused_count = 0
        for place, (number, batch) in enumerate(publications):
            try:
                taken = admit(batch)
                self.admitted += taken
                self._checked.append((number, taken))
            except CatchmentError as problem:
                self.refused_count += len(batch)
                self._refused_before[place] = Refuse(client, problem)
                self._checked.append((number, ()))

    def answers(self, refusals: Sequence[Refuse]) -> Iterator[tuple[int, list[Refuse]]]:
        """What the client is answered, given what the core has refused. In the order of the publications: answers come
        in the order in which a client asked."""
        refused_by_core = _by_notification(refusals)
        for place, (number, taken) in enumerate(self._checked):
            refused = [refusal for each in taken for refusal in refused_by_core.pop(id(each), ())]
            if place in self._refused_before:
                refused = [self._refused_before[place]]
            if number or refused:
                yield number, refused


def _by_notification(refusals: Sequence[Refuse]) -> dict[int, list[Refuse]]:
    """By object, not by value: equal notifications may be in several publications. `id` is safe as a key: the core
    returns the very object that it was given, and the caller keeps that object alive."""
    by_notification: dict[int, list[Refuse]] = {}
    for refusal in refusals:
        by_notification.setdefault(id(refusal.notification), []).append(refusal)
    return by_notification
