"""`python -m catchment.matching.warm`: compiles all kernels into their cache, so that the next start is quick.

With `--matcher`, only those that a matcher runs. The others build the content graph, which brokers do not: a quarter of
the work.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from tempfile import TemporaryDirectory
from typing import Final

import pyarrow as pa

from catchment.matching.kernels import graph, single
from catchment.matching.matcher import PENDING_MAX, Matcher
from catchment.model.filter import Filter

_TEXTS = (
    "a = 1 and b > 2.5",
    "s >* 'x' or s *< 'y' or s * 'z'",
    "s glob 'a*b?c' and not s glob '*q*' and a in (1, 2, 3)",
    "t > 2026-01-01T00:00:00Z and f = true and not exists(g)",
)


def warm() -> None:
    """Compiles in as many processes as there are processors, each a part of the kernels: half the time of one."""
    _compile([*_MATCHER_PARTS, graph.warm])


def _compile(parts: Sequence[Callable[[], None]]) -> None:
    with ProcessPoolExecutor(min(len(parts), os.cpu_count() or 1), get_context("spawn")) as pool:
        for compiled in [pool.submit(part) for part in parts]:
            compiled.result()


def _warm_matcher() -> None:
    """Takes every path of a matcher once."""
    filters = [Filter(text) for text in _TEXTS]
    many = [Filter.of(("a", ">", i), ("s", "substring", f"z{i}"), ("b", "=", i % 3)) for i in range(2 * PENDING_MAX)]
    matcher = Matcher()
    matcher.add_many(list(range(len(many))), many, ["even" if i % 2 else "odd" for i in range(len(many))])
    for i, filter in enumerate(filters):
        matcher.add(f"s{i}", filter, "others")
    now = datetime(2026, 6, 1, tzinfo=UTC)
    rows: list[dict[str, str | int | float | bool | datetime]] = [{"a": 1, "b": 2.75, "s": "xz1y", "t": now, "f": True}]
    more = {"d": pa.array(["x"]).dictionary_encode(), "l": pa.array(["x"], pa.large_string())}
    more["m"] = pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64()))
    table = pa.table({name: [value] for name, value in rows[0].items()} | more)
    with TemporaryDirectory() as directory:
        matcher.save(directory)
        _match(Matcher.open(directory), rows, table)
    matcher.remove(0)
    _match(matcher, rows, table)
    matcher.add_many(["m1"], filters[:1])
    with_text_ids = Matcher()
    with_text_ids.add_many(["a", "b"], filters[:2])
    with_text_ids.match_batch(rows).to_arrow(sorted=True)


def _match(matcher: Matcher, rows: list[dict[str, str | int | float | bool | datetime]], table: pa.Table) -> None:
    matcher.match(rows[0])
    matcher.match_batch(rows)
    matcher.match_batch(table)
    matcher.match_groups(rows)
    matcher.nearest(rows[0])


# The longest first. A matcher calls match_single last, after the kernels that build its index. Meanwhile another
# process has compiled match_single, a third of all work, and this one has it from the cache.
_MATCHER_PARTS: Final = (_warm_matcher, single.warm)


if __name__ == "__main__":
    if sys.argv[1:] == ["--matcher"]:
        _compile(_MATCHER_PARTS)
    else:
        warm()
