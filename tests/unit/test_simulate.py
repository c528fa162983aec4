"""`catchment simulate`, on the scenarios in examples."""

import json
from pathlib import Path
from typing import Any

import pytest

from catchment.cli import main

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "simulation"
SYSTEMS = "siena acyclic,siena general,centralized"


def simulated(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    """The runs that the command printed."""
    assert main(["simulate", *arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert list(document) == ["runs"]
    runs: list[dict[str, Any]] = document["runs"]
    return runs


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.iterdir()))
def test_examples_are_played(name: str, capsys: pytest.CaptureFixture[str]):
    (run,) = simulated(capsys, str(EXAMPLES / name))
    assert run["delivered"] > 0
    messages = run["messages"].values()
    assert run["cost"] == sum(count["cost"] for count in messages)
    assert run["bytes"] == sum(count["bytes"] for count in messages) == sum(load["bytes"] for load in run["links"])
    assert run["notifications"]["link"] + sum(run["control"].values()) == sum(count["messages"] for count in messages)
    assert 0 < run["notifications"]["logical"] <= run["notifications"]["link"]


def test_what_a_run_says_in_json(capsys: pytest.CaptureFixture[str]):
    (run,) = simulated(capsys, str(EXAMPLES / "outage.toml"))
    assert (run["routing"], run["seed"], run["network"], run["brokers"]) == ("siena general", 7, "random 24", 24)
    assert (run["settings"], run["is_on_spanning_tree"], run["notes"]) == ({}, False, [])
    assert set(run["control"]) == {"Links", "Wants", "WantsChange"}
    assert set(run["control_caused"]) == {"change", "traffic", "idle"}
    assert set(run["tables"]) == {"filters", "bytes"}
    assert set(run["tables"]["filters"]) == {"largest", "total"}
    assert set(run["convergence_ms"]) == {"mean", "most"}
    assert set(run["work"]) == {
        *("matched", "compared", "looked_up", "matched_per_notification", "compared_per_notification"),
        "looked_up_per_notification",
    }
    for name in ("hops_mean", "false_positives", "latency_ms", "samples", "simulated_s", "warm_up_s"):
        assert name in run


def test_several_systems_on_the_same_scenario(capsys: pytest.CaptureFixture[str]):
    runs = simulated(capsys, str(EXAMPLES / "outage.toml"), "--routing", SYSTEMS, "--routing", "flooding")
    assert [run["routing"] for run in runs] == ["siena acyclic", "siena general", "centralized", "flooding"]
    assert len({run["published"] for run in runs}) == 1
    assert [run["is_on_spanning_tree"] for run in runs] == [True, False, False, False]
    flooding = runs[-1]
    assert flooding["notifications"]["link"] == max(run["notifications"]["link"] for run in runs)


def test_several_seeds(capsys: pytest.CaptureFixture[str]):
    path = str(EXAMPLES / "outage.toml")
    runs = simulated(capsys, path, "--seed", "3,4", "--routing", "siena acyclic,flooding")
    assert [(run["routing"], run["seed"]) for run in runs] == [
        ("siena acyclic", 3), ("siena acyclic", 4), ("flooding", 3), ("flooding", 4),
    ]  # fmt: skip
    (alone,) = simulated(capsys, path, "--seed", "4", "--routing", "flooding")
    assert alone == runs[-1]


def test_settings_on_the_command_line(capsys: pytest.CaptureFixture[str]):
    path = str(EXAMPLES / "regions.toml")
    (quick,) = simulated(capsys, path, "--set", "merging=none")
    (slow,) = simulated(capsys, path, "--set", "merging=none", "--set", "batch_ms=20")
    assert (quick["settings"]["merging"], slow["settings"]["batch_ms"]) == ("none", 20)
    assert set(slow["settings"]["expected"]) == {"region", "level"}
    assert slow["control"]["Interest"] < quick["control"]["Interest"]
    assert slow["convergence_ms"]["mean"] > quick["convergence_ms"]["mean"]


def test_the_table_of_one_run(capsys: pytest.CaptureFixture[str]):
    assert main(["simulate", str(EXAMPLES / "outage.toml"), "--routing", "flooding", "--seed", "3"]) == 0
    out = capsys.readouterr().out
    assert "flooding on random 24, seed 3" in out
    assert "notifications over links" in out


def test_the_table_of_several_runs_has_a_column_for_each(capsys: pytest.CaptureFixture[str]):
    path = str(EXAMPLES / "outage.toml")
    runs = simulated(capsys, path, "--routing", SYSTEMS)
    assert main(["simulate", path, "--routing", SYSTEMS]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "3 runs on random 24"
    (delivered,) = [line.split() for line in lines if line.startswith("delivered")]
    assert delivered[1:] == [f"{run['delivered']:,}" for run in runs]
    assert any("siena acyclic is for networks without cycles" in line for line in lines)


def test_the_table_of_many_runs_has_a_row_for_each(capsys: pytest.CaptureFixture[str]):
    path = str(EXAMPLES / "outage.toml")
    arguments = ("--routing", "siena acyclic,flooding", "--seed", "1,2,3")
    runs = simulated(capsys, path, *arguments)
    assert main(["simulate", path, *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    for run in runs:
        beginning = [*run["routing"].split(), str(run["seed"]), f"{run['delivered']:,}"]
        (row,) = [words for line in lines if (words := line.split())[: len(beginning)] == beginning]
        assert f"{run['bytes']:,}" in row


@pytest.mark.parametrize("suffix", [".svg", ".png"])
@pytest.mark.parametrize("arguments", [(), ("--routing", SYSTEMS, "--seed", "1,2")])
def test_a_picture(tmp_path: Path, suffix: str, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]):
    first, second = tmp_path / f"first{suffix}", tmp_path / f"second{suffix}"
    for picture in (first, second):
        assert main(["simulate", str(EXAMPLES / "outage.toml"), *arguments, "--picture", str(picture)]) == 0
        assert f"drawn: {picture}" in capsys.readouterr().out.replace("\n", "")
    assert first.read_bytes() == second.read_bytes()
    if suffix == ".svg" and arguments:
        text = first.read_text()
        # Each system has a title and a bar in each of three charts.
        assert all(f"<!-- {name} -->" in text for name in SYSTEMS.split(","))
        assert all(f"<!-- {title} -->" in text for title in ("cost", "bytes", "filters in the largest table"))


OUTAGE = str(EXAMPLES / "outage.toml")


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["nowhere.toml"], "nowhere.toml cannot be read"),
        ([OUTAGE, "--routing", "pigeons"], "there is no routing system 'pigeons': use one of siena general"),
        ([OUTAGE, "--routing", "siena hybrid"], "siena hybrid needs a network of units"),
        ([OUTAGE, "--seed", "many"], "--seed 'many': write whole numbers"),
        ([OUTAGE, "--set", "merging=0.3"], "no system of this run has that setting"),
        ([OUTAGE, "--picture", "traffic.pdf"], "the name ends in .svg or .png"),
        ([OUTAGE, "--picture", "no/where.svg"], "there is no directory 'no'"),
    ],
)
def test_bad_usage(arguments: list[str], what: str, capsys: pytest.CaptureFixture[str]):
    assert main(["simulate", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert what in error
