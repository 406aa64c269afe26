"""The Python client, over HTTP: `Producer`, `Consumer` and `Admin`, and the same for asyncio as `AsyncProducer`,
`AsyncConsumer` and `AsyncAdmin`.

Calls raise the errors of `tidelog.storage.errors`. Answers are values of the types below.
"""

from typing import TYPE_CHECKING, Any

from tidelog.client.admin import Admin, Health
from tidelog.client.async_admin import AsyncAdmin
from tidelog.client.async_consumer import AsyncConsumer
from tidelog.client.async_producer import AsyncProducer
from tidelog.client.broker_access import BrokerAccess
from tidelog.client.consumed import Batch, CommittedPosition, Record, TopicPartition, records_of
from tidelog.client.consumer import Consumer
from tidelog.client.consumer_options import ConsumerOptions
from tidelog.client.costs import ClusterCost, CostDescription, TopicCostDescription
from tidelog.client.delivery import Delivered
from tidelog.client.delivery_futures import DeliveredRecord
from tidelog.client.prices import S3_STANDARD, PriceTable, read_prices
from tidelog.client.producer import Producer
from tidelog.client.producer_options import ProducerOptions
from tidelog.client.refusals import Refused
from tidelog.wire.cluster import (
    ClusterDescription,
    DamageDescription,
    MemberDescription,
    MembershipDescription,
    PlacementDescription,
    ShardDescription,
)
from tidelog.wire.topic_log import (
    PartitionLogDescription,
    SegmentDescription,
    SpanDescription,
    TopicLogDescription,
    TopicLogRequest,
)
from tidelog.wire.topics import (
    ListedPartition,
    ListedTopic,
    PartitionDescription,
    TopicDescription,
)

if TYPE_CHECKING:
    from tidelog.client.topic_scan import read_table, scan

__all__ = [
    "S3_STANDARD",
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "Batch",
    "BrokerAccess",
    "ClusterCost",
    "ClusterDescription",
    "CommittedPosition",
    "Consumer",
    "ConsumerOptions",
    "CostDescription",
    "DamageDescription",
    "Delivered",
    "DeliveredRecord",
    "Health",
    "ListedPartition",
    "ListedTopic",
    "MemberDescription",
    "MembershipDescription",
    "PartitionDescription",
    "PartitionLogDescription",
    "PlacementDescription",
    "PriceTable",
    "Producer",
    "ProducerOptions",
    "Record",
    "Refused",
    "SegmentDescription",
    "ShardDescription",
    "SpanDescription",
    "TopicCostDescription",
    "TopicDescription",
    "TopicLogDescription",
    "TopicLogRequest",
    "TopicPartition",
    "read_prices",
    "read_table",
    "records_of",
    "scan",
]


def __getattr__(name: str) -> Any:
    """`read_table` and `scan` are loaded when they are first used: pyarrow's datasets take half a second."""
    if name in ("read_table", "scan"):
        from tidelog.client import topic_scan

        return getattr(topic_scan, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
