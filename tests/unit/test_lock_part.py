"""Parts of requirements.lock: what `./dev run` installs agrees with what is installed in full."""

import re
import tomllib
from importlib.metadata import distribution
from typing import Any

import pytest
from packaging.requirements import Requirement

from tools.lock_part import LOCK, PROJECT, MissingEntryError, entries, named_by_project, part

A_LOCK = """\
alpha==1.0 \\
    --hash=sha256:aa
    # via catchment (pyproject.toml)
both==1 ; python_full_version < '3.12' \\
    --hash=sha256:b1
    # via alpha
both==2 ; python_full_version >= '3.12' \\
    --hash=sha256:b2
    # via
    #   alpha
    #   gamma
circle==3 \\
    --hash=sha256:cc
    # via both
    # via circle-two
circle-two==3 \\
    --hash=sha256:c2
    # via circle
gamma==4 \\
    --hash=sha256:dd
    # via catchment (pyproject.toml)
via-ducts==5 \\
    --hash=sha256:ee
    # via gamma
"""
A_PROJECT = """\
[project]
name = "Catch.ment"
dependencies = ["Alpha>=1.0"]
[project.optional-dependencies]
own = ["gamma[quick]>=4; sys_platform != 'win32'"]
whole = ["catch-ment[own]"]
"""


def names(lock: str) -> list[str]:
    return list(entries(lock))


def test_a_part_has_what_is_named_and_what_that_needs() -> None:
    assert names(part(A_LOCK, A_PROJECT, [], ["alpha"])) == ["alpha", "both", "circle", "circle-two"]
    assert names(part(A_LOCK, A_PROJECT, [], ["Via_Ducts"])) == ["via-ducts"]


def test_an_entry_is_copied_whole_with_every_version_it_has() -> None:
    assert part(A_LOCK, A_PROJECT, [], ["circle-two"]) == (
        "circle==3 \\\n    --hash=sha256:cc\n    # via both\n    # via circle-two\n"
        "circle-two==3 \\\n    --hash=sha256:c2\n    # via circle\n"
    )
    assert "both==1 ;" in part(A_LOCK, A_PROJECT, [], ["both"])
    assert "both==2 ;" in part(A_LOCK, A_PROJECT, [], ["both"])


def test_an_extra_brings_the_dependencies_and_the_extras_that_it_names() -> None:
    assert named_by_project(A_PROJECT, []) == {"alpha"}
    assert named_by_project(A_PROJECT, ["own"]) == {"alpha", "gamma"}
    assert named_by_project(A_PROJECT, ["whole"]) == {"alpha", "gamma"}
    assert part(A_LOCK, A_PROJECT, ["whole"], []) == A_LOCK


def test_a_package_that_the_lock_does_not_have_is_named() -> None:
    with pytest.raises(MissingEntryError, match=r"no entry for delta: type ./dev lock"):
        part(A_LOCK, A_PROJECT, [], ["alpha", "delta"])


def test_all_extras_together_are_the_whole_lock() -> None:
    lock, project = LOCK.read_text("utf-8"), PROJECT.read_text("utf-8")
    extras = list(tomllib.loads(project)["project"]["optional-dependencies"])
    assert part(lock, project, extras, []) == lock


def test_what_run_installs_is_all_that_brokers_need_in_the_versions_of_the_lock_and_has_no_spark() -> None:
    lock, project = LOCK.read_text("utf-8"), PROJECT.read_text("utf-8")
    run = part(lock, project, ["server"], [])
    assert installed_needs(tomllib.loads(project)["project"], "server") <= set(names(run))
    assert all(text in lock for text in entries(run).values())
    assert set(names(run)).isdisjoint({"pyspark", "py4j", "pandas", "matplotlib", "mypy", "pytest", "ruff"})


def installed_needs(project: dict[str, Any], extra: str) -> set[str]:
    """The same from what the installed packages say of themselves, without a look at the lock."""
    waiting = [Requirement(text) for text in [*project["dependencies"], *project["optional-dependencies"][extra]]]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        requirement = waiting.pop()
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if (name, frozenset(requirement.extras)) in seen:
            continue
        seen.add((name, frozenset(requirement.extras)))
        for text in distribution(name).requires or ():
            need = Requirement(text)
            if any(need.marker is None or need.marker.evaluate({"extra": at}) for at in ("", *requirement.extras)):
                waiting.append(need)
    return {name for name, _ in seen}
