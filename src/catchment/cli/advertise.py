"""`catchment advertise`: an advertisement that lasts as long as the command runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from catchment.cli.arguments import parsed_advertisement
from catchment.cli.client import with_client
from catchment.cli.options import IdentityOption, UrlOption, flag
from catchment.model.names import HTTP_PUBLISHER

if TYPE_CHECKING:
    from catchment.client import Client

HTTP_HELP: Final = "Let everybody who publishes over HTTP at this broker use your name as a source."


def advertise(
    advertisement: Annotated[str, Parameter(help="What you may publish: \"kind = 'alarm', level any\".")],
    /,
    *,
    url: UrlOption = "",
    identity: IdentityOption = None,
    over_http: Annotated[bool, flag(HTTP_HELP, "--http")] = False,
) -> int:
    """Advertise what you may publish, until you interrupt the command."""
    parsed = parsed_advertisement("ADVERTISEMENT", advertisement)

    async def hold(client: Client) -> int:
        import asyncio

        await client.advertise(parsed)
        if over_http:
            await client.map_identity(client.identity, HTTP_PUBLISHER)
        print(f"advertised at {client.broker} as {client.identity} until interrupted: {parsed}", file=sys.stderr)
        # The broker drops the advertisement when we disconnect: wait until somebody interrupts us.
        await asyncio.Event().wait()
        return 0

    return with_client(url, identity, hold, reconnect=True)
