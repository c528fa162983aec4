"""The command line, in this process where that is enough and as a real process where it matters."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from catchment import Filter, __version__
from catchment.cli import main
from catchment.demo import notifications, subscriptions

SCRIPT = Path(sys.executable).with_name("catchment")
FILTER = "symbol = 'DIS' and price > 100"


@pytest.fixture
def run(capsys):
    """Runs a command line in this process: its exit code, standard output and standard error."""

    def runs(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        found = capsys.readouterr()
        assert "Traceback" not in found.err
        assert "a bug in catchment" not in found.err
        return code, found.out, found.err

    return runs


def process(*arguments: str | bytes, **settings) -> subprocess.CompletedProcess[bytes]:
    """Runs a command line as its own process."""
    command = [sys.executable, "-m", "catchment.cli", *arguments]
    found = subprocess.run(command, capture_output=True, check=False, timeout=60, **settings)
    assert b"Traceback" not in found.stderr
    return found


@pytest.fixture
def lines(tmp_path):
    """Writes lines of bytes to a file and gives its path."""

    def written(*found: bytes) -> str:
        path = tmp_path / "notifications.jsonl"
        path.write_bytes(b"".join(line + b"\n" for line in found))
        return str(path)

    return written


# --- the report ---------------------------------------------------------------------------------


def test_check_reports_the_canonical_filter(run) -> None:
    code, out, err = run("check", FILTER)
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == 'price > 100 and symbol = "DIS"'
    assert "some notifications" in out
    assert "number" in out
    assert "string" in out


def test_check_reports_json(run) -> None:
    code, out, err = run("check", f"{FILTER} or not exists(price)", "--json")
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert report["kind"] == "filter"
    assert report["dialect"] == "catchment"
    assert Filter(report["text"]) == Filter.from_json(report["filter"]) == Filter(f"{FILTER} or not exists(price)")
    assert report["attributes"] == {
        "price": {"types": ["int", "float"], "absent": True},
        "symbol": {"types": ["string"], "absent": False},
    }
    assert (report["alternatives"], report["comparisons"]) == (2, 3)
    assert (report["empty"], report["everything"]) == (False, False)


@pytest.mark.parametrize(
    ("text", "empty", "everything", "words"),
    [
        ("x > 5 and x < 3", True, False, "nothing: it contradicts itself"),
        ("x any or not exists(x)", False, True, "everything"),
        ("x = 1", False, False, "some notifications"),
    ],
)
def test_check_says_what_matches_nothing_and_everything(run, text, empty, everything, words) -> None:
    report = json.loads(run("check", text, "--json")[1])
    assert (report["empty"], report["everything"]) == (empty, everything)
    assert words in run("check", text)[1]


@pytest.mark.parametrize(
    ("first", "second", "covers", "covered", "overlaps", "words"),
    [
        ("x > 3", "x > 5", True, False, True, "The first covers the second"),
        ("x > 5", "x > 3", False, True, True, "The second covers the first"),
        ("int x > 3 and int x < 5", "int x = 4", True, True, True, "They are equal"),
        ("x > 3", "y > 3", False, False, True, "they overlap"),
        ("x > 3", "x < 3", False, False, False, "They are disjoint"),
        ("x > 3", "x > 5 and x < 3", True, False, False, "The second matches nothing"),
    ],
)
def test_covers_says_both_directions_and_overlap(run, first, second, covers, covered, overlaps, words) -> None:
    relation = json.loads(run("check", first, "--covers", second, "--json")[1])["relation"]
    assert [relation[name] for name in ("covers", "covered", "overlaps")] == [covers, covered, overlaps]
    assert words in relation["sentence"]
    assert words in " ".join(run("check", first, "--covers", second)[1].split())


def test_cesql(run) -> None:
    arguments = ("check", "type like 'shop.%'  and amount > 3", "--dialect", "cesql")
    report = json.loads(run(*arguments, "--json")[1])
    assert report["dialect"] == "cesql"
    assert report["text"] == "type LIKE 'shop.%' AND amount > 3"
    assert Filter(report["implies"]["text"]).names == {"type", "amount"}
    code, out, _ = run(*arguments, "--covers", "type LIKE 'shop.%'")
    assert code == 0
    assert "The second covers the first" in " ".join(out.split())


def test_cesql_against(run, lines) -> None:
    path = lines(b'{"n": 3}', b'{"n": 4}', b"{}", b"[]")
    code, out, _ = run("check", "n * 2 > 6", "--dialect", "cesql", "--against", path, "--json")
    assert code == 1
    verdicts = [json.loads(line) for line in out.splitlines()][1:-1]
    assert [found["verdict"] for found in verdicts] == ["no match", "match", "no match", "bad line"]
    assert verdicts[0]["value"] is False
    assert verdicts[2]["errors"]


def test_patterns_and_advertisements(run) -> None:
    pattern = "[a = 1] -> [b = 2] within 5m by host"
    report = json.loads(run("check", pattern, "--as", "pattern", "--covers", "a = 1 -> b = 2", "--json")[1])
    assert (report["text"], report["within"], report["by"]) == (pattern, "5m", ["host"])
    assert report["relation"]["overlaps"] is None
    assert "some sequences" in run("check", pattern, "--as", "pattern")[1]
    report = json.loads(run("check", "a = 1, a = 2", "--as", "advertisement", "--covers", "a = 2", "--json")[1])
    assert report["relation"]["covers"] is True
    assert report["relation"]["covered"] is False


def test_an_advertisement_against_notifications(run, lines) -> None:
    path = lines(b'{"what": "alarm"}', b'{"what": "alarm", "level": 3}', b'{"what": "login"}')
    code, out, _ = run("check", "what = 'alarm'", "--as", "advertisement", "--against", path)
    assert code == 0
    assert [line.split()[1] for line in out.splitlines()[-4:-1]] == ["match", "no", "no"]
    assert "level: value 3 is not advertised" in out


# --- against notifications ----------------------------------------------------------------------


def test_against_judges_every_line(run, lines) -> None:
    path = lines(b'{"symbol": "DIS", "price": 101}', b"", b'{"symbol": "DIS", "price": 99}', b'{"price": "high"}')
    code, out, err = run("check", FILTER, "--against", path)
    assert (code, err) == (0, "")
    assert out.splitlines()[-4:] == [
        "     1  match",
        "     3  no match  price: value 99 is not > 100",
        '     4  no match  price: type string does not fit number, wanted > 100; symbol: absent, wanted = "DIS"',
        "1 matched, 2 did not, 0 bad",
    ]


def test_against_as_json_lines(run, lines) -> None:
    code, out, err = run("check", FILTER, "--against", lines(b'{"symbol": "DIS", "price": 99}'), "--json")
    assert (code, err) == (0, "")
    report, verdict, summary = map(json.loads, out.splitlines())
    assert report["report"]["text"] == str(Filter(FILTER))
    assert (verdict["line"], verdict["verdict"]) == (1, "no match")
    (clause,) = verdict["failing"]
    assert (clause["clause"], clause["value"], clause["wanted"]) == ("price > 100", 99, "> 100")
    assert summary == {"summary": {"matched": 0, "not_matched": 1, "bad": 0}}


BAD_LINES = {
    b'{"x": 1, "x": 2}': "twice",
    b'{"x": NaN}': "NaN",
    b'{"x": 1e999}': "inf",
    b'{"x": "\xff"}': "byte 8 is 0xff: not UTF-8",
    b"[1]": "must be a JSON object",
    b'{"x": null}': "'x'",
    b"{x": "column 2: not JSON",
    b'{"x": ' + b"[" * 10_000 + b"]" * 10_000 + b"}": "too deep",
    b'{"x": ' * 10_000 + b"1" + b"}" * 10_000: "too deep",
    b'{"x": "' + b"x" * 10_000_000 + b'"}': "NOTIFICATION_JSON_CHARACTERS_MAX",
    b'{"x": "' + b"x" * 100_000 + b'"}': "STRING_CODEPOINTS_MAX",
    b'{"x": ' + b"9" * 5_000 + b"}": "5,000 digits",
    b'{"x": "\\ud800"}': "surrogate",
    b'{"$nothing": 1}': "envelope",
    b'"' + b"x" * 34_000_000: "longer than",
}


def test_bad_lines_are_reported_and_do_not_stop_the_run(run, lines) -> None:
    path = lines(*BAD_LINES, b'{"x": 1}')
    code, out, err = run("check", "x = 1", "--against", path, "--json")
    assert code == 1
    assert f"{len(BAD_LINES)} bad lines" in err
    _, *verdicts, summary = map(json.loads, out.splitlines())
    for number, (verdict, reason) in enumerate(zip(verdicts, BAD_LINES.values(), strict=False), 1):
        assert (verdict["line"], verdict["verdict"]) == (number, "bad line")
        assert reason in verdict["reason"]
        assert len(verdict["reason"]) < 300
    assert verdicts[-1]["verdict"] == "match"
    assert summary["summary"] == {"matched": 1, "not_matched": 0, "bad": len(BAD_LINES)}


def test_no_depth_of_nesting_is_too_much(run, lines) -> None:
    """Around the depth at which Python itself gives up, every step between fails in another place."""
    found = [b'{"x": ' + b"[" * depth + b"]" * depth + b"}" for depth in range(1, 1_100, 7)]
    found += [b'{"x": ' * depth + b"1" + b"}" * depth for depth in range(2, 1_100, 7)]
    code, out, _ = run("check", "x = 1", "--against", lines(*found))
    assert code == 1
    assert out.splitlines()[-1] == f"0 matched, 0 did not, {len(found)} bad"


def test_a_mark_at_the_start_and_windows_line_ends_are_no_matter(run, lines) -> None:
    code, out, _ = run("check", "x = 1", "--against", lines(b'\xef\xbb\xbf{"x": 1}\r', b'{"x": 1}\r'))
    assert code == 0
    assert out.splitlines()[-1] == "2 matched, 0 did not, 0 bad"


def test_standard_input() -> None:
    found = process("check", "x = 1", "--against", "-", input=b'{"x": 1}\n{"x": 2}')
    assert found.returncode == 0
    assert found.stdout.splitlines()[-1] == b"1 matched, 1 did not, 0 bad"
    assert found.stderr == b""


# --- bad usage ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("symbol =! 'DIS'", "  symbol =! 'DIS'\n          ^\n"),
        ("", "  \n  ^\n"),
        ("x = 1 and\n\ty = = 2", "line 2, column 6: found '='\n  \\ty = = 2\n        ^\n"),
        ("日本 = 3 and 本 >< 3", "  日本 = 3 and 本 >< 3\n                   ^\n"),
        ("x = 1 and " * 60 + "y >", " y >\n" + " " * 41 + "^\n"),
    ],
)
def test_a_parse_error_points_at_the_place(run, text, shown) -> None:
    code, out, err = run("check", text)
    assert (code, out) == (2, "")
    assert err.startswith("error: FILTER, ")
    assert shown in err
    assert "expected " in err
    assert max(map(len, err.splitlines())) < 150


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check", "x > true"], "booleans have no order"),
        (["check", "x = 1", "--covers", "y ="], "--covers, column 4"),
        (["check", "x = 1", "--against", "no such file"], "No such file"),
        (["check", "x = 1", "--against", os.sep], "Is a directory"),
        (["check", "x = 1", "--against", "\0"], "null"),
        (["check", "x = 1 -> y = 2", "--as", "pattern", "--against", "-"], "sequences"),
        (["check", "x = 1", "--as", "pattern", "--dialect", "cesql"], "CESQL has no patterns"),
        (["check", "x LIKE", "--dialect", "cesql"], "expected a quoted string"),
        (["check", "x = 1", "--dialect", "sql"], "cesql"),
        (["check", "x", "=", "1"], "in quotes"),
        (["check"], "FILTER"),
        (["chekc"], 'Did you mean "check"'),
        (["check", "x = 1", "--bogus"], "--bogus"),
        (["check", "not " * 10_000 + "x = 1"], "FILTER_DEPTH_MAX"),
        (["check", "(" * 10_000], "found the end"),
        (["check", "x = '" + "a" * 10_000_000 + "'"], "FILTER_TEXT_CODEPOINTS_MAX"),
        (["check", "x = 'a' AND " * 10_000 + "y", "--dialect", "cesql"], "CESQL_TEXT_CODEPOINTS_MAX"),
        (["check", "x = 99999999999999999999"], "64 bits"),
        (["check", "x = '\udcff'"], "surrogate"),
    ],
)
def test_bad_usage_is_a_short_message_and_code_2(run, arguments, words) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert words in err
    assert len(err) < 600


# --- the program --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", [[sys.executable, "-m", "catchment"], [sys.executable, "-m", "catchment.cli"], [SCRIPT]]
)
def test_every_way_to_start_it(command) -> None:
    if not Path(command[0]).exists():
        pytest.skip(f"{command[0]} is not installed")
    found = subprocess.run([*command, "check", "x ="], capture_output=True, check=False, timeout=60)
    assert found.returncode == 2
    assert found.stdout == b""
    assert found.stderr.startswith(b"error: FILTER, column 4")


def test_help_and_version(run) -> None:
    code, out, err = run("--help")
    assert (code, err) == (0, "")
    assert "check" in out
    assert "demo" in out
    assert run() == (code, out, err)
    assert "--against FILE" in run("check", "--help")[1]
    assert run("--version") == (0, f"{__version__}\n", "")


def test_help_loads_nothing_heavy() -> None:
    script = "import sys; from catchment.cli import main; main(['--help']); sys.stdout.write(' '.join(sys.modules))"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {"numba", "numpy", "pyarrow", "pyspark", "asyncio"} & set(found.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_every_locale(encoding) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    for arguments in (["demo"], ["check", "日本 = 'é\U0001f600'"]):
        found = process(*arguments, env=environment)
        assert (found.returncode, found.stderr) == (0, b"")
        assert found.stdout.decode(encoding)


def test_the_caret_stands_right_in_every_locale() -> None:
    found = process("check", "日本 ><", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert b"  \\u65e5\\u672c ><\n                ^\n" in found.stderr


def test_arguments_that_are_not_text() -> None:
    found = process("check", b"x = '\xff'")
    assert found.returncode == 2
    assert b"surrogate" in found.stderr
    found = process("check", "x = 1", "--against", b"\xff")
    assert (found.returncode, found.stdout) == (2, b"")


@pytest.mark.parametrize("arguments", [["demo"], ["--help"], ["check", "x = 1", "--json"], ["check", "x = 1"]])
def test_a_closed_pipe_is_no_error(arguments) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "catchment", *arguments]
    found = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False, timeout=60)
    os.close(writer)
    assert (found.returncode, found.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_a_failure() -> None:
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "catchment", "demo"]
        found = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False, timeout=60)
    assert found.returncode == 1
    assert found.stderr.startswith(b"error: cannot read or write")
    assert b"Traceback" not in found.stderr


def test_an_interrupt_ends_it_quietly() -> None:
    # A test runner in the background may have interrupts ignored, which a child would inherit.
    script = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from catchment.cli import main; sys.exit(main(['check', 'x = 1', '--against', '-']))"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", script], **pipes) as child:
        child.stdin.write(b'{"x": 1}\n')
        child.stdin.flush()
        while b"match\n" not in child.stdout.readline():
            assert child.poll() is None
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 130
        assert child.stderr.read() == b"error: interrupted\n"


def on_a_terminal(*arguments: str, stdout: int | None = None, **variables: str) -> bytes:
    """Runs it on a pseudo-terminal (standard output elsewhere if told) and gives back what that showed."""
    controller, terminal = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    with subprocess.Popen(
        [sys.executable, "-m", "catchment", *arguments],
        stdin=terminal,
        stdout=terminal if stdout is None else stdout,
        stderr=terminal,
        env={**environment, "TERM": "xterm-256color", "COLUMNS": "100", **variables},
    ) as child:
        os.close(terminal)
        shown = b"".join(iter(lambda: _read(controller), b""))
        assert child.wait(60) == 0
    os.close(controller)
    return shown


def _read(controller: int) -> bytes:
    try:
        return os.read(controller, 65_536)
    except OSError:  # how Linux says that the other side is closed
        return b""


def test_colours_on_a_terminal_only(run) -> None:
    assert b"\x1b[32mAna" in on_a_terminal("demo")
    assert b"\x1b[32m" not in on_a_terminal("demo", NO_COLOR="1")
    assert "\x1b" not in run("demo")[1]


def test_a_large_file_shows_its_progress_on_a_terminal(lines) -> None:
    path = lines(*[b'{"x": 1, "y": "' + b"y" * 60_000 + b'"}'] * 20)
    shown = on_a_terminal("check", "x = 1", "--against", path)
    assert b"100%" in shown
    assert b"20 matched, 0 did not, 0 bad" in shown
    with open(path + ".out", "w+b") as out:
        shown = on_a_terminal("check", "x = 1", "--against", path, "--json", stdout=out.fileno())
        out.seek(0)
        found = [json.loads(line) for line in out]
    assert b"100%" in shown
    assert len(found) == 22


# --- the demo -----------------------------------------------------------------------------------


def test_the_demo_shows_who_gets_what_and_why_not(run) -> None:
    code, out, err = run("demo")
    assert (code, err) == (0, "")
    assert all(one.client in out and one.text in out for one in subscriptions())
    assert "Why did Ana not get number 1?" in out
    assert "value 101.25 is not < 100; 99 would have done" in out
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("width", ["0", "1", "33", "wide"])
def test_any_width(run, monkeypatch, width) -> None:
    monkeypatch.setenv("COLUMNS", width)
    assert "Ana" in run("demo")[1]
    assert "error: FILTER" in run("check", "x =")[2]


def test_the_demo_as_json(run) -> None:
    code, out, err = run("demo", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert [one["id"] for one in found["subscriptions"]] == [one.id for one in subscriptions()]
    for delivery, notification in zip(found["deliveries"], notifications(), strict=True):
        expected = [one.id for one in subscriptions() if one.wanted.matches(notification)]
        assert delivery["delivered_to"] == expected
    assert found["near_miss"]["explanation"]["matched"] is False


def test_the_demo_has_something_for_everyone() -> None:
    """Each subscriber gets something, each misses something, and some notification finds nobody."""
    for one in subscriptions():
        assert {one.wanted.matches(found) for found in notifications()} == {True, False}
    assert any(not any(one.wanted.matches(found) for one in subscriptions()) for found in notifications())
    assert {one.dialect for one in subscriptions()} == {"catchment", "cesql"}
