"""`catchment pub --ack stored` and `catchment sub --durable` as programs, with a storage that comes and goes."""

import json
import signal
from pathlib import Path

import pytest

from tests.integration.processes import catchment, done, started
from tests.live.runs import free_ports


@pytest.fixture
def address() -> str:
    (port,) = free_ports(1)
    return f"127.0.0.1:{port}"


def storage(address: str, directory: Path) -> list[str]:
    return catchment("serve", "--listen", address, "--json", "--store", str(directory / "a.db"))


def lines_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_what_is_published_while_nobody_is_there_waits_in_the_file_and_is_stored_once(
    address: str, tmp_path: Path
) -> None:
    state, into = tmp_path / "p.state", tmp_path / "out.jsonl"
    publish = catchment("pub", "-", "--url", address, "--ack", "stored", "--source", "p", "--state", str(state))
    subscribe = catchment("sub", "n > 0", "--url", address, "--durable", "r", "--into", str(into))
    numbers = "".join(f'{{"n": {n}}}\n' for n in range(1, 6))
    offline = done([*publish, "--wait", "0.3"], stdin=numbers)
    assert offline.returncode == 1
    assert "5 notifications are not kept" in offline.stderr
    assert f"they wait in {state}" in offline.stderr
    with started(storage(address, tmp_path)) as broker:
        assert broker.stdout is not None
        broker.stdout.readline()
        # The subscription is made, and nothing is due yet.
        with started(subscribe) as reader:
            assert reader.stderr is not None
            assert "subscribed durably" in reader.stderr.readline()
        again = done([*publish, "--json"], stdin='{"n": 6}\n')
        assert again.returncode == 0, again.stderr
        assert [json.loads(line)["source"] for line in again.stdout.splitlines()] == ["p"]
    # The storage was stopped, and is started again with what it has on disk.
    with started(storage(address, tmp_path)) as broker:
        assert broker.stdout is not None
        broker.stdout.readline()
        # A line that was cut off by a crash is cut away, and comes again.
        assert done([*subscribe, "--count", "2"]).returncode == 0
        with into.open("a") as file:
            file.write('{"source": "p", "se')
        assert done([*subscribe, "--count", "4"]).returncode == 0
    rows = lines_of(into)
    assert [row["notification"]["n"] for row in rows] == [1, 2, 3, 4, 5, 6]  # type: ignore[index]
    assert [row["epoch"] for row in rows] == sorted({row["epoch"] for row in rows})  # type: ignore[type-var]
    assert all(set(row) >= {"source", "seq", "log", "epoch"} for row in rows)


def test_one_notification_is_stored_and_the_command_says_by_whom(address: str, tmp_path: Path) -> None:
    with started(storage(address, tmp_path)) as broker:
        assert broker.stdout is not None
        broker.stdout.readline()
        kept = done(catchment("pub", "n=1", "--url", address, "--ack", "stored"))
        assert (kept.returncode, "1 notifications kept by broker" in kept.stderr) == (0, True)
        top = json.loads(done(catchment("top", "--url", address, "--json", "--count", "1")).stdout)
        assert top["store"]["state"] == "works"
        broker.send_signal(signal.SIGTERM)
        assert broker.wait(30) == 0


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("pub", "n=1", "--state", "f"), "--state and --json go with --ack stored"),
        (("pub", "n=1", "--ack", "stored", "--state", "f"), "give --source NAME or --as NAME"),
        (("sub", "n > 0", "--into", "f"), "go with --durable NAME or --group NAME"),
        (("sub", "n > 0", "--durable", "a", "--group", "b"), "either --durable NAME or --group NAME"),
        (("serve", "--store", "a.db", "--storage", "b"), "either --store or --storage"),
    ],
)
def test_what_does_not_go_together_is_said(arguments: tuple[str, ...], what: str, tmp_path: Path) -> None:
    ended = done(catchment(*arguments), tmp_path)
    assert ended.returncode == 2
    assert what in " ".join(ended.stderr.split())


def test_a_file_of_something_else_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("hello\n")
    ended = done(catchment("sub", "n > 0", "--durable", "a", "--into", "f"), tmp_path)
    assert (ended.returncode, "line 1 is none of catchment sub --into" in ended.stderr) == (2, True)
    assert (tmp_path / "f").read_text() == "hello\n"
