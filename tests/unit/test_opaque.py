"""`matches` and `cidr`, by examples."""

import pytest

from catchment import Advertisement, Filter, Matcher
from catchment.errors import BadFilterError, CatchmentError, LimitError
from catchment.model import opaque
from catchment.model.opaque import REGEX_CODEPOINTS_MAX, implied, required_text


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("evil", "evil"),
        (r"cmd\.exe /c \w+", "cmd.exe /c "),
        ("(a|b)xyz[0-9]+", "xyz"),
        ("abc|abd", ""),
        ("(?i)abc", ""),
        ("abcd?", "abc"),
        ("ab+cde", "cde"),
        (r"\x41bcdef", ""),
        (r"\Qa.b\E", ""),
        ("(?:longer than this)?abc", "abc"),
        ("a{2}bc", "bc"),
        ("[[:alpha:]]xy", "xy"),
    ],
)
def test_the_text_that_a_regular_expression_requires(pattern, text):
    assert required_text(pattern) == text


@pytest.mark.parametrize(
    ("block", "start"),
    [
        ("10.0.0.0/8", ("prefix", "10.")),
        ("10.32.0.0/12", ("prefix", "10.")),
        ("10.1.2.3", ("prefix", "10.1.2.3")),
        ("0.0.0.0/0", ("any", None)),
        ("2001:db8::/32", ("any", None)),
    ],
)
def test_how_the_addresses_of_a_block_begin(block, start):
    assert implied("cidr", block) == start


def test_addresses_of_both_versions():
    filter = Filter('ip cidr "2001:db8::/32" or ip cidr "10.0.0.0/8"')
    assert filter.matches({"ip": "2001:0DB8::1"})
    assert filter.matches({"ip": "10.9.8.7"})
    assert not filter.matches({"ip": "::ffff:10.0.0.1"})
    assert not filter.matches({"ip": "not an address"})
    assert not filter.matches({"ip": 7})


def test_not_of_an_absent_attribute_is_unknown():
    assert not Filter('not ip cidr "10.0.0.0/8"').matches({})
    assert Filter('not ip cidr "10.0.0.0/8"').matches({"ip": "no address at all"})
    assert not Filter('not s matches "a"').matches({"s": 3})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('a matches "("', "no regular expression of RE2: missing"),
        (r'a matches "(?=b)"', "no regular expression of RE2"),
        (r'a matches "(a{1000}){1000}"', "no regular expression of RE2"),
        ('a cidr "10.0.0.1/8"', "host bits"),
        ('a cidr "x"', "no block of addresses"),
        ('a matches nocase "b"', r"write \(\?i\)"),
    ],
)
def test_what_is_refused_says_why(text, problem):
    with pytest.raises(CatchmentError, match=problem):
        Filter(text)


def test_a_long_regular_expression_is_past_a_limit():
    with pytest.raises(LimitError, match="REGEX_CODEPOINTS_MAX"):
        Filter.of(("a", "matches", "b" * (REGEX_CODEPOINTS_MAX + 1)))


def test_an_advertisement_says_neither():
    with pytest.raises(BadFilterError, match="set of values"):
        Advertisement.of(("a", "matches", "b"))


def test_the_index_asks_a_filter_only_about_what_has_its_text(monkeypatch):
    """The number of values that RE2 looks at does not grow with the number of filters."""
    matcher = Matcher()
    matcher.add_many(range(500), [Filter(f'cmd matches "tool{i:03}[.]exe -[a-z]+"') for i in range(500)])
    asked = []
    holds = opaque.holds

    def counted(*given: str) -> bool:
        asked.append(given)
        return holds(*given)

    monkeypatch.setattr(opaque, "holds", counted)
    assert matcher.match({"cmd": "run tool123.exe -abc"}) == [123]
    assert len(asked) == 1


def test_what_is_routed_instead():
    filter = Filter(r'cmd matches "evil\\d+" and ip cidr "10.0.0.0/8"')
    assert not filter.is_normal
    assert str(filter.routed) == 'cmd * "evil" and ip >* "10."'
    assert Filter('ip prefix "10."').covers(filter)
    assert not filter.covers(filter.routed)
