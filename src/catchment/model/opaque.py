"""Opaque operators: `matches` (a regular expression of RE2) and `cidr` (a block of addresses).

No set of strings is computed for them: whether such a constraint holds is decided by looking at the value. What the
model needs besides is a wider constraint (`around`): a filter with opaque constraints has no normal form, brokers route
it by a wider filter, and the index holds a wider one and asks the filter itself about what that one lets through.

Both take time linear in the value: RE2 has no backtracking, and an address is a number.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any, Final

from catchment.errors import BadFilterError, LimitError, shown

OPAQUE: Final = ("matches", "not matches", "cidr", "not cidr")
# A longer regular expression should be several subscriptions.
REGEX_CODEPOINTS_MAX: Final = 1_024
# What RE2 may take for one regular expression, its program and what it remembers of texts: room for some thousand
# instructions.
REGEX_BYTES_MAX: Final = 1 << 19
# So many are kept compiled: in all at most a quarter of a gigabyte, and far less as a rule.
_COMPILED_MAX: Final = 512
_NETWORKS_MAX: Final = 4_096


def check(operator: str, text: str) -> None:
    """BadFilterError or LimitError if an operand is none."""
    if operator.endswith("matches"):
        if len(text) > REGEX_CODEPOINTS_MAX:
            raise LimitError("REGEX_CODEPOINTS_MAX", REGEX_CODEPOINTS_MAX, f"a regular expression of {len(text):,}")
        _regex(text)
    else:
        _network(text)


def holds(operator: str, text: str, value: str) -> bool:
    """Whether a string satisfies an opaque constraint."""
    is_wanted = not operator.startswith("not ")
    if operator.endswith("matches"):
        return (_regex(text).search(value) is not None) is is_wanted
    return _is_in(_network(text), value) is is_wanted


@lru_cache(_COMPILED_MAX)
def _regex(text: str) -> Any:
    import re2  # here: only those who use such filters wait for it

    options = re2.Options()
    options.log_errors = False
    options.max_mem = REGEX_BYTES_MAX
    try:
        return re2.compile(text, options)
    except re2.error as problem:
        reason = problem.args[0].decode("utf-8", "replace") if problem.args else "it is refused"
        raise BadFilterError(f"{shown(text)} is no regular expression of RE2: {reason}") from None


@lru_cache(_NETWORKS_MAX)
def _network(text: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text)
    except ValueError as problem:
        raise BadFilterError(f"{shown(text)} is no block of addresses such as 10.0.0.0/8: {problem}") from None


def _is_in(network: IPv4Network | IPv6Network, value: str) -> bool:
    try:
        return ip_address(value) in network  # no address of IPv4 is in a block of IPv6, and the other way round
    except ValueError:
        return False


# --- what they imply ----------------------------------------------------------------------------


def implied(operator: str, text: str) -> tuple[str, str | None]:
    """An operator and operand that hold wherever an opaque constraint does: `substring`, `prefix`, or `any`."""
    if operator == "matches" and (literal := required_text(text)):
        return "substring", literal
    if operator == "cidr" and (start := _common_start(_network(text))):
        return "prefix", start
    return "any", None


def _common_start(network: IPv4Network | IPv6Network) -> str:
    """How the texts of all addresses of a block begin. An address of IPv4 is written in one way only, of its four
    numbers those that the whole block has in common come first; one of IPv6 is written in many ways."""
    if isinstance(network, IPv6Network):
        return ""
    numbers = str(network.network_address).split(".")[: network.prefixlen // 8]
    return ".".join(numbers) + ("." if 0 < len(numbers) < 4 else "")


# One element of a regular expression, as far as it matters here: an escaped sign, another escape, a class of
# characters, the start of a group without flags, its end, an alternative, a repetition, a sign that is no text, a
# character. Escapes that go on after one letter, such as \x41, are none of these.
_ELEMENT: Final = re.compile(
    r"(?P<sign>\\[^\w\s])|(?P<escape>\\[dDsSwWbBAzaftnrv])|(?P<class>\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\])"
    r"|(?P<group>\((?:\?:|\?P?<\w+>)?(?!\?))|(?P<end>\))|(?P<either>\|)|(?P<maybe>[*?]|\{\d*(?:,\d*)?\})\??|(?P<more>\+)\??"
    r"|(?P<other>[.^$])|(?P<character>[^\\\[\](){}*+?.^$|])",
    re.DOTALL,
)


def required_text(pattern: str) -> str:
    """The longest text that stands in every string which a regular expression matches, as far as a walk over its outer
    level shows; "" if it shows none. Alternatives on that level, flags and everything unusual end the walk with ""."""
    runs, run, depth, at = [""], "", 0, 0
    while at < len(pattern):
        element = _ELEMENT.match(pattern, at)
        if element is None or (element["either"] and not depth):
            return ""
        at = element.end()
        if element["group"] or element["end"]:
            depth += 1 if element["group"] else -1
        elif depth:
            continue  # what is within a group may be left out or repeated
        elif literal := element["sign"] or element["character"]:
            run += literal[-1]
            continue
        elif element["maybe"]:
            run = run[:-1]  # the character before it need not be there
        runs.append(run)
        run = ""
    return max(*runs, run, key=len)
