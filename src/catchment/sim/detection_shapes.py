"""The shapes of detection rules: what W5 draws its filters from. Tables of counts, and little code.

What was counted: 488 public detection rules, a sixth of those of SigmaHQ that convert one to one to our language. (One
more has a thousand literals of one character each, and is left out.) A count says how many of those rules have a shape,
or how many of their lists have a length. A third of the rules have a shape that no other rule has; a few large
templates stand for those, with counts such that sizes, operators and negations come out as in the real rules:
`tests/unit/test_detection_data.py` compares. The texts in rules of W5 are our own: `detection_data.py` makes them.

A *template* is a filter with slots: `switch_all and (image or original)`. The words `and`, `or`, `not` and parentheses
stand for themselves. Every other word names a *slot*: an attribute, and either one constraint on it or a list of
constraints joined by `or` or by `and`. `SLOTS` says which attributes, how long the lists are, and which operators.
"""

from __future__ import annotations

import random
import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from typing import Final, Generic, TypeVar

T = TypeVar("T")


class Weighted(Generic[T]):
    """Draws each value with a probability in proportion to its weight."""

    def __init__(self, weights: Mapping[T, float]) -> None:
        self._values = list(weights)
        self._cumulative = list(accumulate(weights.values()))

    def __len__(self) -> int:
        return len(self._values)

    def draw(self, rng: random.Random) -> T:
        # Rounding may bring the product up to the total, which would be past the last value.
        place = bisect_right(self._cumulative, rng.random() * self._cumulative[-1])
        return self._values[min(place, len(self._values) - 1)]


# --- lengths of lists ---------------------------------------------------------------------------

MANY: Final = {
    2: 84, 3: 30, 4: 20, 5: 14, 6: 6, 7: 12, 8: 21, 9: 5, 10: 4, 11: 2, 12: 2, 13: 2, 14: 2, 15: 3, 17: 1, 19: 2,
    20: 1, 22: 1, 23: 4, 48: 1,
}  # fmt: skip
SOME: Final = {2: 51, 3: 18, 4: 15, 5: 5, 6: 8, 7: 5, 8: 4, 9: 3, 10: 4, 13: 3, 15: 2, 18: 2, 22: 1}
FEW: Final = {2: 66, 3: 14, 4: 11, 5: 4, 8: 2, 9: 2, 12: 1, 42: 1}
LONG: Final = {2: 6, 3: 2, 4: 4, 6: 1, 9: 2, 14: 1, 19: 1, 26: 2, 36: 3, 52: 1, 63: 1, 106: 1}
ALL: Final = {2: 72, 3: 38, 4: 14, 5: 5, 6: 3, 7: 2, 8: 1}


# --- slots --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Slot:
    """Which attributes a slot draws from, what joins the constraints of its list, and how many there are.

    `vocabulary` says which literals to use, if not those that go with the attribute."""

    attributes: Weighted[str]
    operators: Weighted[str]
    vocabulary: str
    joint: str = ""
    sizes: Weighted[int] = field(default_factory=lambda: Weighted({1: 1}))


def _slots(
    name: str, attributes: Mapping[str, float], operators: Mapping[str, float], vocabulary: str = ""
) -> dict[str, Slot]:
    """Slots for one constraint (`name`), for a long list, a short list or a very long list joined by `or`, and for a
    list joined by `and`."""
    drawn, compared = Weighted(attributes), Weighted(operators)
    # A text may contain several literals. It cannot end in two different ones, nor be equal to two.
    joinable = {operator: weight for operator, weight in operators.items() if operator in ("contains", "glob")}
    return {
        name: Slot(drawn, compared, vocabulary),
        f"{name}_many": Slot(drawn, compared, vocabulary, " or ", Weighted(MANY)),
        f"{name}_some": Slot(drawn, compared, vocabulary, " or ", Weighted(SOME)),
        f"{name}_few": Slot(drawn, compared, vocabulary, " or ", Weighted(FEW)),
        f"{name}_long": Slot(drawn, compared, vocabulary, " or ", Weighted(LONG)),
        f"{name}_all": Slot(drawn, Weighted(joinable or operators), vocabulary, " and ", Weighted(ALL)),
    }


_ENTRY: Final = {
    "TargetUserName": 4, "ServiceName": 6, "ObjectName": 5, "LogonType": 4, "AccessMask": 8, "ShareName": 3,
    "TaskName": 4, "LogonProcessName": 4, "SubjectUserName": 3, "RelativeTargetName": 4,
}  # fmt: skip
_AUDITED: Final = {
    "eventName": 17, "eventSource": 11, "operationName": 19, "verb": 11, "action": 6, "errorCode": 4,
    "riskEventType": 4, "gcp.audit.method_name": 12, "auditType.category": 3, "auditType.action": 3, "status": 3,
    "logtype": 4, "eventType": 4, "properties.message": 8,
}  # fmt: skip
_TRACED: Final = {"TargetImage": 35, "SourceImage": 26, "CallTrace": 6, "QueryName": 38, "name": 40, "PipeName": 6}

SLOTS: Final[dict[str, Slot]] = {
    **_slots("image", {"Image": 1}, {"suffix": 178, "contains": 11, "=": 4}),
    **_slots("rare", {"Image": 1}, {"suffix": 178, "contains": 11}, "rare programs"),
    **_slots("original", {"OriginalFileName": 1}, {"=": 90, "contains": 3}),
    **_slots("command", {"CommandLine": 1}, {"contains": 270, "suffix": 8, "glob": 4, "prefix": 1}),
    **_slots("switch", {"CommandLine": 1}, {"contains": 84, "glob": 1}, "switches"),
    **_slots("parent", {"ParentImage": 1}, {"suffix": 34, "contains": 6, "=": 2}),
    **_slots("parent_command", {"ParentCommandLine": 1}, {"contains": 24, "suffix": 3, "=": 2}),
    **_slots(
        "fact",
        {"Description": 11, "Product": 8, "Company": 3, "User": 8, "CurrentDirectory": 5},
        {"=": 25, "contains": 16, "suffix": 2},
    ),
    **_slots("level", {"IntegrityLevel": 1}, {"=": 1}),
    **_slots("hash", {"Hashes": 1}, {"contains": 1}),
    **_slots("home", {"Image": 1}, {"prefix": 60, "=": 28, "suffix": 28, "contains": 26}),
    **_slots("key", {"TargetObject": 1}, {"contains": 83, "suffix": 35, "prefix": 2}),
    **_slots("value", {"Details": 1}, {"contains": 40, "=": 34, "suffix": 12, "prefix": 6}),
    **_slots("target", {"TargetFilename": 1}, {"suffix": 100, "contains": 54, "prefix": 23}),
    **_slots("script", {"ScriptBlockText": 38, "Payload": 5, "ContextInfo": 3}, {"contains": 60, "glob": 1}),
    **_slots("loaded", {"ImageLoaded": 1}, {"suffix": 21, "prefix": 17, "contains": 8}),
    **_slots("event", {"EventID": 1}, {"=": 1}),
    **_slots("provider", {"Provider_Name": 1}, {"=": 1}),
    **_slots("entry", _ENTRY, {"=": 30, "contains": 9, "suffix": 4, "prefix": 1}),
    **_slots("service", {"ImagePath": 38, "ServiceFileName": 16}, {"contains": 50, "suffix": 4, "prefix": 1}),
    **_slots("audited", _AUDITED, {"=": 136, "contains": 9, "suffix": 3}),
    **_slots("argument", {"type": 14, "a0": 10, "a1": 9, "a2": 3, "a3": 1, "a4": 1}, {"=": 30, "contains": 3}),
    **_slots("agent", {"c-useragent": 1}, {"=": 90, "glob": 16, "contains": 4}),
    **_slots("traced", _TRACED, {"suffix": 90, "=": 40, "contains": 20, "glob": 10, "prefix": 6}),
    **_slots("malware", {"Signature": 33, "FileName": 56, "Contents": 36}, {"contains": 110, "suffix": 8}),
}


# --- templates, by family: what the rule is about. In each line a count and a template. ----------

_PROCESS: Final = """
9 switch_all
5 command_many
5 rare
2 rare_some
1 command
8 switch_all and (image or original)
6 command and (image or original)
6 command_many and (image or original)
3 command_many and (image_some or original_few)
6 command and image
5 command_many and image
5 switch_all and image
2 command and image_some
6 image_many and parent
2 rare_many
3 image and parent
2 command_many and image_many
2 parent and fact
6 (switch_all and command_many) and (image or original)
2 (switch_all and command_many) and image
4 switch_all and command_many and (image or original)
4 command and command_many and (image or original)
4 command_many and command_many
3 switch_all and command_many
3 command and command_many
3 command_many and command_many and (image or original)
4 command and command and image
3 (command and image) and command_many
3 (image_some or original_few) and parent
3 command and command and (image or original)
3 image and level_few
2 command and fact and fact
2 switch_all or switch_all
2 command_many or command_many or command
2 switch_all or rare
3 rare or original or fact
3 rare_some or original
2 command or rare
2 hash_long or rare
2 rare or original or command_many or fact
2 (command and image) or command
2 (switch_all and command_many) or command_many
2 (command and command_many) or fact_few
2 (command and image) or (command_many and image)
1 switch_all or parent_command_all
2 image and (switch_all or switch_all)
2 (switch_all or switch_all) and (image or original)
2 (command_many and parent_some) or (image and parent)
2 parent and parent_command and image
2 command_many and (image_some or original_few or fact or fact)
2 command and image and parent
2 image and parent and level_few
2 command_many and (parent_some or parent)
6 command_many and ((command and image) or (command and image_some) or (command_many and image))
4 (parent and parent_command) and ((switch_all and image) or (switch_all and image) or switch_all)
4 ((command and command_many) or (command and command_many)) and (image or original)
4 (command_many and (image or original)) and ((switch_all and command_many) or (switch_all and command_many))
4 original and not image
3 original and not image_few
3 (command or original) and not image
3 (original or fact or fact) and not image
4 command_many and not command_few
3 parent and command and not image_few
3 rare_many and not image_few
3 (command and image) and not command
3 rare_some and not home
4 (command_many and (image or original)) and not parent
4 (switch_all and (image or original)) and not command
3 (image_some and parent_some) and not command and not command_few
3 (command and (image or original)) and not (command_few and parent)
4 (rare or original) and not (not exists(CommandLine) or command or command_few)
3 (image and parent) and not (not exists(CommandLine) or (command and image) or parent)
3 (command_many and image_many) and not ((switch_all and command_few) or (switch_all and command_few))
3 (image_some and parent_some) and not ((switch_all and image and parent) or command or parent_command_few)
3 rare_some and not (home_all or home_few or parent_few) and not (home or parent or parent)
3 (rare_some and not command_few) or rare_many
1 (not command_few and (rare or original)) or command_many
3 (command_many and command_many and parent_some) or (command_many and image_many) or command_long
3 command_many and command_many and (image_many or original_some) and (command_many or switch_all or command_many)
4 (image_many and parent_many) and ((command_many and not command_few) or (command_many and not image_few))
3 command_long
3 command_long and image_some
2 rare_long
2 image_long and command_many
"""

_REGISTRY: Final = """
12 key and value
5 key
3 key_some
5 key and not value
2 (key and value) and not home
2 key_all and key_some and value
1 key and not (home and value)
2 key_all and value_some
2 (key and value) and not ((home and value) or (home and key and value) or value)
2 key_some and not value_few
1 (key and value_all) or (key_some and value) or key
1 key and ((key_all and value) or (key_all and value_few))
2 (key and value_some) and not ((home and key) or value or home) and not (not exists(Image) or home_few)
1 key and (value or (value or key_few))
"""

_FILE: Final = """
4 target
4 target_many
3 target_long
4 target_all and image_many
3 target and image
2 image_some and target_many
2 target_some or malware_long
1 target and not home
2 (target_all and image_some) and not target_few
3 target_many and not ((home and target) or (home and target_few) or home or home_few)
2 (target_all and target_some) and not ((home and target_all) or (parent and target) or target or home)
1 target_some and not (home and target_all and parent and command_all)
2 target and (image_some or target_some)
1 (target_all and image_some) or (target and image)
"""

_SCRIPT: Final = """
8 script_all
8 script_long
3 script
6 script_all and script_many
3 script and script_many
2 script_many and not script
"""

_LOADED: Final = """
3 loaded and image_some
3 loaded and not (home and loaded)
3 loaded and not home
2 loaded_some or hash_some
2 (loaded and image) and not home_few
2 loaded and not home_few and not (home or loaded_few)
2 (loaded_some or original) and not ((home and loaded) or home) and not ((home and loaded_few) or home_few)
2 loaded and not (home and loaded_few) and not ((home and loaded) or not exists(Image) or home_few)
"""

_LOG: Final = """
11 event and entry and entry
7 event and entry
4 event_few and entry
5 event
2 event_few
5 event and provider and service_all and service_some
3 (event and provider) and (service or service_some)
3 event and provider and service_some
2 (event and entry) and not (entry and home)
2 event and not entry_few
2 (event and entry and entry) and not entry and not ((entry and home) or entry)
2 event and entry and not (entry_few or home) and not entry
2 event and entry and entry and entry
"""

_AUDIT: Final = """
16 audited
8 audited_few
11 audited and audited
4 audited and audited_few
9 audited and audited and audited
3 (audited and audited and audited) and not audited
2 audited and (audited or exists(errorCode))
2 audited and not audited_few
"""

_OTHER: Final = """
4 argument
8 argument and argument
5 argument and argument and argument
3 agent
8 agent_long
3 traced_few
3 traced_long
4 malware_long
3 traced and traced
2 traced and fact_few
2 (argument and argument and argument) or (argument and argument and argument)
1 (traced and traced) and not home
2 traced and not ((traced and traced) or (traced and traced_few) or traced or traced_few or traced)
"""

# How many rules each family has, and its templates.
FAMILIES: Final = (
    (220, _PROCESS),
    (55, _AUDIT),
    (50, _LOG),
    (41, _OTHER),
    (41, _REGISTRY),
    (32, _FILE),
    (31, _SCRIPT),
    (19, _LOADED),
)
_TOKEN: Final = re.compile(r"exists\(\w+\)|\w+|\W+")

# A template whose slots are found: text between them, and slots.
Template = tuple[str | Slot, ...]


@cache
def templates() -> Weighted[Template]:
    """All templates, by how often rules have them."""
    weights: dict[Template, float] = {}
    for rules, lines in FAMILIES:
        counted = [line.split(" ", 1) for line in lines.split("\n") if line]
        total = sum(int(count) for count, _ in counted)
        for count, text in counted:
            weights[_template(text)] = rules * int(count) / total
    return Weighted(weights)


def _template(text: str) -> Template:
    tokens = _TOKEN.findall(text)
    return tuple(
        token if token in ("and", "or", "not") or not token.isidentifier() else SLOTS[token] for token in tokens
    )
