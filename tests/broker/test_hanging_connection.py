"""One connection to the bucket hangs: a produce waits for about a second and is in the log once."""

from __future__ import annotations

import time

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker
from tests.broker.drafts import numbered, values_of
from tests.components.holding_proxy import HoldingProxy
from tests.components.s3_endpoint import S3Bucket

from tidelog.services.broker.api.fetch import FetchLimits
from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.storage.stores.s3 import S3ObjectStore
from tidelog.storage.stores.wrapping import Verb

ALL = FetchLimits(1_000, 1 << 20)
TO_ZERO = ProduceOptions(partition=0)


@pytest.mark.parametrize(
    ("request_s", "hedge_ms"), [(30.0, 2_000), (2.0, 0)], ids=["it is sent a second time", "it is given up"]
)
async def test_a_produce_whose_connection_hangs_takes_seconds_at_the_most(
    minio_bucket: S3Bucket, request_s: float, hedge_ms: int
) -> None:
    with HoldingProxy(minio_bucket.endpoint.url) as proxy:
        settings = minio_bucket.endpoint.settings(endpoint_url=proxy.url, request_s=request_s)
        store = S3ObjectStore(minio_bucket.name, settings=settings)
        async with running_broker(store, shards=1, store_hedge_ms=hedge_ms, flush_interval_ms=0) as broker:
            await broker.create_topic(ANYBODY, "t", 1, {})
            await broker.produce(ANYBODY, "t", numbered(0, 1), TO_ZERO)
            before = broker.measurements()
            await broker.produce(ANYBODY, "t", numbered(1, 1), TO_ZERO)
            assert (broker.measurements().usage - before.usage).requests(Verb.CREATE) == 1
            assert broker.measurements().hedges == before.hedges, "a request that is answered in time is sent once"
            proxy.hold_next()
            began_s = time.monotonic()
            await broker.produce(ANYBODY, "t", numbered(2, 1), TO_ZERO)
            assert time.monotonic() - began_s < 20, "60 s before"
            assert proxy.held == 1
            assert broker.measurements().hedges == before.hedges + bool(hedge_ms)
            await broker.produce(ANYBODY, "t", numbered(3, 1), TO_ZERO)
            assert values_of(await broker.fetch(ANYBODY, "t", 0, 0, ALL)) == [b"0", b"1", b"2", b"3"]
            assert broker.status().ready
