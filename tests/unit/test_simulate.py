"""`catchment simulate`, with the scenarios of examples/simulation."""

import json
from pathlib import Path

import pytest

from catchment.cli import main

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "simulation"


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.iterdir()))
def test_examples_are_played(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(EXAMPLES / name), "--json"]) == 0
    measures = json.loads(capsys.readouterr().out)
    assert measures["delivered"] > 0
    assert measures["cost_total"] == sum(measures["cost"].values())
    assert sum(link["messages"] for link in measures["links"]) == sum(measures["messages"].values())


def test_another_seed_and_core(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(EXAMPLES / "outage.toml")
    assert main(["simulate", path, "--core", "flooding", "--seed", "3"]) == 0
    out = capsys.readouterr().out
    assert "flooding on random 24, seed 3" in out
    assert "notifications" in out


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_a_picture(tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / f"traffic{suffix}"
    assert main(["simulate", str(EXAMPLES / "outage.toml"), "--picture", str(picture)]) == 0
    assert picture.stat().st_size > 5_000
    assert str(picture) in capsys.readouterr().out.replace("\n", "")


@pytest.mark.parametrize("arguments", [["nowhere.toml"], [str(EXAMPLES / "outage.toml"), "--core", "pigeons"]])
def test_bad_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", *arguments]) == 2
    assert "error" in capsys.readouterr().err
