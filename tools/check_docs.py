"""Check the documentation: every relative link leads somewhere, every ```python example runs, every Python file that a
page names in `code` exists, and docs/README.md has a link to every page of docs/.

The examples of a page run in order, as one program, in a new directory. If an example is written as a session (`>>>`),
it must also print what the page shows. An example that cannot run here begins with ```python no-run.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent
# Examples are short. If those of a page take longer, they hang.
PAGE_SECONDS_MAX = 120

FENCE = re.compile(
    r"^(?P<fence>`{3,}|~{3,})(?P<info>[^\n]*)\n(?P<body>.*?)^(?P=fence)[ \t]*$", re.MULTILINE | re.DOTALL
)
LINK = re.compile(
    r"\]\(\s*<?(?P<target>[^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)|^\[[^\]]+\]:\s*(?P<definition>\S+)", re.MULTILINE
)
CODE = re.compile(r"`([^`\n]+)`")
# A Python file with a directory before it. Without one, it may be a file of the reader's.
PYTHON_FILE = re.compile(r"(?<![\w./-])(?:[a-z0-9_.-]+/)+[a-z0-9_]+\.py\b")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*\s*$", re.MULTILINE)

# A program that checks a file of sessions: it exits with 1 if one prints something else than the file shows.
RUN_SESSIONS = "import doctest; raise SystemExit(doctest.testfile({0!r}, module_relative=False).failed and 1)"


def pages() -> list[Path]:
    """The pages of the project: those in its root directory, then those under docs/ and examples/."""
    below = [page for directory in ("docs", "examples") for page in sorted((ROOT / directory).rglob("*.md"))]
    return [*sorted(ROOT.glob("*.md")), *below]


def prose(text: str) -> str:
    """The text of a page without its code. Code has brackets that look like links.

    >>> prose("see `a[0](x)`\\n```python\\nb[0](y)\\n```\\n[z](z.md)")
    'see \\n\\n[z](z.md)'
    """
    return CODE.sub("", FENCE.sub("", text))


def links(text: str) -> Iterator[str]:
    """The targets of a page's links, without those to other sites.

    >>> list(links("[a](docs/a.md#b) ![c](c.svg \\"title\\") [d](https://example.org) [e](#here)\\n[f]: f.md"))
    ['docs/a.md#b', 'c.svg', '#here', 'f.md']
    """
    for link in LINK.finditer(prose(text)):
        target = link["target"] or link["definition"]
        if not re.match(r"[a-z][a-z0-9+.-]*:", target):
            yield target


def anchors(text: str) -> set[str]:
    """The anchors that links to a page can name: one for each heading.

    >>> sorted(anchors("# What `covers` means\\ntext\\n## 2. Data, and more"))
    ['2-data-and-more', 'what-covers-means']
    """
    headings = HEADING.findall(FENCE.sub("", text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def examples(text: str) -> list[tuple[int, str]]:
    """The examples of a page that can run, each with the number of its first line.

    >>> examples("one\\n```python\\nx = 1\\n```\\n```text\\nno\\n```\\n```python no-run\\nserve()\\n```")
    [(3, 'x = 1\\n')]
    """
    return [
        (text.count("\n", 0, fence.start("body")) + 1, fence["body"])
        for fence in FENCE.finditer(text)
        if fence["info"].strip() == "python"
    ]


def broken_links(page: Path) -> Iterator[str]:
    """Messages about the links of a page that lead nowhere."""
    for target in links(page.read_text("utf-8")):
        path, _, anchor = unquote(target).partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            yield f"{page.relative_to(ROOT)}: {target} leads nowhere: there is no such file"
        elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text("utf-8")):
            yield f"{page.relative_to(ROOT)}: {target} leads nowhere: there is no such heading in the file"


def named_files(text: str) -> list[str]:
    """The Python files that the prose of a page names in `code`.

    >>> named_files("see `broker/run.py`, `python a/b.py --c`, `d.py`, `e/NAME.py`\\n```\\n`f/g.py`\\n```")
    ['broker/run.py', 'a/b.py']
    """
    return [file for code in CODE.findall(FENCE.sub("", text)) for file in PYTHON_FILE.findall(code)]


@cache
def python_files() -> tuple[str, ...]:
    """The Python files of the project, each with a slash before it."""
    directories = ("src", "tests", "tools", "benchmarks", "examples")
    return tuple(f"/{file.relative_to(ROOT)}" for name in directories for file in (ROOT / name).rglob("*.py"))


def lost_files(page: Path) -> Iterator[str]:
    """Messages about files that a page names and that do not exist. A page may leave out the beginning of a path."""
    for file in named_files(page.read_text("utf-8")):
        if not any(known.endswith(f"/{file}") for known in python_files()):
            yield f"{page.relative_to(ROOT)}: there is no file {file}"


def unlisted_pages() -> Iterator[str]:
    """Messages about pages of docs/ that docs/README.md does not list."""
    index = ROOT / "docs" / "README.md"
    listed = {
        (index.parent / unquote(target).partition("#")[0]).resolve() for target in links(index.read_text("utf-8"))
    }
    for page in sorted(index.parent.rglob("*.md")):
        if page not in (index, *listed):
            yield f"docs/README.md: it has no link to {page.relative_to(index.parent)}"


def program(numbered_examples: list[tuple[int, str]]) -> str:
    """The examples of a page as one program. Each keeps its line number, so that an error names the line of the page.

    >>> program([(3, "x = 1\\n"), (6, "y = x\\n")])
    '\\n\\nx = 1\\n\\n\\ny = x\\n'
    """
    text = ""
    for line, body in numbered_examples:
        text += "\n" * (line - 1 - text.count("\n")) + body
    return text


def failing_examples(page: Path) -> Iterator[str]:
    """Messages about the examples of a page that fail."""
    numbered = examples(page.read_text("utf-8"))
    sessions = [(line, body) for line, body in numbered if body.startswith(">>>")]
    scripts = [(line, body) for line, body in numbered if not body.startswith(">>>")]
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / page.name
        if scripts:
            copy.write_text(program(scripts), "utf-8")
            yield from failure(page, [sys.executable, copy.name], scratch)
        if sessions:
            copy.write_text(program(sessions), "utf-8")
            yield from failure(page, [sys.executable, "-c", RUN_SESSIONS.format(copy.name)], scratch)


def failure(page: Path, command: list[str], scratch: str) -> Iterator[str]:
    """A message with what the command printed, if it fails."""
    try:
        ended = subprocess.run(
            command,
            cwd=scratch,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PAGE_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        yield f"{page.relative_to(ROOT)}: its examples did not end within {PAGE_SECONDS_MAX} s"
    else:
        if ended.returncode:
            yield f"{page.relative_to(ROOT)}: an example fails:\n{ended.stdout}"


def main() -> int:
    """Checks all pages. Prints what is wrong, or how much was checked."""
    checks = (broken_links, lost_files, failing_examples)
    messages = [message for page in pages() for check in checks for message in check(page)]
    messages += unlisted_pages()
    if messages:
        print("\n".join(messages))
        return 1
    texts = [page.read_text("utf-8") for page in pages()]
    links_count = sum(len(list(links(text))) for text in texts)
    examples_count = sum(len(examples(text)) for text in texts)
    print(f"{len(texts)} pages, {links_count} relative links, {examples_count} examples: all good")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
