"""Jobs that write: files, a topic or the result of SQL into a topic, each row once over several runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.spark.job_runs import opened
from tests.spark.serving import KEEPS_HOT, Record, Serving, records, serving

from tidelog.storage.errors import Invalid


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("jobs")
    with serving(folder, f"file:{folder / 'store'}", KEEPS_HOT) as broker:
        yield broker


def values(shop: Serving, topic: str, partitions: int) -> list[bytes | None]:
    return [each.value for number in range(partitions) for each in shop.fetch_all(topic, number)]


def run(spark: SparkSession, name: str, arguments: Sequence[str]) -> int:
    job = opened(spark, name, arguments)
    job.plan()
    facts = job.run().facts
    return int(facts.get("records", facts.get("records_read", -1)))


def test_backfill_writes_the_rows_of_each_file_once(spark: SparkSession, shop: Serving, tmp_path: Path) -> None:
    def add_file(name: str, numbers: range) -> None:
        users = [f"user-{number % 3}" for number in numbers]
        pq.write_table(pa.table({"user": users, "n": list(numbers)}), files / name)

    files = tmp_path / "files"
    files.mkdir()
    add_file("a.parquet", range(10))
    add_file("b.parquet", range(10, 20))
    shop.create_topic("filled", 2)
    where = ["--from", str(files), "--to", "filled", "--broker", shop.url, "--checkpoint", str(tmp_path / "checkpoint")]
    arguments = [*where, "--key", "user", "--files-per-batch", "1"]
    planned = opened(spark, "backfill", arguments).plan()
    assert (planned["files"], planned["partitions"]) == (2, 2)
    assert run(spark, "backfill", arguments) == 20
    add_file("c.parquet", range(20, 25))
    assert run(spark, "backfill", arguments) == 5
    found = [json.loads(value) for value in values(shop, "filled", 2) if value]
    assert sorted(each["n"] for each in found) == list(range(25))


def test_repartition_copies_each_record_once_with_keys_in_order(
    spark: SparkSession, shop: Serving, tmp_path: Path
) -> None:
    def keyed(start: int, end: int) -> list[Record]:
        return [replace(each, key=b"k%d" % (each.offset % 7)) for each in records(0, start, end)]

    shop.create_topic("narrow", 1)
    shop.create_topic("wide", 3)
    shop.produce("narrow", 0, keyed(0, 50))
    where = ["--from", "narrow", "--to", "wide", "--broker", shop.url, "--checkpoint", str(tmp_path / "checkpoint")]
    assert run(spark, "repartition", where) == 50
    shop.produce("narrow", 0, keyed(50, 60))
    assert run(spark, "repartition", where) == 10
    found = [shop.fetch_all("wide", number) for number in range(3)]
    assert sum(map(len, found)) == 60
    for number in range(7):
        key = b"k%d" % number
        (holding,) = [copies for copies in found if any(each.key == key for each in copies)]
        copied = [(each.value, each.headers) for each in holding if each.key == key]
        assert copied == [(each.value, each.headers) for each in keyed(0, 60) if each.key == key]


def test_transform_writes_the_result_of_sql(spark: SparkSession, shop: Serving, tmp_path: Path) -> None:
    shop.create_topic("visits", 1)
    shop.create_topic("slow", 1)
    visits = [replace(each, value=b'{"path": "/%d", "ms": %d, "key": "k"}' % (each.offset, each.offset * 10))
              for each in records(0, 0, 20)]  # fmt: skip
    shop.produce("visits", 0, visits)
    where = ["--to", "slow", "--broker", shop.url, "--checkpoint", str(tmp_path / "checkpoint")]
    statement = tmp_path / "slow.sql"
    statement.write_text("SELECT path, ms, topic FROM v WHERE ms >= 150 AND key = 'k'")
    source = ["--source", "v=visits", "--schema", "v=path string, ms long, key string", "--sql", f"@{statement}"]
    assert opened(spark, "transform", [*where, *source]).plan()["result"] == "struct<value:string>"
    assert run(spark, "transform", [*where, *source]) == 20
    assert [json.loads(value) for value in values(shop, "slow", 1) if value] == [
        {"path": f"/{number}", "ms": number * 10, "topic": "visits"} for number in range(15, 20)
    ]
    assert run(spark, "transform", [*where, *source]) == 0


AT = ("--checkpoint", "c")


@pytest.mark.parametrize(
    ("name", "arguments", "named"),
    [
        ("repartition", ["--from", "a", "--to", "a", *AT], "to"),
        ("transform", ["--source", "v=a", "--sql", "SELECT 1", "--to", "a", *AT], "to"),
        ("transform", ["--source", "a", "--sql", "SELECT 1", "--to", "b", *AT], "source"),
        ("transform", ["--source", "v=a", "--schema", "w=id int", "--sql", "x", "--to", "b", *AT], "schema"),
        ("transform", ["--source", "v=a", "--watermark", "v=at", "--sql", "x", "--to", "b", *AT], "watermark"),
        ("transform", ["--source", "v=a", "--sql", "@/nowhere", "--to", "b", *AT], "sql"),
        ("backfill", ["--from", "f", "--files-per-batch", "0", "--to", "b", *AT], "files-per-batch"),
        ("backfill", ["--from", "f", "--to", "b", "--checkpoint", " "], "checkpoint"),
    ],
)  # fmt: skip
def test_wrong_options_are_refused(spark: SparkSession, name: str, arguments: list[str], named: str) -> None:
    with pytest.raises(Invalid) as refused:
        opened(spark, name, arguments)
    assert refused.value.field == named
