"""The commands that talk to brokers, with real brokers: serve, pub, sub, explain, top, tour."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.integration.processes import WAIT_S, catchment, done, started


def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return done(catchment(*arguments), stdin=stdin)


def next_line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()


@contextmanager
def broker(*arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A broker on a free port: its address and its process."""
    serve = catchment("serve", "--listen", "127.0.0.1:0", "--json", "--log", "json", *arguments)
    with started(serve) as process:
        yield json.loads(next_line(process.stdout))["address"], process


def test_what_is_published_at_one_broker_is_printed_at_another() -> None:
    with broker("--name", "north") as (north, _), broker("--name", "south", "--neighbor", north) as (south, process):
        assert "link up" in _log_line(process, "link up")
        sub = catchment("sub", "level > 3 and place any", "--url", south, "--count", "3", "--json")
        with started(sub) as subscriber:
            _wait_for_filters(north, 1)
            assert run("pub", "level=5", "place=north", "--url", north).returncode == 0
            lines = '{"level": 7, "place": "x"}\n{"level": 1, "place": "x"}\nno JSON\n{"level": 9.5, "place": "y"}\n'
            published = run("pub", "-", "--url", north, stdin=lines)
            assert published.returncode == 1
            assert "line 3" in published.stderr
            assert "3 notifications published" in published.stderr
            levels = [json.loads(next_line(subscriber.stdout))["notification"]["level"] for _ in range(3)]
            assert levels == [5, 7, 9.5]
            assert subscriber.wait(WAIT_S) == 0


def _log_line(process: subprocess.Popen[str], message: str) -> str:
    """Waits for the line of a broker's log with this message. Empty if the broker ends first."""
    while line := next_line(process.stderr):
        if json.loads(line)["message"] == message:
            return line
    return ""


def _wait_for_filters(address: str, count: int, which: str = "remote_filters") -> None:
    """Waits, with `top`, until a broker has this many filters of its neighbors; or subscriptions of its clients."""
    with started(catchment("top", "--json", "--every-s", "0.05", "--url", address)) as top:
        while line := next_line(top.stdout):
            if json.loads(line)[which] >= count:
                return
    pytest.fail(f"{address} did not get {count} {which}")


def test_explain_says_which_clause_failed() -> None:
    with (
        broker() as (address, _),
        started(catchment("sub", "level > 3", "--url", address, "--as", "ana")) as subscriber,
    ):
        assert "subscribed" in next_line(subscriber.stderr)
        explained = run("explain", "level=2", "--url", address)
        assert "ana s1 does not match: level > 3" in explained.stdout
        assert "value 2 is not > 3" in explained.stdout
        (verdict,) = json.loads(run("explain", "level=5", "--url", address, "--json").stdout)
        assert verdict["matches"] is True


def test_a_publication_that_was_not_advertised_is_refused() -> None:
    with broker("--routing", "siena advertising") as (address, _):
        refused = run("pub", "level=2", "--url", address)
        assert refused.returncode == 1
        assert "has not advertised" in refused.stderr
        assert run("pub", "level=2", "--advertise", "level any", "--url", address).returncode == 0


def test_a_source_is_a_name_that_nobody_else_has() -> None:
    with (
        broker() as (address, _),
        started(catchment("sub", "level any", "--url", address, "--as", "ana", "--json")) as subscriber,
    ):
        _wait_for_filters(address, 1, "subscriptions")
        assert run("pub", "level=1", "--url", address, "--source", "meter 7").returncode == 0
        lines = '{"level": 2}\n{"level": 3, "$source": "meter 8"}\n'
        assert run("pub", "-", "--url", address, "--source", "meter 7", stdin=lines).returncode == 0
        delivered = [json.loads(next_line(subscriber.stdout))["notification"] for _ in range(3)]
        assert [(each["level"], each["$source"]) for each in delivered] == [
            (1, "meter 7"),
            (2, "meter 7"),
            (3, "meter 8"),
        ]
        lines = '{"level": 5, "$seq": 7}\n{"level": 6, "$seq": 7}\n{"level": 7, "$source": "ana"}\n{"level": 8}\n'
        some = run("pub", "-", "--url", address, "--source", "meter 9", stdin=lines)
        assert some.returncode == 1
        assert "line 2: $seq 7 of 'meter 9' goes back: the last number was 7" in some.stderr
        assert "line 3: 'ana' belongs to another client" in some.stderr
        assert "2 notifications published, 2 bad lines" in some.stderr
        assert [json.loads(next_line(subscriber.stdout))["notification"]["level"] for _ in range(2)] == [5, 8]
        for arguments, reason in (
            (("--source", "ana"), "'ana' belongs to another client"),
            (("--source", "@http"), "names that begin with @ are the broker's own"),
            (("--as", "ana"), "'ana' is connected already, and answers"),
            (("--as", "*"), "'*' is reserved"),
        ):
            refused = run("pub", "level=4", "--url", address, *arguments)
            assert refused.returncode != 0
            assert reason in refused.stderr


def test_an_advertiser_may_let_http_publishers_use_its_name() -> None:
    event = {"specversion": "1.0", "id": "1", "type": "sold", "source": "/shop"}
    content_type = {"Content-Type": "application/cloudevents+json"}
    offer = "id any, source any, type any, specversion any"
    serve = ("serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--json", "--routing", "siena advertising")
    with started(catchment(*serve)) as process:
        ready = json.loads(next_line(process.stdout))
        address, url = ready["address"], f"http://{ready['http']}"
        request = Request(f"{url}/events", json.dumps(event).encode(), content_type)
        with pytest.raises(HTTPError, match="422"):
            urlopen(request, timeout=WAIT_S)
        with started(catchment("advertise", offer, "--url", address, "--as", "/shop", "--http")) as advertiser:
            assert "advertised" in next_line(advertiser.stderr)
            with urlopen(request, timeout=WAIT_S) as answer:
                assert json.load(answer) == {"accepted": 1}


def test_top_shows_a_table() -> None:
    with broker("--name", "north") as (address, _):
        top = run("top", "--count", "1", "--every-s", "0.1", "--url", address)
        assert top.returncode == 0
        assert "north" in top.stdout
        assert "subscriptions" in top.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sub", "level >", "--url", "127.0.0.1:1"], "FILTER, column"),
        (["pub", "level", "--url", "127.0.0.1:1"], "write name=value"),
        (["pub", "level=1", "level=2", "--url", "127.0.0.1:1"], "twice"),
        (["pub", "$when=1", "--url", "127.0.0.1:1"], "ATTRIBUTES: "),
        (["pub", "level=1", "--advertise", "level >", "--url", "127.0.0.1:1"], "--advertise, column"),
        (["advertise", "level >", "--url", "127.0.0.1:1"], "ADVERTISEMENT, column"),
        (["pub", "level=1", "--url", "127.0.0.1:no"], "no address"),
        (["serve", "--routing", "magic"], "there is no routing system 'magic'"),
        (["serve", "nowhere.toml"], "nowhere.toml cannot be read"),
    ],
)
def test_bad_usage(arguments: list[str], message: str) -> None:
    ended = run(*arguments)
    assert ended.returncode in (1, 2)
    assert message in ended.stderr
    assert "bug" not in ended.stderr


def test_an_address_that_is_taken() -> None:
    with broker() as (address, _):
        second = run("serve", "--listen", address)
    assert second.returncode == 2
    assert f"cannot listen at {address}: " in second.stderr
    assert "--listen" in second.stderr


def test_nobody_listens() -> None:
    ended = run("pub", "level=1", "--url", "127.0.0.1:1")
    assert ended.returncode == 1
    assert "cannot connect to 127.0.0.1:1" in ended.stderr


def test_the_tour_comes_true() -> None:
    tour = run("tour", "--headless")
    assert tour.returncode == 0, tour.stdout + tour.stderr
    assert "east is back" in tour.stdout
