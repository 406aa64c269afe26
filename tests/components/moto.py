"""Fixtures: moto's S3, in this process, for each worker, and a fresh bucket in it for each test.

moto checks the condition of a conditional PUT and stores the object in two steps. Its server answers requests in
threads, so two racing creates could both succeed. One lock around its PUT makes it keep S3's contract.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from moto.moto_server.threaded_moto_server import ThreadedMotoServer
from moto.s3.responses import S3Response
from tests.components.s3_endpoint import S3Bucket, S3Endpoint


@pytest.fixture(scope="session")
def moto() -> Iterator[S3Endpoint]:
    """moto's server on loopback."""
    lock = threading.Lock()
    put_object = S3Response.put_object

    def put_object_alone(self: S3Response) -> Any:
        with lock:
            return put_object(self)

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # otherwise a failing test prints a line for each request
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(S3Response, "put_object", put_object_alone)
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        host, port = server.get_host_and_port()
        yield S3Endpoint(f"http://{host}:{port}", "tidelog-tests", "any")
        server.stop()


@pytest.fixture
def moto_bucket(moto: S3Endpoint) -> S3Bucket:
    """A fresh bucket in moto."""
    return moto.make_bucket(f"test-{uuid.uuid4().hex}")
