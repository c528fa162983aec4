"""docs/architecture.md: its tables are what the code has, and its pictures are what the tables say."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.test_architecture import CLOCK_USERS, FREE, MAY_IMPORT, RESERVED
from tools.draw_walks import IMAGES, PAGE, WALKS, Layout, Step, drawn, pictures, steps_of

TEXT = PAGE.read_text("utf-8")
SOURCES = Path(__file__).parents[2] / "src" / "catchment"


# --- the layers ---------------------------------------------------------------------------------


def layer_rows() -> dict[str, list[str]]:
    """The rows of the table of layers, by package."""
    table = TEXT[TEXT.index("| package | what it is |") :].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in table]
    return {package.strip("`"): rest for package, *rest in cells}


def quoted(cell: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", cell))


def libraries(package: str) -> set[str]:
    """What RESERVED gives to a package. What it gives to nobody is for those who may import everything."""
    return {
        library
        for library, users in RESERVED.items()
        if any(user.split("/")[0] == package for user in users) or (package in FREE and not users)
    }


def test_the_table_has_every_package():
    assert set(layer_rows()) == set(MAY_IMPORT) | FREE


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_the_table_says_what_a_package_may_import(package: str):
    assert quoted(layer_rows()[package][1]) == MAY_IMPORT[package]


@pytest.mark.parametrize("package", sorted({*MAY_IMPORT, *FREE}))
def test_the_table_says_what_a_package_alone_may_use(package: str):
    assert quoted(layer_rows()[package][2]) == libraries(package)


def test_the_table_says_what_is_not_there_yet():
    there = {path.name.removesuffix(".py") for path in SOURCES.iterdir()}
    missing = {package for package, (says, *_) in layer_rows().items() if "not there yet" in says}
    assert missing == set(layer_rows()) - there


def test_the_page_says_who_reads_the_clock():
    (sentence,) = re.findall(r"Only ([^.]*) read the clock", TEXT)
    assert quoted(sentence) == {user.split("/")[0] for user in CLOCK_USERS} | FREE


def test_imports_go_downwards_in_the_list():
    (block,) = re.findall(r"^```layers\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    packages = [re.split(r"\s{2,}", line)[0].split(", ") for line in block.splitlines()]
    level = {package: i for i, line in enumerate(packages) for package in line}
    upwards = [
        (package, imported)
        for package in level.keys() & MAY_IMPORT.keys()
        for imported in MAY_IMPORT[package] | {"model", "errors"}
        if package not in ("model", "errors") and level[imported.split(".")[0]] <= level[package]
    ]
    assert upwards == []
    assert level.keys() == (MAY_IMPORT.keys() | FREE) - {"console", "demo", "__init__", "__main__"}


# --- the walks ----------------------------------------------------------------------------------

STEPS = [(walk, step) for walk in WALKS for step in steps_of(TEXT, walk).values()]


@cache
def defined(file: str) -> frozenset[str]:
    """The names that a file defines: functions, classes, and what classes have, as `Class.name`."""
    names = set()
    for node in ast.parse((SOURCES / file).read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            for member in node.body:
                if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
                    names.add(f"{node.name}.{member.name}")
                elif isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
                    names.add(f"{node.name}.{member.target.id}")
    return frozenset(names)


@pytest.mark.parametrize(("walk", "step"), STEPS, ids=[f"{walk} {step.number}" for walk, step in STEPS])
def test_every_name_is_defined_in_its_file(walk: str, step: Step):
    assert step.names
    for name, file in step.names:
        assert name in defined(file), f"{file} does not define {name}"


def test_a_name_that_is_not_there_is_noticed():
    assert "Node.published" in defined("node/node.py")
    assert "Node.perform" not in defined("node/node.py")
    assert "RoutingSystem.make" in defined("routing/systems.py")


def test_the_page_shows_every_walk():
    assert set(re.findall(r"images/walk-(\w+)\.svg", TEXT)) == set(WALKS)


@pytest.mark.parametrize("name", [f"walk-{walk}.svg" for walk in WALKS])
def test_the_pictures_are_those_of_the_tables(name: str):
    assert (IMAGES / name).read_text("utf-8") == pictures(TEXT)[name], "draw again: python tools/draw_walks.py"


@pytest.mark.parametrize("walk", WALKS)
def test_every_step_is_joined_to_another(walk: str):
    steps = steps_of(TEXT, walk)
    joined = {end for arrow in WALKS[walk].arrows for end in (arrow.start, arrow.end)}
    assert joined == set(steps)
    assert len(set(WALKS[walk].places.values())) == len(steps)


def test_a_step_without_a_place_is_noticed():
    steps = {1: Step(1, (("f", "a.py"),), "does it"), 2: Step(2, (("g", "a.py"),), "does the rest")}
    with pytest.raises(AssertionError, match="the picture and the table have other steps"):
        drawn(Layout("a walk", (("band", 1),), {1: (0, 0)}, ()), steps)
