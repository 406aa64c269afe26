"""Jobs plan first and then do what they planned; the program of all jobs runs under spark-submit with the zip alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.job_runs import opened
from tests.spark.serving import ARCHIVES, Serving, records, serving

from tidelog.spark_connector.jobs.job_progress import task_counts
from tidelog.spark_connector.jobs.verify import SEGMENTS_PER_TASK_MAX, TASK_BYTES, tasks_of
from tidelog.spark_connector.package import JOBS_PROGRAM, write_package
from tidelog.spark_connector.queries.native_read import read
from tidelog.storage.errors import Invalid, NotFound
from tidelog.storage.manifests.shard_values import TopicSegment


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("jobs")
    with serving(folder, f"file:{folder / 'store'}", ARCHIVES) as broker:
        broker.create_topic("orders", 2)
        broker.produce("orders", 0, records(0, 0, 30))
        broker.wait_until_archived("orders")
        broker.produce("orders", 1, records(1, 0, 20))
        yield broker


def test_an_export_holds_each_record_of_its_plan_once(spark: SparkSession, shop: Serving, tmp_path: Path) -> None:
    shop.create_topic("events", 2)
    shop.produce("events", 0, records(0, 0, 30))
    shop.produce("events", 1, records(1, 0, 20))
    target = str(tmp_path / "events")
    job = opened(spark, "export", ["--broker", shop.url, "--topic", "events", "--to", target])
    planned = job.plan()
    shop.produce("events", 0, records(0, 30, 40))
    done = job.run().facts
    assert (planned["offsets"], done["offsets"]) == (50, 50)
    files = spark.read.parquet(target)
    places = sorted((row.partition, row.offset) for row in files.collect())
    assert places == [(0, offset) for offset in range(30)] + [(1, offset) for offset in range(20)]

    more = [f"startingOffsets={done['ending_offsets']}", "includeHeaders=true"]
    options = [part for option in more for part in ("--option", option)]
    rest = opened(
        spark, "export", ["--broker", shop.url, "--topic", "events", "--to", target, "--mode", "append", *options]
    )
    assert rest.plan()["offsets"] == 10
    rest.run()
    assert sorted(row.offset for row in spark.read.parquet(target).where("partition = 0").collect()) == list(range(40))


def test_an_export_makes_folders_by_topic_and_day(spark: SparkSession, shop: Serving, tmp_path: Path) -> None:
    target = tmp_path / "days"
    arguments = ["--topic-pattern", "orders", "--to", str(target), "--partition-by", "topic,date", "--files", "1"]
    job = opened(spark, "export", ["--broker", shop.url, *arguments])
    job.plan()
    job.run()
    found = list(target.glob("topic=orders/date=2025-11-21/*.parquet"))
    assert len(found) == 1
    assert spark.read.parquet(str(target)).count() == 50


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--partition-by", "day"], "partition-by"),
        (["--files", "0"], "files"),
        (["--option", "startingOffsets"], "option"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_read(
    spark: SparkSession, arguments: list[str], named: str, tmp_path: Path
) -> None:
    with pytest.raises(Invalid) as refused:
        opened(spark, "export", ["--topic", "orders", "--to", str(tmp_path / "no"), *arguments])
    assert refused.value.field == named


def test_a_plan_says_that_a_topic_does_not_exist(spark: SparkSession, shop: Serving, tmp_path: Path) -> None:
    job = opened(spark, "export", ["--broker", shop.url, "--topic", "nothing", "--to", str(tmp_path / "no")])
    with pytest.raises(NotFound, match="nothing"):
        job.plan()


def test_verify_finds_a_damaged_and_a_missing_segment(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with serving(tmp_path, f"file:{store}", {**ARCHIVES, "archiver.upkeep": "false"}) as broker:
        broker.create_topic("kept", 1)
        for offset in range(3):
            broker.produce("kept", 0, records(0, offset, offset + 1))
            broker.wait_until_archived("kept")
    segments = sorted((store / "topics").rglob("*.parquet"))
    arguments = ["--store", f"file://{store}"]
    job = opened(spark, "verify", arguments)
    assert job.plan()["segments"] == len(segments) == 3
    sound = job.run()
    assert (sound.sound, sound.findings) == (True, ())

    data = bytearray(segments[0].read_bytes())
    data[10] ^= 1
    segments[0].write_bytes(data)
    segments[1].unlink()
    job = opened(spark, "verify", arguments)
    job.plan()
    found = job.run()
    assert (found.sound, found.facts["errors"]) == (False, 2)
    assert any((segments[0].name in line and "sha256" in line) or "checksum" in line for line in found.findings)
    assert any(segments[1].name in line and "missing" in line for line in found.findings)


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_compact_leaves_what_readers_read_in_one_segment(spark: SparkSession, tmp_path: Path, policy: str) -> None:
    store = tmp_path / "store"
    with serving(tmp_path, f"file:{store}", {**ARCHIVES, "archiver.upkeep": "false"}) as broker:
        broker.create_topic("kept", 1, {"cleanup.policy": policy})
        for offset in range(0, 40, 10):
            broker.produce(
                "kept", 0, [replace(one, key=b"k%d" % (one.offset % 7)) for one in records(0, offset, offset + 10)]
            )
            broker.wait_until_archived("kept")
        before = broker.fetch_all("kept", 0)
        arguments = ["--store", f"file://{store}", "--topic", "kept"]
        job = opened(spark, "compact", arguments)
        assert job.plan()["input_segments"] == 4
        done = job.run().facts
        assert (done["made_segments"], done["shards_changed_by_others"]) == (1, 0)
        left = {each.key: each for each in before}.values() if policy == "compact" else before
        rows = read(spark, broker=broker.url, subscribe="kept").collect()
        assert sorted((row.offset, row.key, row.value) for row in rows) == sorted(
            (each.offset, each.key, each.value) for each in left
        )
        assert len(broker.log("kept").segments) == 1
        assert opened(spark, "compact", arguments).plan()["tasks"] == 0
    checked = opened(spark, "verify", ["--store", f"file://{store}"])
    checked.plan()
    assert checked.run().sound


def test_tasks_of_verify_hold_segments_by_their_bytes() -> None:
    def segment(number: int, size_bytes: int) -> TopicSegment:
        return TopicSegment(str(number), 0, 0, size_bytes, "", 0, 0, 0, ())

    sizes = [TASK_BYTES, 1, TASK_BYTES - 1, 5, *[1] * SEGMENTS_PER_TASK_MAX]
    tasks = tasks_of(segment(number, size) for number, size in enumerate(sizes))
    assert [len(task) for task in tasks] == [1, 2, SEGMENTS_PER_TASK_MAX, 1]
    assert [each.key for task in tasks for each in task] == [str(number) for number in range(len(sizes))]


def test_progress_counts_the_tasks_of_its_group_only(spark: SparkSession) -> None:
    context = spark.sparkContext
    context.setJobGroup("counted", "counted")
    assert context.parallelize(range(6), 3).count() == 6
    context.setJobGroup("another", "another")
    assert context.parallelize(range(6), 2).count() == 6
    counts = task_counts(context, "counted")
    assert (counts.done, counts.planned, counts.running, counts.failed) == (3, 3, 0, 0)


def test_the_program_runs_under_spark_submit(shop: Serving, tmp_path: Path) -> None:
    write_package(tmp_path / "tidelog.zip")
    submit = Path(sys.executable).with_name("spark-submit")
    command = [str(submit), "--master", "local[2]", "--py-files", "tidelog.zip", JOBS_PROGRAM, "export"]
    options = [
        "--broker",
        shop.url,
        "--topic",
        "orders",
        "--to",
        str(tmp_path / "out"),
        "--json",
        "--metrics",
        "m.prom",
    ]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    answer = subprocess.run(
        [*command, *options], capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
    )
    assert answer.returncode == 0, answer.stderr
    report = json.loads(answer.stdout.strip().splitlines()[-1])
    assert (report["job"], report["topics"], report["partitions"], report["offsets"]) == ("export", 1, 2, 50)
    assert 'tidelog_spark_job_offsets{job="export"} 50' in (tmp_path / "m.prom").read_text()
    assert list((tmp_path / "out").glob("*.parquet"))
