"""On Spark Connect, with a server in a process of its own, all is as in this process; what cannot be is said."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from catchment.errors import UnavailableError
from tests.spark import given as made

pytest.importorskip("pyspark")
for package in ("grpc", "grpc_status", "zstandard"):
    pytest.importorskip(package, reason=f"Spark Connect needs {package}: pip install 'catchment[connect]'")
pytestmark = [pytest.mark.spark, pytest.mark.slow]

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
SECONDS_MAX = 600


@pytest.fixture
def address(tmp_path_factory):
    root = tmp_path_factory.mktemp("connect-server")
    port = free_port()
    with (root / "log").open("w") as log:
        process = subprocess.Popen(
            server_command(port),
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=root,
            env=server_environment(),
        )
    try:
        wait_for(port, process, root / "log")
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def server_environment():
    """A server gives its workers its own path, not what the settings say of executors."""
    path = [made.loaded_workers()["spark.executorEnv.PYTHONPATH"], *filter(None, [os.environ.get("PYTHONPATH")])]
    found = {"SPARK_HOME": made.spark_home(), "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(path)}
    return os.environ | found


def server_command(port):
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": 2,
        "spark.ui.enabled": "false",
        **made.loaded_workers(),
    }
    command = [f"{made.spark_home()}/bin/spark-submit", "--class", SERVER, "--master", "local[2]"]
    command += ["--driver-memory", "1g", "--driver-java-options", made.quick_java()]
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    return [*command, "spark-internal"]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def wait_for(port, process, log):
    until = time.monotonic() + SECONDS_MAX
    while True:
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert process.poll() is None, log.read_text()[-5_000:]
        assert time.monotonic() < until, log.read_text()[-5_000:]
        time.sleep(0.1)


def test_all_is_as_in_this_process(address, tmp_path):
    """One test, so that server and program run once wherever tests are spread over processes."""
    given = made.some(300)
    made.write(tmp_path, given)
    program = [sys.executable, str(Path(__file__).with_name("connect.py")), str(tmp_path), address]
    done = subprocess.run(program, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stderr[done.stderr.find("Traceback") :][:5_000]
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["session"] == ["pyspark.sql.connect.session", "true", 2]
    for check in (index_is_compiled_and_changed, matches, command_line, archives, sequences, what_cannot_be_is_said):
        check(given, found)


def index_is_compiled_and_changed(_, found):
    (code, said), counts = found["compile"]
    assert (code, counts["live"], counts["rejected"], "edges" in counts) == (0, len(made.FILTERS), 1, True), said
    assert found["rejects"] == [[len(made.FILTERS) + 1, '{"id": "bad"}']]
    assert found["change"] == [2, len(made.FILTERS), 1]
    matched = made.matcher_of(made.FILTERS).match({"x": 1})
    assert found["changed"] == {"1": sorted({*matched, "new"} - {"s0"})}


def matches(given, found):
    expected = made.matches(given)
    pairs = sorted([row, id] for row, ids in expected.items() for id in ids)
    assert found["match"] == found["scattered"] == expected
    assert found["pairs"] == pairs
    assert found["counts"] == Counter(id for _, id in pairs)
    assert found["unmatched"] == sorted(row for row, ids in expected.items() if not ids)
    assert found["explained"] == {row: "s1" in ids for row, ids in expected.items()}


def command_line(given, found):
    (code, said), matched = found["command"]
    assert (code, "300 notifications" in said) == (0, True), said
    assert matched == made.matches(given)


def archives(given, found):
    matched = [one.id for one in sorted(given, key=lambda one: (one.time, one.seq)) if one.get("x", 0) > 5]
    assert found["compact"] == ["2026-11-15"]
    assert found["replay"] == [id for id in matched for _ in range(2)]
    assert found["dry run"] == [["2026-11-15", 600, 2 * len(matched)]]
    code, said = found["check --on"]
    assert code == 0
    assert json.loads(said.splitlines()[-1])["summary"] == {
        "notifications": 600,
        "matched": 2 * len(matched),
        "days": 1,
    }


def sequences(given, found):
    expected = made.sequences(given)
    assert found["detect"] == found["detect stream"] == expected
    assert found["detect -o"] == [0, len(expected)]
    assert found["detect -o rejects"] == ["oops"]


def what_cannot_be_is_said(_, found):
    for said in (*found["stream"], found["stream command"][1]):
        assert "Spark Connect" in said
        assert "with a master" in said
    assert found["stream command"][0] == 1
    assert all("there is no file at" in said for said in found["missing"])


def test_a_server_that_does_not_answer_is_said(monkeypatch):
    from catchment.pipeline import session

    monkeypatch.setattr(session, "CONNECT_SECONDS_MAX", 0.2)
    with pytest.raises(UnavailableError, match="no Spark Connect server answers at sc://127"):
        session.require_server(f"sc://127.0.0.1:{free_port()}")
