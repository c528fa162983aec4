"""`catchment explain`: asks a broker which of its subscriptions match a notification, and why the others do not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from catchment.cli.arguments import parsed_notification
from catchment.cli.client import with_client
from catchment.cli.options import JsonFlag, UrlOption
from catchment.cli.terminal import console

if TYPE_CHECKING:
    from catchment.client import Client


def explain(
    *attributes: Annotated[str, Parameter(help="The attributes of a notification, each as name=value.")],
    url: UrlOption = "",
    as_json: JsonFlag = False,
) -> int:
    """Say for each subscription at a broker whether a notification matches it, and if not, which clause fails."""
    notification = parsed_notification(attributes)

    async def ask(client: Client) -> int:
        verdicts = await client.look("explain", notification)
        if as_json:
            print(json.dumps(verdicts, ensure_ascii=False))
        else:
            _print_verdicts(client.broker, verdicts)
        return 0

    return with_client(url, None, ask)


def _print_verdicts(broker: str, verdicts: list[dict[str, Any]]) -> None:
    """Prints a verdict on each subscription, with `identity`, `subscription`, `matches`, `filter`, `explanation`."""
    out = console()
    if not verdicts:
        out.print(f"the clients of {broker} have no subscriptions")
    for verdict in verdicts:
        words = "matches" if verdict["matches"] else "does not match"
        out.print(f"{verdict['identity']} {verdict['subscription']} {words}: {verdict['filter']}", soft_wrap=True)
        if not verdict["matches"]:
            out.print(f"    {verdict['explanation']}", soft_wrap=True)
