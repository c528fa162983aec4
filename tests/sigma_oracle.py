"""What a Sigma rule means, the slow and obvious way: does this rule, as YAML gave it, match this event?

It reads rules directly and shares no code with `catchment.sigma`: conditions are Python's own expressions, values are
regular expressions of Python. Two truth values: a comparison with a field that is not there is false.
"""

import base64
import fnmatch
import re
from collections.abc import Mapping
from typing import Any

Attributes = Mapping[str, str | int]
DASHES = "-/\u2013\u2014\u2015"


def matches(rule: Mapping[str, Any], event: Attributes) -> bool:
    detection = rule["detection"]
    conditions = detection["condition"]
    truth = {name: holds(detection[name], event) for name in detection if name not in ("condition", "timeframe")}
    texts = conditions if isinstance(conditions, list) else [conditions]
    return any(condition_holds(text, truth) for text in texts)


def condition_holds(text: str, truth: Mapping[str, bool]) -> bool:
    """The condition with every selection replaced by True or False. `not`, `and`, `or` bind in Python as in Sigma."""

    def quantified(match: re.Match[str]) -> str:
        quantity, pattern = match[1].lower(), match[2]
        if pattern.lower() == "them":
            chosen = [value for name, value in truth.items() if name[0] != "_"]
        else:
            chosen = [value for name, value in truth.items() if fnmatch.fnmatchcase(name, pattern)]
        assert chosen
        return str(all(chosen) if quantity == "all" else any(chosen))

    text = re.sub(r"\b(1|any|all) of ([\w*]+)", quantified, text, flags=re.IGNORECASE)
    text = re.sub(r"\b(and|or|not)\b", lambda match: match[0].lower(), text, flags=re.IGNORECASE)
    text = re.sub(r"\w+", lambda match: str(truth.get(match[0], match[0])), text)
    return bool(eval(text, {"__builtins__": {}}))


def holds(selection: Any, event: Attributes) -> bool:
    if isinstance(selection, list):
        return any(holds(item, event) for item in selection)
    return all(field_holds(key, value, event) for key, value in selection.items())


def field_holds(key: str, given: Any, event: Attributes) -> bool:
    name, *modifiers = key.split("|")
    values = given if isinstance(given, list) else [given]
    held = [value_holds(name, modifiers, value, event) for value in values]
    return all(held) if "all" in modifiers else any(held)


def value_holds(name: str, modifiers: list[str], value: Any, event: Attributes) -> bool:
    if "exists" in modifiers:
        return (name in event) is value
    if "neq" in modifiers:
        return not value_holds(name, [modifier for modifier in modifiers if modifier != "neq"], value, event)
    if value is None:
        return name not in event
    if name not in event:
        return False
    actual = event[name]
    for modifier, compare in (
        ("lt", lambda: actual < value),
        ("lte", lambda: actual <= value),
        ("gt", lambda: actual > value),
        ("gte", lambda: actual >= value),
    ):
        if modifier in modifiers:
            return bool(compare())
    if isinstance(value, int) and not {"contains", "startswith", "endswith"} & set(modifiers):
        return type(actual) is type(value) and actual == value
    flags = re.DOTALL if "cased" in modifiers else re.DOTALL | re.IGNORECASE
    return any(re.fullmatch(regex, str(actual), flags) for regex in regexes(str(value), modifiers))


def regexes(value: str, modifiers: list[str]) -> list[str]:
    """Regular expressions, of which one must match the whole text of the field."""
    made = [wildcards(value, "windash" in modifiers)]
    if "base64" in modifiers:
        made = [re.escape(base64.b64encode(encoded(value, modifiers)).decode())]
    if "base64offset" in modifiers:
        made = [re.escape(text) for text in stable_base64(encoded(value, modifiers))]
    for modifier in modifiers:
        if modifier in ("contains", "endswith"):
            made = [f".*(?:{regex})" for regex in made]
        if modifier in ("contains", "startswith"):
            made = [f"(?:{regex}).*" for regex in made]
    return made


def wildcards(value: str, has_any_dash: bool) -> str:
    """A value as a regular expression, character by character."""
    regex, place = "", 0
    while place < len(value):
        character = value[place]
        if character == "\\" and value[place + 1 : place + 2] in ("\\", "*", "?"):
            place += 1
            regex += re.escape(value[place])
        elif character in "*?":
            regex += ".*" if character == "*" else "."
        elif has_any_dash and character in DASHES and begins_word(value, place):
            regex += f"[{re.escape(DASHES)}]"
        else:
            regex += re.escape(character)
        place += 1
    return regex


def begins_word(value: str, place: int) -> bool:
    before, after = value[place - 1 : place] if place else "", value[place + 1 : place + 2]
    return is_word(after) and not is_word(before)


def is_word(character: str) -> bool:
    return bool(character) and (character.isalnum() or character == "_")


def encoded(value: str, modifiers: list[str]) -> bytes:
    if "wide" in modifiers or "utf16le" in modifiers:
        return value.encode("utf-16-le")
    if "utf16be" in modifiers:
        return value.encode("utf-16-be")
    if "utf16" in modifiers:
        return b"\xff\xfe" + value.encode("utf-16-le")
    return value.encode()


def stable_base64(value: bytes) -> list[str]:
    """For each of the three places in a group of three bytes: what base64 makes of the value whatever is around it.
    Found by trying many surroundings and keeping the characters that never change."""
    texts = []
    for shift in range(3):
        tries = [
            base64.b64encode(bytes([before]) * shift + value + bytes([after]) * 3).decode()
            for before in (0x00, 0x55, 0xAA, 0xFF)
            for after in (0x00, 0x55, 0xAA, 0xFF)
        ]
        length = -(-(shift + len(value)) * 4 // 3)
        same = [len({text[place] for text in tries}) == 1 for place in range(length)]
        texts.append("".join(tries[0][place] for place in range(length) if same[place]))
    return texts
