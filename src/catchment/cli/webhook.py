"""`catchment webhook`: subscriptions that a broker pushes to a URL, and what their sinks did not accept."""

from __future__ import annotations

import json
import sys
import time
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote

from cyclopts import App, Parameter

from catchment.cli.http import HttpBroker, HttpOption
from catchment.cli.options import JsonFlag, flag
from catchment.cli.terminal import EXIT_FAILED, BadUsage

# How long `add` waits for the sink's answer to the handshake before it prints what there is.
HANDSHAKE_S_MAX: Final = 5.0
_LOOK_S: Final = 0.1

HELP: Final = "Push notifications to a URL: list, add and remove webhooks, and see what their sinks did not accept."
FILTER_HELP: Final = "Only what matches this filter. You can repeat the option: then all must match."
TYPE_HELP: Final = "Only CloudEvents of this type. You can repeat the option: then one must fit."
HEADER_HELP: Final = "A header to send with each notification, as in 'X-Team: shop'. You can repeat the option."
RATE_HELP: Final = "Ask the sink for this many requests a minute. Default: as many as it allows."
TOKEN_HELP: Final = "A file with an access token to send with each notification. Needs --token-until."
UNTIL_HELP: Final = "When the access token expires, as in 2027-01-01T00:00:00Z."

IdArgument = Annotated[str, Parameter(help="The id of a webhook.", metavar="ID")]
NumberArgument = Annotated[int | None, Parameter(help="The number of a dead letter. Default: all.", metavar="NUMBER")]

webhook: Final = App(name="webhook", help=HELP)


@webhook.command(name="list")
def list_webhooks(*, http: HttpOption = "", as_json: JsonFlag = False) -> int:
    """List the webhooks of a broker, and how each is doing."""
    for resource in HttpBroker(http).pages("/subscriptions?kind=webhook"):
        print(json.dumps(resource) if as_json else _line(resource), flush=True)
    return 0


@webhook.command
def add(
    sink: Annotated[str, Parameter(help="Where to send: a URL with https:.", metavar="URL")],
    /,
    *,
    id: Annotated[str, Parameter(name="--id", help="The webhook's id. Default: a new one.", metavar="ID")] = "",
    filter: Annotated[list[str] | None, Parameter(name="--filter", help=FILTER_HELP, negative="")] = None,
    sql: Annotated[list[str] | None, Parameter(help="The same in CESQL.", negative="")] = None,
    type: Annotated[list[str] | None, Parameter(name="--type", help=TYPE_HELP, negative="")] = None,
    source: Annotated[str, Parameter(help="Only CloudEvents of this source.")] = "",
    mode: Annotated[Literal["binary", "structured"], Parameter(help="How a CloudEvent is sent.")] = "binary",
    header: Annotated[list[str] | None, Parameter(help=HEADER_HELP, negative="", metavar="NAME: VALUE")] = None,
    rate: Annotated[int | None, Parameter(help=RATE_HELP)] = None,
    token: Annotated[str, Parameter(help=TOKEN_HELP, metavar="FILE")] = "",
    token_until: Annotated[str, Parameter(help=UNTIL_HELP, metavar="TIME")] = "",
    http: HttpOption = "",
    as_json: JsonFlag = False,
) -> int:
    """Make a webhook: from now on the broker sends what matches to the URL.

    The sink must agree before anything is sent. What is published meanwhile waits.
    """
    filters = [{"catchment": text} for text in filter or ()] + [{"sql": text} for text in sql or ()]
    wanted: dict[str, Any] = {"filters": filters, "types": type, "source": source, "id": id}
    given = {name: value for name, value in wanted.items() if value}
    settings = {"headers": dict(map(_header, header or ()))}
    config = {"mode": mode} | ({} if rate is None else {"rate": rate})
    given |= {"sink": sink, "protocol": "HTTP", "protocolsettings": settings, "config": config}
    if token:
        given["sinkCredential"] = _credential(token, token_until)
    broker = HttpBroker(http)
    made = _once_settled(broker, broker.ask("POST", "/subscriptions", given))
    print(json.dumps(made) if as_json else _line(made), flush=True)
    return 0


@webhook.command
def remove(id: IdArgument, /, *, http: HttpOption = "", as_json: JsonFlag = False) -> int:
    """Delete a webhook, with what waits for it and its dead letters."""
    removed = HttpBroker(http).ask("DELETE", _path(id))
    print(json.dumps(removed) if as_json else f"{id} is removed")
    return 0


@webhook.command
def dead(
    id: IdArgument,
    number: NumberArgument = None,
    /,
    *,
    drop: Annotated[bool, flag("Delete them instead of showing them.")] = False,
    http: HttpOption = "",
    as_json: JsonFlag = False,
) -> int:
    """Show what the sink of a webhook did not accept: the dead letters, or one with its event."""
    broker, path = HttpBroker(http), f"{_path(id)}/dead" + ("" if number is None else f"/{number}")
    if drop:
        dropped = broker.ask("DELETE", path)
        print(json.dumps(dropped) if as_json else f"dropped {dropped['dropped']:,}")
    elif number is not None:
        print(json.dumps(broker.ask("GET", path), indent=None if as_json else 2))
    else:
        for letter in broker.pages(path):
            print(json.dumps(letter) if as_json else _dead_line(letter), flush=True)
    return 0


@webhook.command
def resend(
    id: IdArgument, number: NumberArgument = None, /, *, http: HttpOption = "", as_json: JsonFlag = False
) -> int:
    """Send a dead letter again, or all, in order, until the sink does not accept one."""
    path = f"{_path(id)}/dead" + ("" if number is None else f"/{number}")
    answer = HttpBroker(http).ask("POST", f"{path}/resend")
    if as_json:
        print(json.dumps(answer))
    elif number is None:
        print(f"sending {answer['resending']:,} again: catchment webhook dead {id} shows what is left")
    else:
        print(f"the sink has accepted dead letter {number}")
    return 0


@webhook.command
def validate(id: IdArgument, /, *, http: HttpOption = "", as_json: JsonFlag = False) -> int:
    """Ask the sink again whether it agrees, and say what it answered."""
    broker = HttpBroker(http)
    settled = _once_settled(broker, broker.ask("POST", f"{_path(id)}/validate"))
    print(json.dumps(settled) if as_json else _line(settled))
    return 0 if settled["status"]["state"] != "asking" else EXIT_FAILED


def _path(id: str) -> str:
    return f"/subscriptions/{quote(id, safe='')}"


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        raise BadUsage(f"--header {text!r}: write it as 'NAME: VALUE'")
    return name.strip(), value.strip()


def _credential(file: str, until: str) -> dict[str, str]:
    """The token comes from a file: what stands in a command line can be read by others."""
    if not until:
        raise BadUsage("--token needs --token-until: when does the token expire?")
    with sys.stdin if file == "-" else open(file, encoding="utf-8") as source:
        token = source.read().strip()
    return {
        "credentialType": "ACCESSTOKEN",
        "accessToken": token,
        "accessTokenType": "bearer",
        "accessTokenExpiresUtc": until,
    }


def _once_settled(broker: HttpBroker, resource: dict[str, Any]) -> dict[str, Any]:
    """The webhook once its sink has answered the handshake, or as it is after a while."""
    until = time.monotonic() + HANDSHAKE_S_MAX
    while resource["status"]["state"] == "asking" and not resource["status"]["problem"] and time.monotonic() < until:
        time.sleep(_LOOK_S)
        resource = broker.ask("GET", _path(resource["id"]))
    return resource


def _line(resource: dict[str, Any]) -> str:
    status = resource["status"]
    counts = f"{status['delivered']:,} delivered, {status['waiting']:,} waiting, {status['dead']:,} dead"
    problem = f": {status['problem']}" if status["problem"] else ""
    return f"{resource['id']}  {resource['sink']}  {status['state']}  {counts}{problem}"


def _dead_line(letter: dict[str, Any]) -> str:
    event = f"{letter['event_source']} {letter['event_id']} ({letter['event_type']})"
    return f"{letter['number']}  {letter['at']}  {event}  after {letter['attempts']} attempts: {letter['reason']}"
