"""Measured figures, as a benchmark writes them for another program (`--json FILE`) and as `compare` reads them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Figure:
    """What was measured, whether more of it is faster (a rate) or slower (a time), and its value in each run."""

    name: str
    is_more_faster: bool
    values: Sequence[float]


def write_figures(path: Path, figures: Sequence[Figure]) -> None:
    path.write_text(json.dumps([asdict(figure) for figure in figures], indent=1) + "\n", "utf-8")


def read_figures(path: Path) -> list[Figure]:
    return [Figure(**entry) for entry in json.loads(path.read_text("utf-8"))]
