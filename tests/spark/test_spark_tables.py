"""The format in SQL: found without registering, as a view, with values of JSON as columns."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql.types import StructType
from pyspark.sql.worker.lookup_data_sources import _main as look_up
from tests.spark.serving import START_MS, Record, Serving, records

from tidelog.spark_connector import create_view, read
from tidelog.storage.errors import Invalid

pytestmark = pytest.mark.spark

VALUES = (b'{"path": "/a", "n": 1}', b'{"path": "/b", "n": "x"}', b"not json", None, b"{}")


@pytest.fixture(scope="module")
def topic(hot_broker: Serving) -> str:
    hot_broker.create_topic("tables", 1)
    hot_broker.produce("tables", 0, records(0, 0, 20))
    return "tables"


@pytest.fixture(scope="module")
def json_topic(hot_broker: Serving) -> str:
    hot_broker.create_topic("json", 1)
    hot_broker.produce("json", 0, [Record(n, START_MS, None, value, None) for n, value in enumerate(VALUES)])
    return "json"


def test_spark_finds_the_format_by_the_name_of_a_module() -> None:
    answer = io.BytesIO()
    look_up(io.BytesIO(), answer)

    assert b"tidelog" in answer.getvalue()


def test_a_new_session_needs_no_registration(spark: SparkSession, hot_broker: Serving, topic: str) -> None:
    source = spark.newSession().read.format("tidelog").options(broker=hot_broker.url, subscribe=topic)

    assert source.load().count() == 20


def test_a_view_has_the_options_and_keeps_the_records_of_its_first_query(
    spark: SparkSession, hot_broker: Serving, topic: str
) -> None:
    options = f"OPTIONS (broker '{hot_broker.url}', subscribe '{topic}', includeHeaders 'true')"
    spark.sql(f"CREATE TEMPORARY VIEW of_sql USING tidelog {options}")
    create_view(spark, "of_python", broker=hot_broker.url, subscribe=topic)

    assert spark.sql("SELECT count(headers) FROM of_sql WHERE offset < 9").collect() == [Row(6)]
    before = spark.sql("SELECT count(*) FROM of_python").collect()[0][0]
    hot_broker.produce(topic, 0, records(0, before, before + 3))
    for view in ("of_sql", "of_python"):
        assert spark.sql(f"SELECT count(*), max(offset) FROM {view}").collect() == [Row(before, before - 1)]
    create_view(spark, "of_python", broker=hot_broker.url, subscribe=topic)
    assert spark.sql("SELECT count(*) FROM of_python").collect() == [Row(before + 3)]


def rows(spark: SparkSession, hot_broker: Serving, topic: str, schema: StructType | str | Path | None) -> list[Row]:
    frame = read(spark, broker=hot_broker.url, subscribe=topic, value="json", schema=schema)
    return frame.orderBy("offset").select("value", "corrupt_value").collect()


def test_values_become_columns_and_corrupt_ones_are_kept(
    spark: SparkSession, hot_broker: Serving, json_topic: str
) -> None:
    assert rows(spark, hot_broker, json_topic, "path string, n int") == [
        Row(Row("/a", 1), None),
        Row(None, '{"path": "/b", "n": "x"}'),
        Row(None, "not json"),
        Row(None, None),
        Row(Row(None, None), None),
    ]


def test_an_inferred_schema_is_saved_and_used_again(
    spark: SparkSession, hot_broker: Serving, json_topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "json.schema.json"

    found = rows(spark, hot_broker, json_topic, path)

    assert found[:3] == [Row(Row("1", "/a"), None), Row(Row("x", "/b"), None), Row(None, "not json")]
    assert f"struct<n:string,path:string>; saved in {path}" in caplog.text
    saved = StructType.fromJson(json.loads(path.read_text()))
    caplog.clear()
    assert rows(spark, hot_broker, json_topic, path) == found == rows(spark, hot_broker, json_topic, saved)
    assert caplog.text == ""


def test_wrong_uses_of_json_values_are_named(spark: SparkSession, hot_broker: Serving, topic: str) -> None:
    given = {"broker": hot_broker.url, "subscribe": topic}

    with pytest.raises(Invalid, match='add value="json"'):
        read(spark, schema="a int", **given)
    with pytest.raises(Invalid, match="value is json, or is left out"):
        read(spark, value="avro", **given)
    with pytest.raises(Invalid, match="schema is not one that Spark understands"):
        read(spark, value="json", schema="a in t,,", **given)
    hot_broker.create_topic("prose", 1)
    hot_broker.produce("prose", 0, [Record(0, START_MS, None, b"not json", None)])
    with pytest.raises(Invalid, match="no schema follows from the 1 values"):
        read(spark, value="json", broker=hot_broker.url, subscribe="prose")


def test_the_time_zone_of_the_session_does_not_change_which_records_are_read(
    spark: SparkSession, hot_broker: Serving, topic: str
) -> None:
    session = spark.newSession()
    source = session.read.format("tidelog").options(
        broker=hot_broker.url, subscribe=topic, startingTimestamp=str(START_MS + 50), endingTimestamp=str(START_MS + 80)
    )
    for zone in ("UTC", "Asia/Tokyo", "America/St_Johns"):
        session.conf.set("spark.sql.session.timeZone", zone)
        found = source.load().selectExpr("offset", "unix_millis(timestamp)").collect()
        assert sorted(map(tuple, found)) == [(offset, START_MS + 10 * offset) for offset in (5, 6, 7)]
