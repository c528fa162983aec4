"""Archives: nothing is lost or invented, the order is publication order, and a filter gives what it matches."""

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
    """Notifications of every kind: a price that is a number or a text, several at one instant, some without a time."""
    attributes = {"symbol": rng.choice(["DIS", "MSFT", "Ünï"]), "Symbol": i % 3, "a:int": rng.choice([1, 2.5])}
    if rng.random() < 0.8:
        attributes["price"] = rng.choice([rng.uniform(0, 200), rng.uniform(0, 200), "n/a", 7])
    if rng.random() < 0.3:
        attributes["traded"] = START - timedelta(days=rng.randrange(40_000), microseconds=1)
    time = None if rng.random() < 0.1 else START + timedelta(minutes=rng.randrange(90)) * rng.choice([1, 20])
    payload = b"\x00\xff" if rng.random() < 0.2 else b""
    return Notification(attributes, id=str(i), source=rng.choice(["b", "a", None]), time=time, seq=i, payload=payload)


def order(notification: Notification):
    fields = (notification.time, notification.source, notification.seq, notification.id)
    return [(value is None, value) if value is not None else (True,) for value in fields]


def in_order(notifications):
    return sorted(notifications, key=order)


@pytest.fixture(scope="session")
def frame(spark):
    """A function from notifications to their DataFrame."""
    import pyarrow as pa

    from catchment.model.values import type_of
    from catchment.pipeline.schema import attribute_columns, notification_arrays

    def frame_of(notifications):
        values = (item for notification in notifications for item in notification.items())
        counts = Counter((name, type_of(value)) for name, value in values)
        arrays = notification_arrays(notifications, attribute_columns(counts))
        return spark.createDataFrame(pa.table(arrays))

    return frame_of


@pytest.fixture(scope="module")
def notifications():
    rng = random.Random(7)
    return [notification(rng, i) for i in range(600)]


@pytest.fixture(scope="module")
def path(tmp_path_factory, frame, notifications):
    """An archive written in three parts, whose columns differ."""
    from catchment.pipeline import archive

    directory = tmp_path_factory.mktemp("archives") / "ticks and trades"
    for part in (notifications[:200], notifications[200:203], notifications[203:]):
        archive(frame(part).repartition(3), str(directory))
    return str(directory)


def replayed(*arguments, **named):
    from catchment.pipeline import lines, replay

    return [Notification.parse(line) for line in lines(replay(*arguments, **named))]


def days(path):
    from catchment.pipeline.archive.files import Archive

    return Archive(path).days()


# ---- replay ------------------------------------------------------------------------------------


def test_replay_gives_everything_back_in_publication_order(spark, path, notifications):
    assert replayed(spark, path) == in_order(notifications)


@pytest.mark.parametrize("text", FILTERS)
def test_replay_of_a_filter_is_what_it_matches(spark, path, notifications, text):
    filter = Filter(text)
    expected = [notification for notification in in_order(notifications) if filter.matches(notification)]
    assert replayed(spark, path, filter) == expected


def test_replay_takes_cesql(spark, path, notifications):
    expression = Cesql("symbol LIKE 'D%' AND LENGTH(symbol) + 1 = 4")
    expected = [notification for notification in in_order(notifications) if expression.matches(notification)]
    assert expected
    assert replayed(spark, path, expression) == expected


def test_replay_between_times_opens_only_their_days(spark, path, notifications):
    from catchment.pipeline import archived, replay

    start, end = START + timedelta(hours=1, minutes=5), datetime(2026, 11, 14, tzinfo=UTC)
    within = [
        notification
        for notification in in_order(notifications)
        if notification.time and start <= notification.time < end
    ]
    assert replayed(spark, path, start=start, end=end) == within
    assert within
    opened = archived(spark, path, start, end).inputFiles()
    assert opened
    assert all("day=2026-11-13" in name for name in opened)
    assert replay(spark, path, start=datetime(2030, 1, 1, tzinfo=UTC)).count() == 0


def test_days_are_of_utc_whatever_the_zone_of_the_session(spark, frame, tmp_path):
    from catchment.pipeline import archive

    before = spark.conf.get("spark.sql.session.timeZone")
    times = [datetime(2026, 11, 14, 23, 30, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)]
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        archive(frame([Notification({"x": 1}, time=time) for time in times]), str(tmp_path))
        assert [notification.time for notification in replayed(spark, str(tmp_path))] == sorted(times)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert days(str(tmp_path)) == ["1969-12-31", "2026-11-14"]


def test_notifications_without_time_are_kept_apart(spark, path, notifications):
    assert "undated" in days(path)
    undated = [notification for notification in replayed(spark, path) if notification.time is None]
    assert len(undated) == sum(notification.time is None for notification in notifications)


def test_a_directory_that_is_not_an_archive_is_refused(spark, tmp_path):
    from catchment.pipeline import replay

    with pytest.raises(InputError, match="is not an archive"):
        replay(spark, str(tmp_path))


def test_columns_that_cannot_be_attributes_are_refused(spark, tmp_path):
    from catchment.pipeline import archive

    with pytest.raises(InputError, match="cannot be an attribute"):
        archive(spark.createDataFrame([([1],)], "x array<int>"), str(tmp_path))


# ---- compaction --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many_files(frame, notifications, tmp_path_factory):
    """A small archive of many files, and its notifications."""
    from catchment.pipeline import archive

    directory = tmp_path_factory.mktemp("many")
    for i in range(3):
        archive(frame(notifications[i * 30 : i * 30 + 30]), str(directory))
    return directory, in_order(notifications[:90])


@pytest.fixture
def many_files_copy(many_files, tmp_path):
    """A copy of that archive, which a test may change."""
    directory, expected = many_files
    return str(shutil.copytree(directory, tmp_path / "copy")), expected


@pytest.fixture(scope="module")
def two_files(frame, tmp_path_factory):
    """The smallest archive that can be compacted, and its notifications."""
    from catchment.pipeline import archive

    directory = tmp_path_factory.mktemp("two")
    notifications = [Notification({"x": i}, time=START + timedelta(seconds=i)) for i in range(8)]
    archive(frame(notifications[::2]), str(directory))
    archive(frame(notifications[1::2]), str(directory))
    return directory, notifications


def file_count(path):
    from catchment.pipeline.archive.files import Archive

    archive = Archive(path)
    return len(archive.files(archive.days()))


def test_compaction_joins_files_and_loses_nothing(spark, many_files_copy):
    from catchment.pipeline import archive, compact, replay

    path, expected = many_files_copy
    assert file_count(path) > len(days(path))
    assert compact(spark, path) == days(path)
    assert file_count(path) == len(days(path))
    assert replayed(spark, path) == expected
    assert compact(spark, path) == []
    archive(replay(spark, path, 'symbol = "DIS"'), path)
    added = sum(notification["symbol"] == "DIS" for notification in expected)
    assert len(replayed(spark, path)) == len(expected) + added


def test_compaction_keeps_to_the_target_size(spark, many_files_copy):
    from catchment.pipeline import compact

    path, expected = many_files_copy
    compact(spark, path, target_bytes=10_000)
    assert file_count(path) > len(days(path))
    assert replayed(spark, path) == expected


@pytest.mark.parametrize("calls", range(5))
def test_a_compaction_killed_anywhere_loses_nothing(spark, two_files, tmp_path, monkeypatch, calls):
    """Killed before its record, the move of the new file, the deletions of two old files, and that of a directory."""
    from catchment.pipeline import compact
    from catchment.pipeline.archive import files as archive_files
    from catchment.pipeline.paths import file_system

    directory, expected = two_files
    path = str(shutil.copytree(directory, tmp_path / "archive"))

    def dying_file_system(path):
        opened, root = file_system(path)
        return Dying(opened, calls), root

    with monkeypatch.context() as patch:
        patch.setattr(archive_files, "file_system", dying_file_system)
        with pytest.raises(KeyboardInterrupt):
            compact(spark, path)
    assert replayed(spark, path) == expected
    compact(spark, path)
    assert replayed(spark, path) == expected
    assert file_count(path) == len(days(path))


class Dying:
    """A file system that allows so many changes, and raises KeyboardInterrupt instead of the next one."""

    def __init__(self, file_system, calls):
        self.file_system, self.left = file_system, calls

    def __getattr__(self, name):
        if name in ("move", "delete_file", "delete_dir"):
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
        return getattr(self.file_system, name)


# ---- dry run -----------------------------------------------------------------------------------


def counted_by_day(notifications, filter):
    """For each day the number of notifications, the number of matches, and the first three of them."""
    days: dict[str, tuple[list[Notification], list[Notification]]] = {}
    for notification in in_order(notifications):
        day = notification.time.date().isoformat() if notification.time else "undated"
        total, matches = days.setdefault(day, ([], []))
        total.append(notification)
        matches.extend([notification] if filter.matches(notification) else [])
    return [(day, len(total), len(matches), matches[:3]) for day, (total, matches) in sorted(days.items())]


@pytest.mark.parametrize("text", FILTERS)
def test_dry_run_counts_what_the_filter_matches(spark, path, notifications, text):
    from catchment.pipeline import dry_run

    rows = dry_run(spark, path, text).collect()
    days = [(row.day, row.notifications, row.matched, [*map(Notification.parse, row.samples)]) for row in rows]
    assert days == counted_by_day(notifications, Filter(text))


# ---- command line ------------------------------------------------------------------------------


def test_cli_replays_to_standard_output_and_to_a_file(spark, path, notifications, tmp_path, capsys):
    command = ["replay", path, "--filter", 'symbol = "DIS"', "--from", "2026-11-14", "--to", "2026-11-15T10:00:00Z"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    low, high = datetime(2026, 11, 14, tzinfo=UTC), datetime(2026, 11, 15, 10, tzinfo=UTC)
    expected = [
        notification
        for notification in in_order(notifications)
        if notification["symbol"] == "DIS" and notification.time and low <= notification.time < high
    ]
    assert [Notification.parse(line) for line in printed.splitlines()] == expected
    assert main([*command, "-o", str(tmp_path / "out.jsonl")]) == 0
    assert (tmp_path / "out.jsonl").read_text("utf-8") == printed


def test_cli_checks_a_filter_on_an_archive(spark, path, notifications, capsys):
    assert main(["check", 'symbol = "DIS"', "--on", path, "--json"]) == 0
    report, *days, summary = map(json.loads, capsys.readouterr().out.splitlines())
    expected = counted_by_day(notifications, Filter('symbol = "DIS"'))
    assert report["report"]["text"] == 'symbol = "DIS"'
    assert [(day["day"], day["notifications"], day["matched"]) for day in days] == [day[:3] for day in expected]
    assert [Notification.from_json(sample) for sample in days[0]["samples"]] == expected[0][3]
    assert summary["summary"] == {"notifications": 600, "matched": sum(day[2] for day in expected), "days": len(days)}


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
