"""`catchment serve`: a broker, from a file or from nothing."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catchment.cli.terminal import EXIT_INTERRUPTED, BadUsage
from catchment.errors import InputError

if TYPE_CHECKING:
    from catchment.broker.config import Config
    from catchment.broker.logs import LogFormat
    from catchment.broker.server import Broker


def run_serve(config: str | None, given: dict[str, Any], log: LogFormat, as_json: bool) -> int:
    from catchment.broker.logs import set_up
    from catchment.broker.run import run_broker

    chosen = _config(config, given)
    set_up(log, sys.stderr)
    try:
        has_drained = run_broker(chosen, lambda broker: _say_ready(broker, as_json))
    except OSError as problem:
        raise BadUsage(f"cannot listen at {chosen.listen}: {problem.strerror or problem}") from None
    return 0 if has_drained else EXIT_INTERRUPTED


def _config(path: str | None, given: dict[str, Any]) -> Config:
    from catchment.broker.config import DEFAULT_HTTP_PORT, DEFAULT_PORT, Address, Config, read_config

    try:
        found = Config() if path is None else read_config(Path(path))
        changes = {name: value for name, value in given.items() if value}
        for name, port in (("listen", DEFAULT_PORT), ("http", DEFAULT_HTTP_PORT)):
            if name in changes:
                changes[name] = Address.parse(changes[name], port)
        if "neighbors" in changes:
            changes["neighbors"] = (*found.neighbors, *map(Address.parse, changes["neighbors"]))
        found = replace(found, **changes)
        found.make_core()
    except InputError as problem:
        raise BadUsage(str(problem)) from None
    return found


def _say_ready(broker: Broker, as_json: bool) -> None:
    config = broker.config
    if as_json:
        print(json.dumps({"name": config.name, "address": str(broker.address), "routing": config.routing}), flush=True)
        return
    print(f"{config.name} is listening at catchment://{broker.address} ({config.routing})", flush=True)
    print(f'try:  catchment sub "level > 3" --url {broker.address}', flush=True)
    print(f"      catchment pub level=5 --url {broker.address}", flush=True)
