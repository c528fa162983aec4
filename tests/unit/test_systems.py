"""The registry of routing systems, and those who read it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from catchment.broker.config import Config, read_config
from catchment.errors import InputError
from catchment.routing.messages import BrokerMessage, Header
from catchment.routing.systems import DEFAULT_SYSTEM, SYSTEMS, RoutingSystem, added, live_systems, system_named
from catchment.wire.messages import between_brokers

ROOT = Path(__file__).resolve().parent.parent.parent


def row(system: RoutingSystem[Any]) -> str:
    """As docs/routing.md has it."""
    settings = ", ".join(f"`{name}`" for name in system.settings.__struct_fields__)
    messages = ", ".join(f"`{message.__name__}`" for message in system.messages)
    header = ", ".join(f"`{name}`" for name in system.header.__struct_fields__)
    return f"| `{system.name}` | {system.summary} | {settings or 'none'} | {messages or 'none'} | {header} |"


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_documentation_lists_every_system(name: str):
    assert row(SYSTEMS[name]) in (ROOT / "docs/routing.md").read_text("utf-8").splitlines()


def test_the_documentation_lists_no_other():
    page = (ROOT / "docs/routing.md").read_text("utf-8").splitlines()
    start = page.index("| system | what it does | settings | brokers say | header |")
    rows = []
    for line in page[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append(line)
    assert rows == [row(system) for system in SYSTEMS.values()]


def test_help_lists_every_system():
    command = [sys.executable, "-m", "catchment", "serve", "--help"]
    text = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    flat = " ".join(text.replace("│", " ").split())
    for name in live_systems():
        assert name in flat
    assert "perfect" not in flat


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_system_has_what_hosts_need(name: str):
    system = SYSTEMS[name]
    assert system.name == name
    assert all(issubclass(message, BrokerMessage) for message in system.messages)
    assert issubclass(system.header, Header)
    assert between_brokers(system.messages, system.header)


def test_a_system_that_there_is_not_is_named_with_those_that_there_are():
    with pytest.raises(InputError, match=r"no routing system 'none'.*siena general"):
        system_named("none")
    with pytest.raises(InputError, match="no routing system 'none'"):
        Config(routing="none")


def test_a_system_that_knows_everything_is_for_the_simulator_alone():
    assert [name for name, system in SYSTEMS.items() if not system.is_live] == ["perfect"]
    with pytest.raises(InputError, match="perfect knows what no live broker can know: use `catchment simulate`"):
        Config(routing="perfect")
    with pytest.raises(InputError, match=r"no routing system 'none'.*dvmrp$"):
        Config(routing="none")


def test_settings_are_those_of_the_system_and_no_other(tmp_path: Path):
    file = tmp_path / "b.toml"
    file.write_text('routing = "siena hierarchical"\n[settings]\nmaster = "up"\n', "utf-8")
    assert read_config(file).settings == {"master": "up"}
    file.write_text('routing = "siena acyclic"\n[settings]\nmaster = "up"\n', "utf-8")
    with pytest.raises(InputError, match=r"settings of siena acyclic: .*master.*it has none"):
        read_config(file)
    file.write_text('routing = "siena merging"\n[settings]\nmerging = 2.0\n', "utf-8")
    with pytest.raises(InputError, match=r"the share .* 0 to less than 1, got 2\.0"):
        read_config(file).make_core()
    file.write_text('routing = "siena merging"\n[settings]\nmerging = "much"\n', "utf-8")
    with pytest.raises(InputError, match=r"settings of siena merging: .*merging"):
        read_config(file)


def test_a_system_of_somebody_elses_is_there_for_a_while():
    own = RoutingSystem("own", "nothing", SYSTEMS["flooding"].settings, SYSTEMS["flooding"].make)
    with added(own):
        assert system_named("own") is own
        assert Config(routing="own").make_core().inner.inspect().tables == ()
    assert "own" not in SYSTEMS
    assert DEFAULT_SYSTEM in SYSTEMS
