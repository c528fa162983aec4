"""W5: filters like the detection rules that people write, and notifications like process-creation events; seeded.

`detection_rules(count, seed)` gives texts of filters. Their shapes (what is joined by `and`, `or`, `not`), the lengths
of their lists, their operators and the attributes they name follow what was counted in public detection rules
(`detection_shapes.py`). Their literals are our own: names of common programs, and words made of syllables. Some
literals are popular, as in real rules: the suffix `\\powershell.exe` is in about one rule of twenty. Most are in one
rule only.

`process_events(count, seed, rules)` gives mappings of sixteen attributes, all texts in lower case. Command lines have
50 to 500 characters. Most are benign. One event in HINTED_ONE_IN has literals of some rules among benign text, and one
in AIMED_ONE_IN is made to match a rule: it has what the rule asks for, as far as its text tells.

Sizes are prefixes of one stream. The streams are the same on every machine: they are fixed by the order in which random
numbers are drawn. Whoever changes that order changes every published figure.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Final

from catchment.sim.detection_shapes import Slot, Template, Weighted, templates

Attributes = dict[str, str | int]

WORDS: Final = 20_000
WORDS_SEED: Final = 779
# Benign text uses the first words and rules use the others, but for some that both use.
BENIGN_WORDS: Final = 2_000
SHARED_WORDS: Final = 300
COMMAND_CHARACTERS_MIN: Final = 50
COMMAND_CHARACTERS_MAX: Final = 500
HINTED_ONE_IN: Final = 4
AIMED_ONE_IN: Final = 20
# How many literals of one rule a command line is given at most, so that benign text has room beside them.
AIMED_LITERALS_MAX: Final = 8

# --- words --------------------------------------------------------------------------------------


def _listed(text: str, separator: str | None = None) -> tuple[str, ...]:
    return tuple(text.split(separator))


# By popularity in rules: the first is drawn most often.
TOOLS: Final = _listed(
    "powershell pwsh cmd rundll32 mshta regsvr32 schtasks wscript cscript wmic certutil reg msbuild net net1 bitsadmin "
    "explorer svchost msiexec sc winword excel curl bash python wsl installutil regasm whoami nltest dsquery vssadmin "
    "bcdedit netsh tasklist taskkill ipconfig nslookup ping ssh scp putty tar expand makecab extrac32 findstr forfiles "
    "cmstp control hh ieexec odbcconf pcalua presentationhost replace robocopy at attrib cipher fsutil wevtutil "
    "dllhost conhost services lsass winlogon spoolsv taskhostw outlook chrome msedge firefox notepad calc java"
)
_FOLDERS: Final = _listed(
    r"users\public|users\default|windows\temp|windows\tasks|appdata\local\temp|appdata\roaming|perflogs|$recycle.bin|"
    r"downloads|desktop|windows\system32\tasks|windows\debug|users\public\music|appdata\local\microsoft",
    "|",
)
_POPULAR_PHRASES: Final = (
    " -enc ", "http", " /c ", "download", "-nop", "hidden", "bypass", ".dll", "base64", " -e ", "iex", "||", "&&",
    " > ", "http://", "https://", " import ", "create", "delete", " add ", "query", " -s ", "\\\\", "start", " /f",
    "vbscript", "javascript", ".ps1", ".vbs", ".bat", "password", "%temp%", "\\temp\\", "127.0.0.1", "-", "|", "copy",
)  # fmt: skip
_ENDINGS: Final = _listed(".exe .dll .ps1 .bat .vbs .js .lnk .dat .tmp .zip .iso .hta .xml")
_HIVES: Final = (
    "\\software\\microsoft\\windows\\currentversion\\",
    "\\system\\currentcontrolset\\services\\",
    "\\software\\",
)
_DETAILS: Final = ("dword (0x00000000)", "dword (0x00000001)", "(empty)", "dword (0x00000002)", "binary data")
_LEVELS: Final = ("system", "high", "medium", "low", "s-1-16-16384", "s-1-16-12288")
_EVENT_IDS: Final = (7045, 4697, 4624, 4688, 4663, 5145, 4104, 4656, 1102, 4720, 4732, 4769, 5156, 8001, 3, 11)


@cache
def _words() -> list[str]:
    """Invented words of two to four syllables."""
    rng = random.Random(WORDS_SEED)
    syllables = [
        first + vowel + last for first in "bcdfglmnprstvz" for vowel in "aeiou" for last in ("", "n", "r", "x")
    ]
    words: dict[str, None] = {}
    while len(words) < WORDS:
        words["".join(rng.choice(syllables) for _ in range(rng.choice((2, 2, 3, 3, 4))))] = None
    return list(words)


def _zipf(values: Iterable[str], exponent: float = 1.0) -> Weighted[str]:
    return Weighted({value: (rank + 1) ** -exponent for rank, value in enumerate(values)})


_POPULAR_TOOLS: Final = _zipf(TOOLS, 0.85)
_POPULAR_FOLDERS: Final = _zipf(_FOLDERS, 0.7)
_POPULAR_LITERALS: Final = _zipf(_POPULAR_PHRASES, 0.5)
_RULE_WORDS: Final = WORDS - BENIGN_WORDS + SHARED_WORDS


def _word(rng: random.Random) -> str:
    return _words()[WORDS - 1 - int(rng.random() * _RULE_WORDS)]


def _tool(rng: random.Random) -> str:
    return (_POPULAR_TOOLS.draw(rng) if rng.random() < 0.55 else _word(rng)) + ".exe"


def _folder(rng: random.Random) -> str:
    inner = _POPULAR_FOLDERS.draw(rng) if rng.random() < 0.5 else _word(rng)
    return f"\\{inner}\\"


def _sha256(rng: random.Random) -> str:
    return f"{rng.getrandbits(256):064x}"


def _hash(rng: random.Random) -> str:
    return f"sha256={_sha256(rng)}" if rng.random() < 0.3 else f"imphash={rng.getrandbits(128):032x}"


_PHRASES: Final[Weighted[Callable[[random.Random], str]]] = Weighted(
    {
        lambda rng: f" -{_word(rng)}": 12,
        lambda rng: f" -{_word(rng)[:3]} ": 6,
        lambda rng: f" /{_word(rng)}": 7,
        lambda rng: f" {_word(rng)} ": 12,
        _word: 14,
        lambda rng: f"{_word(rng)}-{_word(rng)}": 10,
        lambda rng: f"{_word(rng)}{rng.choice(_ENDINGS)}": 8,
        _folder: 7,
        lambda rng: f"\\{_word(rng)}\\{_word(rng)}{rng.choice(_ENDINGS)}": 3,
        lambda rng: f"{_word(rng)}.{_word(rng)}(": 4,
        lambda rng: f"https://{_word(rng)}.{_word(rng)}/": 3,
        lambda rng: f'{_word(rng)}="{_word(rng)}"': 3,
        lambda rng: f" {_word(rng)} {_word(rng)} ": 5,
        lambda rng: f" --{_word(rng)} {_word(rng)} {_word(rng)}": 3,
    }
)


def _phrase(rng: random.Random) -> str:
    return _PHRASES.draw(rng)(rng)


# --- literals, by attribute and operator --------------------------------------------------------


def _program_literal(rng: random.Random, operator: str) -> str:
    """A literal for a path of a program."""
    if operator == "suffix":
        return f"/{_word(rng)}" if rng.random() < 0.06 else f"\\{_tool(rng)}"
    if operator == "contains":
        return _folder(rng)
    if operator == "glob":
        return f"*{_word(rng)}?.exe"
    return _home(rng) + (_tool(rng) if operator == "=" else "")


def _home(rng: random.Random) -> str:
    """A directory in which programs are at home."""
    share = rng.random()
    if share < 0.45:
        return rng.choice(("c:\\windows\\system32\\", "c:\\windows\\syswow64\\", "c:\\windows\\winsxs\\"))
    base = rng.choice(("c:\\program files\\", "c:\\program files (x86)\\", "c:\\programdata\\"))
    return base if share < 0.6 else f"{base}{_word(rng)} {_word(rng)}\\"


def _text_literal(rng: random.Random, operator: str) -> str:
    """A literal for a command line or a script."""
    if operator == "glob":
        return f"*{_word(rng)}*{rng.choice('|>?')}*{_word(rng)}*"
    if operator == "suffix":
        return _word(rng)[:3] if rng.random() < 0.3 else rng.choice((" ", ".", "\\")) + _word(rng)
    return _phrase(rng)


def _switch_literal(rng: random.Random, operator: str) -> str:
    """A literal for a list in which all must be there: many of these are short and common."""
    if operator == "contains" and rng.random() < 0.3:
        return _POPULAR_LITERALS.draw(rng)
    return _text_literal(rng, operator)


def _rare_literal(rng: random.Random, operator: str) -> str:
    """A literal for a program that is suspicious by itself."""
    return f"\\{_word(rng)}.exe" if operator == "suffix" else f"\\{_word(rng)}\\"


def _file_literal(rng: random.Random, operator: str) -> str:
    if operator == "prefix":
        return "c:" + _folder(rng)
    if operator == "contains":
        return _folder(rng)
    return rng.choice(_ENDINGS) if rng.random() < 0.55 else f"\\{_word(rng)}{rng.choice(_ENDINGS)}"


def _key_literal(rng: random.Random, operator: str) -> str:
    if operator == "prefix" or rng.random() < 0.3:
        return f"\\{_word(rng)}\\"
    return f"{rng.choice(_HIVES)}{_word(rng)}\\{_word(rng)} {_word(rng)}\\{_word(rng)}"


def _details_literal(rng: random.Random, operator: str) -> str:
    if operator == "=" and rng.random() < 0.7:
        return rng.choice(_DETAILS)
    return f"{_folder(rng)}{_word(rng)}"


def _script_literal(rng: random.Random, operator: str) -> str:
    return _text_literal(rng, operator) if rng.random() < 0.3 else f"{_word(rng)[:4]}-{_word(rng)}{_word(rng)}"


def _name_literal(rng: random.Random, operator: str) -> str:
    """A literal for an attribute that holds a name: an action, a service, a product."""
    if operator == "glob":
        return f"{_word(rng)}?{_word(rng)}*"
    if operator == "=":
        return rng.choice((_word(rng), f"{_word(rng)} {_word(rng)}", f"{_word(rng)}.{_word(rng)}.{_word(rng)}"))
    return f"{_word(rng)}.{_word(rng)}" if operator == "suffix" else _word(rng)


def _level_literal(rng: random.Random, operator: str) -> str:
    return rng.choice(_LEVELS)


_LITERALS: Final[Mapping[str, Callable[[random.Random, str], str]]] = {
    "switches": _switch_literal,
    "rare programs": _rare_literal,
    "CommandLine": _text_literal,
    "ParentCommandLine": _text_literal,
    "Image": _program_literal,
    "ParentImage": _program_literal,
    "OriginalFileName": lambda rng, operator: _tool(rng),
    "TargetImage": _program_literal,
    "SourceImage": _program_literal,
    "ImageLoaded": lambda rng, operator: (
        f"\\{_word(rng)}.dll" if operator == "suffix" else _program_literal(rng, operator)
    ),
    "TargetFilename": _file_literal,
    "TargetObject": _key_literal,
    "Details": _details_literal,
    "ScriptBlockText": _script_literal,
    "Payload": _script_literal,
    "ImagePath": _text_literal,
    "ServiceFileName": _text_literal,
    "CurrentDirectory": _file_literal,
    "IntegrityLevel": _level_literal,
    "Hashes": lambda rng, operator: _hash(rng),
}

# --- rules --------------------------------------------------------------------------------------


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


class _RuleWriter:
    """Writes one rule after another. Within a rule it remembers which programs it named, because `Image` and
    `OriginalFileName` beside each other name the same ones."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._images: list[str] = []
        self._originals: list[str] = []
        self._names: set[str] = set()

    def rule(self, template: Template) -> str:
        self._images, self._originals, self._names = [], [], set()
        return "".join(part if isinstance(part, str) else self._filled(part) for part in template)

    def _filled(self, slot: Slot) -> str:
        rng = self._rng
        attribute, size, operator = self._attribute(slot), slot.sizes.draw(rng), slot.operators.draw(rng)
        make = _LITERALS.get(slot.vocabulary or attribute, _name_literal)
        drawn = [self._constraint(attribute, self._mixed(slot, operator), make) for _ in range(size)]
        constraints = list(dict.fromkeys(drawn))
        return constraints[0] if len(constraints) == 1 else f"({slot.joint.join(constraints)})"

    def _attribute(self, slot: Slot) -> str:
        """If a slot has several attributes to draw from, rules prefer one that they have not named yet."""
        name = slot.attributes.draw(self._rng)
        while name in self._names and len(self._names) < len(slot.attributes):
            name = slot.attributes.draw(self._rng)
        if len(slot.attributes) > 1:
            self._names.add(name)
        return name

    def _mixed(self, slot: Slot, operator: str) -> str:
        """Nearly all lists have one operator."""
        return slot.operators.draw(self._rng) if self._rng.random() < 0.02 else operator

    def _constraint(self, attribute: str, operator: str, make: Callable[[random.Random, str], str]) -> str:
        if attribute == "EventID":
            return f"EventID = {self._rng.choice(_EVENT_IDS)}"
        literal = make(self._rng, operator)
        if attribute == "OriginalFileName":
            literal = self._same_program(literal, self._originals, self._images)
        elif attribute == "Image" and operator == "suffix":
            literal = literal[0] + self._same_program(literal[1:], self._images, self._originals)
        name = attribute if "-" not in attribute else f"`{attribute}`"
        return f"{name} {operator} {_quoted(literal)}"

    def _same_program(self, drawn: str, given: list[str], others: list[str]) -> str:
        """The program at the same place in the list of the other attribute, if that list is so long."""
        given.append(others[len(given)] if len(given) < len(others) else drawn)
        return given[-1]


def detection_rules(count: int, seed: int = 1) -> list[str]:
    """Texts of filters."""
    rng = random.Random(f"W5-s-{seed}")
    writer, shapes = _RuleWriter(rng), templates()
    return [writer.rule(shapes.draw(rng)) for _ in range(count)]


# --- events -------------------------------------------------------------------------------------

_LEAF: Final = re.compile(
    r'`?(?P<name>[\w.-]+)`? (?P<operator>contains|suffix|prefix|=|\*<|>\*|\*) "(?P<literal>(?:[^"\\]|\\.)*)"'
)
_PLACES: Final = {"contains": "*", "suffix": "*<", "prefix": ">*"}


def _benign_word(rng: random.Random) -> str:
    # The product of two uniform numbers favors the first words, as people and programs favor some.
    return _words()[int(rng.random() * rng.random() * BENIGN_WORDS)]


_BENIGN: Final[Weighted[Callable[[random.Random], str]]] = Weighted(
    {
        _benign_word: 8,
        lambda rng: f"-{_benign_word(rng)}": 6,
        lambda rng: f"--{_benign_word(rng)}={rng.randrange(10_000)}": 5,
        lambda rng: f"/{_benign_word(rng)[:1]}": 3,
        lambda rng: f'"c:\\program files\\{_benign_word(rng)}\\{_benign_word(rng)}.dat"': 4,
        lambda rng: f"c:\\users\\{_benign_word(rng)}\\appdata\\local\\{_benign_word(rng)}": 3,
        lambda rng: f"{rng.getrandbits(64):016x}": 2,
        lambda rng: f"https://{_benign_word(rng)}.example/{_benign_word(rng)}": 1,
    }
)


def process_events(count: int, seed: int = 1, rules: Sequence[str] = ()) -> list[Attributes]:
    """Attributes of notifications. Literals of rules come from the texts in `rules`, whoever wrote those."""
    rng = random.Random(f"W5-e-{seed}")
    return [_process(rng, rules) for _ in range(count)]


def _process(rng: random.Random, rules: Sequence[str]) -> Attributes:
    process = _benign_process(rng)
    share = rng.random()
    if rules and share < 1 / AIMED_ONE_IN:
        _aim(process, _literals(rng.choice(rules)), rng)
    elif rules and share < 1 / AIMED_ONE_IN + 1 / HINTED_ONE_IN:
        hints = [literal for _ in range(rng.randrange(1, 4)) for literal in _hint(rng, rules)]
        process["CommandLine"] = _mixed(str(process["CommandLine"]), hints, rng)
    return process


def _benign_process(rng: random.Random) -> Attributes:
    tool, parent, product = _running_tool(rng), _running_tool(rng), f"{_benign_word(rng)} {_benign_word(rng)}"
    image, parent_image = _home(rng) + tool, _home(rng) + parent
    return {
        "EventID": 1,
        "ProcessId": rng.randrange(4, 65_536, 4),
        "Image": image,
        "OriginalFileName": tool,
        "Description": f"{product} {_benign_word(rng)}",
        "Product": product,
        "Company": f"{_benign_word(rng)} corporation",
        "CommandLine": _command_line(image, rng),
        "CurrentDirectory": f"c:\\users\\{_benign_word(rng)}\\",
        "User": f"{_benign_word(rng)}\\{_benign_word(rng)}" if rng.random() < 0.6 else "nt authority\\system",
        "IntegrityLevel": _LEVELS[int(rng.random() * 4)],
        "Hashes": f"sha256={_sha256(rng)},imphash={rng.getrandbits(128):032x}",
        "TerminalSessionId": rng.randrange(4),
        "ParentProcessId": rng.randrange(4, 65_536, 4),
        "ParentImage": parent_image,
        "ParentCommandLine": _command_line(parent_image, rng),
    }


def _running_tool(rng: random.Random) -> str:
    return (_POPULAR_TOOLS.draw(rng) if rng.random() < 0.5 else _benign_word(rng)) + ".exe"


def _command_line(image: str, rng: random.Random) -> str:
    """The path of the program and benign arguments. Most are short; lengths fall off as in the logs of machines."""
    room = COMMAND_CHARACTERS_MAX - COMMAND_CHARACTERS_MIN
    wanted = COMMAND_CHARACTERS_MIN + int(rng.random() * rng.random() * room)
    parts, size = [f'"{image}"'], len(image) + 2
    while size < wanted:
        parts.append(_BENIGN.draw(rng)(rng))
        size += 1 + len(parts[-1])
    return " ".join(parts)[:COMMAND_CHARACTERS_MAX]


def _mixed(command: str, literals: Sequence[str], rng: random.Random) -> str:
    """The command line with the literals at some of its spaces; benign text gives way to them."""
    room = COMMAND_CHARACTERS_MAX - sum(len(literal) + 1 for literal in literals)
    if room < COMMAND_CHARACTERS_MIN:
        return command
    program, quote, arguments = command[:room].partition('" ')
    parts = arguments.split(" ")
    for literal in literals:
        parts.insert(rng.randrange(len(parts) + 1), literal)
    return program + quote + " ".join(parts)


def _literals(rule: str) -> list[tuple[str, str, str]]:
    """Attribute, operator and literal of the constraints of a rule that are not under its first `not` or after it."""
    wanted = rule.split("not ", 1)[0]
    return [
        (leaf["name"], _PLACES.get(leaf["operator"], leaf["operator"]), re.sub(r"\\(.)", r"\1", leaf["literal"]))
        for leaf in _LEAF.finditer(wanted)
    ]


def _hint(rng: random.Random, rules: Sequence[str]) -> list[str]:
    """One literal that some rule looks for in command lines, if the rule drawn has any."""
    literals = [
        text for name, operator, text in _literals(rng.choice(rules)) if name == "CommandLine" and operator == "*"
    ]
    return [rng.choice(literals)] if literals else []


def _aim(process: Attributes, literals: list[tuple[str, str, str]], rng: random.Random) -> None:
    """Changes an event so that it has the literals of a rule where the rule looks for them."""
    for name, operator, literal in literals:
        value = process.get(name)
        if not isinstance(value, str) or "CommandLine" in name:
            continue
        if operator == "=":
            process[name] = literal
        elif operator == ">*":
            process[name] = literal + value.rpartition("\\")[2]
        elif operator == "*<":
            process[name] = value.rpartition("\\")[0] + literal
        else:
            process[name] = "c:" + literal + value.rpartition("\\")[2]
    for name in ("CommandLine", "ParentCommandLine"):
        texts = [literal for attribute, operator, literal in literals if attribute == name and operator == "*"]
        if texts:
            process[name] = _mixed(str(process[name]), texts[:AIMED_LITERALS_MAX], rng)
        endings = [literal for attribute, operator, literal in literals if attribute == name and operator == "*<"]
        if endings:
            process[name] = str(process[name])[: COMMAND_CHARACTERS_MAX - len(endings[0])] + endings[0]
