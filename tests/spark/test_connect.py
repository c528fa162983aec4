"""On Spark Connect, with a server in a process of its own, all results are those of this process. What cannot run there
is refused with an error that says so."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter

import pytest

from catchment.errors import UnavailableError
from tests.spark import samples

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
    """A server gives its workers its own path, not that of the settings for executors."""
    path = [samples.loaded_workers()["spark.executorEnv.PYTHONPATH"], *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {
        "SPARK_HOME": samples.spark_home(),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(path),
    }


def server_command(port):
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": 2,
        "spark.ui.enabled": "false",
        **samples.loaded_workers(),
    }
    command = [f"{samples.spark_home()}/bin/spark-submit", "--class", SERVER, "--master", "local[2]"]
    command += ["--driver-memory", "1g", "--driver-java-options", samples.quick_java()]
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    return [*command, "spark-internal"]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for(port, process, log):
    until = time.monotonic() + SECONDS_MAX
    while True:
        with socket.socket() as connection:
            if connection.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert process.poll() is None, log.read_text()[-5_000:]
        assert time.monotonic() < until, log.read_text()[-5_000:]
        time.sleep(0.1)


def test_results_are_those_of_this_process(address, tmp_path):
    """One test, so that server and program run once, however tests are spread over processes."""
    notifications = samples.some_notifications(300)
    samples.write_inputs(tmp_path, notifications)
    program = [sys.executable, str(samples.PROGRAMS / "connect.py"), str(tmp_path), address]
    done = subprocess.run(program, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stderr[done.stderr.find("Traceback") :][:5_000]
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["session"] == ["pyspark.sql.connect.session", "true", 2]
    check_compiled_and_changed(results)
    check_matches(notifications, results)
    check_command_line(notifications, results)
    check_archives(notifications, results)
    check_sequences(notifications, results)
    check_refusals(results)


def check_compiled_and_changed(results):
    (code, printed), counts = results["compile"]
    live = len(samples.FILTERS)
    assert (code, counts["live"], counts["rejected"], "edges" in counts) == (0, live, 1, True), printed
    assert results["rejects"] == [[live + 1, '{"id": "bad"}']]
    assert results["change"] == [2, live, 1]
    matched = samples.matcher_of(samples.FILTERS).match({"x": 1})
    assert results["changed"] == {"1": sorted({*matched, "new"} - {"s0"})}


def check_matches(notifications, results):
    expected = samples.expected_matches(notifications)
    pairs = sorted([row, id] for row, ids in expected.items() for id in ids)
    assert results["match"] == results["scattered"] == expected
    assert results["pairs"] == pairs
    assert results["counts"] == Counter(id for _, id in pairs)
    assert results["unmatched"] == sorted(row for row, ids in expected.items() if not ids)
    assert results["explained"] == {row: "s1" in ids for row, ids in expected.items()}


def check_command_line(notifications, results):
    (code, printed), matched = results["command"]
    assert (code, "300 notifications" in printed) == (0, True), printed
    assert matched == samples.expected_matches(notifications)


def check_archives(notifications, results):
    ordered = samples.in_publication_order(notifications)
    matched = [notification.id for notification in ordered if notification.get("x") in (6, 7, 8)]
    assert results["compact"] == ["2026-11-15"]
    assert results["replay"] == [id for id in matched for _ in range(2)]
    assert results["dry run"] == [["2026-11-15", 600, 2 * len(matched)]]
    code, printed = results["check --on"]
    assert code == 0
    assert json.loads(printed.splitlines()[-1])["summary"] == {
        "notifications": 600,
        "matched": 2 * len(matched),
        "days": 1,
    }


def check_sequences(notifications, results):
    expected = samples.expected_sequences(notifications)
    assert results["detect"] == results["detect stream"] == expected
    assert results["detect -o"] == [0, len(expected)]
    assert results["detect -o rejects"] == ["oops"]


def check_refusals(results):
    for message in (*results["stream"], results["stream command"][1]):
        assert "Spark Connect" in message
        assert "with a master" in message
    assert results["stream command"][0] == 1
    assert all("there is no file at" in message for message in results["missing"])


def test_a_server_that_does_not_answer_is_an_error(monkeypatch):
    from catchment.pipeline import session

    monkeypatch.setattr(session, "CONNECT_SECONDS_MAX", 0.2)
    with pytest.raises(UnavailableError, match="no Spark Connect server answers at sc://127"):
        session.require_server(f"sc://127.0.0.1:{free_port()}")
