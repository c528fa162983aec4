"""The settings of content graphs, and the namespaces that they make."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct

from catchment.errors import InputError, shown
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.routing.settings import Settings

if TYPE_CHECKING:
    from catchment.routing.content_graph.preprocessors.reading import ReadKind

# The namespace of all notifications that no scope matches.
DEFAULT_NAMESPACE: Final = "default"
# Namespaces of one network: each broker keeps a table for each, and compares each subscription with each scope.
NAMESPACES_MAX: Final = 1_000


class PreprocessorSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What the subscriptions of a namespace are, if they are no filters (`preprocessors/`). `search` is how nodes are
    found; without it, in the fastest way that the kind has. `attribute` is what subscriptions name; for queries it is
    the attribute of a notification that names the relation. `low` and `high` are the attributes that begin and end the
    range of a notification. `above` has for each keyword or class the names directly above it. `element` is the XML
    element that is the document. `name` is module:attribute: the kind of an application, or the Python class at the
    root of a hierarchy."""

    kind: Literal["json", "xml", "rss", "range", "keywords", "classes", "queries", "application"]
    search: Literal["breadth first", "sorted levels", "index", "matcher", "hash"] | None = None
    attribute: str = ""
    low: str = ""
    high: str = ""
    above: dict[str, tuple[str, ...]] = {}
    element: str = ""
    name: str = ""


class ScopeSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """A namespace: all notifications that match `scope`. `rendezvous` is the name of its rendezvous point. `topics`, if
    there are any, are the filters of its static graph. `publishers` and `subscribers`, if given, are the identities
    that may publish in it and subscribe to it."""

    name: str
    scope: str
    rendezvous: str
    topics: tuple[str, ...] = ()
    publishers: frozenset[str] | None = None
    subscribers: frozenset[str] | None = None
    preprocessor: PreprocessorSettings | None = None


class ContentGraphSettings(Settings, frozen=True):
    """`rendezvous` is the name of the broker that is the rendezvous point of the default namespace. All brokers of a
    network must have the same settings."""

    rendezvous: str
    scopes: tuple[ScopeSettings, ...] = ()
    topics: tuple[str, ...] = ()
    publishers: frozenset[str] | None = None
    subscribers: frozenset[str] | None = None
    preprocessor: PreprocessorSettings | None = None
    forwarding: Literal["labels", "minimal", "stored", "lists"] = "labels"
    preprocessing: Literal["distributed", "central"] = "distributed"
    adaptive: bool = False
    offline: bool = False
    refresh_s: float = 30.0
    expiry_s: float = 100.0
    recovery: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Namespace:
    """A namespace as brokers see it. `scope` is None for the default namespace; `topics` is None if its graph is
    dynamic."""

    name: str
    rendezvous: str
    scope: Filter | None
    topics: tuple[Filter, ...] | None
    publishers: frozenset[str] | None
    subscribers: frozenset[str] | None
    preprocessor: PreprocessorSettings | None
    # What the preprocessor is made from: None if subscriptions are filters.
    kind: ReadKind[Any, Any] | None


class Namespaces:
    """All namespaces of a network. InputError if scopes overlap: then a notification would belong to two."""

    def __init__(self, settings: ContentGraphSettings) -> None:
        scoped = [_namespace(scope, Filter(scope.scope)) for scope in settings.scopes]
        default = ScopeSettings(
            DEFAULT_NAMESPACE,
            "",
            settings.rendezvous,
            settings.topics,
            settings.publishers,
            settings.subscribers,
            settings.preprocessor,
        )
        self.scoped = tuple(scoped)
        self.default = _namespace(default, None)
        self.all = (*scoped, self.default)
        self.by_name = {namespace.name: namespace for namespace in self.all}
        _check(self.all, self.by_name)
        self._overlapping = lru_cache(maxsize=10_000)(self._find_overlapping)

    def of(self, notification: Notification) -> Namespace:
        """The namespace of a notification."""
        for namespace in self.scoped:
            assert namespace.scope is not None
            if namespace.scope.matches(notification):
                return namespace
        return self.default

    def overlapping(self, filter: Filter) -> tuple[Namespace, ...]:
        """The namespaces in which something could match a filter."""
        return self._overlapping(filter) if self.scoped else self.all

    def _find_overlapping(self, filter: Filter) -> tuple[Namespace, ...]:
        scoped = [each for each in self.scoped if each.scope is not None and each.scope.overlaps(filter)]
        # A filter that a scope covers can match nothing in the default namespace.
        is_inside = any(each.scope is not None and each.scope.covers(filter) for each in scoped)
        return tuple(scoped) if is_inside else (*scoped, self.default)


def _namespace(settings: ScopeSettings, scope: Filter | None) -> Namespace:
    # Only here: preprocessors bring the matcher along, and whoever only reads the registry should not wait for it.
    from catchment.routing.content_graph.preprocessors.making import kind_of, topic_of

    kind = kind_of(settings.preprocessor)  # what is wrong with it is said now, not when the first client subscribes
    return Namespace(
        settings.name,
        settings.rendezvous,
        scope,
        tuple(topic_of(settings.preprocessor, topic) for topic in settings.topics) or None,
        settings.publishers,
        settings.subscribers,
        settings.preprocessor,
        kind,
    )


def _check(namespaces: tuple[Namespace, ...], by_name: dict[str, Namespace]) -> None:
    if len(by_name) < len(namespaces):
        names = [namespace.name for namespace in namespaces]
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"settings of content graph: two scopes have the name {shown(twice)}: give each its own")
    if len(namespaces) > NAMESPACES_MAX:
        raise InputError(f"settings of content graph: at most {NAMESPACES_MAX - 1} scopes, found {len(namespaces) - 1}")
    for i, first in enumerate(namespaces):
        for second in namespaces[i + 1 :]:
            if first.scope is not None and second.scope is not None and first.scope.overlaps(second.scope):
                raise InputError(
                    f"settings of content graph: the scopes {shown(first.name)} and {shown(second.name)} overlap: "
                    "a notification must belong to one namespace"
                )
