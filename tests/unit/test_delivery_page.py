"""The pictures of docs/delivery.md are those that tools/draw_delivery.py draws, and the page shows each of them."""

import pytest

from tools.draw_delivery import PICTURES, Says, drawn
from tools.draw_walks import IMAGES, ROOT

PAGE = (ROOT / "docs" / "delivery.md").read_text("utf-8")


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_drawn_from_its_sequence(name: str):
    assert (IMAGES / f"{name}.svg").read_text("utf-8") == drawn(PICTURES[name]), (
        "draw again: python tools/draw_delivery.py"
    )
    assert f"(images/{name}.svg)" in PAGE


@pytest.mark.parametrize("name", PICTURES)
def test_a_sequence_is_said_between_those_who_are_there(name: str):
    picture = PICTURES[name]
    places = {
        place for row in picture.rows for place in ((row.start, row.end) if isinstance(row, Says) else (row.who,))
    }
    assert places == set(range(len(picture.who)))
