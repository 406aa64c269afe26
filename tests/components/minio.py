"""Fixtures: a MinIO server for each worker, and a fresh bucket in it for each test."""

from __future__ import annotations

import http.client
import os
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from infra.loopback_ports import free_port
from tests.components.required import require_component
from tests.components.s3_endpoint import S3Bucket, S3Endpoint

READY_S_MAX = 30.0


@pytest.fixture(scope="session")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Endpoint]:
    """A MinIO server on loopback, its data in a temporary folder."""
    program = require_component("minio")
    folder = tmp_path_factory.mktemp("minio")
    port = free_port()
    endpoint = S3Endpoint(f"http://127.0.0.1:{port}", "tidelog-tests", uuid.uuid4().hex)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [program, "server", "--quiet", "--address", f"127.0.0.1:{port}", folder / "data"],
            stdout=log,
            stderr=log,
            env={
                **os.environ,
                "MINIO_ROOT_USER": endpoint.access_key_id,
                "MINIO_ROOT_PASSWORD": endpoint.secret_access_key,
                "MINIO_BROWSER": "off",
                "MINIO_UPDATE": "off",
            },
        )
        try:
            _wait_until_ready(process, port, folder / "log")
            yield endpoint
        finally:
            process.terminate()
            process.wait(timeout=30)


@pytest.fixture
def minio_bucket(minio: S3Endpoint) -> S3Bucket:
    """A fresh bucket in MinIO."""
    return minio.make_bucket(f"test-{uuid.uuid4().hex}")


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline_s = time.monotonic() + READY_S_MAX
    while not _is_ready(port):
        if process.poll() is not None or time.monotonic() > deadline_s:
            pytest.fail(f"MinIO did not start: {log.read_text()[-2_000:]}")
        time.sleep(0.05)


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/minio/health/ready")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
