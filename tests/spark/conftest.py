"""One Spark for all tests of a worker, because it takes seconds to start. It can reach MinIO if there is one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from infra.components import component
from pyspark.sql import SparkSession
from tests.components.s3_endpoint import S3Endpoint

from tidelog.spark_connector.local_session import local_session


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
