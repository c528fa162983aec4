"""Indexes that are saved and opened again."""

import json
from pathlib import Path

import pytest

from catchment.errors import BadIndexError
from catchment.matching import Matcher
from catchment.matching.saved_index import MANIFEST
from catchment.model.filter import Filter
from tests.unit.matchers import many


@pytest.fixture
def saved(tmp_path):
    many(100).save(tmp_path / "index")
    return tmp_path / "index"


def test_an_opened_index_may_change_in_memory(saved):
    found = Matcher.open(saved)
    found.remove("s001")
    found.add("new", Filter("x = 1"))
    assert found.match({"x": 1}) == ["new"]
    assert Matcher.open(saved).match({"x": 1}) == ["s001"]
    found.save(saved)
    assert Matcher.open(saved).match({"x": 1}) == ["new"]


def test_groups_are_saved(tmp_path):
    found = Matcher()
    found.add_many([1, 2], [Filter("x = 1"), Filter("x any")], ["g", 7])
    found.save(tmp_path / "index")
    opened = Matcher.open(tmp_path / "index")
    assert opened.match_groups({"x": 1}) == [7, "g"]
    opened.add(3, Filter("x = 1"), "h")
    assert opened.match_groups({"x": 1}) == [7, "g", "h"]


def test_an_empty_index_can_be_saved(tmp_path):
    Matcher().save(tmp_path / "index")
    assert len(Matcher.open(tmp_path / "index")) == 0


def test_truncated_or_changed_files_are_refused(saved):
    for file in sorted(saved.iterdir()):
        kept = file.read_bytes()
        for broken in (kept[:-1], kept[: len(kept) // 2], b"", kept[:-1] + bytes([kept[-1] ^ 1])):
            file.write_bytes(broken)
            with pytest.raises(BadIndexError):
                Matcher.open(saved)
        file.unlink()
        with pytest.raises(BadIndexError):
            Matcher.open(saved)
        file.write_bytes(kept)
    assert len(Matcher.open(saved)) == 100


def test_another_version_is_refused(saved):
    _rewrite(saved, version=999)
    with pytest.raises(BadIndexError, match="version 999"):
        Matcher.open(saved)
    _rewrite(saved, format="something")
    with pytest.raises(BadIndexError, match="format"):
        Matcher.open(saved)


def _rewrite(saved, **changes):
    import zlib

    file = saved / MANIFEST
    manifest = json.loads(file.read_bytes().partition(b"\n")[2]) | changes
    text = json.dumps(manifest, sort_keys=True, ensure_ascii=False).encode()
    file.write_bytes(f"{zlib.crc32(text):08x}\n".encode() + text + b"\n")


def test_what_is_no_index(tmp_path):
    with pytest.raises(BadIndexError):
        Matcher.open(tmp_path)
    with pytest.raises(BadIndexError):
        Matcher.open(tmp_path / "nowhere")
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(BadIndexError):
        many(1).save(tmp_path)
    assert (tmp_path / "precious.txt").read_text() == "mine"
    assert [path.name for path in Path(tmp_path).iterdir()] == ["precious.txt"]


def test_patterns_beside_many_attributes():
    """The group of patterns stood out of the order in which groups are searched, and hid the last attribute."""
    for attributes in range(20, 64):
        texts = [f"s * 'abcd{i}'" for i in range(20)] + [f"number x{i:03} any" for i in range(attributes)]
        matcher = Matcher()
        matcher.add_many(list(range(len(texts))), texts)
        found = matcher.match_batch([{f"x{i:03}": 1} for i in range(attributes)])
        assert list(found) == [[20 + i] for i in range(attributes)]
