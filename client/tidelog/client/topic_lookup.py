"""How many partitions a topic has, for a producer that starts."""

from __future__ import annotations

from tidelog.client.admin import Admin
from tidelog.client.broker_access import Broker
from tidelog.storage.errors import NotFound
from tidelog.storage.runtime import Runtime

START_DEADLINE_S = 10.0
"""How long a broker that was reached may take to answer."""


def partition_count(broker: Broker, topic: str, connect_timeout_s: float, runtime: Runtime) -> int:
    """How many partitions the topic has. If it does not exist, the broker creates it if its settings allow it."""
    with Admin(broker, deadline_s=START_DEADLINE_S, connect_timeout_s=connect_timeout_s, runtime=runtime) as admin:
        try:
            return len(admin.topic(topic).partitions)
        except NotFound:
            admin.auto_create_topic(topic)
        return len(admin.topic(topic).partitions)
