"""A connection that hangs costs seconds: time limits by size, and suspicion of other connections after one hung."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.components.holding_proxy import HoldingProxy
from tests.components.s3_endpoint import S3Bucket

from tidelog.storage.errors import Unavailable
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.retrying import RetryingObjectStore
from tidelog.storage.stores.s3 import S3ObjectStore
from tidelog.storage.stores.s3_settings import BYTES_PER_S_MIN, RequestLimits

BODY = b"x" * 1_000
SMALL_S = 1.5
"""The limit of a small request; a busy machine answers earlier."""


@asynccontextmanager
async def store_behind(proxy: HoldingProxy, bucket: S3Bucket, **limits: float) -> AsyncIterator[S3ObjectStore]:
    store = S3ObjectStore(bucket.name, settings=bucket.endpoint.settings(endpoint_url=proxy.url, **limits))
    try:
        yield store
    finally:
        await store.aclose()


@pytest.mark.parametrize("verb", ["create", "get", "head"])
async def test_a_connection_that_hangs_is_given_up_after_the_limit_of_a_small_request(
    minio_bucket: S3Bucket, verb: str
) -> None:
    with HoldingProxy(minio_bucket.endpoint.url) as proxy:
        async with store_behind(proxy, minio_bucket, request_s=SMALL_S) as store:
            await store.create("first", BODY)
            assert (await store.get("first")).data == BODY
            calls = {
                "create": lambda: store.create("second", BODY),
                "get": lambda: store.get("first"),
                "head": lambda: store.head("first"),
            }
            proxy.hold_next()
            began_s = time.monotonic()
            with pytest.raises(Unavailable, match=f"no answer within {SMALL_S:g} s"):
                await calls[verb]()
            assert time.monotonic() - began_s < 20, "far from the 60 s of a large request"
            await calls[verb]()
            assert proxy.held == 1


async def test_after_one_connection_hung_the_other_idle_ones_are_not_used_again(minio_bucket: S3Bucket) -> None:
    with HoldingProxy(minio_bucket.endpoint.url) as proxy:
        async with store_behind(proxy, minio_bucket, request_s=SMALL_S) as store:
            retrying = RetryingObjectStore(store, Runtime())
            await store.create("first", BODY)
            await asyncio.gather(*(store.get("first") for _ in range(12)))
            assert proxy.accepted > 4
            proxy.hold_open()
            await retrying.create("second", BODY)
            assert proxy.held == 1


async def test_a_large_body_has_the_time_that_it_needs(minio_bucket: S3Bucket) -> None:
    limits = RequestLimits(0.5, 60.0)
    assert limits.seconds(0) == 0.5
    assert limits.seconds(8 * BYTES_PER_S_MIN) == 8.5
    assert limits.seconds(1_000 * BYTES_PER_S_MIN) == 60.0


def test_a_store_that_is_slow_as_a_whole_is_given_more_time_until_it_is_quick_again() -> None:
    limits = RequestLimits(5.0, 60.0)
    for expected_s in (10.0, 20.0, 40.0, 60.0, 60.0):
        limits.timed_out(limits.seconds(0))
        assert limits.seconds(0) == expected_s
    limits.answered(30.0)
    assert limits.seconds(0) == 60.0
    limits.answered(1.0)
    assert limits.seconds(0) == 5.0


def test_many_requests_that_time_out_together_count_once() -> None:
    limits = RequestLimits(5.0, 60.0)
    given_s = [limits.seconds(0) for _ in range(10)]
    for limit_s in given_s:
        limits.timed_out(limit_s)
    assert limits.seconds(0) == 10.0
