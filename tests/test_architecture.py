"""The shape of the code, checked with `ast`: who may import whom, who alone may use what, private names, sizes, stray
addresses.

Each rule is a function from a source to the violations it finds, so each is also tried on a planted one.
Recorded departures from the table of the house style, each where its rule is:

* `pipeline` may use pyarrow too: Spark's mapInArrow hands it Arrow batches.
* `cli` may import anything, and nobody imports it but `__main__`.
* `matching` may write to the disk too, as Matcher.save does; so "the disk" is checked as the databases of `store`.
* Tests that plant mistakes (`PLANTING`) may use private names: a mistake often goes into a private method.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src"

# What each part of catchment may import besides itself, model and errors.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "model": set(),
    "matching": set(),
    "routing": {"matching"},
    "node": {"routing", "store"},
    "wire": {"routing.messages", "routing.durable.messages"},
    "store": {"wire", "routing.messages", "routing.stored"},
    "broker": {"node", "routing", "wire", "store"},
    "client": {"routing", "wire", "store"},
    "sim": {"node", "routing", "wire", "store"},
    "studies": {"sim"},
    "pipeline": {"matching", "routing", "sim", "studies", "client"},
    "console": set(),
    "demo": set(),
    "sigma": set(),
    "__init__": {"matching", "client"},
    "__main__": {"cli"},
}
FREE = {"cli"}

# Modules that only the named files, relative to src/catchment, may use.
RESERVED: dict[str, tuple[str, ...]] = {
    "numba": ("matching/kernels/*.py",),
    "pyarrow": ("matching/*", "pipeline/*"),
    "ahocorasick_rs": ("matching/*",),
    "re2": ("model/opaque.py",),
    "lark": ("model/*",),
    "yaml": ("sigma/*",),
    "random": ("sim/*",),
    "numpy.random": ("sim/*",),
    "asyncio": ("broker/*", "client/*"),
    "uvloop": ("broker/*",),
    "starlette": ("broker/*",),
    "uvicorn": ("broker/*",),
    "websockets": ("broker/*", "client/*"),
    "prometheus_client": ("broker/*",),
    "httpcore": ("broker/*",),
    "joserfc": ("broker/*",),
    "cryptography": ("broker/*",),
    "sqlite3": ("store/*",),
    "psycopg": ("store/*",),
    "matplotlib": ("studies/*",),
    "rustworkx": ("sim/*", "studies/*"),
    "pyspark": ("pipeline/*",),
    "pandas": ("pipeline/*",),
    "rich": (),
    "cyclopts": (),
    "duckdb": (),
}

# Reading the clock, which belongs to the broker and the client: elsewhere time is an argument.
CLOCKS = {
    "time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns", "time.sleep",
    "datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today",
}  # fmt: skip
CLOCK_USERS = ("broker/*", "client/*")

# Private names are the business of their own module: those of src/catchment, and those of the tests.
WITH_PRIVATE_NAMES = ("catchment", "tests")
# The folders beside src that have code, and the files there that may use private names.
BESIDE = ("benchmarks", "examples", "tests", "tools")
PLANTING = ("tests/conformance/*", "tests/live/*", "tests/unit/*_mutants.py")
# What everybody may use of a named tuple. These begin with an underscore only to leave all other names to its fields.
OF_NAMED_TUPLES = {"_asdict", "_field_defaults", "_fields", "_make", "_replace"}

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60

# What `import catchment` must not bring along.
HEAVY = {"numba", "pyarrow", "pandas", "pyspark", "starlette", "uvicorn", "matplotlib", "cyclopts", "rich", "yaml"}

# Written so that it does not match itself.
STRAY = re.compile(
    r"(?<![\w.~/-])/(?:root|work|Users|home/\w+)/"
    r"|pypi\.(?:org|python)|pythonhosted\.(?:org)|deb\.(?:debian)|npmjs\.(?:org|com)"
    r"|^\s*-?-(?:extra-)?(?:index-(?:url)|find-(?:links))\b",
    re.MULTILINE,
)


@dataclass
class Source:
    """A Python file: its path relative to the folder of the package `top`, and its text. Without `top`, the path is
    relative to the root of the project."""

    path: str
    text: str
    top: str = "catchment"
    tree: ast.Module = field(init=False)

    def __post_init__(self) -> None:
        self.tree = ast.parse(self.text, self.path)

    @property
    def part(self) -> str:
        """The package or module directly below catchment that this file belongs to."""
        return self.path.split("/", 1)[0].removesuffix(".py")

    @property
    def package(self) -> list[str]:
        """Where relative imports start."""
        return [*([self.top] if self.top else []), *self.path.split("/")[:-1]]

    def is_any(self, patterns: tuple[str, ...]) -> bool:
        return any(fnmatch(self.path, pattern) for pattern in patterns)

    @cached_property
    def names(self) -> dict[str, str]:
        """What each name bound by an import stands for: `np` -> `numpy`, `now` -> `datetime.datetime.now`."""
        bound = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    top = alias.name.split(".")[0]
                    bound[alias.asname or top] = alias.name if alias.asname else top
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    bound[alias.asname or alias.name] = f"{self.origin(node)}.{alias.name}"
        return bound

    def origin(self, node: ast.ImportFrom) -> str:
        """The absolute name of the module that a `from … import` names."""
        start = self.package[: len(self.package) - node.level + 1] if node.level else []
        return ".".join([*start, *([node.module] if node.module else [])])

    def imports(self) -> Iterator[tuple[int, str]]:
        """Every imported name, absolute, with its line; those under `if TYPE_CHECKING` and in functions too."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from ((node.lineno, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from ((node.lineno, f"{self.origin(node)}.{alias.name}") for alias in node.names)

    def uses(self) -> Iterator[tuple[int, str]]:
        """Every dotted name that starts with an imported one, absolute, with its line."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute | ast.Name) and (dotted := _dotted(node)):
                first, _, rest = dotted.partition(".")
                if first in self.names:
                    yield node.lineno, f"{self.names[first]}.{rest}".rstrip(".")


def _dotted(node: ast.expr) -> str:
    """`a.b.c` of such an expression, or nothing."""
    if isinstance(node, ast.Attribute) and (start := _dotted(node.value)):
        return f"{start}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _within(name: str, module: str) -> bool:
    return name == module or name.startswith(module + ".")


def import_violations(source: Source) -> Iterator[str]:
    """Imports inside catchment that the table does not allow."""
    if source.part in FREE:
        return
    if source.part not in MAY_IMPORT:
        yield f"{source.path}: {source.part} is not in the import table"
        return
    allowed = {"model", "errors", source.part} | MAY_IMPORT[source.part]
    for line, name in source.imports():
        if _within(name, "catchment") and not any(_within(name, f"catchment.{part}") for part in allowed):
            yield f"{source.path}:{line}: {source.part} may not import {name}"


def reserved_violations(source: Source) -> Iterator[str]:
    """Libraries used where another part alone may use them."""
    if source.part in FREE:
        return
    named = [*source.imports(), *source.uses()]
    for module, users in RESERVED.items():
        if not source.is_any(users):
            for line in sorted({line for line, name in named if _within(name, module)}):
                yield f"{source.path}:{line}: {module} is for {', '.join(users) or 'cli'} alone"


def clock_violations(source: Source) -> Iterator[str]:
    """Clocks read where time must be an argument."""
    if source.part not in FREE and not source.is_any(CLOCK_USERS):
        for line, name in source.uses():
            if name in CLOCKS:
                yield f"{source.path}:{line}: {name} is for {', '.join(CLOCK_USERS)} alone"


def print_violations(source: Source) -> Iterator[str]:
    """Calls of `print` outside the command line."""
    if source.part not in FREE:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Call) and _dotted(node.func) == "print":
                yield f"{source.path}:{node.lineno}: print"


def private_violations(source: Source) -> Iterator[str]:
    """Private names of another module: imported, or reached through something imported, be it a module or a class."""
    if source.is_any(PLANTING):
        return
    reached = {
        (line, name.partition(f".{part}")[0], part)
        for line, name in (*source.imports(), *source.uses())
        if any(_within(name, top) for top in WITH_PRIVATE_NAMES)
        for part in name.split(".")
        if _is_private(part)
    }
    for line, owner, part in sorted(reached):
        yield f"{source.path}:{line}: {part} is private to {owner}"


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in OF_NAMED_TUPLES


def size_violations(source: Source) -> Iterator[str]:
    """Files and functions past their limit."""
    lines = len(source.text.splitlines())
    if lines > FILE_LINES_MAX:
        yield f"{source.path}: {lines} lines, the limit is {FILE_LINES_MAX}"
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield f"{source.path}:{node.lineno}: {node.name} has {lines} lines, the limit is {FUNCTION_LINES_MAX}"


def stray_violations(path: str, text: str) -> Iterator[str]:
    """Paths of one machine and addresses of package indexes."""
    for address in STRAY.finditer(text):
        line = text.count("\n", 0, address.start()) + 1
        yield f"{path}:{line}: {address.group().strip()}"


RULES = [
    import_violations,
    reserved_violations,
    clock_violations,
    print_violations,
    private_violations,
    size_violations,
]


def sources() -> list[Source]:
    base = SRC / "catchment"
    return [Source(path.relative_to(base).as_posix(), path.read_text("utf-8")) for path in sorted(base.rglob("*.py"))]


def sources_beside() -> list[Source]:
    paths = sorted(path for folder in BESIDE for path in (ROOT / folder).rglob("*.py"))
    return [Source(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"), top="") for path in paths]


# ---- the rules, on what is there ---------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
def test_sources_keep(rule):
    violations = [violation for source in sources() for violation in rule(source)]
    assert not violations, "\n" + "\n".join(violations)


def test_private_names_are_used_by_their_module_alone():
    violations = [violation for source in sources_beside() for violation in private_violations(source)]
    assert not violations, "\n" + "\n".join(violations)


def test_there_are_sources():
    assert {"errors", "model"} <= {source.part for source in sources()}
    assert {source.part for source in sources_beside()} == set(BESIDE)


def test_import_is_light():
    listing = subprocess.run(
        [sys.executable, "-c", "import catchment, sys; sys.stdout.write(' '.join(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert "catchment" in listing
    assert HEAVY & set(listing) == set()


def test_no_stray_addresses():
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode:
        pytest.skip("not a git work tree: no telling which files are the project's")
    paths = [ROOT / name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]
    texts = {path.relative_to(ROOT).as_posix(): path.read_bytes().decode("utf-8", "ignore") for path in paths}
    violations = [violation for path, text in texts.items() for violation in stray_violations(path, text)]
    assert not violations, "\n" + "\n".join(violations)


# ---- the rules, on planted violations ----------------------------------------------------------

BREAKING = [
    (import_violations, "model/filter.py", "import catchment.matching"),
    (import_violations, "model/filter.py", "from catchment import Matcher"),
    (import_violations, "model/filter.py", "from catchment.routing.poset import Poset"),
    (import_violations, "model/filter.py", "from ..matching import Matcher"),
    (import_violations, "model/filter.py", "from .. import matching"),
    (import_violations, "model/deep/filter.py", "from ...matching import Matcher"),
    (import_violations, "model/__init__.py", "from ..matching import Matcher"),
    (import_violations, "model/filter.py", "if TYPE_CHECKING:\n    from catchment.matching import Matcher"),
    (import_violations, "model/filter.py", "def late():\n    import catchment.sim.kernel"),
    (import_violations, "errors.py", "from catchment.matching import Matcher"),
    (import_violations, "matching/index.py", "from catchment.routing.core import Action"),
    (import_violations, "routing/core.py", "from catchment.sim import kernel"),
    (import_violations, "wire/frames.py", "from catchment.routing.core import Action"),
    (import_violations, "node/node.py", "from catchment.wire import frames"),
    (import_violations, "node/node.py", "from catchment.broker import server"),
    (import_violations, "store/sqlite.py", "from catchment.broker import node"),
    (import_violations, "sim/kernel.py", "from catchment.broker import server"),
    (import_violations, "studies/study.py", "from catchment.pipeline import sweep"),
    (import_violations, "pipeline/match.py", "from catchment.broker import node"),
    (import_violations, "broker/node.py", "from catchment import cli"),
    (import_violations, "__init__.py", "from .cli import main"),
    (import_violations, "helpers.py", ""),
    (reserved_violations, "matching/index.py", "import numba"),
    (reserved_violations, "matching/index.py", "from numba import njit"),
    (reserved_violations, "matching/kernels.py", "from numba import njit"),
    (reserved_violations, "routing/core.py", "import pyarrow.compute as pc"),
    (reserved_violations, "routing/core.py", "import random"),
    (reserved_violations, "routing/core.py", "from random import choice"),
    (reserved_violations, "routing/core.py", "from numpy import random as chance"),
    (reserved_violations, "routing/core.py", "import numpy as np\nnp.random.default_rng(1)"),
    (reserved_violations, "routing/core.py", "import asyncio"),
    (reserved_violations, "sim/kernel.py", "import matplotlib.pyplot as plt"),
    (reserved_violations, "studies/study.py", "import pyspark"),
    (reserved_violations, "model/filter.py", "import rich"),
    (clock_violations, "routing/core.py", "import time\ntime.time()"),
    (clock_violations, "routing/core.py", "from datetime import datetime as d\nd.now()"),
    (clock_violations, "sim/kernel.py", "from time import monotonic\nmonotonic()"),
    (print_violations, "model/filter.py", "def f():\n    print('here')"),
    (private_violations, "model/filter.py", "from catchment.model.domain import _union"),
    (private_violations, "model/filter.py", "from .domain import _union as union"),
    (private_violations, "model/filter.py", "from catchment.model import _domain"),
    (private_violations, "model/filter.py", "import catchment.model._domain"),
    (private_violations, "model/filter.py", "from . import domain\ndomain._union(1)"),
    (private_violations, "model/filter.py", "import catchment.model.domain\ncatchment.model.domain._union"),
    (private_violations, "model/filter.py", "from .domain import Values\nValues._joined.cache_clear()"),
    (private_violations, "model/filter.py", "def late():\n    from .domain import _union"),
    (size_violations, "model/filter.py", "\n" * (FILE_LINES_MAX + 1)),
    (size_violations, "model/filter.py", "def f():\n" + "    f()\n" * FUNCTION_LINES_MAX),
    (size_violations, "model/filter.py", "class C:\n  async def f():\n" + "    f()\n" * FUNCTION_LINES_MAX),
]  # fmt: skip

KEEPING = [
    ("model/filter.py", "from catchment.errors import InputError\nfrom .values import Value\nfrom . import values"),
    ("model/__init__.py", "from .filter import Filter\nfrom ..errors import InputError"),
    ("matching/kernels/match.py", "import numba\nimport numpy as np\nnp.zeros(1)"),
    ("matching/kernels/jit.py", "from numba import njit"),
    ("matching/matcher.py", "def f():\n    import pyarrow as pa\n    return pa"),
    ("routing/poset/", "from catchment.matching import Matcher"),
    ("wire/frames.py", "from catchment.routing.messages import Message"),
    ("wire/frames.py", "from catchment.routing import messages"),
    ("sim/simulation.py", "from catchment.node import Node\nfrom catchment.wire.frames import frame"),
    ("sim/benchmark_data.py", "import random\nimport numpy as np\nnp.random.default_rng(1)"),
    ("pipeline/match.py", "import pyarrow as pa, pyspark\nfrom catchment.matching import Matcher"),
    ("client/*", "import asyncio\nimport time\ntime.monotonic()"),
    ("cli.py", "import rich, time\nfrom catchment.broker import node\nprint(time.time())"),
    ("__main__.py", "from catchment.cli import main"),
    ("model/filter.py", "def f():\n" + "    f()\n" * (FUNCTION_LINES_MAX - 1)),
    ("model/filter.py", "def f(random, time):\n    return random.choice(), time.time()"),
    ("model/filter.py", "class Filter:\n    def f(self, other):\n        return self._set | other._set"),
    ("model/filter.py", "from .values import Row, __doc__\nRow._fields, Row.__name__"),
    ("pipeline/session.py", "from pyspark import SparkContext\nSparkContext._gateway"),
]  # fmt: skip

PLANTED_BESIDE = [
    ("tests/unit/test_filter.py", "from catchment.model import filter\nfilter._parsed('x')", 1),
    ("tests/unit/test_filter.py", "from tests.oracle import _assignments", 1),
    ("benchmarks/matching.py", "from catchment.matching.matcher import Matcher\nMatcher._segments", 1),
    ("tests/unit/test_filter.py", "import os\nfrom tests.oracle import assignments\nos._exit(1)", 0),
    ("tests/conformance/test_mutants.py", "from catchment.node import Node\nNode._tell", 0),
    ("tests/live/mutants.py", "from catchment.node import Node\nNode._tell", 0),
]


@pytest.mark.parametrize(("rule", "path", "text"), BREAKING)
def test_planted_violation_is_reported(rule, path, text):
    assert len(list(rule(Source(path, text)))) >= 1


@pytest.mark.parametrize(("path", "text"), KEEPING)
def test_good_source_is_not_reported(path, text):
    assert [violation for rule in RULES for violation in rule(Source(path, text))] == []


@pytest.mark.parametrize(("path", "text", "count"), PLANTED_BESIDE)
def test_private_names_beside_the_sources(path, text, count):
    assert len(list(private_violations(Source(path, text, top="")))) == count


# An @ where the text is broken, so that this file is not itself reported.
@pytest.mark.parametrize("text", ["cd /ro@ot/x", "'/wo@rk/x'", "/Us@ers/x", "https://py@pi.org/", "--index@-url x"])
def test_planted_address_is_reported(text):
    assert len(list(stray_violations("README.md", "first\n" + text.replace("@", "")))) == 1


@pytest.mark.parametrize(
    "text", ["src/wo@rk/x", "file = '/etc/passwd'", "--no-emit-index@-url", "//example.org/wo@rk/"]
)
def test_other_address_is_not_reported(text):
    assert list(stray_violations("README.md", text.replace("@", ""))) == []
