"""Files of Sigma rules: YAML, one document or several; each document is one rule.

What a document says is checked here: whether it is a rule at all, and whether its parts have the shape they should.
Files come from others, so their depth is bounded before anything recurses into them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from catchment.errors import InputError, UnavailableError, shown
from catchment.model.filter import Filter
from catchment.sigma.conditions import condition_expression
from catchment.sigma.expressions import (
    Comparison,
    Expression,
    Inexpressible,
    LetterCase,
    all_of,
    any_of,
    with_presence,
    written,
)
from catchment.sigma.values import field_expression

if TYPE_CHECKING:
    from yaml import SafeLoader

# How deep lists and maps may nest. A rule needs five levels. Without a limit, a deep file would exhaust the stack of
# the fast loader, which is written in C.
DOCUMENT_DEPTH_MAX: Final = 32
# The longest filter of 489 public rules has 28 kB.
FILE_BYTES_MAX: Final = 1_048_576
LOG_SOURCE_PARTS: Final = ("category", "product", "service")

# Documents that Sigma has besides rules, by the key that they have.
_OTHER_DOCUMENTS: Final = {
    "action": ("rule collection", "several documents together make its rules"),
    "correlation": ("correlation rule", "it looks at several events together"),
    "filter": ("Sigma filter", "it changes other rules"),
}
# Parts of a detection section that are not selections.
_NOT_SELECTIONS: Final = ("condition", "timeframe")


@dataclass(frozen=True, slots=True)
class ImportedRule:
    file: str
    id: str
    title: str
    author: str
    level: str
    filter: str


@dataclass(frozen=True, slots=True)
class RejectedRule:
    """A document that became no filter. `document` counts from 1 in its file."""

    file: str
    document: int
    id: str
    title: str
    kind: str
    reason: str


# --- one rule -----------------------------------------------------------------------------------


def filter_of(rule: dict[Any, Any], letter_case: LetterCase, *, with_log_source: bool = False) -> str:
    """The filter that a rule becomes. Inexpressible says why there is none."""
    expression = with_presence(_detection_expression(rule))
    if with_log_source:
        expression = all_of([*_log_source(rule), expression])
    text = written(expression, letter_case)
    try:
        Filter(text)
    except InputError as problem:
        raise Inexpressible("filter language", str(problem)) from None
    return text


def _detection_expression(rule: dict[Any, Any]) -> Expression:
    detection = rule.get("detection")
    for key, (kind, why) in _OTHER_DOCUMENTS.items():
        if key in rule and (key == "action" or detection is None):
            raise Inexpressible(kind, why)
    if not isinstance(detection, dict):
        raise Inexpressible("bad rule", "it has no detection section")
    names = [name for name in detection if isinstance(name, str) and name not in _NOT_SELECTIONS]
    # A selection that several parts of the condition name is read once.
    selected = cache(lambda name: _selection_expression(name, detection[name]))
    return any_of([condition_expression(text, names, selected) for text in _conditions(detection)])


def _conditions(detection: dict[Any, Any]) -> list[str]:
    """The condition of a rule. If there are several, one of them must hold."""
    given = detection.get("condition")
    texts = [text for text in (given if isinstance(given, list) else [given]) if isinstance(text, str)]
    if not texts or (isinstance(given, list) and len(texts) < len(given)):
        raise Inexpressible("bad rule", "it has no condition, or one that is no text")
    return texts


def _selection_expression(name: str, selection: object, depth: int = 0) -> Expression:
    """A map says all of its entries, a list any of its items."""
    # A list that contains itself, which YAML can write, ends here.
    if depth > DOCUMENT_DEPTH_MAX:
        raise Inexpressible("bad rule", f"selection {shown(name)} is more than {DOCUMENT_DEPTH_MAX} deep")
    if isinstance(selection, dict) and selection:
        if not all(isinstance(key, str) for key in selection):
            raise Inexpressible("bad rule", f"selection {shown(name)} has a field name that is no text")
        return all_of([field_expression(key, value) for key, value in selection.items()])
    if isinstance(selection, list) and selection:
        return any_of([_selection_expression(name, item, depth + 1) for item in selection])
    if isinstance(selection, dict | list):
        raise Inexpressible("bad rule", f"selection {shown(name)} is empty")
    raise Inexpressible("keywords", f"{shown(selection)} is to be anywhere in the event; a filter names attributes")


def _log_source(rule: dict[Any, Any]) -> list[Comparison]:
    """Which logs the rule is for, as comparisons of three attributes that the notifications must then have."""
    source = rule.get("logsource")
    given = source if isinstance(source, dict) else {}
    return [
        Comparison(f"logsource.{part}", "=", (given[part],))
        for part in LOG_SOURCE_PARTS
        if isinstance(given.get(part), str)
    ]


# --- files --------------------------------------------------------------------------------------


class RuleReader:
    """Reads files of rules one after another. A rule without an id gets the name of its file for an id."""

    def __init__(self, letter_case: LetterCase, *, with_log_source: bool = False) -> None:
        _loader()  # says what is missing before anything is read
        self._letter_case, self._with_log_source = letter_case, with_log_source
        self._file_by_id: dict[str, str] = {}

    def read(self, file: str, content: bytes) -> Iterator[ImportedRule | RejectedRule]:
        """What became of each rule of a file. `file` is its name, for messages and ids."""
        number = 0
        try:
            for number, document in enumerate(_documents(content), 1):
                if document is not None:
                    yield self._read_one(file, number, document)
        except Inexpressible as problem:
            yield RejectedRule(file, number + 1, "", "", problem.kind, str(problem))

    def _read_one(self, file: str, number: int, document: object) -> ImportedRule | RejectedRule:
        rule = document if isinstance(document, dict) else {}
        id, title = _word(rule, "id"), _word(rule, "title")
        try:
            if not isinstance(document, dict):
                raise Inexpressible("bad rule", f"it is no map but {shown(document)}")
            filter = filter_of(rule, self._letter_case, with_log_source=self._with_log_source)
            unique = self._unique(id, file, number)
        except Inexpressible as problem:
            return RejectedRule(file, number, id, title, problem.kind, str(problem))
        return ImportedRule(file, unique, title, _word(rule, "author"), _word(rule, "level"), filter)

    def _unique(self, id: str, file: str, number: int) -> str:
        unique = id or (file if number == 1 else f"{file}#{number}")
        if (other := self._file_by_id.setdefault(unique, f"{file}#{number}")) != f"{file}#{number}":
            raise Inexpressible("id", f"the rule {other} has the same id {unique}")
        return unique


def _word(rule: dict[Any, Any], key: str) -> str:
    value = rule.get(key)
    return value if isinstance(value, str) else ""


def _documents(content: bytes) -> Iterator[object]:
    import yaml

    if len(content) > FILE_BYTES_MAX:
        raise Inexpressible("size", f"the file has more than {FILE_BYTES_MAX:,} bytes")
    try:
        _check_depth(content)
        yield from yaml.load_all(content, Loader=_loader())
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        place = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
        raise Inexpressible("YAML", place + str(getattr(problem, "problem", None) or problem).split("\n")[0]) from None
    except ValueError as problem:
        # A number with thousands of digits, or the 30th of February.
        raise Inexpressible("YAML", str(problem)) from None


def _check_depth(content: bytes) -> None:
    """Follows the structure without building it: building recurses, and a deep file would exhaust the stack."""
    import yaml

    depth = 0
    for step in yaml.parse(content, Loader=_loader()):
        if isinstance(step, yaml.CollectionStartEvent):
            depth += 1
            if depth > DOCUMENT_DEPTH_MAX:
                raise Inexpressible("size", f"its lists and maps are more than {DOCUMENT_DEPTH_MAX} deep")
        elif isinstance(step, yaml.CollectionEndEvent):
            depth -= 1


def _loader() -> type[SafeLoader]:
    try:
        import yaml
    except ImportError:
        raise UnavailableError(
            "Sigma rules are YAML, and PyYAML is not installed: pip install 'catchment[sigma]'"
        ) from None
    # The one in C is ten times as fast, and not everywhere.
    return _rule_loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader))


@cache
def _rule_loader(base: Any) -> type[SafeLoader]:
    """A loader for rules, made from one of PyYAML's."""
    import yaml

    class RuleLoader(base):  # type: ignore[misc]
        """Refuses a map with the same key twice: YAML would silently keep the last, and the rule would say less. Also
        refuses half of a surrogate pair, which is no character; the loader in C does so by itself."""

        def construct_scalar(self, node: yaml.ScalarNode) -> Any:
            try:
                node.value.encode()
            except UnicodeEncodeError:
                problem = "half of a surrogate pair is no character"
                raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None
            return super().construct_scalar(node)

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            keys = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
            for key, count in keys.items():
                if count > 1:
                    problem = f"the key {shown(key)} is there {count} times"
                    raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
            made: dict[Any, Any] = super().construct_mapping(node, deep)
            return made

    return RuleLoader
