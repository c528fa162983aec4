"""The operator table of docs/semantics.md is what the code accepts."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from catchment import Filter
from catchment.errors import BadFilterError
from catchment.model.constraint import OPERATORS, STRING_ONLY

PAGE = (Path(__file__).parents[2] / "docs" / "semantics.md").read_text("utf-8")
SAMPLES: dict[str, list[tuple[str, Any]]] = {
    "string": [("string", "a")],
    "number, int, float": [("number", 1), ("int", 1), ("float", 2.5)],
    "bool": [("bool", True)],
    "time": [("time", datetime(2026, 11, 15, tzinfo=UTC))],
}


def _rows() -> list[tuple[str, str, bool]]:
    table = PAGE[PAGE.index("| operator | text |") :].split("\n\n")[0].splitlines()
    header = [cell.strip() for cell in table[0].strip("|").split("|")]
    rows = []
    for line in table[2:]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        operator = re.sub("`", "", cells[1])
        rows += [(operator, header[i], cells[i] == "yes") for i in range(2, len(cells))]
    return rows


def test_the_table_lists_every_operator() -> None:
    negated = {operator for operator in STRING_ONLY if operator.startswith("not ")}
    assert {operator for operator, _, _ in _rows()} == set(OPERATORS) - negated - {"not in", "absent"}


@pytest.mark.parametrize(("operator", "column", "allowed"), _rows())
def test_the_table_is_what_the_code_accepts(operator: str, column: str, allowed: bool) -> None:
    for kind, sample in SAMPLES[column]:
        value = {"in": [sample], "in nocase": [sample], "any": None}.get(operator, sample)
        if operator == "cidr" and sample == "a":
            value = "10.0.0.0/8"
        if allowed:
            assert not Filter.of(("x", operator, value, kind)).is_empty or sample == 2.5
        else:
            with pytest.raises(BadFilterError):
                Filter.of(("x", operator, value, kind))
