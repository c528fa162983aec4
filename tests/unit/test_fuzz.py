"""The fuzzer of `./dev soak --fuzz`, for a moment; and mistakes that it must find."""

import pytest

from catchment.broker.connection import Connection
from catchment.broker.http.protocols import HttpConnection
from catchment.model.cesql import Cesql
from catchment.node import Node
from tests.fuzz import filters, runs
from tests.fuzz.runs import FuzzRun, outcome_of

RUNS = (
    FuzzRun("frames", 1, 1_500),
    FuzzRun("frames", 2, 1_500),
    FuzzRun("filters", 4, 40),
    FuzzRun("requests", 1, 100),
    FuzzRun("requests", 2, 100),
)


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_nothing_goes_wrong(run):
    assert outcome_of(run).violation is None


def test_a_run_is_made_from_its_seed_alone():
    assert list(filters.fuzzed(4, 10)) == list(filters.fuzzed(4, 10)) != list(filters.fuzzed(5, 10))


def test_runs_make_as_many_as_asked_for():
    made = runs.runs_of({"frames": 10_001, "filters": 1}, 7)
    assert [(run.kind, run.seed) for run in made] == [("frames", 7), ("frames", 8), ("frames", 9), ("filters", 7)]


# --- planted mistakes ---------------------------------------------------------------------------


def failing(*_: object, **__: object) -> None:
    raise ZeroDivisionError("planted")


def a_request_raises(patch: pytest.MonkeyPatch) -> FuzzRun:
    patch.setattr(Node, "misasked", failing)
    return RUNS[0]


def a_client_is_forgotten_by_the_connection_only(patch: pytest.MonkeyPatch) -> FuzzRun:
    patch.setattr(Node, "client_down", lambda self, client: None)
    return RUNS[0]


def what_the_loop_calls_raises(patch: pytest.MonkeyPatch) -> FuzzRun:
    patch.setattr(Connection, "_flush", failing)
    return RUNS[0]


def reading_cesql_takes_too_many_steps(patch: pytest.MonkeyPatch) -> FuzzRun:
    patch.setattr(filters, "QUESTION_STEPS_MAX", 10)
    return RUNS[2]


def reading_raises_what_is_no_error_of_ours(patch: pytest.MonkeyPatch) -> FuzzRun:
    patch.setattr(Cesql, "__init__", failing)
    return RUNS[2]


def a_bad_body_is_answered_twice(patch: pytest.MonkeyPatch) -> FuzzRun:
    patch.setattr(HttpConnection, "send_400_response", HttpConnection.__base__.send_400_response)  # type: ignore[union-attr]
    return FuzzRun("requests", 5, 100)


def memory_grows(patch: pytest.MonkeyPatch) -> FuzzRun:
    patch.setattr(runs, "resident", lambda: 2 * runs.GROWTH_BYTES_MAX)
    patch.setattr(runs, "_resident_after", {"filters": (runs.SETTLING_RUNS, 0)})
    return FuzzRun("filters", 4, 1)


MISTAKES = (
    a_request_raises,
    a_client_is_forgotten_by_the_connection_only,
    what_the_loop_calls_raises,
    reading_cesql_takes_too_many_steps,
    reading_raises_what_is_no_error_of_ours,
    a_bad_body_is_answered_twice,
    memory_grows,
)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_planted_mistakes_are_found(mistake, monkeypatch):
    run = mistake(monkeypatch)
    outcome = outcome_of(run)
    assert outcome.violation is not None
    assert str(outcome).startswith(f"./dev soak --fuzz {run.kind} --seed {run.seed}")
