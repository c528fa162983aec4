"""Prints a part of requirements.lock: the named packages and everything they need, entry by entry as the lock has them.

    python tools/lock_part.py uv setuptools            these two and what they need
    python tools/lock_part.py --extra server           what `pip install catchment[server]` would install
    python tools/lock_part.py --extra server uv        both

`./dev run` installs such a part, without Spark and without the tools for tests. There is one lock, so there is nothing
to keep in step. Under an entry the lock lists, after `# via`, every package that asked for it: this is followed
backwards. It runs before anything is installed, so it uses the standard library alone.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK, PROJECT = ROOT / "requirements.lock", ROOT / "pyproject.toml"


class MissingEntryError(Exception):
    """The lock has no entry for a package that was asked for."""


def normalized(name: str) -> str:
    """The spelling of a package's name that the lock uses."""
    return re.sub(r"[-_.]+", "-", name).lower()


def name_of(requirement: str) -> str:
    """`psycopg[binary]>=3.2` names psycopg."""
    return normalized(re.split(r"[^\w.-]", requirement.strip(), maxsplit=1)[0])


def entries(lock: str) -> dict[str, str]:
    """The text of each package's entry: a line that begins with its name, and the indented lines below it.

    A package that has different versions for different machines has several such lines: they stay together.
    """
    texts: dict[str, str] = {}
    name = ""
    for line in lock.splitlines(keepends=True):
        if line[0] not in " #\n":
            name = name_of(line)
        if name:
            texts[name] = texts.get(name, "") + line
    return texts


def askers(entry: str) -> set[str]:
    """The packages after `# via`: those that need this one. The project itself is `catchment`."""
    comments = re.findall(r"^ +#(?: via\b)?(.*)$", entry, re.MULTILINE)
    return {name_of(comment) for comment in comments if comment.strip()}


def needed(texts: Mapping[str, str], wanted: Iterable[str]) -> set[str]:
    """The wanted packages, those that they need, those that these need, and so on."""
    needs: dict[str, set[str]] = {}
    for name, text in texts.items():
        for asker in askers(text):
            needs.setdefault(asker, set()).add(name)
    reached: set[str] = set()
    waiting = {normalized(name) for name in wanted}
    if missing := waiting - texts.keys():
        raise MissingEntryError(f"requirements.lock has no entry for {', '.join(sorted(missing))}: type ./dev lock")
    while waiting:
        name = waiting.pop()
        reached.add(name)
        waiting |= needs.get(name, set()) - reached
    return reached


def named_by_project(project: str, extras: Sequence[str]) -> set[str]:
    """The packages that pyproject.toml asks for: in `dependencies`, in these extras, in extras that these bring."""
    table = tomllib.loads(project)["project"]
    names = {name_of(requirement) for requirement in table["dependencies"]}
    waiting, done = set(extras), set()
    while waiting:
        extra = waiting.pop()
        done.add(extra)
        for requirement in table["optional-dependencies"][extra]:
            if name_of(requirement) != normalized(table["name"]):
                names.add(name_of(requirement))
            elif brought := re.search(r"\[(.*?)\]", requirement):
                waiting |= {name.strip() for name in brought[1].split(",")} - done
    return names


def part(lock: str, project: str, extras: Sequence[str], packages: Iterable[str]) -> str:
    """The entries in the lock's own order. Without an extra, only the packages and what they need."""
    texts = entries(lock)
    wanted = {*packages, *(named_by_project(project, extras) if extras else ())}
    names = needed(texts, wanted)
    return "".join(text for name, text in texts.items() if name in names)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--extra", action="append", default=[], help="of pyproject.toml; brings its dependencies too")
    parser.add_argument("packages", nargs="*")
    given = parser.parse_args()
    try:
        sys.stdout.write(part(LOCK.read_text("utf-8"), PROJECT.read_text("utf-8"), given.extra, given.packages))
    except MissingEntryError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
