"""The scenario files of two of the texts, read as they stand.

SIENA, Figure 25: `servers = acyclic adv_fwd;` and sections `objects { … };` and `parties { … };` of settings
`name = value;`. An event is an attribute `event` of that name.

Filter propagation, Figure 4.2: lines `experiment`, `publishers … { tags }` and `subscribers … { filters }`. The text
draws networks from files of another program; here it is 100 sites, transit-stub. What is only for drawing or for its
own routing (colour, filter timeout) is read and left.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from catchment.errors import InputError, shown
from catchment.model.filter import Advertisement, Filter
from catchment.model.values import Value
from catchment.sim.scenarios.scenario import Drawn, Publishers, Scenario, Subscribers, scenario_from_toml

_NETWORK: Final = "transit-stub 100"
_SERVERS: Final = {
    "hierarchical sub_fwd": "siena hierarchical",
    "hierarchical": "siena hierarchical",
    "acyclic sub_fwd": "siena acyclic",
    "acyclic adv_fwd": "siena advertising",
    "general sub_fwd": "siena general",
}
_STYLES: Final = {"propagate": "siena general", "flood": "flooding"}

_SECTION: Final = re.compile(r"(\w+)\s*\{([^}]*)\}\s*;?")
_SETTING: Final = re.compile(r"([\w/]+)\s*=\s*(\"[^\"]*\"|[^;]+);")
_BLOCK: Final = re.compile(r"(publishers|subscribers)\s+([^{]*)\{([^}]*)\}")


def read_scenario(path: Path) -> Scenario:
    """A scenario in whichever notation a file has."""
    if path.suffix == ".toml":
        return scenario_from_toml(path)
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(f"{path} cannot be read: {problem}") from None
    if re.search(r"^\s*servers\s*=", text, re.MULTILINE):
        return siena_scenario(text)
    if re.search(r"^\s*experiment\s", text, re.MULTILINE):
        return propagation_scenario(text)
    raise InputError(f"{path} is no scenario: TOML, or begins with `servers = …;` or `experiment …`")


# --- SIENA --------------------------------------------------------------------------------------


def siena_scenario(text: str) -> Scenario:
    """The notation of Figure 25."""
    sections = [(name, dict(_SETTING.findall(body))) for name, body in _SECTION.findall(text)]
    top = dict(_SETTING.findall(_SECTION.sub("", text)))
    servers = " ".join(top.get("servers", "").split())
    if servers not in _SERVERS:
        raise InputError(f"servers = {shown(servers)}: use one of {', '.join(_SERVERS)}")
    if unknown := [name for name, _ in sections if name not in ("objects", "parties")]:
        raise InputError(f"a section {shown(unknown[0])}: there are objects and parties")
    return Scenario(
        core=_SERVERS[servers],
        network=top.get("network", _NETWORK).strip().strip('"'),
        seed=_integer(top, "seed", 1),
        publishers=tuple(_objects(body) for name, body in sections if name == "objects"),
        subscribers=tuple(_parties(body) for name, body in sections if name == "parties"),
    )


def _objects(body: Mapping[str, str]) -> Publishers:
    low, _, high = body.get("time/pub", "1000").partition("~")
    return Publishers(
        count=_integer(body, "number", 1),
        attributes={"event": _quoted(body, "event")},
        advertises=Advertisement.of(("event", "=", _quoted(body, "event"))),
        publications=_integer(body, "pub/adv", 10),
        period_ms=(_number("time/pub", low), _number("time/pub", high or low)),
        cycles=_integer(body, "cycles", 1),
    )


def _parties(body: Mapping[str, str]) -> Subscribers:
    wanted = Filter.of(("event", "=", _quoted(body, "pattern")))
    count = _integer(body, "number", 1)
    return Subscribers(count, (wanted,), _integer(body, "notif/sub", 10), _integer(body, "cycles", 1))


def _quoted(body: Mapping[str, str], name: str) -> str:
    if name not in body:
        raise InputError(f"{name} is missing")
    return body[name].strip().strip('"')


def _integer(body: Mapping[str, str], name: str, otherwise: int) -> int:
    return round(_number(name, body[name])) if name in body else otherwise


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{name} = {shown(text.strip())} is no number") from None


# --- filter propagation -------------------------------------------------------------------------


def propagation_scenario(text: str) -> Scenario:
    """The notation of Figure 4.2."""
    plain = re.sub(r"#.*", "", text)
    head = re.search(r"^\s*experiment\s+(.*)$", plain, re.MULTILINE)
    words = head.group(1).split() if head else []
    if len(words) != 6:
        raise InputError("experiment <groups> <transit> <filtertimeout> <time> <style> <seed>: six words")
    style = words[4]
    if style not in _STYLES:
        raise InputError(f"style {shown(style)}: use one of {', '.join(_STYLES)}")
    blocks = _BLOCK.findall(plain)
    return Scenario(
        core=_STYLES[style],
        network=_NETWORK,
        seed=round(_number("seed", words[5])),
        publishers=tuple(_tagged(words.split(), body) for kind, words, body in blocks if kind == "publishers"),
        subscribers=tuple(_filtered(words.split(), body) for kind, words, body in blocks if kind == "subscribers"),
        stop_s=_number("time", words[3]),
    )


def _tagged(words: list[str], body: str) -> Publishers:
    if len(words) != 7:
        raise InputError("publishers <group> <nodes> <start> <stop> <size> <period> <color> { <tags> }: seven words")
    attributes: dict[str, Value | Drawn] = {"group": round(_number("group", words[0]))}
    for part in filter(None, map(str.split, body.split(","))):
        if len(part) != 4 or part[1] != "random":
            raise InputError(f"a tag {shown(' '.join(part))}: write <name> random <low> <high>")
        attributes[part[0]] = Drawn(_number(part[0], part[2]), _number(part[0], part[3]))
    period = 1_000 * _number("period", words[5])
    start, stop = _number("start", words[2]), _number("stop", words[3])
    return Publishers(
        count=round(_number("nodes", words[1])),
        attributes=attributes,
        publications=max(1, int((stop - start) * 1_000 / period) + 1),
        period_ms=(period, period),
        start_s=start,
        stop_s=stop,
    )


def _filtered(words: list[str], body: str) -> Subscribers:
    if len(words) != 5:
        raise InputError("subscribers <group> <nodes> <start> <stop> <percent> { <filters> }: five words")
    group = Filter.of(("group", "=", round(_number("group", words[0]))))
    texts = [part.replace("&&", " and ").replace("||", " or ") for part in body.split(",") if part.strip()]
    return Subscribers(
        count=round(_number("nodes", words[1])),
        filters=tuple(group & Filter(text) for text in texts) or (group,),
        start_s=_number("start", words[2]),
        stop_s=_number("stop", words[3]),
    )
