"""How many bytes the shipped Producer sends, and the shipped Consumer receives, per byte of keys and values."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.counting_proxy import CountingProxy
from demo.events import EventStream
from tests.costs.model import RECEIVED, SENT
from tests.end_to_end.broker_process import BrokerProcess

from tidelog.client import Admin, Consumer, Producer

EVENTS = 20_000


def test_clients_send_and_receive_what_the_cost_page_counts_with(tmp_path: Path) -> None:
    chunks = list(EventStream(seed=5).chunks(EVENTS))
    records = [one for chunk in chunks for one in zip(chunk.keys.to_pylist(), chunk.values.to_pylist(), strict=True)]
    raw_bytes = sum(len(key or b"") + len(value or b"") for key, value in records)
    broker = BrokerProcess(tmp_path, {"store": "memory:"})
    broker.start()
    try:
        with CountingProxy(broker.url) as proxy:
            with Admin(broker.url) as admin:
                admin.create_topic("events", 1)
            with Producer(proxy.url, "events") as producer:
                for key, value in records:
                    producer.send(value, key=key)
            sent_bytes, answered_before = proxy.asked_bytes, proxy.answered_bytes
            with Consumer(proxy.url, "events", start="start") as consumer:
                read = sum(batch.records.num_rows for batch in consumer.batches(follow=False))
            received_bytes = proxy.answered_bytes - answered_before
    finally:
        broker.stop()
    assert read == EVENTS
    assert sent_bytes / raw_bytes == pytest.approx(SENT, abs=0.02)
    assert received_bytes / raw_bytes == pytest.approx(RECEIVED, abs=0.03)  # depends on the entries of the log
