"""docs/simulator.md and docs/routing.md: every command of the simulator runs as it stands and prints what is shown.

A block of TOML that begins with a comment `# name.toml` is that file. A block of text after a command is its output.
"""

import json
import re
import shlex
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from catchment.cli import main
from catchment.sim.scenarios.settings import setting_types

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "simulator.md").read_text("utf-8")
ROUTING_PAGE = (ROOT / "docs" / "routing.md").read_text("utf-8")
BLOCK = re.compile(r"^```(?P<kind>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


def commands() -> list[tuple[str, str | None]]:
    """Each command of the page, with the output that is shown for it."""
    blocks = [(block["kind"], block["body"]) for block in BLOCK.finditer(PAGE)]
    following = [*blocks[1:], ("", "")]
    return [
        (body.strip(), output if kind_after == "text" else None)
        for (kind, body), (kind_after, output) in zip(blocks, following, strict=True)
        if kind == "sh" and body.startswith("catchment simulate")
    ]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the files of the page and the examples, which commands run in."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for block in BLOCK.finditer(PAGE):
        if block["kind"] == "toml" and (name := re.match(r"# (\S+\.toml)\n", block["body"])):
            (tmp_path / name[1]).write_text(block["body"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def test_the_page_has_commands():
    assert len(commands()) >= 6
    assert sum(output is not None for _, output in commands()) >= 2


@pytest.mark.parametrize(("command", "output"), commands(), ids=[command for command, _ in commands()])
def test_commands_of_the_page(command: str, output: str | None, place: Path, capsys: pytest.CaptureFixture[str]):
    assert main(shlex.split(command)[1:]) == 0
    printed = capsys.readouterr()
    if output is not None:
        assert [line.rstrip() for line in printed.out.splitlines()] == output.splitlines()
    if "--picture" in command:
        assert (place / shlex.split(command)[-1]).stat().st_size > 5_000


def test_the_page_names_every_measure(place: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["simulate", "line.toml", "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    table = PAGE[PAGE.index("| key | what it is |") :].split("\n\n")[0]
    cells = re.findall(r"^\| ([^|]*) \|", table, re.MULTILINE)
    named = {name.partition(".")[0] for cell in cells for name in re.findall(r"`([\w.]+)`", cell)}
    assert named == set(run) - {"routing", "seed", "network", "brokers"}


def test_the_page_names_settings_that_exist():
    table = PAGE[PAGE.index("| routing system | settings |") :].split("\n\n")[0].splitlines()[2:]
    for line in table:
        system, settings = (cell.strip() for cell in line.strip("|").split("|"))
        named = re.findall(r"`(\w+)`:", settings)
        assert named
        assert set(named) <= set(setting_types(system.strip("`")))


# --- figures of docs/routing.md -----------------------------------------------------------------


def rows(title: str) -> list[list[str]]:
    """The cells of a table whose first title is this."""
    table = ROUTING_PAGE[ROUTING_PAGE.index(f"| {title} |") :].split("\n\n")[0].splitlines()
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in table[2:]]


def runs_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert main(["simulate", *arguments, "--json"]) == 0
    runs: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["runs"]
    return runs


@pytest.mark.parametrize("row", rows("`--set`"), ids=lambda row: row[0])
def test_figures_of_merging(row: list[str], place: Path, capsys: pytest.CaptureFixture[str]):
    assignments = [word for setting in row[0].split() for word in ("--set", setting)]
    (run,) = runs_of(capsys, "examples/simulation/regions.toml", *assignments)
    link = run["notifications"]["link"]
    assert row[1:] == [
        f"{run['control']['Interest']:,}",
        f"{run['messages']['Interest']['bytes']:,}",
        f"{run['tables']['filters']['largest']:,}",
        f"{run['false_positives']:,} of {link:,}" if run["false_positives"] else "0",
        f"{run['convergence_ms']['mean']:.0f} ms",
    ]


def test_figures_of_delegated_patterns(place: Path, capsys: pytest.CaptureFixture[str]):
    command = re.search(r"`catchment (simulate examples/simulation/intrusion.toml [^`]*)`", ROUTING_PAGE)
    assert command is not None
    runs = runs_of(capsys, *shlex.split(command[1])[1:])
    table = rows("routing system")
    assert len(table) == 2
    for name, cost, size, sequences in table:
        chosen = [run for run in runs if run["routing"] == name]
        assert len(chosen) == 5
        assert cost == f"{fmean(run['cost'] for run in chosen):,.0f}"
        assert size == f"{fmean(run['bytes'] for run in chosen):,.0f}"
        assert sequences == f"{sum(run['delivered'] for run in chosen):,}"


def test_figures_of_filter_propagation(place: Path, capsys: pytest.CaptureFixture[str]):
    command = re.search(r"`catchment (simulate examples/simulation/propagation-figure-4-2.txt [^`]*)`", ROUTING_PAGE)
    assert command is not None
    runs = runs_of(capsys, *shlex.split(command[1])[1:])
    assert rows("multicast by") == [
        [run["routing"], f"{run['delivered']:,}", f"{run['notifications']['link']:,}", f"{run['false_positives']:,}"]
        for run in runs
    ]
