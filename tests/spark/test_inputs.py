"""Files of notifications and subscriptions: what is read, what is rejected, and where a reject stood."""

import base64
import json
import re
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catchment.errors import InputError, LimitError, UnavailableError
from catchment.model.notification import NOTIFICATION_ATTRIBUTES_MAX, Notification
from catchment.model.values import STRING_CODEPOINTS_MAX, Type
from catchment.sim.benchmark_data import notifications as generated

pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark

from pyspark.sql import functions as F  # noqa: E402, N812

from catchment.pipeline import inputs, schema  # noqa: E402
from catchment.pipeline.inputs import read_notifications, read_subscriptions  # noqa: E402

TIME = datetime(2026, 11, 15, 10, 30, 0, 123456, UTC)
MIXED = [
    Notification({"price": 101.25, "s": "x"}, id="a", source="nyse", time=TIME, seq=7, payload=b"\0\xff"),
    Notification({"price": "n/a", "on": True, "at": TIME}),
    Notification({"price": 4, "a.b": 1, "a`b": "tick", "ü:int": "odd name", "x:int": 5}),
    Notification({"price": 2.5, "Price": 3, "x": 2**53 + 1}),
    Notification({}),
]


def read_back(df):
    """The rows as notifications, made from the columns alone."""
    return notifications_in(df, schema.attributes_of(df.schema))


def notifications_in(df, columns):
    batches = df.toArrow().to_batches()
    return [notification for batch in batches for notification in schema.notifications_of(batch, columns)]


def sorted_texts(notifications):
    return sorted(json.dumps(notification.to_json(), sort_keys=True) for notification in notifications)


def json_texts(notifications):
    return [json.dumps(notification.to_json()) for notification in notifications]


def written(path, lines):
    path.write_bytes(b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines))
    return str(path)


# --- columns ------------------------------------------------------------------------------------


def test_the_most_common_type_has_the_attributes_own_name():
    counts = {("p", Type.INT): 2, ("p", Type.FLOAT): 5, ("p", Type.STRING): 2, ("q", Type.BOOL): 1}
    columns = schema.attribute_columns(counts)
    assert [column.column for column in columns] == ["p", "p:int", "p:string", "q"]
    assert [column.type for column in columns] == [Type.FLOAT, Type.INT, Type.STRING, Type.BOOL]


def test_names_that_end_in_a_type_survive():
    columns = schema.attribute_columns({("a:int", Type.INT): 1, ("a:int", Type.STRING): 1, ("a", Type.INT): 1})
    assert [column.column for column in columns] == ["a", "a:int:int", "a:int:string"]
    attributes = [(column.name, column.type) for column in schema.attributes_of(schema.notification_schema(columns))]
    assert attributes[4:] == [("a", Type.INT), ("a:int", Type.INT), ("a:int", Type.STRING)]


def test_columns_are_bounded(monkeypatch):
    monkeypatch.setattr(schema, "COLUMNS_MAX", 3)
    with pytest.raises(LimitError, match="COLUMNS_MAX"):
        schema.attribute_columns({(f"n{i}", Type.INT): 1 for i in range(4)})


@pytest.mark.parametrize(
    ("name", "kind"), [("d", "decimal(10,2)"), ("l", "array<int>"), ("$odd", "int"), ("$id", "int")]
)
def test_the_error_names_a_column_that_cannot_be_an_attribute(spark, name, kind):
    with pytest.raises(InputError, match=name.replace("$", r"\$")):
        schema.attributes_of(spark.createDataFrame([], f"`{name}` {kind}").schema)


# --- JSON Lines ---------------------------------------------------------------------------------


def test_json_lines_of_every_type_and_mixed_types(spark, tmp_path):
    path = written(tmp_path / "n.jsonl", json_texts(MIXED))
    given = read_notifications(spark, path)
    assert given.rejected == 0
    assert sorted_texts(read_back(given.rows)) == sorted_texts(MIXED)
    assert given.rejects.schema == schema.REJECTS
    assert {"$id", "$source", "$time", "$seq", "$payload", "price", "price:string", "price:int"} <= set(
        given.rows.columns
    )


def test_bad_lines_are_rejects_with_file_row_and_reason(spark, tmp_path):
    lines = ['{"a": 1}', '{"a": ', "", '{"a": [1]}', b"\xff\xfe", '{"a": NaN}', '{"a": 1, "a": 2}', "[1]", '{"a": 5}']
    path = written(tmp_path / "n.jsonl", lines)
    given = read_notifications(spark, path)
    rejects = given.rejects.orderBy("row").collect()
    assert [row.row for row in rejects] == [2, 4, 5, 6, 7, 8]
    assert given.rejected == 6
    assert all(row.file.endswith("n.jsonl") and row.reason for row in rejects)
    assert rejects[2].text == "\\xff\\xfe"
    assert "twice" in rejects[4].reason
    assert sorted(row.a for row in given.rows.collect()) == [1, 5]


def test_rows_are_numbered_through_blocks(spark, tmp_path):
    lines = ["bad" if i % 37 == 0 else json.dumps({"i": i, "pad": "x" * (i % 50)}) for i in range(1, 2001)]
    path = written(tmp_path / "n.jsonl", lines)
    before = spark.conf.get("spark.sql.files.maxPartitionBytes")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "16384")
    try:
        given = read_notifications(spark, path)
        assert given.rows.rdd.getNumPartitions() > 2
        assert sorted(row.row for row in given.rejects.collect()) == list(range(37, 2001, 37))
        assert given.rejected is not None
        assert given.rows.count() == 2000 - given.rejected
    finally:
        spark.conf.set("spark.sql.files.maxPartitionBytes", before)


def test_declared_types_refuse_what_they_cannot_hold(spark, tmp_path):
    path = written(tmp_path / "n.jsonl", ['{"a": 1}', '{"a": "x"}', '{"b": 1}', '{"$seq": 3}'])
    given = read_notifications(spark, path, types={"a": "int"})
    assert [(row.row, row.reason) for row in given.rejects.orderBy("row").collect()] == [
        (2, "attribute 'a' of type string is not declared"),
        (3, "attribute 'b' of type int is not declared"),
    ]
    assert given.rows.columns == ["$id", "$source", "$time", "$seq", "$payload", "a"]
    assert given.rows.count() == 2


def test_workload_with_a_thousand_names(spark, tmp_path):
    rows = generated("W3", 200)
    path = written(tmp_path / "n.jsonl", [json.dumps(row) for row in rows])
    given = read_notifications(spark, path)
    assert sorted_texts(read_back(given.rows)) == sorted_texts(map(Notification, rows))


def test_a_session_that_ignores_case_is_an_error(spark, tmp_path):
    path = written(tmp_path / "n.jsonl", ['{"a": 1, "A": 2}'])
    spark.conf.set("spark.sql.caseSensitive", "false")
    try:
        with pytest.raises(InputError, match="differ only in case"):
            read_notifications(spark, path)
    finally:
        spark.conf.set("spark.sql.caseSensitive", "true")


def test_a_missing_file_is_an_error(spark, tmp_path):
    with pytest.raises(UnavailableError, match="no file"):
        read_notifications(spark, str(tmp_path / "none.jsonl"))


def test_too_many_attributes_are_refused(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "COLUMNS_MAX", 3)
    path = written(tmp_path / "n.jsonl", ['{"a": 1, "b": 1, "c": 1, "d": 1}'])
    with pytest.raises(LimitError, match="COLUMNS_MAX"):
        read_notifications(spark, path)


# --- CloudEvents --------------------------------------------------------------------------------

CLOUDEVENT = {
    "specversion": "1.0",
    "id": "1",
    "source": "https://example.org/a",
    "type": "com.example.b",
    "time": "2026-11-15T10:30:00.123456789+01:00",
    "datacontenttype": "application/json",
    "hop": 3,
    "sampled": True,
    "absent": None,
    "data": {"x": [1]},
}


def test_cloudevents_single_batch_and_bad(spark, tmp_path):
    (tmp_path / "single.json").write_text(json.dumps(CLOUDEVENT, indent=2))
    encoded = {**CLOUDEVENT, "id": "2", "data_base64": base64.b64encode(b"\0").decode()}
    batch = [
        encoded,
        {"specversion": "1.0", "id": "3"},
        {**CLOUDEVENT, "specversion": "0.3"},
        {**CLOUDEVENT, "y": [1]},
        5,
    ]
    (tmp_path / "batch.json").write_text(json.dumps(batch))
    (tmp_path / "broken.json").write_text('{"specversion": ')
    given = read_notifications(spark, str(tmp_path), "cloudevents")
    rows = {row["$id"]: row.asDict() for row in given.rows.collect()}
    assert set(rows) == {"1", "2"}
    assert rows["1"]["$payload"] == b'{"x":[1]}'
    assert rows["2"]["$payload"] == b"\0"
    assert rows["1"]["$source"] == rows["1"]["source"] == "https://example.org/a"
    assert (rows["1"]["hop"], rows["1"]["sampled"]) == (3, True)
    assert rows["1"]["$time"] == rows["1"]["time"]
    places = [(row.file.rsplit("/", 1)[1], row.row) for row in given.rejects.collect()]
    assert sorted(places) == [
        ("batch.json", 2),
        ("batch.json", 3),
        ("batch.json", 4),
        ("batch.json", 5),
        ("broken.json", 1),
    ]


def test_cloudevents_on_lines(spark, tmp_path):
    path = written(tmp_path / "n.jsonl", [json.dumps(CLOUDEVENT), json.dumps({**CLOUDEVENT, "time": "noon"})])
    given = read_notifications(spark, path, "cloudevents-lines")
    (notification,) = read_back(given.rows)
    assert notification.time == datetime(2026, 11, 15, 9, 30, 0, 123456, UTC)
    assert [row.row for row in given.rejects.collect()] == [2]


def test_a_file_too_long_for_one_worker_is_a_reject(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "CLOUDEVENTS_FILE_BYTES_MAX", 10)
    (tmp_path / "single.json").write_text(json.dumps(CLOUDEVENT))
    given = read_notifications(spark, str(tmp_path), "cloudevents")
    assert ["CLOUDEVENTS_FILE_BYTES_MAX" in row.reason for row in given.rejects.collect()] == [True]


# --- CSV ----------------------------------------------------------------------------------------

TYPES = {"symbol": "string", "price": "float", "volume": "int", "open": "bool", "at": "time"}


def test_csv_with_types(spark, tmp_path):
    lines = [
        "$id,symbol,price,volume,open,at",
        '1,"D,IS",101.25,10,true,2026-11-15T10:30:00Z',
        '2,"",,,,',
        "3,DIS,1e3,9007199254740993,FALSE,2026-11-15",
        "4,DIS,abc,1,true,",
        "5,DIS,1.0,1.5,true,",
        "6,DIS,1.0",
        "7,DIS,NaN,1,true,",
        "8,DIS,1.0,1,yes,",
    ]
    given = read_notifications(spark, written(tmp_path / "n.csv", lines), "csv", TYPES)
    expected = [
        Notification(
            {"symbol": "D,IS", "price": 101.25, "volume": 10, "open": True, "at": TIME.replace(microsecond=0)}, id="1"
        ),
        Notification({"symbol": ""}, id="2"),
        Notification(
            {
                "symbol": "DIS",
                "price": 1000.0,
                "volume": 2**53 + 1,
                "open": False,
                "at": datetime(2026, 11, 15, tzinfo=UTC),
            },
            id="3",
        ),
    ]
    assert sorted_texts(read_back(given.rows)) == sorted_texts(expected)
    rejects = given.rejects.orderBy("row").collect()
    assert [row.row for row in rejects] == [4, 5, 6, 7, 8]
    assert "'abc' is not a float" in rejects[0].reason
    assert rejects[2].text == "6,DIS,1.0"


@pytest.mark.parametrize("types", [None, {"symbol": "string"}, {**TYPES, "more": "int"}, {**TYPES, "at": "instant"}])
def test_csv_needs_the_type_of_each_column(spark, tmp_path, types):
    path = written(tmp_path / "n.csv", ["symbol,price,volume,open,at", "DIS,1,1,true,"])
    with pytest.raises(InputError):
        read_notifications(spark, path, "csv", types)


# --- Parquet ------------------------------------------------------------------------------------


def test_parquet_of_what_was_read_is_the_same(spark, tmp_path):
    path = written(tmp_path / "n.jsonl", json_texts(MIXED))
    read_notifications(spark, path).rows.write.parquet(str(tmp_path / "n.parquet"))
    given = read_notifications(spark, str(tmp_path / "n.parquet"), "parquet")
    assert sorted_texts(read_back(given.rows)) == sorted_texts(MIXED)
    assert given.rejects.count() == 0


def test_parquet_rows_that_are_not_notifications(spark, tmp_path):
    rows = [
        (1.5, "a", 1),
        (float("nan"), "b", 2),
        (float("inf"), "c", 3),
        (None, "x" * 70_000, 4),
        (2.5, "e", 5),
        (-1.0, None, 6),
    ]
    df = spark.createDataFrame(rows, "p float, `p:string` string, n short").coalesce(1)
    df.select("p", F.when(F.col("n").isin(5, 4), F.col("p:string")).alias("p:string"), "n").write.parquet(
        str(tmp_path / "p")
    )
    given = read_notifications(spark, str(tmp_path / "p"), "parquet")
    assert [row.n for row in given.rows.orderBy("n").collect()] == [1, 6]
    assert dict(given.rows.dtypes)["p"] == "double"
    rejects = given.rejects.orderBy("row").collect()
    assert [row.row for row in rejects] == [2, 3, 4, 5]
    assert [row.reason.split(":")[-1].split(" ")[1] for row in rejects[:2]] == ["a", "a"]
    assert "STRING_CODEPOINTS_MAX" in rejects[2].reason
    assert "two types" in rejects[3].reason


def test_parquet_of_a_map(spark, tmp_path):
    df = spark.createDataFrame(
        [("1", {"a": 1.5, "b.c": 2.0}), ("2", {"a": None}), ("3", None)], "`$id` string, attributes map<string,double>"
    )
    df.write.parquet(str(tmp_path / "m"))
    given = read_notifications(spark, str(tmp_path / "m"), "parquet")
    assert sorted_texts(read_back(given.rows)) == sorted_texts(
        [Notification({"a": 1.5, "b.c": 2.0}, id="1"), Notification({}, id="2"), Notification({}, id="3")]
    )


def test_parquet_of_a_map_of_several_types(spark, tmp_path):
    kind = "struct<string:string,int:bigint,time:timestamp>"
    rows = [({"a": ("x", None, None), "t": (None, None, TIME)},), ({"a": (None, 5, None)},), ({"a": (None, 6, None)},)]
    spark.createDataFrame(rows, f"attributes map<string,{kind}>").write.parquet(str(tmp_path / "m"))
    given = read_notifications(spark, str(tmp_path / "m"), "parquet")
    assert given.rows.columns[5:] == ["a", "a:string", "t"]
    assert sorted_texts(read_back(given.rows)) == sorted_texts(
        [Notification({"a": "x", "t": TIME}), Notification({"a": 5}), Notification({"a": 6})]
    )


# --- attributes as a map ------------------------------------------------------------------------


def read_back_from_map(df):
    """The notifications of a table with a map of attributes."""
    return notifications_in(df, schema.matched_columns(df.schema))


def test_json_as_a_map_loses_nothing(spark, tmp_path):
    rows = [
        Notification({"a": 1, "b.c": "x", "p": 1.5, "f": True, "t": TIME}, id="1", time=TIME, payload=b"\0"),
        Notification({"a": "one", "p": 2}, seq=7),
        Notification({}),
    ]
    path = written(tmp_path / "n.jsonl", [*json_texts(rows), '{"a": [1]}'])
    given = read_notifications(spark, path, as_map=True)
    assert given.rows.columns == [*(field.name for field in schema.ENVELOPE_FIELDS), "attributes"]
    assert given.rows.schema["attributes"] == schema.ATTRIBUTES_MAP
    assert sorted_texts(read_back_from_map(given.rows)) == sorted_texts(rows)
    assert [row.row for row in given.rejects.collect()] == [4]
    declared = read_notifications(spark, path, types={"a": "int", "b.c": "string"}, as_map=True)
    assert sorted_texts(read_back_from_map(declared.rows)) == sorted_texts(rows[2:])
    assert sorted(row.row for row in declared.rejects.collect()) == [1, 2, 4]


def test_a_map_of_parquet_stays_a_map(spark, tmp_path):
    rows = [
        ("good", {"a": (1.5, None, None), "b": (None, "x", None), "c": None}),
        ("NaN", {"a": (float("nan"), None, None)}),
        ("infinite", {"a": (float("-inf"), None, None)}),
        ("both", {"a": (1.5, "x", None)}),
        ("no name", {"": (1.5, None, None)}),
        ("envelope", {"$id": (None, "x", None)}),
        ("a column", {"n": (None, "x", None)}),
        ("long", {"a": (None, "x" * (STRING_CODEPOINTS_MAX + 1), None)}),
        ("many", {f"a{i}": (1.5, None, None) for i in range(NOTIFICATION_ATTRIBUTES_MAX + 1)}),
        ("null", None),
    ]
    kind = "struct<float:double,string:string,time:timestamp>"
    df = spark.createDataFrame(rows, f"n string, attributes map<string,{kind}>")
    df.write.parquet(str(tmp_path / "m"))
    given = read_notifications(spark, str(tmp_path / "m"), "parquet", as_map=True)
    assert sorted(row.n for row in given.rows.collect()) == ["good", "null"]
    assert dict(given.rows.dtypes)["attributes"] == f"map<string,{kind}>"
    reasons = {json.loads(row.text)["n"]: row.reason for row in given.rejects.collect()}
    words = {
        "NaN": "finite",
        "infinite": "finite",
        "both": "two types",
        "no name": "a name has",
        "envelope": "begin with \\$",
        "a column": "twice",
        "long": "STRING_CODEPOINTS_MAX",
        "many": "NOTIFICATION_ATTRIBUTES_MAX",
    }
    assert reasons.keys() == words.keys()
    for name, word in words.items():
        assert re.search(word, reasons[name]), (name, reasons[name])


def test_a_key_that_a_file_holds_twice(spark, tmp_path):
    """Spark makes no such map, but reads one without an error."""
    kind = pa.map_(pa.string(), pa.int64())
    pq.write_table(pa.table({"attributes": pa.array([[("a", 1), ("a", 2)], [("a", 1)]], kind)}), tmp_path / "m.parquet")
    given = read_notifications(spark, str(tmp_path / "m.parquet"), "parquet", as_map=True)
    assert sorted_texts(read_back_from_map(given.rows)) == sorted_texts([Notification({"a": 1})])
    assert ["twice" in row.reason for row in given.rejects.collect()] == [True]


# --- subscriptions ------------------------------------------------------------------------------


def subscription_rows(subscriptions):
    return sorted(
        (row.id, row.subscriber, row.filter, row.dialect, row["$row"]) for row in subscriptions.rows.collect()
    )


def test_subscriptions_of_json_lines(spark, tmp_path):
    lines = [
        '{"id": "1", "subscriber": "alice", "filter": "x > 1", "expires": "2026-11-15T10:30:00Z", "note": "ours"}',
        '{"id": "2", "subscriber": "bob"}',
        "",
        '{"id": 3, "subscriber": "bob", "filter": "x > 1"}',
        '{"id": "4", "subscriber": "bob", "filter": "x = 1", "dialect": "cesql", "expires": {"time": "2026-11-15"}}',
        '{"id": "5", "subscriber": "bob", "filter": "x > 1", "expires": "soon"}',
        "[]",
    ]
    given = read_subscriptions(spark, written(tmp_path / "s.jsonl", lines))
    assert subscription_rows(given) == [("1", "alice", "x > 1", None, 1), ("4", "bob", "x = 1", "cesql", 5)]
    assert sorted(row.row for row in given.rejects.collect()) == [2, 4, 6, 7]
    assert given.rejects.schema.names == schema.REJECTS.names


def test_subscriptions_of_csv(spark, tmp_path):
    lines = ["id,filter,subscriber", "1,\"a = 1, b = 'x'\",alice", "2,,bob", "3,x > 1"]
    given = read_subscriptions(spark, written(tmp_path / "s.csv", lines), "csv")
    assert subscription_rows(given) == [("1", "alice", "a = 1, b = 'x'", None, 1)]
    assert sorted(row.row for row in given.rejects.collect()) == [2, 3]


def test_subscriptions_of_parquet(spark, tmp_path):
    rows = [("1", "alice", "x > 1", 5), ("2", None, "x > 1", 6), ("3", "bob", "", 7)]
    spark.createDataFrame(rows, "id string, subscriber string, filter string, more int").coalesce(1).write.parquet(
        str(tmp_path / "s")
    )
    given = read_subscriptions(spark, str(tmp_path / "s"), "parquet")
    assert subscription_rows(given) == [("1", "alice", "x > 1", None, 1)]
    assert sorted(row.row for row in given.rejects.collect()) == [2, 3]


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_a_table_without_filters_is_an_error(spark, tmp_path, format):
    df = spark.createDataFrame([("1", "alice")], "id string, subscriber string")
    df.write.format(format).option("header", "true").save(str(tmp_path / "s"))
    with pytest.raises(InputError, match="there is no filter"):
        read_subscriptions(spark, str(tmp_path / "s"), format)
