"""docs/operations.md: its configuration is read, its limits are those of the code, its log messages are logged."""

import importlib
import re
from pathlib import Path

import pytest

from catchment.broker.config import Address, read_config

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text("utf-8")
LIMITS_IN = (
    "broker.connection",
    "broker.explaining",
    "broker.http.protocols",
    "broker.http.server",
    "broker.server",
    "broker.status",
    "matching.matcher",
    "model.advertisement",
    "model.cesql.implied",
    "model.filter",
    "model.monitor",
    "model.strings",
    "model.widening",
    "node.jobs",
    "node.access",
    "node.numbers",
    "routing.parts.clients",
    "routing.parts.link_states",
    "routing.parts.newest",
    "routing.parts.remote",
    "routing.parts.watching",
    "routing.poset.poset",
    "routing.siena.advertising",
    "routing.siena.delegating",
    "routing.siena.general",
    "routing.siena.thinning",
)


def rows(first_title: str) -> list[list[str]]:
    """The cells of the table whose first title is this."""
    table = PAGE[PAGE.index(f"| {first_title} |") :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in table]


def value_of(text: str) -> int:
    """`8 MiB` or `1,000` as a number."""
    number, _, unit = text.replace(",", "").partition(" ")
    return int(number) * {"": 1, "MiB": 1_048_576}[unit]


@pytest.mark.parametrize("row", [*rows("limit"), *rows("budget")], ids=lambda row: row[0].strip("`"))
def test_limits_are_those_of_the_code(row: list[str]):
    name = row[0].strip("`")
    modules = [importlib.import_module(f"catchment.{module}") for module in LIMITS_IN]
    values = {getattr(module, name) for module in modules if hasattr(module, name)}
    assert values == {value_of(row[1])}


def test_the_page_has_every_budget():
    """Each constant of the model and of routing whose name says that it bounds steps, and each of a slice."""
    places = ("model.advertisement", "model.cesql.implied", "model.filter", "node.jobs", "routing.poset.poset")
    budgets = {
        name
        for place in places
        for name in vars(importlib.import_module(f"catchment.{place}"))
        if name.isupper() and (name.endswith("_STEPS_MAX") or name.startswith("SLICE_"))
    }
    assert len(budgets) >= 9
    assert budgets <= {row[0].strip("`") for row in rows("budget")}


def test_the_configuration_of_the_page_is_read(tmp_path: Path):
    files = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(files) == 2
    configs = []
    for text in files:
        (tmp_path / "broker.toml").write_text(text, "utf-8")
        configs.append(read_config(tmp_path / "broker.toml"))
    general, hierarchical = configs
    assert general.costs == {Address("south.example", 7400): 3}
    assert general.http == Address("127.0.0.1", 7480)
    assert hierarchical.settings == {"master": "south"}


def test_the_page_has_every_log_message():
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "src/catchment/broker").rglob("*.py"))
    logged = set(re.findall(r"""(?:log\.(?:debug|info|warning)|self\._warn)\(\s*"([^"]+)\"""", sources))
    assert {name for row in rows("message") for name in re.findall(r"`([^`]+)`", row[0])} == logged
