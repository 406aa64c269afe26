"""An error says whether the broker or the bucket is out of reach, from where, and what to set."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.serving import ARCHIVES, Serving, records, serving

from tidelog.spark_connector import check_executors
from tidelog.spark_connector.options.read_options import parse_options
from tidelog.spark_connector.reads.pruning import EVERYTHING
from tidelog.spark_connector.reads.reach import SegmentPlace, bucket_problem, problem_here
from tidelog.spark_connector.source import plan_tasks
from tidelog.storage.errors import Unavailable

HERE = rf"from {socket.gethostname()} \(the Spark driver\)"


def test_a_bucket_that_the_driver_does_not_reach_fails_the_plan(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with serving(tmp_path, f"file:{store}", ARCHIVES) as broker:
        broker.create_topic("web", 1)
        broker.produce("web", 0, records(0, 0, 10))
        broker.wait_until_archived("web")
        given = {"broker": broker.url, "subscribe": "web"}
        assert len(plan_tasks(parse_options(given), EVERYTHING)) == 1
        store.rename(tmp_path / "elsewhere")
        try:
            with pytest.raises(Unavailable, match=rf"the bucket cannot be read {HERE}: there is no folder .*'store'"):
                plan_tasks(parse_options(given), EVERYTHING)
            named = {**given, "store": f"file://{tmp_path}/of-the-executors"}
            assert len(plan_tasks(parse_options(named), EVERYTHING)) == 1, "the driver need not reach it"
        finally:
            (tmp_path / "elsewhere").rename(store)


def test_a_segment_that_is_gone_from_a_bucket_within_reach_is_no_problem_of_reach(tmp_path: Path) -> None:
    assert bucket_problem(SegmentPlace(f"file://{tmp_path}", "topics/gone.parquet")) is None


def test_s3_without_access_names_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "nobody"),
        ("AWS_SECRET_ACCESS_KEY", "nothing"),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:1"),
    ):
        monkeypatch.setenv(name, value)

    problem = bucket_problem(SegmentPlace("s3://bucket/log", "topics/a.parquet"))

    assert problem is not None
    assert "Set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION" in problem


def test_the_broker_is_looked_for_before_the_bucket(hot_broker: Serving) -> None:
    assert problem_here(hot_broker.url, None) is None
    problem = problem_here("http://127.0.0.1:1", SegmentPlace("file:///nowhere", "topics/a.parquet"))
    assert problem is not None
    assert problem.startswith("the broker does not answer from")


@pytest.mark.spark
def test_executors_look_for_broker_and_bucket_themselves(spark: SparkSession, hot_broker: Serving) -> None:
    hot_broker.create_topic("reached", 1)

    assert check_executors(spark, broker=hot_broker.url, subscribe="reached") == [socket.gethostname()]
