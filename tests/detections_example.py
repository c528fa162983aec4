"""The example of detections, as its page tells it: its commands, in a copy of its directory."""

import re
import shutil
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "detections"

# Event and rule of each alert, in order.
ALERTS = [
    ("e02", "det-encoded-command"),
    ("e05", "det-office-shell"),
    ("e07", "det-renamed-tool"),
    ("e09", "det-shadow-copies"),
    ("e10", "det-shadow-copies"),
    ("e11", "det-encoded-command"),
    ("e11", "det-office-shell"),
    ("e13", "det-encoded-command"),
]


def blocks(heading: str) -> list[tuple[str, str]]:
    """The code of a section of the page: what is after the fence, and the text."""
    page = (EXAMPLE / "README.md").read_text("utf-8")
    (section,) = [part for part in page.split("\n## ") if part.startswith(heading)]
    return re.findall(r"^```(\w*)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def commands(heading: str) -> list[str]:
    """The command lines of a section, in order."""
    return [line for language, text in blocks(heading) if not language for line in text.splitlines()]


def copied(to: Path) -> Path:
    return shutil.copytree(EXAMPLE, to / "detections", ignore=shutil.ignore_patterns("out"))
