"""The command line: in this process where that is enough, as a process of its own where it makes a difference."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from catchment import Filter, __version__
from catchment.cli import COMMANDS_BY_GROUP, main
from catchment.demo import notifications, subscriptions

SCRIPT = Path(sys.executable).with_name("catchment")
FILTER = "symbol = 'DIS' and price > 100"
COMMANDS = [name for names in COMMANDS_BY_GROUP.values() for name in names]

Run = Callable[..., tuple[int, str, str]]
WriteLines = Callable[..., str]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command line in this process. Returns its exit code, standard output and standard error."""

    def run_main(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        output = capsys.readouterr()
        assert "Traceback" not in output.err
        assert "a bug in catchment" not in output.err
        return code, output.out, output.err

    return run_main


def run_process(*arguments: str | bytes, **settings: Any) -> subprocess.CompletedProcess[bytes]:
    """Runs a command line as a process of its own."""
    command = [sys.executable, "-m", "catchment.cli", *arguments]
    ended = subprocess.run(command, capture_output=True, check=False, timeout=60, **settings)
    assert b"Traceback" not in ended.stderr
    return ended


@pytest.fixture
def write_lines(tmp_path: Path) -> WriteLines:
    """Writes lines of bytes to a file and returns its path."""

    def write(*lines: bytes) -> str:
        path = tmp_path / "notifications.jsonl"
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        return str(path)

    return write


# --- the report ---------------------------------------------------------------------------------


def test_check_reports_the_canonical_filter(run: Run) -> None:
    code, out, err = run("check", FILTER)
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == 'price > 100 and symbol = "DIS"'
    assert "some notifications" in out
    assert "number" in out
    assert "string" in out


def test_check_reports_json(run: Run) -> None:
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
def test_check_says_what_matches_nothing_and_everything(
    run: Run, text: str, empty: bool, everything: bool, words: str
) -> None:
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
def test_covers_says_both_directions_and_overlap(
    run: Run, first: str, second: str, covers: bool, covered: bool, overlaps: bool, words: str
) -> None:
    relation = json.loads(run("check", first, "--covers", second, "--json")[1])["relation"]
    assert [relation[name] for name in ("covers", "covered", "overlaps")] == [covers, covered, overlaps]
    assert words in relation["sentence"]
    assert words in " ".join(run("check", first, "--covers", second)[1].split())


def test_cesql(run: Run) -> None:
    arguments = ("check", "type like 'shop.%'  and amount > 3", "--dialect", "cesql")
    report = json.loads(run(*arguments, "--json")[1])
    assert report["dialect"] == "cesql"
    assert report["text"] == "type LIKE 'shop.%' AND amount > 3"
    assert Filter(report["implies"]["text"]).names == {"type", "amount"}
    code, out, _ = run(*arguments, "--covers", "type LIKE 'shop.%'")
    assert code == 0
    assert "The second covers the first" in " ".join(out.split())


def test_cesql_against(run: Run, write_lines: WriteLines) -> None:
    path = write_lines(b'{"n": 3}', b'{"n": 4}', b"{}", b"[]")
    code, out, _ = run("check", "n * 2 > 6", "--dialect", "cesql", "--against", path, "--json")
    assert code == 1
    verdicts = [json.loads(line) for line in out.splitlines()][1:-1]
    assert [verdict["verdict"] for verdict in verdicts] == ["no match", "match", "no match", "bad line"]
    assert verdicts[0]["value"] is False
    assert verdicts[2]["errors"]


def test_patterns_and_advertisements(run: Run) -> None:
    pattern = "[a = 1] -> [b = 2] within 5m by host"
    report = json.loads(run("check", pattern, "--as", "pattern", "--covers", "a = 1 -> b = 2", "--json")[1])
    assert (report["text"], report["within"], report["by"]) == (pattern, "5m", ["host"])
    assert report["relation"]["overlaps"] is None
    assert "some sequences" in run("check", pattern, "--as", "pattern")[1]
    report = json.loads(run("check", "a = 1, a = 2", "--as", "advertisement", "--covers", "a = 2", "--json")[1])
    assert report["relation"]["covers"] is True
    assert report["relation"]["covered"] is False


def test_an_advertisement_against_notifications(run: Run, write_lines: WriteLines) -> None:
    path = write_lines(b'{"what": "alarm"}', b'{"what": "alarm", "level": 3}', b'{"what": "login"}')
    code, out, _ = run("check", "what = 'alarm'", "--as", "advertisement", "--against", path)
    assert code == 0
    assert [line.split()[1] for line in out.splitlines()[-4:-1]] == ["match", "no", "no"]
    assert "level: value 3 is not advertised" in out


# --- against notifications ----------------------------------------------------------------------


def test_against_judges_every_line(run: Run, write_lines: WriteLines) -> None:
    path = write_lines(b'{"symbol": "DIS", "price": 101}', b"", b'{"symbol": "DIS", "price": 99}', b'{"price": "high"}')
    code, out, err = run("check", FILTER, "--against", path)
    assert (code, err) == (0, "")
    assert out.splitlines()[-4:] == [
        "     1  match",
        "     3  no match  price: value 99 is not > 100",
        '     4  no match  symbol: absent, wanted = "DIS"; price: type string does not fit number, wanted > 100',
        "1 matched, 2 did not, 0 bad",
    ]


def test_against_as_json_lines(run: Run, write_lines: WriteLines) -> None:
    code, out, err = run("check", FILTER, "--against", write_lines(b'{"symbol": "DIS", "price": 99}'), "--json")
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


def test_bad_lines_are_reported_and_do_not_stop_the_run(run: Run, write_lines: WriteLines) -> None:
    path = write_lines(*BAD_LINES, b'{"x": 1}')
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


def test_no_depth_of_nesting_is_too_much(run: Run, write_lines: WriteLines) -> None:
    """Near the depth at which Python gives up, each depth fails at another place in the code."""
    deep_lines = [b'{"x": ' + b"[" * depth + b"]" * depth + b"}" for depth in range(1, 1_100, 7)]
    deep_lines += [b'{"x": ' * depth + b"1" + b"}" * depth for depth in range(2, 1_100, 7)]
    code, out, _ = run("check", "x = 1", "--against", write_lines(*deep_lines))
    assert code == 1
    assert out.splitlines()[-1] == f"0 matched, 0 did not, {len(deep_lines)} bad"


def test_a_byte_order_mark_and_windows_line_ends_do_not_matter(run: Run, write_lines: WriteLines) -> None:
    code, out, _ = run("check", "x = 1", "--against", write_lines(b'\xef\xbb\xbf{"x": 1}\r', b'{"x": 1}\r'))
    assert code == 0
    assert out.splitlines()[-1] == "2 matched, 0 did not, 0 bad"


def test_standard_input() -> None:
    ended = run_process("check", "x = 1", "--against", "-", input=b'{"x": 1}\n{"x": 2}')
    assert ended.returncode == 0
    assert ended.stdout.splitlines()[-1] == b"1 matched, 1 did not, 0 bad"
    assert ended.stderr == b""


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
def test_a_parse_error_points_at_the_place(run: Run, text: str, shown: str) -> None:
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
        (["sub"], "either FILTER or --subscriptions FILE"),
        (["sub", "x = 1", "--subscriptions", "file"], "either FILTER or --subscriptions FILE"),
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
def test_bad_usage_is_a_short_message_and_code_2(run: Run, arguments: list[str], words: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert words in err
    assert len(err) < 600


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"", "the file is empty"),
        (b"x = 1", "line 1: write a JSON object with id and filter"),
        (b"[]", "line 1: write a JSON object with id and filter"),
        (b'{"id": "a"}', "line 1: write a JSON object with id and filter"),
        (b'{"id": 1, "filter": "x = 1"}', "id and filter are texts"),
        (
            b'{"id": "a", "filter": "x = 1"}\n\n{"id": "a", "filter": "x = 2"}',
            "line 3: id and filter are texts, and no two",
        ),
        (b'{"id": "a", "filter": "x ="}', "line 1, column 4"),
        (b'{"id": "a", "filter": "x LIKE", "dialect": "cesql"}', "expected a quoted string"),
    ],
)
def test_a_bad_file_of_subscriptions(run: Run, write_lines: WriteLines, line: bytes, words: str) -> None:
    code, out, err = run("sub", "--subscriptions", write_lines(line))
    assert (code, out) == (2, "")
    assert words in err


# --- the program --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", [[sys.executable, "-m", "catchment"], [sys.executable, "-m", "catchment.cli"], [SCRIPT]]
)
def test_every_way_to_start_it(command: list[str | Path]) -> None:
    if not Path(command[0]).exists():
        pytest.skip(f"{command[0]} is not installed")
    ended = subprocess.run([*command, "check", "x ="], capture_output=True, check=False, timeout=60)
    assert ended.returncode == 2
    assert ended.stdout == b""
    assert ended.stderr.startswith(b"error: FILTER, column 4")


def test_help_and_version(run: Run) -> None:
    code, out, err = run("--help")
    assert (code, err) == (0, "")
    places = [out.index(f"│ {name} ") for name in COMMANDS]
    assert places == sorted(places)
    assert run() == (code, out, err)
    assert "--against FILE" in run("check", "--help")[1]
    assert run("--version") == (0, f"{__version__}\n", "")


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help(run: Run, command: str) -> None:
    code, out, err = run(command, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"Usage: catchment {command} ")


def module(command: str) -> str:
    return f"catchment.cli.{command.replace('-', '_')}"


def loaded_modules(*arguments: str) -> set[str]:
    """The modules that a process has loaded when it has run this command line."""
    script = "import sys; from catchment.cli import main; main(sys.argv[1:]); sys.stdout.write(' '.join(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True)
    return set(ended.stdout.splitlines()[-1].split())


def test_help_loads_all_commands_and_nothing_heavy() -> None:
    loaded = loaded_modules("--help")
    assert set(map(module, COMMANDS)) <= loaded
    assert not {"numba", "numpy", "pyarrow", "pyspark", "asyncio"} & loaded


def test_a_command_loads_no_other_command() -> None:
    loaded = loaded_modules("pub", "--help")
    assert {command for command in COMMANDS if module(command) in loaded} == {"pub"}


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_every_locale(encoding: str) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    for arguments in (["demo"], ["check", "日本 = 'é\U0001f600'"]):
        ended = run_process(*arguments, env=environment)
        assert (ended.returncode, ended.stderr) == (0, b"")
        assert ended.stdout.decode(encoding)


def test_the_caret_stands_right_in_every_locale() -> None:
    ended = run_process("check", "日本 ><", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert b"  \\u65e5\\u672c ><\n                ^\n" in ended.stderr


def test_arguments_that_are_not_text() -> None:
    ended = run_process("check", b"x = '\xff'")
    assert ended.returncode == 2
    assert b"surrogate" in ended.stderr
    ended = run_process("check", "x = 1", "--against", b"\xff")
    assert (ended.returncode, ended.stdout) == (2, b"")


@pytest.mark.parametrize("arguments", [["demo"], ["--help"], ["check", "x = 1", "--json"], ["check", "x = 1"]])
def test_a_closed_pipe_is_not_an_error(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "catchment", *arguments]
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False, timeout=60)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_a_failure() -> None:
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "catchment", "demo"]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False, timeout=60)
    assert ended.returncode == 1
    assert ended.stderr.startswith(b"error: cannot read or write")
    assert b"Traceback" not in ended.stderr


def test_an_interrupt_ends_it_quietly() -> None:
    # A test runner in the background may ignore interrupts, and its children inherit that.
    script = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from catchment.cli import main; sys.exit(main(['check', 'x = 1', '--against', '-']))"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", script], stdin=pipe, stdout=pipe, stderr=pipe) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdin.write(b'{"x": 1}\n')
        child.stdin.flush()
        while b"match\n" not in child.stdout.readline():
            assert child.poll() is None
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 130
        assert child.stderr.read() == b"error: interrupted\n"


# --- the demo -----------------------------------------------------------------------------------


def test_the_demo_shows_who_gets_what_and_why_not(run: Run) -> None:
    code, out, err = run("demo")
    assert (code, err) == (0, "")
    assert all(subscription.client in out and subscription.text in out for subscription in subscriptions())
    assert "Why did Ana not get number 1?" in out
    assert "value 101.25 is not < 100; 99 would have done" in out
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("width", ["0", "1", "33", "wide"])
def test_any_width(run: Run, monkeypatch: pytest.MonkeyPatch, width: str) -> None:
    monkeypatch.setenv("COLUMNS", width)
    assert "Ana" in run("demo")[1]
    assert "error: FILTER" in run("check", "x =")[2]


def test_the_demo_as_json(run: Run) -> None:
    code, out, err = run("demo", "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert [shown["id"] for shown in document["subscriptions"]] == [bundled.id for bundled in subscriptions()]
    for delivery, notification in zip(document["deliveries"], notifications(), strict=True):
        receivers = [bundled.id for bundled in subscriptions() if bundled.wanted.matches(notification)]
        assert delivery["delivered_to"] == receivers
    assert document["near_miss"]["explanation"]["matched"] is False


def test_the_demo_has_something_for_everyone() -> None:
    """Each subscriber gets something, each misses something, and nobody wants some notification."""
    filters = [subscription.wanted for subscription in subscriptions()]
    for filter in filters:
        assert {filter.matches(notification) for notification in notifications()} == {True, False}
    assert any(not any(filter.matches(notification) for filter in filters) for notification in notifications())
    assert {subscription.dialect for subscription in subscriptions()} == {"catchment", "cesql"}
