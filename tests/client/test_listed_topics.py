"""Clients read every page of a list of topics."""

from __future__ import annotations

import uuid

from tidelog.client import Admin
from tidelog.spark_connector.reads.broker_connection import BrokerConnection

LARGE = 6_000
"""Partitions per topic: two topics of this size do not fit on one page."""


def test_a_list_of_several_pages_is_read_to_its_end(broker: str) -> None:
    names = sorted(f"large-{uuid.uuid4().hex}" for _ in range(2))
    with Admin(broker) as admin, BrokerConnection(broker) as spark:
        try:
            for name in names:
                admin.create_topic(name, partitions=LARGE)
            listed = {topic.name: topic for topic in admin.topics()}
            for name in names:
                assert len(listed[name].partitions) == LARGE
                assert listed[name].records is None, "offsets were not asked for"
            counts = {topic.name: len(topic.partitions) for topic in spark.topics()}
            assert [counts[name] for name in names] == [LARGE, LARGE]
        finally:
            for name in names:
                admin.delete_topic(name)


def test_details_are_reported_if_they_are_asked_for(broker: str, topic: str) -> None:
    with Admin(broker) as admin:
        [found] = [described for described in admin.topics(detail=True) if described.name == topic]
    assert found.records == 0
    assert [partition.high_watermark for partition in found.partitions] == [0, 0, 0]
