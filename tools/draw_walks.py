"""Draw the pictures of docs/architecture.md from its tables: `python tools/draw_walks.py`.

A picture `images/walk-NAME.svg` shows the table that follows it on the page: a box for each step, with the names and
files of the table. This file only says where each box is and which arrows join them. To change a name, change the
table and draw again; a test compares the pictures with the page.

The pictures are SVG with text as text. They have colours for light and for dark pages.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal
from xml.sax.saxutils import escape

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "architecture.md"
IMAGES: Final = ROOT / "docs" / "images"

# In pixels. A character of the fixed-width font is 0.61 as wide as it is high, one of the other font about 0.56.
BOX_WIDTH, GAP_X, GAP_Y = 262, 48, 42
MARGIN, BAND_LABEL_WIDTH, BAND_PADDING = 12, 96, 16
NAME_SIZE, FILE_SIZE, TEXT_SIZE = 12.5, 10.5, 11.0
NAME_HEIGHT, FILE_HEIGHT, TEXT_HEIGHT, BOX_PADDING = 17, 15, 14, 9
TEXT_CHARACTERS: Final = 38

LIGHT: Final = {
    "page": "#ffffff", "band": "#f3f5f8", "box": "#ffffff", "line": "#8c96a3", "text": "#1f2328", "soft": "#57606a",
    "arrow": "#0a5fc4", "number": "#0a5fc4", "on-number": "#ffffff",
}  # fmt: skip
DARK: Final = {
    "page": "#0d1117", "band": "#161b22", "box": "#0d1117", "line": "#656c76", "text": "#e6edf3", "soft": "#9aa4b0",
    "arrow": "#6cb0ff", "number": "#6cb0ff", "on-number": "#0d1117",
}  # fmt: skip

STYLE: Final = """
.page {{ fill: {page} }} .band {{ fill: {band} }} .box {{ fill: {box}; stroke: {line} }} .marked {{ stroke: {arrow} }}
.name {{ fill: {text} }} .text {{ fill: {text} }} .file, .label, .band-label {{ fill: {soft} }}
.arrow {{ stroke: {arrow}; fill: none }} .head {{ fill: {arrow} }}
.number {{ fill: {number} }} .on-number {{ fill: {on-number} }}
"""
FONTS: Final = f"""
.name, .file {{ font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace }}
.text, .label, .band-label, .on-number {{
  font-family: system-ui, -apple-system, "Segoe UI", Helvetica, Arial, "DejaVu Sans", sans-serif }}
.name {{ font-size: {NAME_SIZE}px; font-weight: 600 }} .file {{ font-size: {FILE_SIZE}px }}
.text {{ font-size: {TEXT_SIZE}px }} .label {{ font-size: {TEXT_SIZE}px; font-style: italic }}
.band-label {{ font-size: 12px; font-weight: 600 }} .on-number {{ font-size: 10.5px; font-weight: 700 }}
.arrow {{ stroke-width: 1.6 }} .marked {{ stroke-width: 2.2 }}
"""


# --- the tables of the page ---------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """A line of a table: names, each with the file that defines it, and what happens there."""

    number: int
    names: tuple[tuple[str, str], ...]
    happens: str

    @property
    def lines(self) -> list[tuple[str, str]]:
        """The lines of its box, each with its class. Names of the same file stand together, above the file."""
        drawn: list[tuple[str, str]] = []
        for i, (name, file) in enumerate(self.names):
            drawn.append(("name", name))
            if i + 1 == len(self.names) or self.names[i + 1][1] != file:
                drawn.append(("file", file))
        return drawn + [("text", line) for line in textwrap.wrap(self.happens, TEXT_CHARACTERS)]


def steps_of(page: str, walk: str) -> dict[int, Step]:
    """The steps of a walk by number, from the table that follows its picture.

    >>> steps_of("![x](images/walk-a.svg)\\n\\n| step | name | file | … |\\n|---|---|---|---|\\n"
    ...          "| 1 | `f`, `g` | `a.py` | reads `x` |\\n", "a")
    {1: Step(number=1, names=(('f', 'a.py'), ('g', 'a.py')), happens='reads x')}
    """
    after = page[page.index(f"(images/walk-{walk}.svg)") :]
    table = re.search(r"^\| step .*\n\|[-|]+\|\n((?:\|.*\n)+)", after, re.MULTILINE)
    assert table is not None, f"no table follows the picture walk-{walk}.svg"
    steps = [_step(*(cell.strip() for cell in line.strip().strip("|").split("|"))) for line in table[1].splitlines()]
    assert [step.number for step in steps] == list(range(1, len(steps) + 1)), f"{walk}: steps are numbered 1, 2, 3, …"
    return {step.number: step for step in steps}


def _step(number: str, names: str, files: str, happens: str) -> Step:
    named, defined = re.findall(r"`([^`]+)`", names), re.findall(r"`([^`]+)`", files)
    if len(defined) == 1:
        defined *= len(named)
    assert len(named) == len(defined), f"step {number}: one file for all names, or one for each"
    return Step(int(number), tuple(zip(named, defined, strict=True)), happens.replace("`", ""))


# --- where things are ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Arrow:
    """From a step to another. `path` says how it runs: h is horizontal, v is vertical. `is_call` has heads at both
    ends: the answer comes back the same way."""

    start: int
    end: int
    path: Literal["h", "v", "hv", "vh", "vhv"]
    label: str = ""
    is_call: bool = False


@dataclass(frozen=True)
class Layout:
    """`bands` are the layers from top to bottom, each with its number of rows. `places` has the column and the row of
    each step. `marked` steps have a frame in the colour of arrows."""

    title: str
    bands: tuple[tuple[str, int], ...]
    places: Mapping[int, tuple[int, int]]
    arrows: tuple[Arrow, ...]
    marked: frozenset[int] = frozenset()


WALKS: Final[Mapping[str, Layout]] = {
    "notification": Layout(
        "A notification, from socket to client",
        (("broker", 1), ("wire", 1), ("broker", 1), ("node", 1), ("routing", 2), ("matching", 1)),
        {
            1: (0, 0), 2: (0, 1), 3: (0, 2), 4: (0, 3), 5: (0, 4), 6: (1, 4), 7: (1, 5), 8: (1, 6),
            9: (2, 4), 10: (2, 3), 11: (2, 2), 12: (2, 1), 13: (2, 0),
        },
        (
            Arrow(1, 2, "v", "bytes"),
            Arrow(2, 3, "v", "events"),
            Arrow(3, 4, "v", "notifications of one read"),
            Arrow(4, 5, "v", "one call for the batch"),
            Arrow(5, 6, "h"),
            Arrow(6, 7, "v", "batch, answers", is_call=True),
            Arrow(7, 8, "v", "contents not matched before, ids", is_call=True),
            Arrow(6, 9, "h"),
            Arrow(9, 10, "v", "list of actions"),
            Arrow(10, 11, "v", "deliveries, batches"),
            Arrow(11, 12, "v"),
            Arrow(12, 13, "v", "frames"),
        ),
    ),
    "subscription": Layout(
        "A subscription, from text to index, and outwards",
        (("model", 1), ("node", 1), ("routing", 3), ("matching", 2)),
        {
            1: (0, 0), 2: (1, 0), 3: (1, 1), 4: (1, 2), 5: (0, 3), 6: (0, 4), 7: (0, 5), 8: (1, 5), 9: (2, 5),
            10: (2, 6), 11: (2, 3), 12: (2, 4), 13: (1, 4),
        },
        (
            Arrow(1, 2, "h"),
            Arrow(2, 3, "v", "Subscribe, with the filter"),
            Arrow(3, 4, "v"),
            Arrow(4, 5, "hv", "for its own clients"),
            Arrow(5, 6, "v"),
            Arrow(6, 7, "v"),
            Arrow(7, 8, "h"),
            Arrow(8, 9, "h"),
            Arrow(9, 10, "v", "arrays, no objects", is_call=True),
            Arrow(4, 11, "hv", "for the network"),
            Arrow(11, 12, "v"),
            Arrow(12, 13, "h"),
            Arrow(13, 6, "h"),
        ),
    ),
    "match": Layout(
        "A match on Spark",
        (("driver", 1), ("worker", 4), ("driver", 1)),
        {
            1: (0, 0), 2: (1, 0), 3: (2, 0), 4: (2, 1), 5: (2, 2), 6: (2, 3), 7: (0, 2), 8: (0, 3), 9: (1, 3),
            10: (0, 4), 11: (2, 4), 12: (2, 5),
        },
        (
            Arrow(1, 2, "h"),
            Arrow(2, 3, "h"),
            Arrow(3, 4, "v", "MatchTask, by mapInArrow"),
            Arrow(4, 5, "v", "batches of rows", is_call=True),
            Arrow(5, 6, "v"),
            Arrow(6, 9, "h"),
            Arrow(4, 7, "hv", "paths of shards"),
            Arrow(7, 8, "v"),
            Arrow(8, 9, "h"),
            Arrow(9, 10, "vh", "for match"),
            Arrow(9, 11, "vh", "for write_matches"),
            Arrow(11, 12, "v", "name and counts of a file"),
        ),
    ),
    "simulation": Layout(
        "A simulation run",
        (("scenarios", 2), ("simulation", 3), ("scenarios", 1)),
        {
            1: (0, 0), 2: (1, 0), 3: (0, 1), 4: (1, 1), 5: (2, 0), 6: (2, 1), 7: (0, 2), 8: (1, 2), 9: (1, 3),
            10: (1, 4), 11: (0, 4), 12: (0, 3), 13: (2, 3), 14: (2, 4), 15: (2, 5),
        },
        (
            Arrow(1, 2, "h"),
            Arrow(2, 3, "vhv"),
            Arrow(2, 4, "v"),
            Arrow(2, 5, "h"),
            Arrow(5, 6, "v"),
            Arrow(6, 7, "vhv", "occurrences"),
            Arrow(7, 8, "h"),
            Arrow(8, 9, "v"),
            Arrow(9, 10, "v", "Forward, Send"),
            Arrow(10, 11, "h"),
            Arrow(11, 12, "v", "bytes of the wire"),
            Arrow(12, 7, "v", "an arrival"),
            Arrow(9, 13, "h"),
            Arrow(13, 14, "v", "Deliver"),
            Arrow(14, 15, "v"),
        ),
        frozenset({9}),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Box:
    """The place of a step in its picture."""

    step: Step
    x: float
    y: float
    height: float

    @property
    def middle_x(self) -> float:
        return self.x + BOX_WIDTH / 2

    @property
    def middle_y(self) -> float:
        return self.y + self.height / 2

    @property
    def bottom(self) -> float:
        return self.y + self.height

    @property
    def right(self) -> float:
        return self.x + BOX_WIDTH


HEIGHTS: Final = {"name": NAME_HEIGHT, "file": FILE_HEIGHT, "text": TEXT_HEIGHT}


def _height(step: Step) -> float:
    return sum(HEIGHTS[kind] for kind, _ in step.lines) + 2 * BOX_PADDING


# --- drawing ------------------------------------------------------------------------------------


def drawn(layout: Layout, steps: Mapping[int, Step]) -> str:
    """The picture, as the text of an SVG file."""
    assert set(layout.places) == set(steps), f"{layout.title}: the picture and the table have other steps"
    rows = sum(count for _, count in layout.bands)
    heights = [max(_height(steps[n]) for n, (_, at) in layout.places.items() if at == row) for row in range(rows)]
    bands: list[str] = []
    tops: list[float] = []
    y = MARGIN + 0.0
    for name, count in layout.bands:
        top = y
        y += BAND_PADDING
        for height in heights[len(tops) : len(tops) + count]:
            tops.append(y)
            y += height + GAP_Y
        y += BAND_PADDING - GAP_Y
        bands.append(_band(name, top, y - top))
        y += GAP_Y - 2 * BAND_PADDING
    boxes = {
        number: Box(steps[number], _column_x(column), tops[row] + (heights[row] - _height(steps[number])) / 2,
                    _height(steps[number]))
        for number, (column, row) in layout.places.items()
    }  # fmt: skip
    arrows = [_arrow(boxes[arrow.start], boxes[arrow.end], arrow) for arrow in layout.arrows]
    parts = [*bands, *(_box(box, box.step.number in layout.marked) for box in boxes.values()), *arrows]
    return _svg(layout.title, y - GAP_Y + 2 * BAND_PADDING + MARGIN, steps, parts)


def _column_x(column: int) -> float:
    return MARGIN + BAND_LABEL_WIDTH + column * (BOX_WIDTH + GAP_X)


PICTURE_WIDTH: Final = _column_x(2) + BOX_WIDTH + 2 * MARGIN


def _svg(title: str, height: float, steps: Mapping[int, Step], parts: list[str]) -> str:
    told = "; ".join(f"{n}. {', '.join(name for name, _ in step.names)}: {step.happens}" for n, step in steps.items())
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {PICTURE_WIDTH:g} {height:g}" '
            f'width="{PICTURE_WIDTH:g}" height="{height:g}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<desc>{escape(told)}</desc>",
            f"<style>{FONTS}{STYLE.format(**LIGHT)}@media (prefers-color-scheme: dark) {{{STYLE.format(**DARK)}}}",
            "</style>",
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="5.5" markerHeight="5.5" '
            'orient="auto-start-reverse"><path class="head" d="M0,0 L8,4 L0,8 z"/></marker></defs>',
            f'<rect class="page" width="{PICTURE_WIDTH:g}" height="{height:g}" rx="8"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def _band(name: str, y: float, height: float) -> str:
    width = PICTURE_WIDTH - 2 * MARGIN
    return (
        f'<rect class="band" x="{MARGIN}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"/>'
        f'<text class="band-label" x="{MARGIN + 10}" y="{y + height / 2 + 4:g}">{escape(name)}</text>'
    )


def _box(box: Box, is_marked: bool) -> str:
    y = box.y + BOX_PADDING
    kind = "box marked" if is_marked else "box"
    parts = [
        f'<rect class="{kind}" x="{box.x:g}" y="{box.y:g}" width="{BOX_WIDTH}" height="{box.height:g}" rx="5"/>',
        f'<circle class="number" cx="{box.x:g}" cy="{box.y:g}" r="9.5"/>',
        f'<text class="on-number" x="{box.x:g}" y="{box.y + 3.8:g}" text-anchor="middle">{box.step.number}</text>',
    ]
    for kind, line in box.step.lines:
        size = {"name": NAME_SIZE, "file": FILE_SIZE}.get(kind)
        assert size is None or len(line) * size * 0.61 < BOX_WIDTH - 20, f"{line} is too long for its box"
        parts.append(f'<text class="{kind}" x="{box.x + 14:g}" y="{y + HEIGHTS[kind] - 4:g}">{escape(line)}</text>')
        y += HEIGHTS[kind]
    return "".join(parts)


def _arrow(start: Box, end: Box, arrow: Arrow) -> str:
    points = list(_points(start, end, arrow.path))
    path = "M" + " L".join(f"{x:g},{y:g}" for x, y in points)
    tail = ' marker-start="url(#head)"' if arrow.is_call else ""
    line = f'<path class="arrow" d="{path}" marker-end="url(#head)"{tail}/>'
    if not arrow.label:
        return line
    x, y, anchor = _label_place(points)
    return f'{line}<text class="label" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(arrow.label)}</text>'


def _points(start: Box, end: Box, path: str) -> Iterator[tuple[float, float]]:
    """The corners of an arrow, from the edge of one box to the edge of the other."""
    is_down, is_right = end.y > start.y, end.x > start.x
    out_y, in_y = (start.bottom, end.y) if is_down else (start.y, end.bottom)
    out_x, in_x = (start.right, end.x) if is_right else (start.x, end.right)
    if path == "h":
        # From the middle of the first box, unless the other box is too small to be met there.
        y = max(min(start.middle_y, end.bottom - 8), end.y + 8)
        yield from ((out_x, y), (in_x, y))
    elif path == "v":
        yield from ((start.middle_x, out_y), (start.middle_x, in_y))
    elif path == "hv":
        yield from ((out_x, start.middle_y), (end.middle_x, start.middle_y), (end.middle_x, in_y))
    elif path == "vh":
        yield from ((start.middle_x, out_y), (start.middle_x, end.middle_y), (in_x, end.middle_y))
    else:
        middle = (out_y + in_y) / 2
        yield from ((start.middle_x, out_y), (start.middle_x, middle), (end.middle_x, middle), (end.middle_x, in_y))


def _label_place(points: list[tuple[float, float]]) -> tuple[float, float, str]:
    """Beside a vertical line, on the side towards the middle; above the longest horizontal part of another."""
    if len(points) == 2 and points[0][0] == points[1][0]:
        x, y = points[0][0], (points[0][1] + points[1][1]) / 2 + 4
        return (x - 8, y, "end") if x > PICTURE_WIDTH * 0.6 else (x + 8, y, "start")
    spans = [(abs(a[0] - b[0]), (a[0] + b[0]) / 2, a[1]) for a, b in pairwise(points)]
    _, x, y = max(spans)
    return x, y - 6, "middle"


def pictures(page: str) -> dict[str, str]:
    """The texts of all pictures, by the names of their files."""
    return {f"walk-{walk}.svg": drawn(layout, steps_of(page, walk)) for walk, layout in WALKS.items()}


def main() -> None:
    for name, text in pictures(PAGE.read_text("utf-8")).items():
        (IMAGES / name).write_text(text, "utf-8")
        print(f"docs/images/{name}")


if __name__ == "__main__":
    main()
