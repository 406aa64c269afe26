"""`read_table` and `scan`: each record once over segments and the hot tail, pruned, for pyarrow and DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from tests.components.s3_endpoint import S3Bucket
from tests.end_to_end.broker_process import BrokerProcess, wait_until

from tidelog.client import Admin, Producer, read_table, scan
from tidelog.client.topic_scan import SCAN_SCHEMA, plan_partition
from tidelog.storage.errors import Invalid, NotFound
from tidelog.wire.topics import PartitionLogDescription, SegmentDescription

COLD, HOT, PARTITIONS = 300, 60, 2
TIME_MS = 1_700_000_000_000


def produce(url: str, first: int, count: int) -> None:
    with Producer(url, "web") as producer:
        for number in range(first, first + count):
            producer.send(
                b"%d" % number,
                b"key",
                partition=number % PARTITIONS,
                timestamp_ms=TIME_MS + number,
                headers=[("h", b"1")],
            )


def archived(admin: Admin, records: int) -> bool:
    return sum(one.cold_end for one in admin.topic("web").partitions) >= records


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with `COLD` records in segments and `HOT` more in its log."""
    folder = tmp_path_factory.mktemp("scan")
    settings = {"store": f"file:{folder / 'data'}", "shards": 1}
    archiving = BrokerProcess(folder, {**settings, "archiver.interval.ms": 20, "archiver.min.bytes": 1})
    archiving.start()
    with Admin(archiving.url) as admin:
        admin.create_topic("web", PARTITIONS, {"retention.ms": -1})
        for third in range(3):
            produce(archiving.url, third * COLD // 3, COLD // 3)
            wait_until(partial(archived, admin, (third + 1) * COLD // 3), 30)
    archiving.stop()
    lazy = BrokerProcess(folder, {**settings, "archiver.interval.ms": 3_600_000, "archiver.min.bytes": 1 << 30})
    lazy.start()
    produce(lazy.url, COLD, HOT)
    yield lazy.url
    lazy.stop()


def numbers(table: pa.Table) -> list[int]:
    return sorted(int(value) for value in table.column("value").to_pylist())


def test_a_table_has_each_record_once(broker: str) -> None:
    with Admin(broker) as admin:
        log = admin.partition_log("web", 0)
    assert log.cold_end < log.high_watermark
    assert len(log.segments) > 1
    table = read_table("web", broker)
    assert table.schema.equals(SCAN_SCHEMA)
    assert numbers(table) == list(range(COLD + HOT))
    first = table.filter(pc.field("partition") == 0)
    assert first.column("offset").to_pylist() == list(range((COLD + HOT) // PARTITIONS))
    assert first.slice(0, 1).to_pylist()[0]["headers"] == [{"key": "h", "value": b"1"}]


def test_positions_and_partitions_bound_a_scan(broker: str) -> None:
    table = read_table("web", broker, partitions=[1], start=f"@{TIME_MS + 99}", end=170, columns=["offset", "value"])
    assert table.column_names == ["offset", "value"]
    assert table.column("offset").to_pylist() == list(range(49, 170))
    assert read_table("web", broker, start="latest").num_rows == 0


def test_a_filter_skips_segments(broker: str) -> None:
    web = scan("web", broker)
    wanted = pc.field("timestamp") >= pa.scalar(TIME_MS + COLD + 10, pa.timestamp("ms", "UTC"))
    assert numbers(web.to_table(filter=wanted)) == list(range(COLD + 10, COLD + HOT))
    assert isinstance(web, ds.UnionDataset)
    segments = web.children[0]
    assert list(segments.get_fragments(filter=wanted)) == []
    assert len(list(segments.get_fragments(filter=pc.field("offset") == 0))) == PARTITIONS


def test_duckdb_reads_a_scan(broker: str) -> None:
    web = scan("web", broker)
    with duckdb.connect() as connection:
        connection.register("web", web)
        counted = connection.sql('SELECT partition, count(*), max("offset") FROM web GROUP BY 1 ORDER BY 1').fetchall()
        one = connection.sql('SELECT decode(value) FROM web WHERE partition = 1 AND "offset" = 160').fetchall()
    half = (COLD + HOT) // PARTITIONS
    assert counted == [(0, half, half - 1), (1, half, half - 1)]
    assert one == [("321",)]


def test_polars_reads_a_scan(broker: str) -> None:
    """Runs where polars is installed. It is not part of the development tools: 180 MB for one test."""
    polars = pytest.importorskip("polars")
    web = polars.scan_pyarrow_dataset(scan("web", broker))
    half = (COLD + HOT) // PARTITIONS
    counted = web.group_by("partition").agg(polars.len(), polars.col("offset").max()).sort("partition").collect()
    assert counted.rows() == [(0, half, half - 1), (1, half, half - 1)]
    one = web.filter((polars.col("partition") == 1) & (polars.col("offset") == 160)).select("value").collect()
    assert one.rows() == [(b"321",)]


def test_wrong_input_is_told(broker: str) -> None:
    with pytest.raises(NotFound):
        scan("nowhere", broker)
    with pytest.raises(Invalid, match="no partition 7"):
        scan("web", broker, partitions=[7])
    with pytest.raises(Invalid, match="no position"):
        scan("web", broker, start="yesterday")


def test_records_below_the_log_start_are_left_out(tmp_path: Path) -> None:
    process = BrokerProcess(
        tmp_path, {"store": f"file:{tmp_path / 'data'}", "archiver.interval.ms": 20, "archiver.min.bytes": 1}
    )
    process.start()
    try:
        with Admin(process.url) as admin:
            admin.create_topic("web", PARTITIONS)
            produce(process.url, 0, 100)
            wait_until(lambda: archived(admin, 100), 30)
            admin.delete_records("web", 0, 20)
        table = read_table("web", process.url)
    finally:
        process.stop()
    assert numbers(table) == sorted([*range(40, 100, 2), *range(1, 100, 2)])


def test_a_store_in_memory_is_read_through_the_broker(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path, {"store": "memory:", "num.partitions": PARTITIONS})
    process.start()
    try:
        produce(process.url, 0, 50)
        assert numbers(read_table("web", process.url, end=20)) == list(range(40))
    finally:
        process.stop()


def test_only_segments_within_the_bounds_are_planned() -> None:
    segments = tuple(SegmentDescription(f"s{n}", 10 * n, 10 * n + 9, 10, 1, 0, 9, "") for n in range(5))
    log = PartitionLogDescription("web", "id", 0, 0, 5, 50, 80, 1, "file:///data", segments)
    plan = plan_partition(log, 0, 25)
    assert [one.key for one in plan.segments] == ["s0", "s1", "s2"]
    assert (plan.begin, plan.end, plan.hot_begin) == (5, 25, 50)
    hot = plan_partition(log, 60, None)
    assert (hot.segments, hot.begin, hot.end, hot.hot_begin) == ((), 60, 80, 60)


def test_a_scan_reads_a_bucket(tmp_path: Path, moto_bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = moto_bucket.endpoint.environment()
    settings = {"store": f"s3://{moto_bucket.name}/log", "archiver.interval.ms": 20, "archiver.min.bytes": 1}
    process = BrokerProcess(tmp_path, settings, environment)
    process.start()
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    try:
        with Admin(process.url) as admin:
            admin.create_topic("web", PARTITIONS)
            produce(process.url, 0, 50)
            wait_until(lambda: archived(admin, 50), 30)
        produce(process.url, 50, 10)
        assert numbers(read_table("web", process.url)) == list(range(60))
    finally:
        process.stop()
