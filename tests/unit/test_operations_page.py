"""docs/operations.md: its configuration is read, its limits are those of the code, its log messages are logged."""

import importlib
import re
from pathlib import Path

import pytest

from catchment.broker.config import Address, StoreConfig, read_config

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text("utf-8")
HTTP_PAGE = (ROOT / "docs" / "http.md").read_text("utf-8")
WEBHOOKS_PAGE = (ROOT / "docs" / "webhooks.md").read_text("utf-8")
PROTOCOL_PAGE = (ROOT / "docs" / "protocol.md").read_text("utf-8")
LIMITS_IN = (
    "broker.allowance",
    "broker.connection",
    "broker.explaining",
    "broker.half_sent",
    "broker.http.delivery_log",
    "broker.http.protocols",
    "broker.http.server",
    "broker.outboxes",
    "broker.server",
    "broker.turns",
    "broker.status",
    "broker.storing",
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
    "routing.baselines.disjunctive",
    "routing.baselines.informed",
    "routing.content_graph.graph",
    "routing.content_graph.inbox",
    "routing.content_graph.loss",
    "routing.content_graph.router",
    "routing.grid.gateways",
    "routing.grid.messages",
    "routing.grid.units",
    "routing.parts.clients",
    "routing.parts.distance_vectors",
    "routing.parts.identities",
    "routing.parts.link_states",
    "routing.parts.newest",
    "routing.parts.remote",
    "routing.parts.watching",
    "routing.poset.poset",
    "routing.siena.advertising",
    "routing.siena.delegating",
    "routing.siena.general",
    "routing.summary.core",
    "routing.summary.ids",
    "routing.summary.own",
    "routing.summary.stream",
    "routing.messages",
    "routing.parts.link_states",
    "node.gaps",
    "routing.siena.thinning",
    "wire.session",
    "routing.siena.messages",
)


def rows(first_title: str, page: str = PAGE) -> list[list[str]]:
    """The cells of the tables whose first title is this."""
    tables = [table.split("\n\n")[0].splitlines()[2:] for table in page.split(f"\n| {first_title} |")[1:]]
    return [[cell.strip() for cell in line.strip().strip("|").split("|")] for table in tables for line in table]


def values_in(text: str) -> list[float]:
    """The numbers of a text such as `8 MiB and 1,000`."""
    units = {"MiB": 1_048_576, "KiB": 1_024}
    found = re.findall(r"(?<![\w.])([0-9][0-9,]*(?:\.[0-9]+)?)(?: (MiB|KiB))?", text)
    return [float(number.replace(",", "")) * units.get(unit, 1) for number, unit in found]


def values_of_code(name: str, modules: tuple[str, ...]) -> set[float]:
    loaded = [importlib.import_module(f"catchment.{module}") for module in modules]
    return {float(getattr(module, name)) for module in loaded if hasattr(module, name)}


@pytest.mark.parametrize("row", [*rows("limit"), *rows("budget")], ids=lambda row: row[0].strip("`"))
def test_limits_are_those_of_the_code(row: list[str]):
    names = re.findall(r"`(\w+)`", row[0])
    for name, value in zip(names, values_in(row[1]), strict=True):
        assert values_of_code(name, LIMITS_IN) == {value}, name


HTTP_MODULES = (
    "binding",
    "delivery_log",
    "durable_client",
    "durable_streams",
    "filters",
    "gate",
    "interest",
    "pages",
    "protocols",
    "requests",
    "server",
    "streams",
    "subscriptions",
)
WEBHOOK_MODULES = (
    "broker.http.webhooks.answers",
    "broker.http.webhooks.message",
    "broker.http.webhooks.pacing",
    "broker.http.webhooks.permission",
    "broker.http.webhooks.registry",
    "broker.http.webhooks.resource",
    "broker.http.webhooks.sinks",
    "broker.http.webhooks.webhook",
    "broker.targets",
    "broker.webhook_settings",
)


@pytest.mark.parametrize("row", rows("limit", HTTP_PAGE), ids=lambda row: row[0])
def test_limits_over_http_are_those_of_the_code(row: list[str]):
    modules = tuple(f"broker.http.{module}" for module in HTTP_MODULES)
    names = re.findall(r"`(\w+)`", f"{row[0]} {row[1]}")
    for name, value in zip(names, values_in(row[1]), strict=True):
        assert values_of_code(name, modules) == {value}, name


@pytest.mark.parametrize("row", rows("limit", WEBHOOKS_PAGE), ids=lambda row: row[0])
def test_limits_of_webhooks_are_those_of_the_code(row: list[str]):
    names = re.findall(r"`(\w+)`", row[0])
    for name, value in zip(names, values_in(row[1]), strict=False):
        assert values_of_code(name, WEBHOOK_MODULES) == {value}, name


def test_the_configuration_of_webhooks_is_read(tmp_path: Path):
    (text,) = re.findall(r"^```toml\n(.*?)^```", WEBHOOKS_PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "broker.toml").write_text(text, "utf-8")
    settings = read_config(tmp_path / "broker.toml").webhooks
    assert settings.allow == ("10.0.0.0/8", "sink.internal")
    assert (settings.origin, settings.callback) == ("broker.example", "https://broker.example")


def test_every_limit_of_brokers_and_of_the_wire_is_on_a_page():
    """A limit that nobody can read about is a surprise."""
    pages = PAGE + HTTP_PAGE + WEBHOOKS_PAGE + PROTOCOL_PAGE
    limits = [
        name
        for package in ("broker", "wire")
        for path in sorted((ROOT / "src" / "catchment" / package).rglob("*.py"))
        for name in re.findall(r"^([A-Z][A-Z0-9_]*): Final = ", path.read_text("utf-8"), re.MULTILINE)
        if name.endswith(("_MAX", "_MOST", "_BYTES", "_S", "_TIGHT", "_EVENTS", "_LEAST"))
    ]
    assert len(limits) > 50
    assert [name for name in limits if not re.search(rf"\b{name}\b", pages)] == []


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
    assert len(files) == 3
    configs = []
    for text in files:
        (tmp_path / "broker.toml").write_text(text, "utf-8")
        configs.append(read_config(tmp_path / "broker.toml"))
    general, hierarchical, storage = configs
    assert storage.store == StoreConfig("/var/lib/catchment/north.db", "", 7, 10_000_000_000, 1)
    assert general.costs == {Address("south.example", 7400): 3}
    assert general.http == Address("127.0.0.1", 7480)
    assert general.allowed_hosts == ("north.example",)
    assert hierarchical.settings == {"master": "south"}


def test_the_page_has_every_log_message():
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "src/catchment/broker").rglob("*.py"))
    logged = set(re.findall(r"""(?:log\.(?:debug|info|warning|error)|self\._warn)\(\s*"([^"]+)\"""", sources))
    assert {name for row in rows("message") for name in re.findall(r"`([^`]+)`", row[0])} == logged
