"""The pages of webhooks besides those that all subscriptions have: dead letters, and the permission of the sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute

from catchment.broker.http.problems import answer, problem
from catchment.broker.http.requests import limit_of, number_of, path
from catchment.model.values import format_time
from catchment.routing.messages import instant_of
from catchment.store.http_tables import DeadLetter

if TYPE_CHECKING:
    from catchment.broker.http.catalog import Catalog


class WebhookPages:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def routes(self) -> list[BaseRoute]:
        one = "/subscriptions/{id}"
        return [
            path(f"{one}/confirm", GET=self.confirm, POST=self.confirm),
            path(f"{one}/validate", POST=self.validate),
            path(f"{one}/dead", GET=self.list_dead, DELETE=self.drop_all),
            path(f"{one}/dead/resend", POST=self.resend_all),
            path(f"{one}/dead/{{number}}", GET=self.show_dead, DELETE=self.drop),
            path(f"{one}/dead/{{number}}/resend", POST=self.resend),
        ]

    # --- permission ---

    async def confirm(self, request: Request) -> Response:
        """The callback of the handshake. A wrong key and an unknown webhook look the same: nobody learns which there
        are."""
        id, key = request.path_params["id"], request.query_params.get("key", "")
        webhooks = self._catalog.webhooks
        if id not in webhooks or not await webhooks.confirm(id, key, request.headers):
            return problem(404, "there is no such webhook, or the key is wrong")
        return PlainTextResponse("Thank you: this broker will send notifications to the sink.\n")

    async def validate(self, request: Request) -> Response:
        """Asks the sink again, and answers at once."""
        running = self._catalog.webhooks[request.path_params["id"]]
        running.webhook.ask_again()
        return answer(running.resource, 202)

    # --- dead letters ---

    async def list_dead(self, request: Request) -> Response:
        id, limit = request.path_params["id"], limit_of(request)
        after = number_of(request.query_params.get("after", "0"), "after")
        letters = await self._catalog.webhooks.dead(id, after, limit + 1)
        page = letters[:limit]
        link = f'</subscriptions/{id}/dead?limit={limit}&after={page[-1].number}>; rel="next"' if page else ""
        return answer([_head(letter) for letter in page], headers={"Link": link} if len(letters) > limit else {})

    async def show_dead(self, request: Request) -> Response:
        letter = await self._catalog.webhooks.letter(request.path_params["id"], _number(request))
        return answer({**_head(letter), "event": msgspec.Raw(letter.body)})

    async def resend(self, request: Request) -> Response:
        """Answers when the sink has accepted it, and 502 if it did not."""
        await self._catalog.webhooks.resend(request.path_params["id"], _number(request))
        return answer({"resent": 1})

    async def resend_all(self, request: Request) -> Response:
        return answer({"resending": await self._catalog.webhooks.resend_all(request.path_params["id"])}, 202)

    async def drop(self, request: Request) -> Response:
        id, number = request.path_params["id"], _number(request)
        await self._catalog.webhooks.letter(id, number)
        return answer({"dropped": await self._catalog.webhooks.drop(id, number)})

    async def drop_all(self, request: Request) -> Response:
        return answer({"dropped": await self._catalog.webhooks.drop(request.path_params["id"], None)})


def _number(request: Request) -> int:
    return number_of(request.path_params["number"], "the number of a dead letter")


def _head(letter: DeadLetter) -> dict[str, Any]:
    """What a list shows of a dead letter: all but the event, of which it has what names it."""
    event = msgspec.json.decode(letter.body)
    return {
        "number": letter.number,
        "at": format_time(instant_of(letter.at)),
        "attempts": letter.attempts,
        "reason": letter.reason,
        "event_id": event["id"],
        "event_source": event["source"],
        "event_type": event["type"],
        "bytes": len(letter.body),
    }
