"""`catchment store`: looks at the store of a broker, checks it, and mends what can be mended."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from catchment.cli.options import JsonFlag
from catchment.cli.terminal import EXIT_FAILED, BadUsage, console, note

if TYPE_CHECKING:
    from catchment.store.interface import StoreStatus

Action = Literal["status", "check", "forget", "accept-loss"]


def store(
    action: Annotated[Action, Parameter(help="What to do; see above.", show_choices=True)],
    url: Annotated[str, Parameter(help="A path, sqlite:///path or postgresql://host/name.", metavar="STORE")],
    identity: Annotated[str | None, Parameter(help="With forget: whom to forget.")] = None,
    /,
    *,
    as_json: JsonFlag = False,
) -> int:
    """Look at the store of a broker: status, check, forget IDENTITY, accept-loss.

    status lists the identities, what waits for each, and what was lost. check reads everything and compares it with its
    hashes; it ends with code 1 if something is wrong. Both also work while a broker has the store open.

    forget deletes an identity that will never come back, with all that waits for it. accept-loss goes on after a loss
    with what is whole, under a new log id. For these two, stop the broker first.
    """
    if (identity is None) == (action == "forget"):
        raise BadUsage("store forget needs an identity, as in: catchment store forget broker.db ada; others have none")
    match action:
        case "status":
            return _status(url, as_json)
        case "check":
            return _check(url, as_json)
        case "forget":
            return _forget(url, str(identity), as_json)
        case "accept-loss":
            return _accept_loss(url, as_json)


def _status(url: str, as_json: bool) -> int:
    from msgspec import to_builtins

    from catchment.store.maintenance import store_status

    status = store_status(url)
    if as_json:
        print(json.dumps(to_builtins(status)))
    else:
        _print_status(status)
    return 0


def _print_status(status: StoreStatus) -> None:
    from rich.table import Table

    from catchment.routing.messages import instant_of

    print(f"{status.url}, log {status.log}")
    print(f"{status.records:,} records, {status.bytes:,} bytes; epochs {status.anchor + 1:,} to {status.head:,}")
    if status.quarantined:
        print(f"{status.quarantined:,} records were found damaged and set aside")
    if not status.identities:
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("identity", "waiting", "oldest", "acknowledged", "lost"):
        table.add_column(heading, justify="left" if heading in ("identity", "oldest") else "right")
    for each in status.identities:
        oldest = "" if each.oldest is None else instant_of(each.oldest).isoformat(sep=" ", timespec="seconds")
        table.add_row(each.identity, f"{each.waiting:,}", oldest, f"{each.acknowledged:,}", f"{each.lost:,}")
    console().print(table)


def _check(url: str, as_json: bool) -> int:
    from msgspec import to_builtins
    from rich.progress import Progress

    from catchment.store.maintenance import check_store

    errors = console(stderr=True)
    with Progress(console=errors, disable=as_json or not errors.is_terminal, transient=True) as bar:
        task = bar.add_task("checking", total=None)
        examination = check_store(url, lambda done, all: bar.update(task, completed=done, total=all))
    if as_json:
        print(json.dumps(to_builtins(examination)))
    else:
        for problem in examination.problems:
            print(problem)
        if examination.more:
            print(f"and {examination.more:,} more")
        verdict = "something is wrong" if examination.problems else "all is whole"
        print(f"{examination.url}: {examination.records:,} records checked, {verdict}")
    return EXIT_FAILED if examination.problems else 0


def _forget(url: str, identity: str, as_json: bool) -> int:
    from catchment.store.maintenance import forget_identity

    waiting = forget_identity(url, identity)
    if as_json:
        print(json.dumps({"identity": identity, "waiting": waiting}))
    else:
        print(f"{identity} is forgotten; {waiting:,} records were waiting for it")
    return 0


def _accept_loss(url: str, as_json: bool) -> int:
    from msgspec import to_builtins

    from catchment.store.maintenance import accept_loss

    rebuilt = accept_loss(url)
    if as_json:
        print(json.dumps(to_builtins(rebuilt)))
        return 0
    print(f"{rebuilt.url} goes on as log {rebuilt.log}, with {rebuilt.records:,} records up to epoch {rebuilt.head:,}")
    print(f"missing: {rebuilt.missing:,} records, {rebuilt.rows:,} rows of small tables")
    if rebuilt.kept_as:
        note(f"what was there before is kept as {rebuilt.kept_as}")
    return 0
