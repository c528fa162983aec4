r"""Sigma rules become filters: every construct with the filter that it becomes, and every reason why there is none.

Filters are written with LetterCase.LOWER, because that is what the filter language of today can say.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
import yaml

from catchment.cli import main
from catchment.model.filter import Filter
from catchment.sigma import FILE_BYTES_MAX, ImportedRule, LetterCase, RejectedRule, RuleReader
from catchment.sigma.expressions import Comparison, written
from catchment.sigma.values import Wildcard, pieces


def read(text: str, **settings: bool) -> list[ImportedRule | RejectedRule]:
    return list(RuleReader(LetterCase.LOWER, **settings).read("rules/some.yml", dedent(text).encode()))


def imported(text: str, **settings: bool) -> str:
    (rule,) = read(text, **settings)
    assert isinstance(rule, ImportedRule), rule
    assert str(Filter(rule.filter))
    return rule.filter


def rejected(text: str) -> RejectedRule:
    (rule,) = read(text)
    assert isinstance(rule, RejectedRule), rule
    return rule


def detection(selection: str) -> str:
    """A rule with one selection, written in one line."""
    return f"title: one\ndetection:\n  selection: {selection}\n  condition: selection\n"


# --- whole rules --------------------------------------------------------------------------------

RULES = {
    "a map means all, a list of values means any": (
        """
        title: Archive made by a tool of the system
        id: 3b6e0a1c-0001
        detection:
          selection:
            Image|endswith: '\\Tar.exe'
            CommandLine|contains: [' -C ', '\\Staging\\']
            IntegrityLevel: [High, System]
            SessionId: [1, 2]
          condition: selection
        """,
        r'Image suffix "\\tar.exe" and (CommandLine contains " -c " or CommandLine contains "\\staging\\") '
        'and IntegrityLevel in ("high", "system") and SessionId in (1, 2)',
    ),
    "a list of maps means any, `all` means all": (
        """
        title: Shadow copies
        detection:
          tool:
            - Image|endswith: '\\vssadmin.exe'
            - OriginalFileName: VSSADMIN.EXE
              Company: Contoso
          words:
            CommandLine|contains|all:
              - delete
              - shadows
          condition: tool and words
        """,
        r'(Image suffix "\\vssadmin.exe" or (OriginalFileName = "vssadmin.exe" and Company = "contoso")) '
        'and CommandLine contains "delete" and CommandLine contains "shadows"',
    ),
    "quantities and patterns of names": (
        """
        title: Quantities
        detection:
          selection_a: {A: x}
          selection_b: {B: y}
          filter_main_c: {A: c}
          filter_main_d: {B: d}
          _helper: {E: e}
          condition: 1 of selection_* and not all of filter_*
        """,
        '(A = "x" or B = "y") and not (exists(A) and A = "c" and exists(B) and B = "d")',
    ),
    "them leaves out names with an underscore": (
        """
        title: Them
        detection:
          a: {A: x}
          b: {B: y}
          _c: {C: z}
          condition: all of them or _c
        """,
        '(A = "x" and B = "y") or C = "z"',
    ),
    "regular expressions and address ranges": (
        """
        title: Looked at
        detection:
          a:
            CommandLine|re|i: 'evil\\d+\\.exe$'
            SourceIp|cidr: [10.0.0.0/8, '2001:db8::/32']
          b: {SourceIp|cidr: 10.1.0.0/16}
          condition: a and not b
        """,
        r'CommandLine matches "(?i)evil\\d+\\.exe$" and (SourceIp cidr "10.0.0.0/8" or SourceIp cidr "2001:db8::/32") '
        'and not SourceIp cidr "10.1.0.0/16"',
    ),
    "binding and parentheses": (
        """
        title: Binding
        detection:
          a: {A: 1}
          b: {B: 2}
          c: {C: 3}
          condition: a OR b and not (c or a)
        """,
        "A = 1 or (B = 2 and not ((exists(C) and C = 3) or (exists(A) and A = 1)))",
    ),
    "several conditions": (
        """
        title: Several conditions
        detection:
          a: {A: x}
          b: {B: y}
          condition: [a, 'any of b*']
        """,
        'A = "x" or B = "y"',
    ),
    "an attribute that must be there anyway needs no test under not": (
        """
        title: Known attribute
        detection:
          selection: {Image|endswith: '\\a.exe', User: bob}
          filter: {Image|startswith: 'C:\\Tools\\'}
          other: {CommandLine|contains: ' -v'}
          condition: selection and not filter and not other
        """,
        r'Image suffix "\\a.exe" and User = "bob" and not Image prefix "c:\\tools\\" '
        'and not (exists(CommandLine) and CommandLine contains " -v")',
    ),
    "absence, presence and emptiness": (
        """
        title: Absence
        detection:
          selection:
            A: null
            B|exists: true
            C|exists: false
            D: ''
            E: '*'
            F|contains: ''
          condition: selection
        """,
        'not exists(A) and exists(B) and not exists(C) and D = "" and exists(E) and exists(F)',
    ),
    "numbers, booleans and order": (
        """
        title: Numbers
        detection:
          selection:
            EventID: 4688
            Port|gte: 1024
            Size|lt: 2.5
            Elevated: true
            Code: ['5', 5, 6, yes]
            Text|contains: 4444
            Kind|neq: 7
          condition: selection
        """,
        "EventID = 4688 and Port >= 1024 and Size < 2.5 and Elevated = true "
        'and (Code = "5" or Code in (5, 6) or Code = true) and Text contains "4444" '
        "and not (exists(Kind) and Kind = 7)",
    ),
    "wildcards and escapes": (
        r"""
        title: Wildcards
        detection:
          selection:
            A: 'a*'
            B: '*b'
            C: '*c*'
            D: 'd?e*f'
            E: '\*literal\?'
            F: 'C:\Temp\x'
            G: 'C:\\Temp\\*'
            H: '\\\\host\\share'
            I|endswith: 'a\*?b\x'
          condition: selection
        """,
        r'A prefix "a" and B suffix "b" and C contains "c" and D glob "d?e*f" and E = "*literal?" '
        r'and F = "c:\\temp\\x" and G prefix "c:\\temp\\" and H = "\\\\host\\share" and I glob "*a\\*?b\\\\x"',
    ),
    "windash": (
        """
        title: Dashes
        detection:
          selection: {CommandLine|windash|contains: ' -pre-fetch'}
          condition: selection
        """,
        'CommandLine contains " -pre-fetch" or CommandLine contains " /pre-fetch" or '
        'CommandLine contains " \u2013pre-fetch" or CommandLine contains " \u2014pre-fetch" or '
        'CommandLine contains " \u2015pre-fetch"',
    ),
    "base64": (
        """
        title: Encodings
        detection:
          selection:
            A|base64: 'foobar'
            B|base64offset|contains: 'foobar'
            C|wide|base64: 'ab'
            D|utf16|base64: 'a'
          condition: selection
        """,
        'A = "zm9vymfy" and (B contains "zm9vymfy" or B contains "zvb2jhc" or B contains "mb29iyx") '
        'and C = "yqbiaa==" and D = "//5haa=="',
    ),
    "names that need quotes": (
        """
        title: Names
        detection:
          selection: {cs-method: GET, 'winlog.event_data.X': a, and: b, 'c uri': c}
          condition: selection
        """,
        '`cs-method` = "get" and winlog.event_data.X = "a" and `and` = "b" and `c uri` = "c"',
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_a_rule_becomes_this_filter(name: str) -> None:
    text, filter = RULES[name]
    assert imported(text) == filter


def test_where_a_rule_comes_from_is_kept() -> None:
    (rule,) = read(
        """
        title: Some title
        id: some-id
        author: Somebody
        level: high
        logsource: {category: process_creation, product: windows}
        detection: {a: {A: x}, condition: a}
        """
    )
    assert rule == ImportedRule("rules/some.yml", "some-id", "Some title", "Somebody", "high", 'A = "x"')


def test_the_log_source_can_be_required() -> None:
    text = "logsource: {category: Proxy, service: web, definition: d}\n" + detection("{A: x}")
    assert (
        imported(text, with_log_source=True) == 'logsource.category = "proxy" and logsource.service = "web" and A = "x"'
    )


@pytest.mark.parametrize(
    ("operator", "operands", "text"),
    [
        ("=", ("X",), 'A = nocase "X"'),
        ("contains", ("X",), 'A contains nocase "X"'),
        ("in", ("X", "y"), 'A in nocase ("X", "y")'),
        ("=", (5,), "A = 5"),
        ("exists", (), "exists(A)"),
    ],
)
def test_operators_that_ignore_case(operator: str, operands: tuple[str | int, ...], text: str) -> None:
    """How they are spelled. The filter language does not read them yet, so nothing parses them here."""
    assert written(Comparison("A", operator, operands), LetterCase.NOCASE) == text
    cased = written(Comparison("A", operator, operands, is_cased=True), LetterCase.NOCASE)
    assert cased == text.replace(" nocase", "")


def test_escapes_of_the_specification() -> None:
    run, one = Wildcard.RUN, Wildcard.ONE
    assert pieces(r"a\b") == pieces(r"a\\b") == ("a\\b",)
    assert pieces(r"\*") == ("*",)
    assert pieces(r"\\*") == ("\\", run)
    assert pieces(r"\\\*") == ("\\*",)
    assert pieces("\\\\\\") == pieces("\\\\\\\\") == ("\\\\",)
    assert pieces("a\\") == ("a\\",)
    assert pieces("**a?**?") == (run, "a", one, run, one)
    assert pieces("") == ()


# --- rules that no filter expresses -------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (detection("{A|re: 'x(?=y)'}"), "regular expression", "A|re"),
        (detection("{A|re|i: '('}"), "regular expression", "A|re|i"),
        (detection("{A|re: 'x.*'}"), "cased", "with case"),
        (detection("{A|re|contains: 'x.*'}"), "bad rule", "A|re|contains"),
        (detection("{A|cidr: 10.0.0.1/8}"), "address range", "A|cidr"),
        (detection("{A|cidr: 10}"), "bad rule", "A|cidr"),
        (detection("{A|fieldref: B}"), "field reference", "A|fieldref"),
        (detection("{A|expand: '%x%'}"), "placeholder", "A|expand"),
        (detection("{A|hour: 3}"), "part of a time", "A|hour"),
        (detection("{A|soundslike: x}"), "unknown modifier", "soundslike"),
        (detection("[one, two]"), "keywords", "one"),
        (detection("word"), "keywords", "word"),
        (detection("{'|all': [one, two]}"), "keywords", "one"),
        (detection("[{A: x}, word]"), "keywords", "word"),
        (detection("{A|cased: Xy}"), "cased", "with case"),
        (detection("{A|wide: xy}"), "encoding", "A|wide"),
        (detection("{A|base64: 'x*'}"), "base64", "x*"),
        (detection("{A|gt: many}"), "bad rule", "many"),
        (detection("{A|exists: many}"), "bad rule", "many"),
        (detection("{A: []}"), "bad rule", "empty list"),
        (detection("{A: {B: x}}"), "bad rule", "A has"),
        (detection("{A: 2024-01-01}"), "bad rule", "no quotes"),
        (detection("{}"), "bad rule", "is empty"),
        (detection("{1: x}"), "bad rule", "no text"),
        (detection("{A|contains: null}"), "contains", "null"),
        (detection(f"{{A|contains|windash: '{' -x' * 8}'}}"), "size", "variants"),
        (detection(f"{{A: {list(range(9_000))}}}"), "size", "comparisons"),
        (detection(f"{{A: {2**70}}}"), "filter language", "64 bits"),
        (detection("{$nothing: x}"), "filter language", "envelope"),
        ("title: t\ndetection: {a: {A: x}, condition: a | count() > 5}", "aggregation", "count() > 5"),
        ("title: t\ndetection: {a: {A: x}, condition: a and}", "bad rule", "ends too early"),
        ("title: t\ndetection: {a: {A: x}, condition: (a}", "bad rule", "not closed"),
        ("title: t\ndetection: {a: {A: x}, condition: a a}", "bad rule", "does not fit"),
        ("title: t\ndetection: {a: {A: x}, condition: b}", "bad rule", "no selection 'b'"),
        ("title: t\ndetection: {a: {A: x}, condition: 2 of a*}", "bad rule", "1 of, any of and all of"),
        ("title: t\ndetection: {a: {A: x}, condition: 1 of b*}", "bad rule", "no selection is named"),
        (f"title: t\ndetection: {{a: {{A: x}}, condition: {'not ' * 100}a}}", "size", "deep"),
        ("title: t\ndetection: {a: {A: x}}", "bad rule", "no condition"),
        ("title: t\ndetection: {a: {A: x}, condition: [a, 5]}", "bad rule", "no condition"),
        ("title: t", "bad rule", "no detection"),
        ("title: t\ncorrelation: {type: event_count}", "correlation rule", "several events"),
        ("title: t\nfilter: {rules: [a]}", "Sigma filter", "other rules"),
        ("action: global\ndetection: {a: {A: x}, condition: a}", "rule collection", "documents"),
        ("[a, b]", "bad rule", "no map"),
        ("title: [", "YAML", "line 2, column 1"),
        ("a: !!python/name:os.system x", "YAML", "python/name"),
        ("a: \x01", "YAML", ""),
        ("a: 2024-02-30", "YAML", "day is out of range"),
        ("a: {A: x, A: y}", "YAML", "'A' is there 2 times"),
        ("a: " + "[" * 50_000, "size", "deep"),
        ("detection: {a: &a [*a], condition: a}", "bad rule", "deep"),
        ("x" * (FILE_BYTES_MAX + 1), "size", "bytes"),
    ],
)  # fmt: skip
def test_a_rule_without_a_filter_says_why(text: str, kind: str, words: str) -> None:
    rule = rejected(text)
    assert rule.kind == kind
    assert words in rule.reason
    assert len(rule.reason) < 300


def test_aliases_in_yaml_do_not_multiply() -> None:
    """Each line doubles the one before. Written out, the last would have a million million comparisons."""
    lines = ["a0: &a0 [{A: x}, {B: y}]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 25))]
    assert rejected("\n".join([*lines, "detection: {s: *a24, condition: s}"])).kind == "size"
    condition = " and ".join(["1 of s*"] * 5_000)
    selections = "".join(f"  s{n}: {{A: [a{n}, b{n}*]}}\n" for n in range(1_000))
    assert rejected(f"detection:\n{selections}  condition: {condition}\n").kind == "size"


def test_selections_that_the_condition_does_not_name_do_not_matter() -> None:
    assert imported("title: t\ndetection: {a: {A: x}, words: [one, two], condition: a}") == 'A = "x"'


def test_a_file_of_several_documents() -> None:
    first, second = "title: one\nid: i\n" + detection("{A: x}").partition("\n")[2], detection("{A|re: x(?=y)}")
    read_rules = read("\n---\n".join([first, second, "", detection("{B: y}"), first]))
    assert [(type(rule), rule.title) for rule in read_rules] == [
        (ImportedRule, "one"), (RejectedRule, "one"), (ImportedRule, "one"), (RejectedRule, "one"),
    ]  # fmt: skip
    assert [rule.id for rule in read_rules if isinstance(rule, ImportedRule)] == ["i", "rules/some.yml#4"]
    assert isinstance(read_rules[3], RejectedRule)
    assert (read_rules[3].kind, read_rules[3].document) == ("id", 5)
    assert "rules/some.yml#1 has the same id i" in read_rules[3].reason


def test_yaml_without_its_library_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then PyYAML has another loader, which is written in Python."""
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    for text, filter in RULES.values():
        assert imported(text) == filter
    for text in ("a: " + "[" * 50_000, "a: {A: x, A: y}", 'a: "\\ud800"', 'a: "\\ud800": 1', "title: ["):
        assert rejected(text).kind in ("size", "YAML")


# --- the command --------------------------------------------------------------------------------

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs catchment import-sigma in an empty directory."""
    monkeypatch.chdir(tmp_path)

    def run_main(*arguments: str) -> tuple[int, str, str]:
        code = main(["import-sigma", *arguments])
        output = capsys.readouterr()
        assert "bug" not in output.err
        return code, output.out, output.err

    return run_main


def write(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text, "utf-8")


def rows(path: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in Path(path).read_text("utf-8").splitlines()]


def test_a_directory_of_rules_becomes_a_file_of_subscriptions(run: Run) -> None:
    write("rules/b/good.yaml", "title: Gööd\nid: good\n" + detection("{A: x}").partition("\n")[2])
    write("rules/a.yml", detection("{A|re: x(?=y)}"))
    write("rules/readme.txt", "no rule")
    code, out, err = run("rules", "-o", "all.jsonl", "--lower", "--subscriber", "ana")
    assert code == 0
    assert rows("all.jsonl") == [
        {"id": "good", "subscriber": "ana", "filter": 'A = "x"', "title": "Gööd", "rule": "rules/b/good.yaml"}
    ]
    assert err.startswith("rules/a.yml: one: regular expression: A|re: ")
    (reject,) = rows("all.rejects.jsonl")
    assert (reject["file"], reject["kind"], reject["title"]) == ("rules/a.yml", "regular expression", "one")
    assert out.splitlines() == [
        "1 rule imported, written to all.jsonl",
        "1 rule rejected, written to all.rejects.jsonl",
        "     1  regular expression",
    ]


def test_rejects_of_an_earlier_run_do_not_stay(run: Run) -> None:
    write("a.yml", detection("{A|re: x(?=y)}"))
    write("b.yml", detection("{A: x}"))
    assert run("a.yml", "b.yml", "-o", "s.jsonl", "--lower")[0] == 0
    assert Path("s.rejects.jsonl").exists()
    code, out, err = run("b.yml", "-o", "s.jsonl", "--lower", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {"imported": 1, "rejected": 0, "reasons": {}, "output": "s.jsonl", "rejects": None}
    assert sorted(path.name for path in Path().iterdir()) == ["a.yml", "b.yml", "s.jsonl"]


def test_no_rule_imported_is_a_failure(run: Run) -> None:
    write("a.yml", detection("{A|re: x(?=y)}"))
    code, out, _ = run("a.yml", "-o", "s.jsonl", "--lower", "--json")
    assert code == 1
    summary = json.loads(out)
    assert (summary["imported"], summary["rejected"], summary["reasons"]) == (0, 1, {"regular expression": 1})
    assert (summary["output"], summary["rejects"]) == (None, "s.rejects.jsonl")
    assert not Path("s.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing.yml", "-o", "s.jsonl", "--lower"], "no file or directory nothing.yml"),
        ([".", "-o", "s.jsonl", "--lower"], "give files of Sigma rules"),
        (["-o", "s.jsonl", "--lower"], "give files of Sigma rules"),
        (["."], "--output"),
    ],
)
def test_bad_usage(run: Run, arguments: list[str], words: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert words in err


def test_without_pyyaml_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text(detection("{A: x}"), "utf-8")
    script = (
        "import sys; sys.modules['yaml'] = None; from catchment.cli import main;"
        "sys.exit(main(['import-sigma', 'a.yml', '-o', 's.jsonl', '--lower']))"
    )
    ended = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "pip install 'catchment[sigma]'" in ended.stderr
