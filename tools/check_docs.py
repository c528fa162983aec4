"""Check the documentation: every relative link leads somewhere, every ```python example runs.

The examples of one page run in order, as one program, in a directory of their own. An example written as a session
(`>>>`) must also print what it shows. One that cannot run here is fenced as ```python no-run.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent
PAGE_SECONDS_MAX = 120  # an example is a glimpse; one that runs longer hangs

FENCE = re.compile(
    r"^(?P<fence>`{3,}|~{3,})(?P<info>[^\n]*)\n(?P<body>.*?)^(?P=fence)[ \t]*$", re.MULTILINE | re.DOTALL
)
LINK = re.compile(
    r"\]\(\s*<?(?P<target>[^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)|^\[[^\]]+\]:\s*(?P<definition>\S+)", re.MULTILINE
)
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*\s*$", re.MULTILINE)

RUN_SESSION = "import doctest; raise SystemExit(doctest.testfile({0!r}, module_relative=False).failed and 1)"


def pages() -> list[Path]:
    """README.md and the other pages at the root, then those under docs/."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def prose(text: str) -> str:
    """The page without its code, which has brackets of its own.

    >>> prose("see `a[0](x)`\\n```python\\nb[0](y)\\n```\\n[z](z.md)")
    'see \\n\\n[z](z.md)'
    """
    return re.sub(r"`[^`\n]+`", "", FENCE.sub("", text))


def links(text: str) -> Iterator[str]:
    """Where the page's links lead, those to other sites left out.

    >>> list(links("[a](docs/a.md#b) ![c](c.svg \\"title\\") [d](https://example.org) [e](#here)\\n[f]: f.md"))
    ['docs/a.md#b', 'c.svg', '#here', 'f.md']
    """
    for link in LINK.finditer(prose(text)):
        target = link["target"] or link["definition"]
        if not re.match(r"[a-z][a-z0-9+.-]*:", target):
            yield target


def anchors(text: str) -> set[str]:
    """The anchors that a page's headings get.

    >>> sorted(anchors("# What `covers` means\\ntext\\n## 2. Data, and more"))
    ['2-data-and-more', 'what-covers-means']
    """
    headings = HEADING.findall(FENCE.sub("", text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def examples(text: str) -> list[tuple[int, str]]:
    """The page's runnable examples, each with the line where it starts.

    >>> examples("one\\n```python\\nx = 1\\n```\\n```text\\nno\\n```\\n```python no-run\\nserve()\\n```")
    [(3, 'x = 1\\n')]
    """
    return [
        (text.count("\n", 0, fence.start("body")) + 1, fence["body"])
        for fence in FENCE.finditer(text)
        if fence["info"].strip() == "python"
    ]


def broken_links(page: Path) -> Iterator[str]:
    """What is wrong with the links of one page."""
    for target in links(page.read_text("utf-8")):
        path, _, anchor = unquote(target).partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            yield f"{page.relative_to(ROOT)}: {target} leads nowhere"
        elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text("utf-8")):
            yield f"{page.relative_to(ROOT)}: {target}: no such heading there"


def program(found: list[tuple[int, str]]) -> str:
    """The examples of a page as one program, on the lines that they have on the page.

    >>> program([(3, "x = 1\\n"), (6, "y = x\\n")])
    '\\n\\nx = 1\\n\\n\\ny = x\\n'
    """
    text = ""
    for line, body in found:
        text += "\n" * (line - 1 - text.count("\n")) + body
    return text


def failing_examples(page: Path) -> Iterator[str]:
    """What the examples of one page say when they fail."""
    found = examples(page.read_text("utf-8"))
    plain = [(line, body) for line, body in found if not body.startswith(">>>")]
    sessions = [(line, body) for line, body in found if body.startswith(">>>")]
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / page.name
        if plain:
            copy.write_text(program(plain), "utf-8")
            yield from failure(page, [sys.executable, copy.name], scratch)
        if sessions:
            copy.write_text(program(sessions), "utf-8")
            yield from failure(page, [sys.executable, "-c", RUN_SESSION.format(copy.name)], scratch)


def failure(page: Path, command: list[str], scratch: str) -> Iterator[str]:
    """What the command said, if it failed."""
    try:
        run = subprocess.run(
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
        if run.returncode:
            yield f"{page.relative_to(ROOT)}: an example fails:\n{run.stdout}"


def main() -> int:
    """Check all pages; say what is wrong, or how much was found right."""
    wrong = [fault for page in pages() for check in (broken_links, failing_examples) for fault in check(page)]
    if wrong:
        print("\n".join(wrong))
        return 1
    texts = [page.read_text("utf-8") for page in pages()]
    links_count = sum(len(list(links(text))) for text in texts)
    examples_count = sum(len(examples(text)) for text in texts)
    print(f"{len(texts)} pages, {links_count} relative links, {examples_count} examples: all good")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
