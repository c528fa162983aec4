"""The public API, name by name and parameter by parameter: a change of it is made on purpose, here as well.

If a test fails, its message lists what differs: a line with `-` is what this file expects, a line with `+` what the
code has. If the change is meant, change the listing below, and tell users in CHANGELOG.md.
"""

import ast
import inspect
from collections.abc import Callable, Iterable, Iterator
from difflib import unified_diff
from functools import cached_property
from pathlib import Path
from types import MemberDescriptorType

import catchment
import catchment.client
from catchment import matching

RESULTS = ("Encoded", "Matches", "Stats")
PIPELINE = Path(catchment.__file__).parent / "pipeline" / "__init__.py"

# The special methods that are for users, as operators or built-in functions.
OPERATORS = ("__and__", "__contains__", "__getitem__", "__iter__", "__len__", "__or__")

CATCHMENT = """
class Advertisement(text)
    attribute box
    attribute constraints
    method covers(other)
    class method from_json(data)
    method matches(notification)
    class method of(*constraints)
    method overlaps(other)
    method to_json()
class Cesql(text)
    method evaluate(attributes)
    property filter
    class method from_json(data)
    method matches(attributes)
    attribute root
    attribute text
    method to_json()
class Conjunction(constraints)
    property box
    property comparisons
    attribute constraints
    method matches(notification)
class Filter(text)
    method __and__(other)
    method __or__(other)
    property alternatives
    property boxes
    property canonical
    property comparisons
    property conjunction
    property conjunctions
    method covers(other)
    class method everything()
    attribute expression
    class method from_json(data)
    property is_empty
    property is_normal
    property is_opaque
    method matches(notification)
    property names
    class method nothing()
    class method of(*constraints)
    class method of_boxes(boxes)
    class method of_expression(expression)
    method overlaps(other)
    property routed
    property size
    method to_json()
class Matcher()
    method __contains__(id)
    method __len__()
    method add(id, filter, group=None)
    method add_many(ids, filters=None, groups=None)
    method explain(notification, id)
    method filter_of(id)
    method match(notification)
    method match_batch(notifications)
    method match_groups(notifications)
    method nearest(notification, limit=10)
    class method open(path)
    method prepare(by_group=False)
    method remove(id)
    method save(path)
    method settled()
    method stats()
class Notification(attributes=(), *, id=None, source=None, time=None, seq=None, payload=b'')
    method __getitem__(name)
    method __iter__()
    method __len__()
    property content
    class method from_json(data)
    property id
    property matched
    class method of_checked(attributes, id, source, time, seq, payload, packed=None)
    property packed
    class method parse(text)
    attribute payload
    property seq
    property source
    method stamped(*, id=None, source=None, time=None, seq=None)
    property time
    method to_json()
class Pattern(text)
    attribute by
    method covers(other)
    attribute filters
    class method from_json(data)
    property is_simple
    class method of(*filters, within=None, by=())
    method to_json()
    attribute within
class Subscription(id, client, wanted)
    attribute client
    class method from_json(data)
    attribute id
    method to_json()
    attribute wanted
function connect(url='', *, identity=None, reconnect=True, seen=None, on_gap=None, state=None, positions=None, on_lost_log=None, offline=False)
function connect_blocking(url='', *, identity=None, reconnect=True, on_gap=None, state=None, positions=None, on_lost_log=None, offline=False)
"""  # noqa: E501

# What a Matcher gives back.
MATCHING = """
class Encoded(entries, bad)
    method __len__()
    attribute bad
    attribute entries
    class method of_columns(columns, rows)
    method row(i)
    method slice(start, count)
class Matches(offsets, ids, tables)
    method __getitem__(at)
    method __iter__()
    method __len__()
    property counts
    attribute ids
    attribute offsets
    property tables
    method to_arrow(sorted=False)
    property user_ids
class Stats(subscriptions, pending, removed, segments, conjunctions, constraints, rows, nodes, bytes, scanned_rows, scan_max, wide_rows, wide_max)
    attribute bytes
    property bytes_per_subscription
    attribute conjunctions
    attribute constraints
    attribute nodes
    attribute pending
    attribute removed
    attribute rows
    attribute scan_max
    attribute scanned_rows
    attribute segments
    attribute subscriptions
    method to_json()
    attribute wide_max
    attribute wide_rows
"""  # noqa: E501

CLIENT = """
BlockingClient
BlockingSubscription
Client
ConnectionLostError
Delivered
GapSpan
Kept
LostLogSpan
RefusedError
StateError
Subscription
connect
connect_blocking
"""

PIPELINE_NAMES = """
Index
Input
NotificationFiles
Written
add_subscriptions
archive
archived
change_subscriptions
compact
compile_subscriptions
detect
dry_run
lines
match
match_counts
match_explained
match_pairs
match_scattered
match_stream
open_index
read_notifications
read_stream_output
read_subscriptions
remove_subscriptions
replay
spark_session
stream_notifications
unmatched
write_matches
"""


# ---- listing what the code has -------------------------------------------------------------------


def signature_of(function: Callable[..., object], skipped: int = 0) -> str:
    """`(a, b=1, *, c)`: names, kinds and defaults, without annotations and without the first so many parameters."""
    parameters = list(inspect.signature(function).parameters.values())[skipped:]
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
    return str(inspect.Signature(bare))


def member_line(name: str, member: object) -> str | None:
    if isinstance(member, classmethod):
        return f"class method {name}{signature_of(member.__func__, 1)}"
    if isinstance(member, staticmethod):
        return f"static method {name}{signature_of(member.__func__)}"
    if isinstance(member, property | cached_property):
        return f"property {name}"
    if isinstance(member, MemberDescriptorType):
        return f"attribute {name}"
    return f"method {name}{signature_of(member, 1)}" if inspect.isfunction(member) else None


def members_of(public_class: type) -> dict[str, str]:
    """By name, a line for each public method, property and attribute that a class of this project defines."""
    lines: dict[str, str] = {}
    for base in reversed(public_class.__mro__):
        if base.__module__.split(".")[0] == "catchment":
            declared = {name: f"attribute {name}" for name in vars(base).get("__annotations__", {})}
            defined = {name: line for name, member in vars(base).items() if (line := member_line(name, member))}
            lines |= declared | defined
    return {name: line for name, line in lines.items() if not name.startswith("_") or name in OPERATORS}


def listing_of(name: str, thing: object) -> Iterator[str]:
    if not isinstance(thing, type):
        assert callable(thing)
        yield f"function {name}{signature_of(thing)}"
        return
    yield f"class {name}{signature_of(thing)}"
    members = members_of(thing)
    yield from (f"    {members[member]}" for member in sorted(members))


def names_in(source: str) -> list[str]:
    """`__all__` of a module's source: the module itself may need what is not installed."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and any(getattr(target, "id", "") == "__all__" for target in node.targets):
            return list(ast.literal_eval(node.value))
    raise AssertionError("the source has no __all__")


def qualified(lines: Iterable[str]) -> Iterator[str]:
    """The lines of members with the name of their class in front: `Filter: method covers(other)`."""
    owner = ""
    for line in lines:
        if line.startswith(" "):
            yield f"{owner}: {line.strip()}"
        else:
            owner = line.split("(")[0].split()[-1]
            yield line


def difference(expected: str, lines: list[str]) -> str:
    """What differs, a line each; empty if nothing does."""
    wanted = list(qualified(expected.strip().splitlines()))
    changes = list(unified_diff(wanted, list(qualified(lines)), lineterm="", n=0))
    return "\n".join(line for line in changes[2:] if not line.startswith("@@"))


# ---- tests -------------------------------------------------------------------------------------


def test_catchment() -> None:
    lines = [line for name in catchment.__all__ for line in listing_of(name, getattr(catchment, name))]
    assert not (changed := difference(CATCHMENT, lines)), "\n" + changed


def test_matching() -> None:
    assert set(RESULTS) < set(matching.__all__)
    lines = [line for name in RESULTS for line in listing_of(name, getattr(matching, name))]
    assert not (changed := difference(MATCHING, lines)), "\n" + changed


def test_client_names() -> None:
    assert not (changed := difference(CLIENT, list(catchment.client.__all__))), "\n" + changed
    assert all(hasattr(catchment.client, name) for name in catchment.client.__all__)


def test_pipeline_names() -> None:
    """Read from the source, so that it runs without Spark."""
    assert not (changed := difference(PIPELINE_NAMES, names_in(PIPELINE.read_text("utf-8")))), "\n" + changed


def test_names_are_sorted_and_distinct() -> None:
    for names in (catchment.__all__, catchment.client.__all__, names_in(PIPELINE.read_text("utf-8"))):
        assert list(names) == sorted(set(names))


class _Before:
    size: int

    def __init__(self, text: str) -> None:
        self.size = len(text)

    def find(self, name: str, limit: int = 10) -> int:
        return self.size

    @property
    def count(self) -> int:
        return self.size


class _After:
    def __init__(self, text: str, *, strict: bool = False) -> None:
        self._size = len(text)

    def find(self, name: str, limit: int = 20) -> int:
        return self._hidden()

    def _hidden(self) -> int:
        return self._size

    @classmethod
    def of(cls, *parts: str) -> "_After":
        return cls("".join(parts))


_Before.__module__ = _After.__module__ = "catchment.planted"


def test_every_change_is_told() -> None:
    """What the tests above would say of a changed parameter, a changed default, and names that come and go."""
    before, after = list(listing_of("Planted", _Before)), list(listing_of("Planted", _After))
    assert sorted(difference("\n".join(before), after).splitlines()) == [
        "+Planted: class method of(*parts)",
        "+Planted: method find(name, limit=20)",
        "+class Planted(text, *, strict=False)",
        "-Planted: attribute size",
        "-Planted: method find(name, limit=10)",
        "-Planted: property count",
        "-class Planted(text)",
    ]
    assert difference("\n".join(before), before) == ""
