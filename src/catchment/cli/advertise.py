"""`catchment advertise`: an advertisement that lasts as long as the command runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from catchment.cli.arguments import parsed_advertisement
from catchment.cli.client import with_client
from catchment.cli.options import IdentityOption, UrlOption

if TYPE_CHECKING:
    from catchment.client import Client


def advertise(
    advertisement: Annotated[str, Parameter(help="What you may publish: \"kind = 'alarm', level any\".")],
    /,
    *,
    url: UrlOption = "",
    identity: IdentityOption = None,
) -> int:
    """Advertise what you may publish, until you interrupt the command."""
    parsed = parsed_advertisement("ADVERTISEMENT", advertisement)

    async def hold(client: Client) -> int:
        import asyncio

        await client.advertise(parsed)
        print(f"advertised at {client.broker} as {client.identity} until interrupted: {parsed}", file=sys.stderr)
        # The broker drops the advertisement when we disconnect: wait until somebody interrupts us.
        await asyncio.Event().wait()
        return 0

    return with_client(url, identity, hold, reconnect=True)
