"""Standing queries of a database (F3 §5.4, §6.4): who subscribes is told when the result of a query changes.

A subscription is a query of one relation, as the text of an attribute:

    query = "SELECT name, price FROM stock WHERE price > 100 and place = 'north'"

Columns are names or `*`; the condition is a filter in our language. That is all: a query that needs more than the row
that changes (a join, a count, an order) cannot be answered by whoever sees only that row.

A notification is a change of one row. Its attributes are the columns of the row, the name of the relation, and
`change`:

    insert, delete   the row that came or went. What has no `change` counts as a row that came.
    update           the row as it is now. A column that was different before is there twice: `price = 120` and
                     `old.price = 90`. Without any old value, every column counts as different.

The result of a query changes if a row of it comes or goes; if an update makes a row fulfil the condition or no longer
fulfil it; or if a row fulfils it before and after, and one of the columns is different that the query names, be it to
show them or in the condition. So a query is wider than another if its condition covers the other's, and it names all
columns that the other names, or `*`.

A change belongs to queries that match the row before or the row after, so the one matcher finds them (`matcher`). Of
the question in §6.4, how the index of a database finds its way into a content graph, this is our answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from catchment.errors import InputError, LimitError, ParseError, shown
from catchment.model.expression import And, positive
from catchment.model.filter import Filter
from catchment.model.notification import Notification
from catchment.routing.content_graph.preprocessors.base import Relation
from catchment.routing.content_graph.preprocessors.reading import MakeSearch, ReadKind, constraints_of
from catchment.routing.content_graph.preprocessors.searches import MatcherSearch

# The attribute of a subscription that has the text of a query; those of a notification that say what has changed.
QUERY: Final = "query"
CHANGE: Final = "change"
OLD: Final = "old."
# A longer query is refused: each is compared with all others of its namespace.
QUERY_CODEPOINTS_MAX: Final = 4_096

_EVERYTHING: Final = Filter.everything()
# What a query is made of up to its condition. Names are those of the filter language.
_TOKEN: Final = re.compile(r"\s*(?:(?P<name>\$?[^\W\d]\w*(?:\.\w+)*)|`(?P<quoted>[^`\\]+)`|(?P<sign>.))", re.DOTALL)
_NAME: Final = re.compile(r"\$?[^\W\d]\w*(?:\.\w+)*")
_WORDS: Final = ("select", "from", "where")


@dataclass(frozen=True, slots=True)
class Query:
    """`columns` are all that the query names, also in its condition; None for all there are."""

    relation: str
    columns: frozenset[str] | None
    condition: Filter
    # The rows of the result: those of the relation that fulfil the condition.
    rows: Filter = field(compare=False, repr=False)

    def __str__(self) -> str:
        columns = "*" if self.columns is None else ", ".join(map(_quoted, sorted(self.columns)))
        condition = "" if self.condition == _EVERYTHING else f" WHERE {self.condition}"
        return f"SELECT {columns} FROM {_quoted(self.relation)}{condition}"

    def covers(self, other: Query) -> bool:
        """Whether each change of the other's result is one of this."""
        if self.relation != other.relation:
            return False
        names_all = self.columns is None or (other.columns is not None and self.columns >= other.columns)
        return names_all and self.rows.covers(other.rows)


@dataclass(frozen=True, slots=True)
class Change:
    """A row as it is, or was last. If it was another before, `before` is that, and `columns` are those that differ."""

    row: Notification
    before: Notification | None = None
    columns: frozenset[str] = frozenset()

    @property
    def rows(self) -> tuple[Notification, ...]:
        return (self.row,) if self.before is None else (self.row, self.before)


class QueryKind(ReadKind[Query, Change]):
    """Queries of relations that are named in `attribute`."""

    def __init__(self, attribute: str) -> None:
        self._attribute = attribute

    def parse(self, text: str) -> Query:
        """ParseError says where a text is no query."""
        if len(text) > QUERY_CODEPOINTS_MAX:
            raise LimitError("QUERY_CODEPOINTS_MAX", QUERY_CODEPOINTS_MAX, f"{len(text):,} characters")
        head = _Head(text)
        head.word("select")
        columns = head.columns()
        head.word("from")
        relation = head.name("the name of a relation")
        condition = head.condition() if head.has_condition() else _EVERYTHING
        if columns is not None:
            columns |= {name.removeprefix(OLD) for name in condition.names}
        of_relation = Filter.of((self._attribute, "=", relation))
        rows = Filter.of_expression(positive(And((of_relation.canonical, condition.canonical))))
        return Query(relation, columns, condition, rows)

    def relation(self, first: Query, second: Query) -> Relation:
        is_wider, is_narrower = first.covers(second), second.covers(first)
        if is_wider and is_narrower:
            return Relation.SAME
        if is_wider:
            return Relation.WIDER
        return Relation.NARROWER if is_narrower else Relation.APART

    def matches(self, subscription: Query, notification: Change) -> bool:
        is_in = subscription.rows.matches(notification.row)
        if notification.before is None:
            return is_in
        if is_in is not subscription.rows.matches(notification.before):
            return True
        columns = subscription.columns
        return is_in and (columns is None or not columns.isdisjoint(notification.columns))

    def read(self, filter: Filter) -> Query | None:
        text = _text_of(filter)
        try:
            return None if text is None else self.parse(text)
        except InputError:
            return None

    def check(self, filter: Filter) -> None:
        if QUERY not in filter.names:
            return
        text = _text_of(filter)
        if text is None:
            raise InputError(f"{shown(str(filter))}: write {QUERY} = 'SELECT …' alone, with all conditions after WHERE")
        self.parse(text)

    def written(self, subscription: Query) -> Filter:
        return Filter.of((QUERY, "=", str(subscription)))

    def document(self, notification: Notification) -> Change:
        old = {name.removeprefix(OLD): name for name in notification if name.startswith(OLD)}
        if not old or notification.get(CHANGE) != "update":
            return Change(notification)
        # Without the names of old values, so that it has no more attributes than the notification.
        before = {name: value for name, value in notification.items() if not name.startswith(OLD)}
        before |= {name: notification[written] for name, written in old.items() if name}
        stamp = notification
        return Change(
            notification,
            Notification(before, id=stamp.id, source=stamp.source, time=stamp.time, seq=stamp.seq),
            frozenset(old),
        )

    def searches(self) -> Mapping[str, MakeSearch[Query, Change]]:
        return {"matcher": lambda graph: QueryMatcherSearch(self)}


class QueryMatcherSearch(MatcherSearch[Query, Change]):
    """The matcher finds the queries that have the row before or after; then columns are compared."""

    def __init__(self, kind: QueryKind) -> None:
        super().__init__(lambda query: query.rows, lambda change: change.row)
        self._kind = kind
        self._queries: dict[int, Query] = {}

    def add(self, node: int, subscription: Query) -> None:
        super().add(node, subscription)
        self._queries[node] = subscription

    def remove(self, node: int) -> None:
        super().remove(node)
        del self._queries[node]

    def nodes(self, document: Change) -> Iterable[int]:
        found = {node for nodes in self._matcher.answers(document.rows) for node in nodes}
        if document.before is None:
            return found
        self.examined += len(found)
        return [node for node in found if self._kind.matches(self._queries[node], document)]


# --- reading ------------------------------------------------------------------------------------


class _Head:
    """Reads a query from its beginning. `at` is how far it has come."""

    def __init__(self, text: str) -> None:
        self._text = text.rstrip().removesuffix(";").rstrip()
        self.at = 0

    def word(self, word: str) -> None:
        if not self._has_word(word):
            raise self._wrong([word.upper()])

    def columns(self) -> frozenset[str] | None:
        """None for `*`."""
        if self._has_sign("*"):
            return None
        names = [self.name("* or the name of a column")]
        while self._has_sign(","):
            names.append(self.name("the name of a column"))
        return frozenset(names)

    def name(self, what: str) -> str:
        token = self._next()
        name = token and (token["quoted"] or token["name"])
        if not token or not name or (token["name"] or "").lower() in _WORDS:
            raise self._wrong([what])
        self.at = token.end()
        return name

    def has_condition(self) -> bool:
        """Whether there is more to come, which must be a condition."""
        if self._has_word("where"):
            return True
        if self._next() is not None:
            raise self._wrong(["WHERE", "the end of the query"])
        return False

    def condition(self) -> Filter:
        """The rest, as a filter."""
        if not self._text[self.at :].strip():
            raise self._wrong(["a condition"])
        # Blanks in place of what comes before: so errors say where they are in the query.
        blanks = re.sub(r"[^\n]", " ", self._text[: self.at])
        try:
            return Filter(blanks + self._text[self.at :])
        except ParseError as problem:
            raise ParseError(QUERY, problem.line, problem.column, problem.found, problem.expected) from None

    def _next(self) -> re.Match[str] | None:
        return _TOKEN.match(self._text, self.at)

    def _has_word(self, word: str) -> bool:
        token = self._next()
        if token is None or (token["name"] or "").lower() != word:
            return False
        self.at = token.end()
        return True

    def _has_sign(self, sign: str) -> bool:
        token = self._next()
        if token is None or token["sign"] != sign:
            return False
        self.at = token.end()
        return True

    def _wrong(self, expected: list[str]) -> ParseError:
        token = self._next()
        start = len(self._text) if token is None else token.end() - len(token[0].lstrip())
        found = "the end of the text" if token is None else shown(token[0].strip())
        return ParseError(QUERY, *_line_and_column(self._text, start), found, expected)


def _line_and_column(text: str, at: int) -> tuple[int, int]:
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)


def _quoted(name: str) -> str:
    is_plain = _NAME.fullmatch(name) and name.lower() not in _WORDS
    return name if is_plain else f"`{name}`"


def _text_of(filter: Filter) -> str | None:
    """The text of the query that a filter asks for; None if it asks for something else."""
    constraints = constraints_of(filter)
    if constraints is None or len(constraints) != 1:
        return None
    (only,) = constraints
    is_text = only.name == QUERY and only.operator == "=" and isinstance(only.value, str)
    return str(only.value) if is_text else None
