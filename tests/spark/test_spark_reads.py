"""The data source and the native read return what HTTP returns, for records in segments, in the hot tail, or in both,
and for a read's border anywhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from tests.spark.layouts import HOT_END, LAYOUTS, expected_records, serving_layouts
from tests.spark.serving import START_MS, Serving, expected_row, rows_of

from tidelog.spark_connector import TidelogDataSource, read, register
from tidelog.spark_connector.queries import native_read
from tidelog.spark_connector.reads.rows import row_schema
from tidelog.spark_connector.source import FILTER_PUSHDOWN

pytestmark = pytest.mark.spark

Reader = Callable[..., DataFrame]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("broker")
    with serving_layouts(folder, f"file:{folder}/a [store]") as serving:
        yield serving


@pytest.fixture(params=["data source", "native"])
def reader(request: pytest.FixtureRequest, spark: SparkSession, broker: Serving) -> Reader:
    """Both ways of reading, with the broker's address filled in."""
    if request.param == "native":
        return lambda **options: read(spark, broker=broker.url, **options)
    return lambda **options: spark.read.format("tidelog").options(broker=broker.url, **options).load()


def offsets_in(frame: DataFrame) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row in sorted(frame.select("partition", "offset").collect()):
        found.setdefault(row.partition, []).append(row.offset)
    return found


@pytest.fixture(scope="module")
def mixed(spark: SparkSession) -> DataFrame:
    """The rows of topic mixed, without Tidelog."""
    rows = [
        expected_row("mixed", partition, each)
        for partition, produced in expected_records("mixed").items()
        for each in produced
    ]
    return spark.createDataFrame(rows, row_schema(include_headers=False)).cache()


@pytest.mark.parametrize("topic", LAYOUTS)
def test_the_layout_is_what_the_tests_are_about(broker: Serving, topic: str) -> None:
    log = broker.log(topic)
    for partition, (cold_end, end) in enumerate(LAYOUTS[topic]):
        ends = log.partition(partition)
        assert (ends.cold_end, ends.high_watermark) == (cold_end, end)
        assert not cold_end or len(log.spans()[partition]) >= 2


@pytest.mark.parametrize("topic", LAYOUTS)
def test_every_record_comes_as_it_was_produced_and_as_http_gives_it(
    reader: Reader, broker: Serving, topic: str
) -> None:
    expected = expected_records(topic)

    rows = rows_of(reader(subscribe=topic, includeHeaders=True))

    assert rows == [
        expected_row(topic, partition, each, headers=True)
        for partition, produced in expected.items()
        for each in produced
    ]
    for partition, produced in expected.items():
        assert not produced or broker.fetch_all(topic, partition) == produced


@pytest.mark.parametrize("topic", LAYOUTS)
def test_counts_agree(reader: Reader, topic: str) -> None:
    assert reader(subscribe=topic).count() == sum(end for _, end in LAYOUTS[topic])


def test_the_columns_are_those_of_kafkas_source(reader: Reader) -> None:
    columns = [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
    ]

    assert reader(subscribe="mixed").dtypes == columns
    headers = ("headers", "array<struct<key:string,value:binary>>")
    assert reader(subscribe="mixed", includeHeaders=True).dtypes == [*columns, headers]


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (0, 2_100),
        (3, 690),  # in one segment
        (650, 750),  # over a border between segments
        (700, 1_500),  # exactly a segment
        (1_400, 1_600),  # over the cold end
        (1_500, 1_500),  # nothing, at the cold end
        (1_700, 1_701),  # one hot record
    ],
)
def test_offsets_cut_anywhere(reader: Reader, start: int, end: int) -> None:
    offsets = json.dumps({"mixed": {"0": start}}), json.dumps({"mixed": {"0": end}})

    frame = reader(assign='{"mixed": [0]}', startingOffsets=offsets[0], endingOffsets=offsets[1])

    assert offsets_in(frame).get(0, []) == list(range(start, end))


def test_earliest_and_latest_can_be_named_by_partition(reader: Reader) -> None:
    frame = reader(
        subscribe="mixed",
        startingOffsets='{"mixed": {"0": -2, "1": 1750}}',
        endingOffsets='{"mixed": {"0": 5, "1": -1}}',
    )

    assert offsets_in(frame) == {0: list(range(5)), 1: list(range(1_750, 1_800))}


def test_timestamps_start_at_the_first_record_not_before_and_end_before_the_first_not_before(reader: Reader) -> None:
    start_ms, end_ms = START_MS + 10 * 1_450 + 1, START_MS + 10 * 1_550 + 1

    frame = reader(subscribe="mixed", startingTimestamp=start_ms, endingTimestamp=end_ms)

    # Record `offset` of partition p has the timestamp START_MS + 10 * offset + p.
    assert offsets_in(frame) == {0: list(range(1_451, 1_551)), 1: list(range(1_450, 1_550))}


def test_a_starting_timestamp_beyond_all_records_is_an_error_unless_latest_is_chosen(reader: Reader) -> None:
    late = START_MS + 10 * HOT_END

    with pytest.raises(Exception, match="mixed-0 has no record at or after startingTimestamp"):
        reader(subscribe="mixed", startingTimestamp=late).count()
    lenient = reader(subscribe="mixed", startingTimestamp=late, startingOffsetsByTimestampStrategy="latest")
    assert lenient.count() == 0


def test_an_ending_timestamp_beyond_all_records_is_the_end(reader: Reader) -> None:
    assert reader(subscribe="mixed", endingTimestamp=START_MS + 10 * HOT_END).count() == 3_900


def test_several_topics_come_together(reader: Reader) -> None:
    frame = reader(subscribe="hot,cold,empty")

    counts = {row.topic: row["count"] for row in frame.groupBy("topic").count().collect()}
    assert counts == {"hot": 1_500, "cold": 3_000}


def test_a_pattern_has_to_match_the_whole_name(reader: Reader) -> None:
    frame = reader(subscribePattern="(mi|co).*d")

    assert {row.topic for row in frame.select("topic").distinct().collect()} == {"mixed", "cold"}
    assert reader(subscribePattern="mix").count() == 0


@pytest.mark.parametrize(
    "condition",
    [
        "offset >= 1490 AND offset < 1510",
        "partition = 1",
        "topic = 'mixed' AND partition IN (0, 3)",
        "timestamp >= timestamp_millis(1763712014900) AND timestamp < timestamp_millis(1763712015100)",
        "key IS NULL AND offset > 2000",
        "value = cast('{\"n\": 1600}' AS binary)",
        "offset = 700 OR offset = 1500",
    ],
)
def test_filters_give_the_same_rows_whether_pushed_down_or_not(
    reader: Reader, mixed: DataFrame, condition: str
) -> None:
    found = rows_of(reader(subscribe="mixed").where(condition))

    assert found == rows_of(mixed.where(condition))
    assert found


def test_a_read_of_few_columns_gives_the_same_rows(reader: Reader) -> None:
    frame = reader(subscribe="uneven").selectExpr("sum(offset) AS total", "count(DISTINCT timestamp) AS moments")

    expected = expected_records("uneven")
    total = sum(each.offset for produced in expected.values() for each in produced)
    moments = {each.timestamp_ms for produced in expected.values() for each in produced}
    assert frame.collect() == [(total, len(moments))]


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/St_Johns"])
def test_timestamps_are_the_same_moments_in_every_session_time_zone(
    reader: Reader, spark: SparkSession, zone: str
) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        moments = reader(subscribe="mixed").selectExpr("unix_millis(timestamp) AS ms", "partition", "offset").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)

    assert all(row.ms == START_MS + 10 * row.offset + row.partition for row in moments)
    assert len(moments) == 3_900


def test_more_partitions_or_smaller_ones_give_the_same_rows(reader: Reader) -> None:
    many = reader(subscribe="mixed", minPartitions=7)
    small = reader(subscribe="mixed", maxRecordsPerPartition=250)

    assert offsets_in(many) == offsets_in(small) == {0: list(range(2_100)), 1: list(range(1_800))}


def test_the_data_source_makes_as_many_tasks_as_asked(spark: SparkSession, broker: Serving) -> None:
    source = spark.read.format("tidelog").options(broker=broker.url, subscribe="mixed")

    assert source.load().rdd.getNumPartitions() == 1
    assert source.option("minPartitions", 7).load().rdd.getNumPartitions() >= 7
    assert source.option("maxRecordsPerPartition", 250).load().rdd.getNumPartitions() >= 3_900 // 250


def test_a_query_without_a_filter_has_all_rows_after_one_with_a_filter(spark: SparkSession, broker: Serving) -> None:
    frame = spark.read.format("tidelog").options(broker=broker.url, subscribe="mixed").load()

    assert frame.where("offset >= 2000").count() == 100
    assert frame.count() == 3_900
    assert frame.where("partition = 1").count() == 1_800
    assert frame.count() == 3_900


def test_actions_of_a_data_frame_see_the_same_records_and_a_later_one_sees_more(
    spark: SparkSession, broker: Serving
) -> None:
    broker.create_topic("later", 1)
    broker.produce("later", 0, expected_records("hot")[0][:100])
    source = spark.read.format("tidelog").options(broker=broker.url, subscribe="later")
    frame = source.load()
    assert frame.count() == 100
    broker.produce("later", 0, expected_records("hot")[0][100:150])
    assert frame.count() == 100
    assert source.load().count() == 150


def test_the_data_source_can_be_registered_without_touching_the_sessions_settings(
    spark: SparkSession, broker: Serving
) -> None:
    spark.conf.unset(FILTER_PUSHDOWN)
    spark.dataSource.register(TidelogDataSource)
    try:
        frame = spark.read.format("tidelog").options(broker=broker.url, subscribe="mixed").load()
        assert frame.where("offset >= 2000").count() == 100
    finally:
        register(spark)


def test_a_schema_chooses_columns_of_the_data_source(spark: SparkSession, broker: Serving) -> None:
    source = spark.read.format("tidelog").options(broker=broker.url, subscribe="mixed")

    few = source.schema("offset long, topic string").load()

    assert few.dtypes == [("offset", "bigint"), ("topic", "string")]
    assert few.distinct().count() == 2_100
    with pytest.raises(Exception, match=r"unknown columns of the tidelog source: offset:int, size:bigint; choose from"):
        source.schema("offset int, size long").load().count()


def test_a_native_read_keeps_to_the_snapshot_it_took(spark: SparkSession, broker: Serving) -> None:
    broker.create_topic("growing", 1)
    broker.produce("growing", 0, expected_records("hot")[0][:100])
    frame = read(spark, broker=broker.url, subscribe="growing")
    assert frame.count() == 100

    broker.produce("growing", 0, expected_records("hot")[0][100:150])

    assert frame.count() == 100
    assert read(spark, broker=broker.url, subscribe="growing").count() == 150


@pytest.mark.parametrize(
    ("limit", "options"),
    [("HOT_SLICES_MAX", {}), ("HOT_RECORDS_MAX", {}), ("HOT_BYTES_MAX", {}), (None, {"minPartitions": 3})],
    ids=["slices", "records", "bytes", "tasks of a size"],
)
def test_a_hot_tail_over_a_limit_is_read_by_tasks_and_a_small_one_by_the_driver(
    spark: SparkSession, broker: Serving, monkeypatch: pytest.MonkeyPatch, limit: str | None, options: dict[str, int]
) -> None:
    small = read(spark, broker=broker.url, subscribe="hot", includeHeaders=True)
    if limit:
        monkeypatch.setattr(native_read, limit, 1)

    large = read(spark, broker=broker.url, subscribe="hot", includeHeaders=True, **options)

    assert ("LocalRelation" in plan_of(small), "LocalRelation" in plan_of(large)) == (True, False)
    assert rows_in_order(small) == rows_in_order(large)
    assert small.schema == large.schema


def rows_in_order(frame: DataFrame) -> list[Row]:
    return frame.orderBy("partition", "offset").collect()


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().optimizedPlan().toString())


def test_a_native_read_pushes_filters_and_columns_down_to_parquet(
    spark: SparkSession, broker: Serving, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = read(spark, broker=broker.url, subscribe="cold").where("offset > 1000 AND partition = 1")

    frame.select("offset").explain()

    plan = capsys.readouterr().out
    pushed = plan.split("PushedFilters: [")[1].split("]")[0]
    assert "GreaterThan(offset,1000)" in pushed
    assert "EqualTo(partition,1)" in pushed
    assert "ReadSchema: struct<partition:int,offset:bigint>" in plan


def test_a_store_can_be_named_for_readers_that_find_it_elsewhere(
    reader: Reader, broker: Serving, tmp_path: Path
) -> None:
    store = Path(unquote(urlsplit(broker.log("cold").store).path))
    mounted = tmp_path / "mounted"
    mounted.symlink_to(store)

    assert reader(subscribe="cold", store=f"file://{mounted}").count() == 3_000
    assert reader(subscribe="cold", store="broker").count() == 3_000
