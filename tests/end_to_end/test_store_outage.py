"""The store is gone for a while, or slow: a real MinIO behind a proxy. Acknowledged records are there, once, in
order."""

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.components.cut_proxy import CutProxy
from tests.components.s3_endpoint import S3Bucket, S3Endpoint
from tests.end_to_end.broker_process import BrokerProcess, wait_until
from tests.end_to_end.conftest import StartBroker
from tests.end_to_end.steady_load import SteadyLoad

from tidelog.client import Admin, Producer, ProducerOptions
from tidelog.storage.errors import Unavailable

OUTAGE_S = 4.0
SOAK_OUTAGE_S = 30.0


@pytest.fixture
def proxy(minio_bucket: S3Bucket) -> Iterator[CutProxy]:
    with CutProxy(minio_bucket.endpoint.url) as proxy:
        yield proxy


@pytest.fixture
def far_broker(start_broker: StartBroker, minio_bucket: S3Bucket, proxy: CutProxy) -> BrokerProcess:
    """A broker whose store is behind `proxy`."""
    there: S3Endpoint = replace(minio_bucket.endpoint, url=proxy.url)
    settings = {"store": f"{minio_bucket.url}/log", "flush.interval.ms": 20, "commit.timeout.ms": 3_000}
    return start_broker(settings, there.environment())


def load_on(broker: BrokerProcess) -> SteadyLoad:
    with Admin(broker.url, deadline_s=30.0) as admin:
        admin.create_topic("load", partitions=3)
    return SteadyLoad(broker.url, "load")


def outage(proxy: CutProxy, seconds: float) -> None:
    """Cut the proxy for `seconds`; the length of the outage is what is tested."""
    proxy.cut()
    mended_at = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() >= mended_at, seconds + 1)
    proxy.mend()


def prove_an_outage_loses_nothing(broker: BrokerProcess, proxy: CutProxy, seconds: float) -> None:
    with load_on(broker) as load:
        load.await_acknowledged(1_000)
        outage(proxy, seconds)
        load.await_acknowledged(1_000, timeout_s=90.0)
        load.finish()
        assert load.failure is None
        assert load.acknowledged == sum(load.sent)
        load.assert_whole(broker.url, "load")


def test_a_store_that_is_gone_for_a_while_loses_nothing(far_broker: BrokerProcess, proxy: CutProxy) -> None:
    prove_an_outage_loses_nothing(far_broker, proxy, OUTAGE_S)


@pytest.mark.soak
def test_a_store_that_is_gone_for_long_loses_nothing(far_broker: BrokerProcess, proxy: CutProxy) -> None:
    prove_an_outage_loses_nothing(far_broker, proxy, SOAK_OUTAGE_S)


def test_a_producer_is_told_that_the_store_is_gone(far_broker: BrokerProcess, proxy: CutProxy) -> None:
    with Admin(far_broker.url, deadline_s=30.0) as admin:
        admin.create_topic("told")
    producer = Producer(far_broker.url, "told", ProducerOptions(delivery_timeout_s=1.0))
    proxy.cut()
    producer.send(b"during")
    with pytest.raises(Unavailable):
        producer.flush(timeout_s=60.0)
    proxy.mend()
    with pytest.raises(Unavailable):
        producer.close()


def test_a_slow_store_only_slows_it_down(far_broker: BrokerProcess, proxy: CutProxy) -> None:
    with load_on(far_broker) as load:
        load.await_acknowledged(500)
        proxy.delay_s = 0.2
        load.await_acknowledged(2_000)
        proxy.delay_s = 0.0
        load.await_acknowledged(500)
        load.finish()
        assert load.failure is None
        load.assert_whole(far_broker.url, "load")
