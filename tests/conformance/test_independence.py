"""The oracles share no code with what they check: ideals, checkers and the simulated clients' knowledge may import the
model, the words of the seam, and the classes of cores, to tell which one they look at. They make no core, call none of
its algorithms, and read only public names."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import catchment
from catchment.sim.conformance.entries import ENTRIES
from tests.live.hosts import ROOT
from tests.test_architecture import Source

SRC = Path(catchment.__file__).parent
# What any oracle may import.
SHARED = (
    "catchment.errors",
    "catchment.routing.core",
    "catchment.routing.messages",
    "catchment.routing.durable.messages",
    "catchment.routing.stored",
    "catchment.sim",
)
# Of the model: what brokers do with it besides values, filters and their relations is under test.
MODEL = "catchment.model"
UNDER_TEST = ("catchment.model.monitor", "catchment.model.merging", "catchment.model.measure")
ORACLES = [
    *sorted((SRC / "sim/conformance/ideals").glob("*.py")),
    SRC / "sim/conformance/checkers.py",
    SRC / "sim/conformance/sequences.py",
    SRC / "sim/conformance/scripts.py",
    SRC / "sim/conformance/durable/checker.py",
    SRC / "sim/conformance/durable/scripts.py",
    SRC / "sim/conformance/durable/wants.py",
    SRC / "sim/explore/checks.py",
    ROOT / "tests/oracle.py",
    ROOT / "tests/cesql_oracle.py",
]


def violations(source: Source) -> Iterator[str]:
    for line, name in source.imports():
        if name.startswith("catchment.") and not _may_import(name):
            yield f"{source.path}:{line}: {name} is under test"
    cores = {bound for bound, name in source.names.items() if name.startswith("catchment.routing") and _is_core(name)}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in cores:
            yield f"{source.path}:{node.lineno}: makes a {node.func.id}"
        if isinstance(node, ast.Attribute) and _is_private(node):
            yield f"{source.path}:{node.lineno}: reads {node.attr}, which is private"


def _may_import(name: str) -> bool:
    if name.startswith(UNDER_TEST):
        return False
    return name.startswith((MODEL, *SHARED)) or _is_core(name)


def _is_core(name: str) -> bool:
    return name.rpartition(".")[2].endswith("Core")


def _is_private(node: ast.Attribute) -> bool:
    is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
    return node.attr.startswith("_") and not node.attr.startswith("__") and not is_own


@pytest.mark.parametrize("path", ORACLES, ids=[path.stem for path in ORACLES])
def test_an_oracle_shares_no_code(path: Path):
    shared = list(violations(Source(path.name, path.read_text("utf-8"))))
    assert not shared, "\n" + "\n".join(shared)


def test_the_clients_of_a_simulation_know_what_they_want_by_themselves():
    """Checkers take from there what each client wants."""
    source = Source("sim/simulation.py", (SRC / "sim/simulation.py").read_text("utf-8"))
    allowed = (MODEL, *SHARED, "catchment.node", "catchment.wire")
    assert [
        name for _, name in source.imports() if name.startswith("catchment.") and not name.startswith(allowed)
    ] == []


def test_every_ideal_is_looked_at():
    modules = {entry.tables.module for entry in ENTRIES.values()}
    assert {f"catchment.sim.conformance.ideals.{path.stem}" for path in ORACLES} >= modules


BREAKING = [
    "from catchment.routing.poset import Poset",
    "from catchment.routing.siena.available import delegated",
    "from catchment.routing.parts.wanted import cancels",
    "from catchment.routing.siena.gateway import EVERYTHING, HybridCore",
    "from catchment.matching.matcher import Matcher",
    "from catchment.model.monitor import Monitor",
    "from catchment.model import monitor",
    "import catchment.routing.siena.general",
    "from catchment.routing.siena.general import GeneralCore\ncore = GeneralCore('a')",
    "def tables(core): return core._held",
    "def tables(core): return core.interest._told",
]
KEEPING = [
    "from catchment.routing.siena.general import GeneralCore\ndef f(core): return isinstance(core, GeneralCore)",
    "from catchment.model.filter import Filter\nfrom catchment.sim.simulation import Simulation",
    "class A:\n    def f(self): return self._own",
]


@pytest.mark.parametrize("text", BREAKING)
def test_shared_code_is_reported(text: str):
    assert list(violations(Source("sim/conformance/ideals/new.py", text)))


@pytest.mark.parametrize("text", KEEPING)
def test_an_independent_oracle_is_not_reported(text: str):
    assert list(violations(Source("sim/conformance/ideals/new.py", text))) == []
