"""`read_table` and `scan`: each record once over segments and the hot tail, pruned, for pyarrow and DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from msgspec.structs import replace
from tests.components.s3_endpoint import S3Bucket
from tests.counting_files import counting_files
from tests.end_to_end.broker_process import BrokerProcess, wait_until
from tests.topic_segments import Ends, log_of, table_of, with_noise, write_segment

from tidelog.client import Admin, Producer, read_table, scan, topic_scan
from tidelog.client.topic_scan import SCAN_SCHEMA, dataset_of, plan_scan
from tidelog.storage.errors import Invalid, NotFound
from tidelog.storage.manifests.shard_values import TopicSegment
from tidelog.storage.stores import arrow_files
from tidelog.wire.topic_log import TopicLogRequest

COLD, HOT, PARTITIONS = 300, 60, 2
Shared = tuple[Path, list[TopicSegment]]
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
        log = admin.topic_log("web")
    assert all(ends.cold_end < ends.high_watermark for ends in log.partitions)
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
    with Admin(broker) as admin:
        listed = admin.topic_log("web").segments
    begin = [one for one in listed if min(span.base_offset for span in one.spans) == 0]
    assert 0 < len(begin) < len(listed), "a pass that divides a batch makes a segment for each partition"
    assert len(list(segments.get_fragments(filter=pc.field("offset") == 0))) == len(begin)


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


ENDS = {0: Ends(5, 50, 80), 1: Ends(0, 50, 50), 2: Ends(40, 50, 50)}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Shared:
    """Five segments of ten records of each of three partitions."""
    root = tmp_path_factory.mktemp("shared")
    segments = [write_segment(root, {p: range(10 * run, 10 * run + 10) for p in ENDS}, run) for run in range(5)]
    return root, segments


def places(found: ds.Dataset, **options: Any) -> list[tuple[int, int]]:
    table = found.to_table(columns=["partition", "offset"], **options)
    return sorted(zip(*(table.column(name).to_pylist() for name in ("partition", "offset")), strict=True))


def test_only_segments_within_the_bounds_are_planned(shared: Shared) -> None:
    log = log_of(*shared, ENDS)
    plan = plan_scan(log, {0: (0, 25), 1: (0, 5), 2: (0, 5)})
    assert [one.key for one in plan.segments] == [one.key for one in shared[1][:3]]
    assert (plan.ranges, plan.hot) == ({0: (5, 25), 1: (0, 5), 2: (40, 40)}, {})
    hot = plan_scan(log, {0: (60, 99), 1: (50, 99), 2: (50, 99)})
    assert (hot.segments, hot.hot) == ((), {0: (60, 80)})


@pytest.mark.parametrize("one", [True, False], ids=["the same bounds", "bounds by partition"])
def test_a_scan_has_exactly_the_rows_of_its_ranges(shared: Shared, one: bool) -> None:
    log = log_of(*shared, ENDS)
    wanted = {p: (12, 33) if one else (12 + p, 33 - 2 * p) for p in ENDS}
    plan = plan_scan(log, wanted)
    expected = [(p, offset) for p in (0, 1) for offset in range(*wanted[p])]
    assert places(dataset_of(plan, SCAN_SCHEMA.empty_table())) == expected


def test_rows_of_other_partitions_and_below_the_log_start_are_left_out(shared: Shared) -> None:
    log = log_of(*shared, ENDS, TopicLogRequest(partitions=(0, 2)))
    plan = plan_scan(log, {0: (0, 80), 2: (0, 80)})
    hot = pa.table({"partition": [0], "offset": [50]}).cast(pa.schema([SCAN_SCHEMA.field(0), SCAN_SCHEMA.field(1)]))
    rest = [pa.nulls(1, field.type) for field in list(SCAN_SCHEMA)[2:]]
    found = dataset_of(plan, pa.table([*hot.columns, *rest], schema=SCAN_SCHEMA))
    expected = [*((0, offset) for offset in range(5, 51)), *((2, offset) for offset in range(40, 50))]
    assert places(found) == expected
    assert places(found, filter=ds.field("partition") == 1) == []
    assert places(found, filter=(ds.field("partition") == 2) & (ds.field("offset") >= 45)) == expected[-5:]


def test_whole_segments_need_no_condition(shared: Shared) -> None:
    ends = {p: Ends(0, 50, 50) for p in ENDS}
    plan = plan_scan(log_of(*shared, ends), dict.fromkeys(ends, (0, 99)))
    assert plan.exact
    assert len(places(dataset_of(plan, SCAN_SCHEMA.empty_table()))) == 150


def test_a_thousand_partitions_are_looked_up_and_not_compared_one_by_one(tmp_path: Path) -> None:
    ends = {p: Ends(p % 7, 10, 10) for p in range(1_000)}
    segments = [write_segment(tmp_path, {p: range(10) for p in ends}, 0)]
    plan = plan_scan(log_of(tmp_path, segments, ends), {p: (0, 9 - p % 2) for p in ends})
    found = places(dataset_of(plan, SCAN_SCHEMA.empty_table()))
    assert found == [(p, offset) for p in ends for offset in range(p % 7, 9 - p % 2)]


def test_a_table_is_planned_again_once_if_a_segment_is_gone(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    root, segments = shared
    ends = {p: Ends(0, 50, 50) for p in ENDS}
    gone = replace(segments[0], key=segments[0].key.replace("0000-", "0000-f"))
    lists = [[gone, *segments[1:]], segments, [gone], [gone]]

    def planned(*_: object, **__: object) -> ds.Dataset:
        plan = plan_scan(log_of(root, lists.pop(0), ends), dict.fromkeys(ends, (0, 50)))
        return dataset_of(plan, SCAN_SCHEMA.empty_table())

    monkeypatch.setattr(topic_scan, "scan", planned)
    assert read_table("web").num_rows == 150
    with pytest.raises(FileNotFoundError):
        read_table("web")


def test_one_partition_and_a_hundredth_of_its_offsets_read_few_of_the_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The segment is merged: large partitions have row groups of their own."""
    partitions, records, group = 20, 4_000, 400
    offsets = {p: range(records) for p in range(partitions)}
    ends = range(group, partitions * records + 1, group)
    table = with_noise(table_of(offsets), value_bytes=250)
    segment = write_segment(tmp_path, offsets, 0, level=2, ends=ends, table=table)
    log = log_of(tmp_path, [segment], {p: Ends(0, records, records) for p in offsets}, TopicLogRequest(partitions=(7,)))
    plan = plan_scan(log, {7: (2_000, 2_040)})
    files, reads = counting_files()
    monkeypatch.setattr(arrow_files, "arrow_files", lambda _: (files, str(tmp_path)))
    found = dataset_of(plan, SCAN_SCHEMA.empty_table())
    assert places(found) == [(7, offset) for offset in range(2_000, 2_040)]
    assert 0 < sum(reads) < 0.05 * segment.size_bytes


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
