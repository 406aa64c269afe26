"""Where tasks stage their rows: in a directory, on S3, or through the broker. A broker appends them from there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.components.s3_endpoint import S3Bucket
from tests.http.conftest import SETTINGS
from tests.spark.sink_world import ROWS, SinkWorld, commit, rows

from tidelog.spark_connector.reads.broker_connection import BrokerConnection
from tidelog.spark_connector.sinks.sink_partitions import KnownTopics
from tidelog.spark_connector.sinks.staged_rows import StagedRows
from tidelog.spark_connector.sinks.staging_area import LocalStaging, S3Staging, Staging, StagingArea, staging_of
from tidelog.storage.errors import Unavailable
from tidelog.storage.runtime import Runtime


def check_staged(world: SinkWorld, kind: type[Staging], store: str | None = None) -> None:
    """Rows that are staged by a task are in the log once their batch is committed."""
    world.create_topic("web")
    with BrokerConnection(world.url) as connection:
        area = StagingArea("orders", connection)
        staging = staging_of(area, store, connection)
        assert type(staging) is kind
        staged = StagedRows(staging, 0, 3, KnownTopics(connection), Runtime().entropy, "web")
        staged.add(rows(0, "a", 3))
        parts = staged.finish()
    [name] = {part.name for part in parts}
    assert world.objects("orders") == [f"0/{name}"]
    commit(world, "orders", 0, parts)
    assert sum(len(world.values("web", partition)) for partition in (0, 1)) == ROWS
    assert world.objects("orders") == ["0/committed", "0/published"]


def test_a_task_writes_to_the_directory_of_the_broker(tmp_path: Path) -> None:
    with SinkWorld(settings=replace(SETTINGS, store=f"file:{tmp_path}/store")) as world:
        check_staged(world, LocalStaging)


@pytest.mark.parametrize("store", [None, "broker"])
def test_a_task_that_cannot_reach_the_store_stages_through_the_broker(store: str | None) -> None:
    with SinkWorld() as world:
        check_staged(world, StagingArea, store)


def test_a_directory_that_this_machine_lacks_is_left_to_the_broker(tmp_path: Path) -> None:
    with SinkWorld(settings=replace(SETTINGS, store=f"file:{tmp_path}/store")) as world:
        (tmp_path / "store").rename(tmp_path / "elsewhere")
        with BrokerConnection(world.url) as connection:
            area = StagingArea("orders", connection)
            assert staging_of(area, None, connection) is area
        (tmp_path / "elsewhere").rename(tmp_path / "store")


def test_a_task_writes_to_s3_itself(minio_bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in minio_bucket.endpoint.environment().items():
        monkeypatch.setenv(name, value)
    with SinkWorld(settings=replace(SETTINGS, store=f"{minio_bucket.url}/a prefix")) as world:
        check_staged(world, S3Staging)
        with BrokerConnection(world.url) as connection:
            area = StagingArea("orders", connection)
            wrong = staging_of(area, "s3://no-such-bucket/x", connection)
            with pytest.raises(Unavailable, match="store=broker"):
                wrong.stage(0, "0-a.arrow", memoryview(b"x"))
