"""The public conformance cases for CESQL, read from the data beside the repository; skipped where that is absent."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from catchment.errors import ParseError
from catchment.model.cesql import Cesql

CASES_DIRECTORY = Path(__file__).resolve().parents[3] / "shared" / "cesql"
ANY_CLOUDEVENT = {"specversion": "1.0", "id": "A234-1234", "source": "/sensors/12", "type": "com.example.measured"}


class JsonLikeLoader(yaml.SafeLoader):
    """Reads times as the strings that they are in a CloudEvent's JSON."""


JsonLikeLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def conformance_cases() -> list[Any]:
    cases = []
    for path in sorted(CASES_DIRECTORY.glob("*.yaml")):
        with path.open(encoding="utf-8") as file:
            suite = yaml.load(file, Loader=JsonLikeLoader)  # a SafeLoader
        # A case or two of the public files misspells the field, and so says nothing.
        tests = [case for case in suite["tests"] if "expression" in case]
        cases += [pytest.param(case, id=f"{path.stem}: {case['name']}") for case in tests]
    return cases


CASES = conformance_cases()
if not CASES:
    pytest.skip("the conformance cases are not beside this repository", allow_module_level=True)


@pytest.mark.parametrize("case", CASES)
def test_conformance(case: dict[str, Any]) -> None:
    text = str(case["expression"])
    if case.get("error") == "parse":
        with pytest.raises(ParseError):
            Cesql(text)
        return
    notification = case.get("event", ANY_CLOUDEVENT) | case.get("eventOverrides", {})
    found = Cesql(text).evaluate(notification)
    assert found.error == case.get("error"), found.errors
    if "result" in case:
        assert (type(found.value), found.value) == (type(case["result"]), case["result"])


@pytest.mark.parametrize("case", [case for case in CASES if case.values[0].get("error") != "parse"])
def test_conformance_of_the_canonical_text_and_the_filter(case: dict[str, Any]) -> None:
    expression = Cesql(str(case["expression"]))
    notification = case.get("event", ANY_CLOUDEVENT) | case.get("eventOverrides", {})
    assert Cesql(str(expression)).evaluate(notification) == expression.evaluate(notification)
    assert expression.filter.matches(notification) or not expression.matches(notification)
