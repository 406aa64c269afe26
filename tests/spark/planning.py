"""Streams without Spark: planners beside a broker, whose connections are closed at the end of the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.spark.serving import Serving
from tests.storage.archive_scenes import ManualClock

from tidelog.spark_connector.options.stream_options import parse_stream_options
from tidelog.spark_connector.reads.broker_connection import BrokerConnection
from tidelog.spark_connector.reads.rows import ReadTask, read_task, row_schema
from tidelog.spark_connector.streams.stream_offsets import StreamOffsets
from tidelog.spark_connector.streams.stream_planner import StreamPlanner

Place = tuple[str, int, int]


@dataclass
class Planning:
    """Planners that share a connection and a clock."""

    connection: BrokerConnection
    clock: ManualClock = field(default_factory=ManualClock)

    def __call__(self, **options: str) -> StreamPlanner:
        given = parse_stream_options({"broker": self.connection.url, **options})
        return StreamPlanner(given, self.connection, self.clock)


@contextmanager
def planning_beside(broker: Serving) -> Iterator[Planning]:
    with BrokerConnection(broker.url) as connection:
        yield Planning(connection)


def offsets_of(found: StreamOffsets) -> dict[str, dict[int, int]]:
    return {name: dict(topic.next_offsets) for name, topic in found.topics.items()}


def places(tasks: list[ReadTask]) -> list[Place]:
    """(topic, partition, offset) of all rows."""
    schema = row_schema(include_headers=False)
    batches = [batch for task in tasks for batch in read_task(task, schema)]
    columns = ("topic", "partition", "offset")
    return sorted(row for each in batches for row in zip(*(each[name].to_pylist() for name in columns), strict=True))


def span(topic: str, partition: int, start: int, end: int) -> list[Place]:
    return [(topic, partition, offset) for offset in range(start, end)]
