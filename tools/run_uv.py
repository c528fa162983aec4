"""Runs uv with the package index that pip is configured with: python tools/run_uv.py pip install …

uv reads neither pip's configuration files nor its environment variables. So this asks pip (`pip config list`) and sets
uv's environment variables to the same; the project itself names no index. Where pip has no configuration, nothing is
set, and both use the same default. Where uv has settings of its own in the environment, these stay.

It runs before anything but uv is installed, so it uses the standard library alone.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

# The sections of pip's configuration that hold for `pip install`. Of two that set the same option, the first decides.
SECTIONS = (":env:", "install", "global")
YES = ("1", "on", "true", "y", "yes")
# uv's own ways to be told where packages are. Who uses one of them means uv, not pip.
PLACES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_CONFIG_FILE")


def options(listing: str) -> dict[str, str]:
    """What `pip config list` says for `pip install`: lines such as global.timeout='60'."""
    values: dict[tuple[str, str], str] = {}
    for line in listing.splitlines():
        key, _, value = line.partition("=")
        section, _, option = key.rpartition(".")
        values[section, option] = str(ast.literal_eval(value))
    return {option: values[section, option] for section in reversed(SECTIONS) for at, option in values if at == section}


def is_there(place: str) -> bool:
    """Whether it is an address or a directory that exists: where one is missing, pip goes on and uv stops."""
    return "://" in place or Path(place).expanduser().exists()


def place_variables(configured: Mapping[str, str]) -> dict[str, str]:
    """Where packages are. pip takes the best version that any index has, and so shall uv."""
    variables: dict[str, str] = {}
    if index := configured.get("index-url"):
        variables["UV_DEFAULT_INDEX"] = index
    if indexes := configured.get("extra-index-url", "").split():
        variables["UV_INDEX"] = " ".join(indexes)
        variables["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    if places := [place for place in configured.get("find-links", "").split() if is_there(place)]:
        variables["UV_FIND_LINKS"] = ",".join(places)
    return variables


def connection_variables(configured: Mapping[str, str]) -> dict[str, str]:
    """How to reach them."""
    variables: dict[str, str] = {}
    if hosts := configured.get("trusted-host", "").split():
        variables["UV_INSECURE_HOST"] = " ".join(hosts)
    if certificates := configured.get("cert"):
        variables["SSL_CERT_FILE"] = certificates
    if proxy := configured.get("proxy"):
        variables["ALL_PROXY"] = proxy if "://" in proxy else f"http://{proxy}"
    if seconds := configured.get("timeout", configured.get("default-timeout")):
        variables["UV_HTTP_TIMEOUT"] = str(max(1, round(float(seconds))))
    return variables


def environment(configured: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """The environment for uv; `own` is the one that this process has, and what it sets stays."""
    places = {} if any(name in own for name in PLACES) else place_variables(configured)
    return connection_variables(configured) | places | dict(own)


def arguments(configured: Mapping[str, str], given: Sequence[str]) -> list[str]:
    """uv has no variable for pip's no-index, only an option."""
    return [*given, "--no-index"] if configured.get("no-index", "").lower() in YES else list(given)


def main(given: Sequence[str]) -> int:
    listing = subprocess.run([sys.executable, "-m", "pip", "config", "list"], check=True, stdout=subprocess.PIPE)
    configured = options(listing.stdout.decode())
    uv = Path(sys.executable).with_name("uv")
    return subprocess.call([uv, *arguments(configured, given)], env=environment(configured, os.environ))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
