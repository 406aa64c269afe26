"""One Spark and one broker for all tests of a worker, because they take seconds to start. Spark can reach MinIO if the
machine has it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from infra.components import component
from pyspark.sql import SparkSession
from tests.components.s3_endpoint import S3Endpoint
from tests.spark.planning import Planning, planning_beside
from tests.spark.serving import KEEPS_HOT, Serving, serving

from tidelog.spark_connector.sessions.local_session import local_session


@pytest.fixture(scope="session")
def spark_s3(request: pytest.FixtureRequest) -> S3Endpoint | None:
    """The S3 that Spark is started for; None if this machine lacks MinIO or Spark's jars for it."""
    if all(component(name).find() for name in ("minio", "spark-s3")):
        endpoint: S3Endpoint = request.getfixturevalue("minio")
        return endpoint
    return None


@pytest.fixture(scope="session")
def spark(spark_s3: S3Endpoint | None) -> Iterator[SparkSession]:
    """A local session with the data source registered."""
    with pytest.MonkeyPatch.context() as patch:
        # The JVM and its Python workers keep the variables they are started with.
        for name, value in (spark_s3.environment() if spark_s3 else {}).items():
            patch.setenv(name, value)
        session = local_session("tidelog tests", s3=spark_s3 is not None)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def hot_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A broker that archives nothing, because starting one takes a second. Each test has topics of its own."""
    folder = tmp_path_factory.mktemp("hot")
    with serving(folder, f"file:{folder}/store", KEEPS_HOT) as broker:
        yield broker


@pytest.fixture
def plan(hot_broker: Serving) -> Iterator[Planning]:
    """Makes the planners of streams."""
    with planning_beside(hot_broker) as planning:
        yield planning
