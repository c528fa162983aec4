"""Dumps of tables beside the ideal ones, and traces: the diagnostics of filter propagation (§4.4, Figures 4.2, 4.3)."""

import json
from pathlib import Path
from typing import Any

import pytest

from catchment.cli import main
from catchment.model.filter import Filter
from catchment.routing.propagation.core import PropagationCore
from catchment.sim.scenarios.records import table_rows
from catchment.sim.simulation import Simulation
from catchment.sim.topology import line

FIGURE_4_2 = Path(__file__).resolve().parents[2] / "examples" / "simulation" / "propagation-figure-4-2.txt"
LINE = """
network = "line 3"
routing = "propagation"

[[publishers]]
name = "bob"
at = ["0"]
publish = [{ at_s = 1.0, x = 9 }, { at_s = 2.0, x = 1 }, { at_s = 3.0, x = 7 }]

[[subscribers]]
name = "alice"
at = ["2"]
filters = ["x > 5"]
"""


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(row) for row in path.read_text("utf-8").splitlines()]


def measures(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert main(["simulate", *arguments, "--json"]) == 0
    runs: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["runs"]
    return runs


def test_figure_4_3_the_tables_of_figure_4_2_are_ideal_after_7_5_seconds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    runs = measures(capsys, str(FIGURE_4_2), "--routing", "propagation,dvmrp", "--dump", str(tmp_path / "tables"))
    rows = rows_of(tmp_path / "tables")
    assert {row["at_s"] for row in rows} == {7.5}
    propagated = [row for row in rows if row["routing"] == "propagation"]
    # One publisher: each broker but its own is a child of another, and each has a row for itself.
    assert len(propagated) == 99 + 100
    assert all(row["is_ideal"] and row["is_sound"] for row in rows)
    wanted = {row["actual"] for row in propagated if row["child"] == "self"}
    assert len(wanted) == 1 + 1, "what subscribers want, and false"
    assert {row["actual"] for row in rows if row["routing"] == "dvmrp"} == {"true", "false"}
    assert len(runs) == 2


def test_figure_4_2_runs_as_it_is_written(capsys: pytest.CaptureFixture[str]):
    propagation, dvmrp, perfect = measures(capsys, str(FIGURE_4_2), "--routing", "propagation,dvmrp,perfect")
    assert (propagation["settings"], propagation["warm_up_s"]) == ({"filter_timeout_s": 32.0}, 2.0)
    assert {run["delivered"] for run in (propagation, dvmrp, perfect)} == {propagation["delivered"]}
    assert propagation["delivered"] > 0
    links = [run["notifications"]["link"] for run in (perfect, propagation, dvmrp)]
    assert links == sorted(links)
    # The network has converged before the warm-up is over: it is as good as perfect from then on.
    assert links[0] == links[1] < links[2]
    assert set(propagation["control"]) == {"Filtered"}


def test_tables_are_dumped_at_the_times_of_the_scenario_or_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    scenario, tables = tmp_path / "line.toml", tmp_path / "tables"
    scenario.write_text("dump_at_s = [0.5, 1.5]" + LINE, "utf-8")
    measures(capsys, str(scenario), "--dump", str(tables))
    assert {row["at_s"] for row in rows_of(tables)} == {1.5}, "before, no publisher is known"
    scenario.write_text(LINE, "utf-8")
    measures(capsys, str(scenario), "--dump", str(tables), "--seed", "1,2")
    rows = rows_of(tables)
    assert {(row["seed"], row["broker"]) for row in rows} == {(seed, broker) for seed in (1, 2) for broker in "012"}
    assert rows[0] == {
        "routing": "propagation", "seed": 1, "at_s": rows[0]["at_s"], "broker": "0", "publisher": "0", "child": "1",
        "actual": "x > 5", "ideal": "x > 5", "is_sound": True, "is_ideal": True,
    }  # fmt: skip


def test_a_table_that_is_not_ideal_shows():
    simulation = Simulation(line(3), PropagationCore)
    simulation.connect("bob", "0")
    simulation.connect("alice", "2")
    simulation.subscribe("alice", "1", Filter("x > 5"))
    simulation.publish("bob", {"x": 9})
    simulation.settle()
    # Nobody has had anything unwanted.
    rows = {(row["broker"], row["child"]): row for row in table_rows(simulation)}
    assert (rows["0", "1"]["actual"], rows["0", "1"]["ideal"]) == ("true", "x > 5")
    assert (rows["0", "1"]["is_sound"], rows["0", "1"]["is_ideal"]) == (True, False)
    simulation.publish("bob", {"x": 1})
    simulation.settle()
    assert all(row["is_ideal"] for row in table_rows(simulation))
    core = simulation.cores["1"]
    assert isinstance(core, PropagationCore)
    simulation.client("alice").wants["2"] = Filter("x < 0")
    assert [row["is_sound"] for row in table_rows(simulation) if row["child"] != "self"] == [False, False]


def test_a_trace_says_what_brokers_were_told_and_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    scenario, trace = tmp_path / "line.toml", tmp_path / "trace"
    scenario.write_text(LINE, "utf-8")
    (plain,) = measures(capsys, str(scenario))
    (traced,) = measures(capsys, str(scenario), "--trace", str(trace))
    assert traced == plain
    rows = rows_of(trace)
    unwanted = [row for row in rows if "x" in row["heard"] and row["from"] == "1" and row["broker"] == "2"]
    assert [row["does"] for row in unwanted] == [["sends 1: Filtered(publisher='0', wanted=Filter('x > 5'))"]]
    assert any(row["heard"].startswith("Filtered(publisher='0'") and row["broker"] == "0" for row in rows)


def test_what_cannot_be_dumped_or_written_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    scenario = tmp_path / "line.toml"
    scenario.write_text(LINE, "utf-8")
    assert main(["simulate", str(scenario), "--routing", "siena general", "--dump", str(tmp_path / "t")]) == 2
    assert "siena general has no tables by publisher: use propagation or dvmrp" in capsys.readouterr().err
    assert main(["simulate", str(scenario), "--trace", str(tmp_path / "nowhere" / "t")]) == 2
    assert "cannot be written" in capsys.readouterr().err
