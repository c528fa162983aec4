"""`catchment serve`: runs a broker, configured by a file, by options, or by nothing."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from cyclopts import Parameter

from catchment.cli.options import JsonFlag
from catchment.cli.terminal import EXIT_INTERRUPTED, BadUsage
from catchment.errors import InputError
from catchment.routing.systems import DEFAULT_SYSTEM, live_systems

if TYPE_CHECKING:
    from catchment.broker.config import Config, StoreConfig
    from catchment.broker.logs import LogFormat
    from catchment.broker.server import Broker

CONFIG_HELP: Final = "A TOML file. Default: a broker that is reached only from this machine."
HTTP_HELP: Final = "Where the broker speaks HTTP. Default: it does not."
HOST_HELP: Final = (
    "A name of this broker over HTTP, as it stands in a browser's address line, besides its address and localhost. "
    "You can repeat the option."
)
ROUTING_HELP: Final = (
    f"The routing system, the same in the whole network: {', '.join(live_systems())}. Default: {DEFAULT_SYSTEM}."
)
SET_HELP: Final = "A setting of the routing system, as in master=north. You can repeat the option."
STORE_HELP: Final = (
    "Keep what durable subscribers are due in this store: a path, sqlite:///PATH or postgresql://HOST/DATABASE. "
    "Default: the broker keeps nothing."
)
STORAGE_HELP: Final = "Without --store: the broker that keeps what is published here. Default: the nearest storage."
NEIGHBOR_HELP: Final = "A broker to connect to. You can repeat the option."


def serve(
    config: Annotated[str | None, Parameter(help=CONFIG_HELP)] = None,
    /,
    *,
    name: Annotated[str | None, Parameter(help="The broker's name, unique in the network.", metavar="NAME")] = None,
    listen: Annotated[str | None, Parameter(help="Where the broker listens.", metavar="HOST:PORT")] = None,
    http: Annotated[str | None, Parameter(help=HTTP_HELP, metavar="HOST:PORT")] = None,
    allowed_host: Annotated[list[str] | None, Parameter(help=HOST_HELP, metavar="NAME", negative="")] = None,
    neighbor: Annotated[list[str] | None, Parameter(help=NEIGHBOR_HELP, metavar="HOST:PORT", negative="")] = None,
    routing: Annotated[str | None, Parameter(help=ROUTING_HELP, metavar="NAME")] = None,
    setting: Annotated[
        list[str] | None, Parameter(name="--set", help=SET_HELP, metavar="NAME=VALUE", negative="")
    ] = None,
    store: Annotated[str | None, Parameter(help=STORE_HELP, metavar="URL")] = None,
    storage: Annotated[str | None, Parameter(help=STORAGE_HELP, metavar="NAME")] = None,
    log: Annotated[Literal["human", "json"], Parameter(help="How to write logs, to standard error.")] = "human",
    as_json: JsonFlag = False,
) -> int:
    """Run a broker until you interrupt it.

    On the first interrupt it delivers what waits and then ends. On the second it ends at once.
    """
    options = {
        "name": name,
        "listen": listen,
        "http": http,
        "allowed_hosts": allowed_host,
        "neighbors": neighbor,
        "routing": routing,
        "settings": setting,
        "store": store,
        "storage": storage,
    }
    return run_serve(config, options, log, as_json)


def run_serve(config: str | None, options: dict[str, Any], log: LogFormat, as_json: bool) -> int:
    from catchment.broker.logs import set_up
    from catchment.broker.run import run_broker

    chosen = _config(config, options)
    set_up(log, sys.stderr)
    try:
        has_drained = run_broker(chosen, lambda broker: _say_ready(broker, as_json))
    except OSError as problem:
        addresses = " or ".join(str(address) for address in (chosen.listen, chosen.http) if address is not None)
        raise BadUsage(
            f"cannot listen at {addresses}: {problem.strerror or problem}\n"
            "choose another address with --listen or --http, or stop the program that uses it"
        ) from None
    return 0 if has_drained else EXIT_INTERRUPTED


def _config(path: str | None, options: dict[str, Any]) -> Config:
    """The configuration of a file, or the default one; options that were given replace what it says."""
    from catchment.broker.config import DEFAULT_HTTP_PORT, DEFAULT_PORT, Address, Config, read_config
    from catchment.sim.scenarios.settings import assigned

    try:
        config = Config() if path is None else read_config(Path(path))
        changes = {name: value for name, value in options.items() if value}
        for name, port in (("listen", DEFAULT_PORT), ("http", DEFAULT_HTTP_PORT)):
            if name in changes:
                changes[name] = Address.parse(changes[name], port)
        if "neighbors" in changes:
            # Neighbors and hosts alone are added to those of the file, not put in their place.
            changes["neighbors"] = (*config.neighbors, *map(Address.parse, changes["neighbors"]))
        if "allowed_hosts" in changes:
            changes["allowed_hosts"] = (*config.allowed_hosts, *changes["allowed_hosts"])
        if "store" in changes or "storage" in changes:
            changes["store"] = _store_config(config.store, changes.pop("store", ""), changes.pop("storage", ""))
        if "settings" in changes:
            routing = changes.get("routing", config.routing)
            changes["settings"] = {**config.settings, **assigned([routing], changes["settings"])[routing]}
        config = replace(config, **changes)
        # A core that cannot be made is bad usage: find it before the broker listens.
        config.make_core()
    except InputError as problem:
        raise BadUsage(str(problem)) from None
    return config


def _store_config(given: StoreConfig, url: str, storage: str) -> StoreConfig:
    """What the file says, with a store in the place of a storage, or the other way round."""
    from msgspec.structs import replace as changed

    from catchment.broker.config import StoreConfig

    if url and storage:
        raise InputError("give either --store or --storage: a broker that has a store keeps what is published there")
    return changed(given, url=url, storage="") if url else StoreConfig(storage=storage)


def _say_ready(broker: Broker, as_json: bool) -> None:
    config = broker.config
    if as_json:
        ready = {"name": config.name, "address": str(broker.address), "routing": config.routing}
        http = {} if broker.http is None else {"http": str(broker.http.address)}
        store = {"store": config.store.url} if config.store.url else {}
        print(json.dumps({**ready, **http, **store}), flush=True)
        return
    print(f"{config.name} is listening at catchment://{broker.address} ({config.routing})", flush=True)
    print(f'try:  catchment sub "level > 3" --url {broker.address}', flush=True)
    print(f"      catchment pub level=5 --url {broker.address}", flush=True)
