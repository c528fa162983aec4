"""From settings to the preprocessor of a namespace. What is wrong with them is an InputError that says what to do."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from catchment.errors import InputError, shown
from catchment.model.filter import Filter
from catchment.routing.content_graph.preprocessors.attribute_values import JsonKind, RssKind, XmlKind
from catchment.routing.content_graph.preprocessors.filters import FilterPreprocessor, FilterTagger
from catchment.routing.content_graph.preprocessors.hierarchies import ClassKind, Hierarchy, KeywordKind, hierarchy_of
from catchment.routing.content_graph.preprocessors.kinds import KindPreprocessor, KindTagger
from catchment.routing.content_graph.preprocessors.queries import QueryKind
from catchment.routing.content_graph.preprocessors.ranges import RangeKind
from catchment.routing.content_graph.preprocessors.reading import BREADTH_FIRST, ReadKind

if TYPE_CHECKING:
    from catchment.routing.content_graph.settings import PreprocessorSettings


def _attribute(settings: PreprocessorSettings) -> str:
    if not settings.attribute:
        raise _wrong(settings, "has no attribute: say which one subscriptions name")
    return settings.attribute


def _range(settings: PreprocessorSettings) -> ReadKind[Any, Any]:
    return RangeKind(_attribute(settings), settings.low or None, settings.high or None)


def _keywords(settings: PreprocessorSettings) -> ReadKind[Any, Any]:
    return KeywordKind(_attribute(settings), Hierarchy(settings.above))


def _classes(settings: PreprocessorSettings) -> ReadKind[Any, Any]:
    if not settings.name:
        return ClassKind(_attribute(settings), Hierarchy(settings.above))
    root = loaded(settings.name)
    if not isinstance(root, type):
        raise _wrong(settings, f"name: {shown(settings.name)} is no class")
    return ClassKind(_attribute(settings), hierarchy_of(root))


def _application(settings: PreprocessorSettings) -> ReadKind[Any, Any]:
    if not settings.name:
        raise _wrong(settings, "has no name: write module:attribute, a kind that is derived from ReadKind")
    found = loaded(settings.name)
    kind = found() if callable(found) else found
    if not isinstance(kind, ReadKind):
        raise _wrong(settings, f"name: {shown(settings.name)} is no kind: derive it from ReadKind")
    return kind


KINDS: Final[dict[str, Callable[[PreprocessorSettings], ReadKind[Any, Any]]]] = {
    "json": lambda settings: JsonKind(),
    "xml": lambda settings: XmlKind(settings.element),
    "rss": lambda settings: RssKind(),
    "range": _range,
    "keywords": _keywords,
    "classes": _classes,
    "queries": lambda settings: QueryKind(settings.attribute or "relation"),
    "application": _application,
}


def kind_of(settings: PreprocessorSettings | None) -> ReadKind[Any, Any] | None:
    """The kind of a namespace; None for filters as they are. InputError if the settings are wrong."""
    if settings is None:
        return None
    kind = KINDS[settings.kind](settings)
    names = [*kind.searches(), BREADTH_FIRST]
    if settings.search is not None and settings.search not in names:
        raise _wrong(settings, f"has no search {shown(settings.search)}: use one of {', '.join(names)}")
    return kind


def preprocessor_of(settings: PreprocessorSettings | None) -> FilterPreprocessor | KindPreprocessor:
    """What the rendezvous point of a namespace uses."""
    kind = kind_of(settings)
    return FilterPreprocessor() if settings is None or kind is None else KindPreprocessor(kind, settings.search)


def tagger_of(settings: PreprocessorSettings | None) -> FilterTagger:
    """What other brokers use that tag notifications."""
    kind = kind_of(settings)
    return FilterTagger() if settings is None or kind is None else KindTagger(kind, settings.search)


def topic_of(settings: PreprocessorSettings | None, text: str) -> Filter:
    """A topic of a static graph: a filter, or as the kind of the namespace writes its subscriptions."""
    kind = kind_of(settings)
    return Filter(text).routed if kind is None else kind.written(kind.parse(text))


def loaded(name: str) -> Any:
    """What `module:attribute` names; InputError if there is no such thing."""
    module, colon, attribute = name.partition(":")
    try:
        if not colon:
            raise ImportError("there is no colon")
        found: Any = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
        return found
    except (ImportError, AttributeError, ValueError) as problem:
        raise InputError(f"{shown(name)} cannot be loaded: {problem}; write module:attribute") from None


def _wrong(settings: PreprocessorSettings, what: str) -> InputError:
    return InputError(f"settings of content graph: the preprocessor {shown(settings.kind)} {what}")
