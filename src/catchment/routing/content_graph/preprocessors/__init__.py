"""Preprocessors: from subscriptions and notifications to nodes of a content graph (F3 §3.2, §3.4.4, §3.5.3, §6.3).

    base        the interface: a kind of subscriptions (parse, relation, matches) and what a preprocessor does; the base
                preprocessor, breadth first, for any kind
    filters     our filters: poset and matcher
    reading     kinds that a namespace may have instead: what clients write as filters, read by the kind
    attribute_values, ranges, hierarchies, queries
                such kinds: documents in JSON, XML and RSS; numeric ranges; keyword ontologies and classes; standing
                queries of a database
    searches    faster searches for them: sorted levels, index, matcher, hash
    kinds       the preprocessor of a namespace of such a kind
    making      from settings to a preprocessor; kinds of an application, by name

A preprocessor gives nodes no ids: whoever owns the graph does, the rendezvous point of the namespace
(`rendezvous.py`). Routers never call a preprocessor for a notification that has its nodes already.
"""

from catchment.routing.content_graph.preprocessors.base import (
    BreadthFirstPreprocessor,
    Kind,
    Place,
    Preprocessor,
    Relation,
)
from catchment.routing.content_graph.preprocessors.filters import FilterKind, FilterPreprocessor, FilterTagger

__all__ = [
    "BreadthFirstPreprocessor",
    "FilterKind",
    "FilterPreprocessor",
    "FilterTagger",
    "Kind",
    "Place",
    "Preprocessor",
    "Relation",
]
