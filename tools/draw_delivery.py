"""Draw the pictures of docs/delivery.md: `python tools/draw_delivery.py`.

Each picture is a sequence: who takes part stands at the top, time runs down, and each arrow is something that is said.
A test compares the pictures in docs/images with what this file draws.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

from tools.draw_walks import DARK, FONTS, IMAGES, LIGHT, STYLE

# In pixels.
COLUMN_WIDTH, HEAD_HEIGHT, ROW_HEIGHT, MARGIN = 176, 40, 38, 16


@dataclass(frozen=True)
class Says:
    """An arrow from one to another; `is_lost` if it does not arrive."""

    start: int
    end: int
    text: str
    is_lost: bool = False


@dataclass(frozen=True)
class Does:
    """Something that one does alone."""

    who: int
    text: str


@dataclass(frozen=True)
class Sequence:
    """A picture."""

    title: str
    who: tuple[str, ...]
    rows: tuple[Says | Does, ...]


PICTURES: Final[dict[str, Sequence]] = {
    "delivery-stored": Sequence(
        "A stored publication, from the publisher to a durable subscriber",
        ("publisher", "broker A, a storage", "disk of A", "broker B", "subscriber"),
        (
            Says(0, 1, "publish, number 7"),
            Does(1, "matches: who is due?"),
            Says(1, 2, "record 41"),
            Does(2, "commit, then witness"),
            Says(2, 1, "safe"),
            Says(1, 0, "kept up to 7"),
            Says(1, 3, "span: (38, 41]"),
            Says(3, 4, "delivery 41"),
            Does(4, "takes it"),
            Says(4, 3, "taken up to 41"),
            Says(3, 1, "at 41"),
            Does(1, "deletes what all have taken"),
        ),
    ),
    "delivery-away": Sequence(
        "A subscriber is away, its broker dies, and it comes back at another",
        ("broker A, a storage", "broker B", "broker C", "subscriber"),
        (
            Says(1, 3, "delivery 41"),
            Says(3, 1, "taken up to 41", is_lost=True),
            Does(1, "dies, for ever"),
            Does(0, "keeps 42, 43, 44"),
            Says(3, 2, "here I am, I have 41"),
            Says(2, 0, "place: C; at 41"),
            Says(0, 2, "span: (41, 44]"),
            Says(2, 3, "deliveries 42, 43, 44"),
            Says(3, 2, "taken up to 44"),
            Says(2, 0, "at 44"),
        ),
    ),
    "delivery-lost": Sequence(
        "A span is lost on the way: the next one shows it, and nothing is delivered out of order",
        ("broker A, a storage", "broker B", "subscriber"),
        (
            Says(0, 1, "span: (41, 42]", is_lost=True),
            Says(0, 1, "span: (42, 45]"),
            Does(1, "has 41: there is a gap"),
            Says(1, 0, "at 41, send again"),
            Says(0, 1, "span: (41, 45]"),
            Says(1, 2, "deliveries 42 and 45"),
            Does(1, "43, 44 were not for it"),
        ),
    ),
}


def drawn(picture: Sequence) -> str:
    """The picture, as the text of an SVG file."""
    width = 2 * MARGIN + COLUMN_WIDTH * len(picture.who)
    height = 2 * MARGIN + HEAD_HEIGHT + ROW_HEIGHT * len(picture.rows) + 14
    told = "; ".join(_told(picture, row) for row in picture.rows)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" role="img">',
            f"<title>{escape(picture.title)}</title>",
            f"<desc>{escape(told)}</desc>",
            f"<style>{FONTS}{STYLE.format(**LIGHT)}@media (prefers-color-scheme: dark) {{{STYLE.format(**DARK)}}}",
            "</style>",
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="5.5" markerHeight="5.5" '
            'orient="auto"><path class="head" d="M0,0 L8,4 L0,8 z"/></marker></defs>',
            f'<rect class="page" width="{width}" height="{height}" rx="8"/>',
            *(_head(i, name, height) for i, name in enumerate(picture.who)),
            *(part for number, row in enumerate(picture.rows) for part in _row(row, _row_y(number))),
            "</svg>",
            "",
        ]
    )


def _told(picture: Sequence, row: Says | Does) -> str:
    if isinstance(row, Does):
        return f"{picture.who[row.who]}: {row.text}"
    lost = " (lost)" if row.is_lost else ""
    return f"{picture.who[row.start]} to {picture.who[row.end]}: {row.text}{lost}"


def _x(column: int) -> float:
    return MARGIN + COLUMN_WIDTH * (column + 0.5)


def _row_y(number: int) -> float:
    return MARGIN + HEAD_HEIGHT + ROW_HEIGHT * (number + 0.75)


def _head(column: int, name: str, height: float) -> str:
    x, width = _x(column), COLUMN_WIDTH - 16
    return (
        f'<line class="box" x1="{x:g}" x2="{x:g}" y1="{MARGIN + 28}" y2="{height - MARGIN:g}"/>'
        f'<rect class="box" x="{x - width / 2:g}" y="{MARGIN}" width="{width}" height="28" rx="5"/>'
        f'<text class="band-label" x="{x:g}" y="{MARGIN + 18}" text-anchor="middle">{escape(name)}</text>'
    )


def _row(row: Says | Does, y: float) -> Iterator[str]:
    if isinstance(row, Does):
        x, width = _x(row.who), COLUMN_WIDTH - 6
        yield f'<rect class="band" x="{x - width / 2:g}" y="{y - 13:g}" width="{width}" height="24" rx="4"/>'
        yield f'<text class="text" x="{x:g}" y="{y + 3:g}" text-anchor="middle">{escape(row.text)}</text>'
        return
    start, end = _x(row.start), _x(row.end)
    if row.is_lost:
        end = start + 0.55 * (end - start)
        yield f'<text class="band-label" x="{end:g}" y="{y + 4.5:g}" text-anchor="middle">✕</text>'
        end -= 8 if end > start else -8
    head = "" if row.is_lost else ' marker-end="url(#head)"'
    yield f'<line class="arrow" x1="{start:g}" x2="{end:g}" y1="{y:g}" y2="{y:g}"{head}/>'
    middle = (_x(row.start) + _x(row.end)) / 2
    yield f'<text class="label" x="{middle:g}" y="{y - 6:g}" text-anchor="middle">{escape(row.text)}</text>'


def main() -> None:
    for name, picture in PICTURES.items():
        (IMAGES / f"{name}.svg").write_text(drawn(picture), "utf-8")


if __name__ == "__main__":
    main()
