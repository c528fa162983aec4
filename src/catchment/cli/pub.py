"""`catchment pub`: publishes one notification, or many from standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Final, Literal

from cyclopts import Parameter

from catchment.cli.arguments import parsed_advertisement, parsed_notification
from catchment.cli.client import with_client
from catchment.cli.options import IdentityOption, JsonFlag, UrlOption
from catchment.cli.terminal import BadUsage
from catchment.errors import CatchmentError, InputError
from catchment.model.notification import Notification

if TYPE_CHECKING:
    from catchment.client import Client
    from catchment.model.advertisement import Advertisement

STANDARD_INPUT: Final = "-"
# How many notifications from standard input go to the broker in one request.
BATCH_LINES: Final = 256

ATTRIBUTES_HELP: Final = (
    "The attributes of the notification, each as name=value. A single - reads notifications from standard input, "
    "one JSON object on each line."
)
SOURCE_HELP: Final = (
    "Publish under this name instead of your own. Nobody else at the broker may have it, unless its owner mapped it to "
    "you. A notification from standard input that has a $source keeps it."
)
ACK_HELP: Final = (
    "When the command ends: when the broker has accepted everything, or when a storage has everything on disk."
)
STATE_HELP: Final = (
    "With --ack stored: a file that keeps what is not stored yet. If the command is interrupted, killed, or finds no "
    "broker, run it again with the same file: nothing is lost, and nothing is stored twice."
)
WAIT_HELP: Final = "With --ack stored: give up when nothing was stored for so many seconds."
ADVERTISE_HELP: Final = "Advertise this first. Some networks refuse what was not advertised."


def pub(
    *attributes: Annotated[str, Parameter(help=ATTRIBUTES_HELP, allow_leading_hyphen=True)],
    url: UrlOption = "",
    identity: IdentityOption = None,
    payload: Annotated[
        str | None, Parameter(help="Text to send with the notification. Filters do not see it.", metavar="TEXT")
    ] = None,
    source: Annotated[str | None, Parameter(help=SOURCE_HELP, metavar="NAME")] = None,
    advertise: Annotated[str | None, Parameter(help=ADVERTISE_HELP, metavar="ADVERTISEMENT")] = None,
    ack: Annotated[Literal["accepted", "stored"], Parameter(help=ACK_HELP)] = "accepted",
    state: Annotated[str | None, Parameter(help=STATE_HELP, metavar="FILE")] = None,
    wait: Annotated[float, Parameter(help=WAIT_HELP, metavar="SECONDS")] = 30.0,
    as_json: JsonFlag = False,
) -> int:
    """Publish a notification, or one for each line of standard input.

    Ends when the broker has accepted everything. With --ack stored it ends when everything is on the disk of a storage,
    and says which; with --json it prints that for each notification.
    """
    advertisement = None if advertise is None else parsed_advertisement("--advertise", advertise)
    if ack == "stored":
        lines = _lines(source) if attributes == (STANDARD_INPUT,) else _one(attributes, payload, source)
        return _publish_stored(lines, url, identity or source, advertisement, source, state, wait, as_json)
    if state is not None or as_json:
        raise BadUsage("--state and --json go with --ack stored")
    if attributes == (STANDARD_INPUT,):
        return with_client(url, identity, lambda client: _publish_lines(client, advertisement, source))
    notification = _from(parsed_notification(attributes, b"" if payload is None else payload.encode()), source)

    async def publish(client: Client) -> int:
        await _advertise(client, advertisement, source)
        await client.publish(notification, ack="accepted")
        return 0

    return with_client(url, identity, publish)


def _publish_stored(
    lines: Iterator[tuple[str, Notification | CatchmentError]],
    url: str,
    identity: str | None,
    advertisement: Advertisement | None,
    source: str | None,
    state: str | None,
    wait_s: float,
    as_json: bool,
) -> int:
    from catchment.cli.pub_stored import StoredPublication

    if state is not None and identity is None:
        raise BadUsage("--state belongs to one publisher: give --source NAME or --as NAME")

    async def publish(client: Client) -> int:
        return await StoredPublication(lines, advertisement, source, state, wait_s, as_json).run(client)

    return with_client(url, identity, publish, reconnect=True, state=state, offline=state is not None)


def _one(
    attributes: Sequence[str], payload: str | None, source: str | None
) -> Iterator[tuple[str, Notification | CatchmentError]]:
    # Before anything is connected: what is wrong on the command line is said at once.
    notification = parsed_notification(attributes, b"" if payload is None else payload.encode())
    return iter([("", _from(notification, source))])


def _lines(source: str | None) -> Iterator[tuple[str, Notification | CatchmentError]]:
    for number, line in _numbered_lines():
        try:
            yield f"line {number}", _from(Notification.parse(line), source)
        except CatchmentError as problem:
            yield f"line {number}", problem


async def _advertise(client: Client, advertisement: Advertisement | None, source: str | None) -> None:
    if advertisement is not None:
        await client.advertise(advertisement, identity=source)


def _from(notification: Notification, source: str | None) -> Notification:
    return notification if notification.source is not None else notification.stamped(source=source)


async def _publish_lines(client: Client, advertisement: Advertisement | None, source: str | None) -> int:
    await _advertise(client, advertisement, source)
    bad_lines = published = 0
    batch: list[tuple[int, Notification]] = []
    for number, line in _numbered_lines():
        try:
            batch.append((number, _from(Notification.parse(line), source)))
        except CatchmentError as problem:
            bad_lines += 1
            print(f"line {number}: {problem}", file=sys.stderr)
        if len(batch) >= BATCH_LINES:
            published += (taken := await _taken(client, batch))
            bad_lines += len(batch) - taken
            batch = []
    published += (taken := await _taken(client, batch))
    bad_lines += len(batch) - taken
    rest = f", {bad_lines:,} bad lines" if bad_lines else ""
    print(f"{published:,} notifications published{rest}", file=sys.stderr)
    return 1 if bad_lines else 0


async def _taken(client: Client, batch: Sequence[tuple[int, Notification]]) -> int:
    """Publishes lines, and returns how many the broker has taken; those that it refuses are printed."""
    import asyncio

    if all(notification.source is None and notification.seq is None for _, notification in batch):
        await client.publish([notification for _, notification in batch], ack="accepted")
        return len(batch)
    # Each on its own: the broker refuses a publication as a whole if one of its sources or numbers is not good.
    publishing = [client.publish(notification, ack="accepted") for _, notification in batch]
    answers = await asyncio.gather(*publishing, return_exceptions=True)
    for (number, _), answer in zip(batch, answers, strict=True):
        if isinstance(answer, InputError):
            print(f"line {number}: {answer}", file=sys.stderr)
        elif isinstance(answer, BaseException):
            raise answer
    return answers.count(None)


def _numbered_lines() -> Iterator[tuple[int, str]]:
    return ((number, line) for number, line in enumerate(sys.stdin, 1) if line.strip())
