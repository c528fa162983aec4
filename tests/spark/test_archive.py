"""Archives: nothing is lost or invented, order is publication order, and what a filter finds is what it matches."""

import json
import random
import shutil
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from catchment.cli import main
from catchment.errors import InputError
from catchment.model.cesql import Cesql
from catchment.model.filter import Filter
from catchment.model.notification import Notification

pytestmark = pytest.mark.spark

START = datetime(2026, 11, 13, 22, tzinfo=UTC)
FILTERS = ['symbol = "DIS" and price > 100', "not exists(price) or price < 20", 'price = "n/a"', "true", "false"]


def notification(rng: random.Random, i: int) -> Notification:
    """Some of every kind: a price that is a number or a text, several at one instant, some without a time."""
    attributes = {"symbol": rng.choice(["DIS", "MSFT", "Ünï"]), "Symbol": i % 3, "a:int": rng.choice([1, 2.5])}
    if rng.random() < 0.8:
        attributes["price"] = rng.choice([rng.uniform(0, 200), rng.uniform(0, 200), "n/a", 7])
    if rng.random() < 0.3:
        attributes["traded"] = START - timedelta(days=rng.randrange(40_000), microseconds=1)
    time = None if rng.random() < 0.1 else START + timedelta(minutes=rng.randrange(90)) * rng.choice([1, 20])
    payload = b"\x00\xff" if rng.random() < 0.2 else b""
    return Notification(attributes, id=str(i), source=rng.choice(["b", "a", None]), time=time, seq=i, payload=payload)


def order(one: Notification):
    fields = (one.time, one.source, one.seq, one.id)
    return [(value is None, value) if value is not None else (True,) for value in fields]


@pytest.fixture(scope="session")
def frame(spark):
    """A function from notifications to their DataFrame."""
    import pyarrow as pa

    from catchment.model.values import type_of
    from catchment.pipeline.schema import attribute_columns, notification_arrays

    def made(notifications):
        counts = Counter((name, type_of(value)) for one in notifications for name, value in one.items())
        arrays = notification_arrays(notifications, attribute_columns(counts))
        return spark.createDataFrame(pa.table(arrays))

    return made


@pytest.fixture(scope="module")
def notifications():
    rng = random.Random(7)
    return [notification(rng, i) for i in range(600)]


@pytest.fixture(scope="module")
def path(tmp_path_factory, frame, notifications):
    """An archive written in three parts, whose columns differ."""
    from catchment.pipeline.archive.write import archive

    place = tmp_path_factory.mktemp("archives") / "ticks and trades"
    for part in (notifications[:200], notifications[200:203], notifications[203:]):
        archive(frame(part).repartition(3), str(place))
    return str(place)


def replayed(*arguments, **named):
    from catchment.pipeline.archive.write import lines, replay

    return [Notification.parse(line) for line in lines(replay(*arguments, **named))]


def days(path):
    from catchment.pipeline.archive.files import Place

    return Place(path).days()


# ---- replay ------------------------------------------------------------------------------------


def test_replay_gives_everything_back_in_publication_order(spark, path, notifications):
    assert replayed(spark, path) == sorted(notifications, key=order)


@pytest.mark.parametrize("text", FILTERS)
def test_replay_of_a_filter_is_what_it_matches(spark, path, notifications, text):
    filter = Filter(text)
    expected = [one for one in sorted(notifications, key=order) if filter.matches(one)]
    assert replayed(spark, path, filter) == expected


def test_replay_takes_cesql(spark, path, notifications):
    wanted = Cesql("symbol LIKE 'D%' AND LENGTH(symbol) + 1 = 4")
    expected = [one for one in sorted(notifications, key=order) if wanted.matches(one)]
    assert expected
    assert replayed(spark, path, wanted) == expected


def test_replay_between_times_opens_only_their_days(spark, path, notifications):
    from catchment.pipeline.archive.write import archived, replay

    start, end = START + timedelta(hours=1, minutes=5), datetime(2026, 11, 14, tzinfo=UTC)
    within = [one for one in sorted(notifications, key=order) if one.time and start <= one.time < end]
    assert replayed(spark, path, start=start, end=end) == within
    assert within
    opened = archived(spark, path, start, end).inputFiles()
    assert opened
    assert all("day=2026-11-13" in name for name in opened)
    assert replay(spark, path, start=datetime(2030, 1, 1, tzinfo=UTC)).count() == 0


def test_days_are_of_utc_whatever_the_zone_of_the_session(spark, frame, tmp_path):
    from catchment.pipeline.archive.write import archive

    before = spark.conf.get("spark.sql.session.timeZone")
    times = [datetime(2026, 11, 14, 23, 30, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)]
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        archive(frame([Notification({"x": 1}, time=time) for time in times]), str(tmp_path))
        assert [one.time for one in replayed(spark, str(tmp_path))] == sorted(times)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert days(str(tmp_path)) == ["1969-12-31", "2026-11-14"]


def test_notifications_without_time_are_kept_apart(spark, path, notifications):
    assert "undated" in days(path)
    undated = [one for one in replayed(spark, path) if one.time is None]
    assert len(undated) == sum(one.time is None for one in notifications)


def test_a_directory_that_is_no_archive_is_refused(spark, tmp_path):
    from catchment.pipeline.archive.write import replay

    with pytest.raises(InputError, match="is not an archive"):
        replay(spark, str(tmp_path))


def test_columns_that_are_no_attributes_are_refused(spark, tmp_path):
    from catchment.pipeline.archive.write import archive

    with pytest.raises(InputError, match="is no attribute"):
        archive(spark.createDataFrame([([1],)], "x array<int>"), str(tmp_path))


# ---- compaction --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many_files(frame, notifications, tmp_path_factory):
    """A small archive of many files, and what is in it."""
    from catchment.pipeline.archive.write import archive

    place = tmp_path_factory.mktemp("many")
    for i in range(3):
        archive(frame(notifications[i * 30 : i * 30 + 30]), str(place))
    return place, sorted(notifications[:90], key=order)


@pytest.fixture
def scattered(many_files, tmp_path):
    """One for each test to change."""
    place, expected = many_files
    return str(shutil.copytree(place, tmp_path / "scattered")), expected


@pytest.fixture(scope="module")
def two_files(frame, tmp_path_factory):
    """The least that can be compacted, and what is in it."""
    from catchment.pipeline.archive.write import archive

    place = tmp_path_factory.mktemp("two")
    notifications = [Notification({"x": i}, time=START + timedelta(seconds=i)) for i in range(8)]
    archive(frame(notifications[::2]), str(place))
    archive(frame(notifications[1::2]), str(place))
    return place, notifications


def file_count(path):
    from catchment.pipeline.archive.files import Place

    place = Place(path)
    return len(place.files(place.days()))


def test_compaction_joins_files_and_loses_nothing(spark, scattered):
    from catchment.pipeline.archive.write import archive, compact, replay

    path, expected = scattered
    assert file_count(path) > len(days(path))
    assert compact(spark, path) == days(path)
    assert file_count(path) == len(days(path))
    assert replayed(spark, path) == expected
    assert compact(spark, path) == []
    archive(replay(spark, path, 'symbol = "DIS"'), path)
    assert len(replayed(spark, path)) == len(expected) + sum(one["symbol"] == "DIS" for one in expected)


def test_compaction_keeps_to_the_target_size(spark, scattered):
    from catchment.pipeline.archive.write import compact

    path, expected = scattered
    compact(spark, path, target_bytes=10_000)
    assert file_count(path) > len(days(path))
    assert replayed(spark, path) == expected


@pytest.mark.parametrize("calls", range(5))
def test_a_compaction_killed_anywhere_loses_nothing(spark, two_files, tmp_path, monkeypatch, calls):
    """Its record, the move of the new file, the deletions of two old ones and of a directory."""
    from catchment.pipeline.archive import files as archive_files
    from catchment.pipeline.archive.write import compact

    place, expected = two_files
    path = str(shutil.copytree(place, tmp_path / "archive"))
    opened = archive_files.Place.__init__

    def dying(self, path):
        opened(self, path)
        self._fs = Dying(self._fs, calls)

    with monkeypatch.context() as patch:
        patch.setattr(archive_files.Place, "__init__", dying)
        with pytest.raises(KeyboardInterrupt):
            compact(spark, path)
    assert replayed(spark, path) == expected
    compact(spark, path)
    assert replayed(spark, path) == expected
    assert file_count(path) == len(days(path))


class Dying:
    """A file system that dies instead of changing something once more."""

    def __init__(self, fs, calls):
        self.fs, self.left = fs, calls

    def __getattr__(self, name):
        if name in ("move", "delete_file", "delete_dir"):
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
        return getattr(self.fs, name)


# ---- dry run -----------------------------------------------------------------------------------


def counted(notifications, filter):
    found = {}
    for one in sorted(notifications, key=order):
        day = one.time.date().isoformat() if one.time else "undated"
        total, samples = found.setdefault(day, ([], []))
        total.append(one)
        samples.extend([one] if filter.matches(one) else [])
    return [(day, len(total), len(samples), samples[:3]) for day, (total, samples) in sorted(found.items())]


@pytest.mark.parametrize("text", FILTERS)
def test_dry_run_counts_what_the_filter_matches(spark, path, notifications, text):
    from catchment.pipeline.archive.dry_run import dry_run

    rows = dry_run(spark, path, text).collect()
    found = [(row.day, row.notifications, row.matched, [*map(Notification.parse, row.samples)]) for row in rows]
    assert found == counted(notifications, Filter(text))


# ---- command line ------------------------------------------------------------------------------


def test_cli_replays_to_standard_output_and_to_a_file(spark, path, notifications, tmp_path, capsys):
    asked = ["replay", path, "--filter", 'symbol = "DIS"', "--from", "2026-11-14", "--to", "2026-11-15T10:00:00Z"]
    assert main(asked) == 0
    printed = capsys.readouterr().out
    low, high = datetime(2026, 11, 14, tzinfo=UTC), datetime(2026, 11, 15, 10, tzinfo=UTC)
    wanted = [one for one in notifications if one["symbol"] == "DIS" and one.time and low <= one.time < high]
    assert [Notification.parse(line) for line in printed.splitlines()] == sorted(wanted, key=order)
    assert main([*asked, "-o", str(tmp_path / "out.jsonl")]) == 0
    assert (tmp_path / "out.jsonl").read_text("utf-8") == printed


def test_cli_checks_a_filter_on_an_archive(spark, path, notifications, capsys):
    assert main(["check", 'symbol = "DIS"', "--on", path, "--json"]) == 0
    report, *days, summary = map(json.loads, capsys.readouterr().out.splitlines())
    expected = counted(notifications, Filter('symbol = "DIS"'))
    assert report["report"]["text"] == 'symbol = "DIS"'
    assert [(one["day"], one["notifications"], one["matched"]) for one in days] == [one[:3] for one in expected]
    assert [Notification.from_json(one) for one in days[0]["samples"]] == expected[0][3]
    assert summary["summary"] == {"notifications": 600, "matched": sum(one[2] for one in expected), "days": len(days)}


def test_cli_draws_the_days(spark, path, capsys):
    assert main(["check", 'symbol = "DIS"', "--on", path]) == 0
    shown = capsys.readouterr().out
    assert "2026-11-14" in shown
    assert "█" in shown


@pytest.mark.parametrize(
    "arguments",
    [
        ["replay", "missing", "--from", "yesterday"],
        ["replay", "missing"],
        ["replay", "missing", "--filter", "x >"],
        ["check", "x = 1", "--on", "missing"],
        ["check", "[x = 1] -> [x = 2]", "--as", "pattern", "--on", "missing"],
    ],
)
def test_cli_refuses_with_advice(arguments, capsys):
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("error: ")
