"""The scenario files of two of the texts, read as they stand.

SIENA, Figure 25: `servers = acyclic adv_fwd;` and sections `objects { … };` and `parties { … };` of lines
`name = value;`. What the text calls an event is here an attribute `event` of that value.

Filter propagation, Figure 4.2: lines `experiment`, `publishers … { tags }` and `subscribers … { filters }`. The text
takes its networks from files of another program; here the network is transit-stub, of 100 sites. Publishers and
subscribers of a line are at nodes of their own, the filter timeout is that of the routing system, and measures begin
after the `warming-period`. Figure 4.3: `$ns at 7.5 "dump-filters NAME 1"` says when tables are dumped. The command says
whether they are, and into which file (`catchment simulate --dump`, and `--trace` for `trace-events`); actual and ideal
tables are both in it. Groups are an attribute `group`. Size and colour are ignored: they are for packets and drawing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from catchment.errors import CatchmentError, InputError, shown
from catchment.model.advertisement import Advertisement
from catchment.model.filter import Filter
from catchment.model.values import Value
from catchment.sim.scenarios.groups import Drawn, Publishers, Subscribers
from catchment.sim.scenarios.scenario import Scenario
from catchment.sim.scenarios.toml import scenario_from_toml

_NETWORK: Final = "transit-stub 100"
_SERVERS: Final = {
    "hierarchical sub_fwd": "siena hierarchical",
    "hierarchical": "siena hierarchical",
    "acyclic sub_fwd": "siena acyclic",
    "acyclic adv_fwd": "siena advertising",
    "general sub_fwd": "siena general",
}
_STYLES: Final = {"propagate": "propagation", "dvmrp": "dvmrp", "perfect": "perfect", "flood": "flooding"}
# Of each system the setting that a filter timeout is.
_TIMEOUTS: Final = {"propagation": "filter_timeout_s", "dvmrp": "prune_timeout_s"}

_SECTION: Final = re.compile(r"(\w+)\s*\{([^}]*)\}\s*;?")
_LINE: Final = re.compile(r"([\w/]+)\s*=\s*(\"[^\"]*\"|[^;]+);")
# Figure 4.3.
_DUMP: Final = re.compile(r'^\s*\$ns\s+at\s+(\S+)\s+"dump-filters\s+\S+\s+[01]"', re.MULTILINE)
_BLOCK: Final = re.compile(r"(publishers|subscribers)\s+([^{]*)\{([^}]*)\}")


def read_scenario(path: Path) -> Scenario:
    """The scenario of a file, in whichever notation it is written. InputError says what is wrong with it."""
    if path.suffix == ".toml":
        return scenario_from_toml(path)
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(f"{path} cannot be read: {problem}") from None
    if re.search(r"^\s*servers\s*=", text, re.MULTILINE):
        read = siena_scenario
    elif re.search(r"^\s*experiment\s", text, re.MULTILINE):
        read = propagation_scenario
    else:
        raise InputError(f"{path} is no scenario: it is not named .toml, and has no `servers = …;` or `experiment …`")
    try:
        return read(text)
    except CatchmentError as problem:
        raise InputError(f"{path}: {problem}") from None


# --- SIENA --------------------------------------------------------------------------------------


def siena_scenario(text: str) -> Scenario:
    """The notation of Figure 25."""
    sections = [(name, dict(_LINE.findall(body))) for name, body in _SECTION.findall(text)]
    top = dict(_LINE.findall(_SECTION.sub("", text)))
    servers = " ".join(top.get("servers", "").split())
    if servers not in _SERVERS:
        raise InputError(f"servers = {shown(servers)}: use one of {', '.join(_SERVERS)}")
    if unknown := [name for name, _ in sections if name not in ("objects", "parties")]:
        raise InputError(f"there is no section {shown(unknown[0])}: the sections are objects and parties")
    return Scenario(
        routing=_SERVERS[servers],
        network=top.get("network", _NETWORK).strip().strip('"'),
        seed=_integer(top, "seed", 1),
        publishers=tuple(_objects(section) for name, section in sections if name == "objects"),
        subscribers=tuple(_parties(section) for name, section in sections if name == "parties"),
    )


def _objects(section: Mapping[str, str]) -> Publishers:
    low, _, high = section.get("time/pub", "1000").partition("~")
    return Publishers(
        count=_integer(section, "number", 1),
        attributes={"event": _quoted(section, "event")},
        advertises=Advertisement.of(("event", "=", _quoted(section, "event"))),
        publications=_integer(section, "pub/adv", 10),
        period_ms=(_number("time/pub", low), _number("time/pub", high or low)),
        cycles=_integer(section, "cycles", 1),
    )


def _parties(section: Mapping[str, str]) -> Subscribers:
    wanted = Filter.of(("event", "=", _quoted(section, "pattern")))
    count = _integer(section, "number", 1)
    return Subscribers(
        count=count,
        filters=(wanted,),
        notifications=_integer(section, "notif/sub", 10),
        cycles=_integer(section, "cycles", 1),
    )


def _quoted(section: Mapping[str, str], name: str) -> str:
    if name not in section:
        raise InputError(f"{name} is missing")
    return section[name].strip().strip('"')


def _integer(section: Mapping[str, str], name: str, default: int) -> int:
    return round(_number(name, section[name])) if name in section else default


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{name} = {shown(text.strip())}: that is no number") from None


# --- filter propagation -------------------------------------------------------------------------


def propagation_scenario(text: str) -> Scenario:
    """The notation of Figure 4.2."""
    uncommented = re.sub(r"#.*", "", text)
    head = re.search(r"^\s*experiment\s+(.*)$", uncommented, re.MULTILINE)
    words = head.group(1).split() if head else []
    if len(words) != 6:
        raise InputError("experiment has 6 words: <groups> <transit> <filtertimeout> <time> <style> <seed>")
    style = words[4]
    if style not in _STYLES:
        raise InputError(f"style {shown(style)}: use one of {', '.join(_STYLES)}")
    blocks = _BLOCK.findall(uncommented)
    warm_up = re.search(r"^\s*warming-period\s+(\S+)\s*$", uncommented, re.MULTILINE)
    dumps = {_number("dump-filters", time) for time in _DUMP.findall(uncommented)}
    return Scenario(
        routing=_STYLES[style],
        settings=_timeout(_STYLES[style], words[2]),
        network=_NETWORK,
        seed=round(_number("seed", words[5])),
        publishers=tuple(_tagged(words.split(), body) for name, words, body in blocks if name == "publishers"),
        subscribers=tuple(_filtered(words.split(), body) for name, words, body in blocks if name == "subscribers"),
        stop_s=_number("time", words[3]),
        warm_up_s=0.0 if warm_up is None else _number("warming-period", warm_up.group(1)),
        dump_at_s=tuple(sorted(dumps)),
    )


def _timeout(routing: str, seconds: str) -> dict[str, float]:
    return {_TIMEOUTS[routing]: _number("filtertimeout", seconds)} if routing in _TIMEOUTS else {}


def _tagged(words: list[str], body: str) -> Publishers:
    if len(words) != 7:
        raise InputError("publishers has 7 words: <group> <nodes> <start> <stop> <size> <period> <color> { <tags> }")
    attributes: dict[str, Value | Drawn] = {"group": round(_number("group", words[0]))}
    for part in filter(None, map(str.split, body.split(","))):
        if len(part) != 4 or part[1] != "random":
            raise InputError(f"a tag {shown(' '.join(part))}: write <name> random <low> <high>")
        attributes[part[0]] = Drawn(_number(part[0], part[2]), _number(part[0], part[3]))
    period = 1_000 * _number("period", words[5])
    start, stop = _number("start", words[2]), _number("stop", words[3])
    return Publishers(
        count=round(_number("nodes", words[1])),
        is_distinct=True,
        attributes=attributes,
        publications=max(1, int((stop - start) * 1_000 / period) + 1) if period > 0 else 1,
        period_ms=(period, period),
        start_s=start,
        stop_s=stop,
    )


def _filtered(words: list[str], body: str) -> Subscribers:
    if len(words) != 5:
        raise InputError("subscribers has 5 words: <group> <nodes> <start> <stop> <percent> { <filters> }")
    group = Filter.of(("group", "=", round(_number("group", words[0]))))
    texts = [part.replace("&&", " and ").replace("||", " or ") for part in body.split(",") if part.strip()]
    return Subscribers(
        count=round(_number("nodes", words[1])),
        is_distinct=True,
        filters=tuple(group & Filter(text) for text in texts) or (group,),
        start_s=_number("start", words[2]),
        stop_s=_number("stop", words[3]),
    )
