"""Error codes in answers are counted by API and code."""

from __future__ import annotations

from tests.kafka.conftest import KafkaServed
from tests.kafka.kio_client import KioClient, nested_of, request_of
from tests.kafka.records_client import fetch, produce
from tests.kafka.sent_batches import sent_values
from tests.kafka.test_topics import creation

LIST_OFFSETS, METADATA = 2, 3


async def test_each_code_of_an_answer_counts(client: KioClient, served: KafkaServed) -> None:
    counts = served.counts
    topic, partition = nested_of(LIST_OFFSETS, 7, "ListOffsetsTopic", "ListOffsetsPartition")
    await client.ask(creation(7, "events"))
    await produce(client, "events", sent_values(b"a"))
    assert not counts.errors, "a good answer has no code"
    asked = tuple(partition(partition_index=number, timestamp=-1) for number in (0, 7, 8))
    wanted = (topic(name="events", partitions=asked),)
    await client.ask(request_of(LIST_OFFSETS, 7, replica_id=-1, isolation_level=0, topics=wanted))
    await produce(client, "events", b"")
    await fetch(client, "events", 99)
    (named,) = nested_of(METADATA, 4, "MetadataRequestTopic")
    await client.ask(request_of(METADATA, 4, topics=(named(name="nowhere"),), allow_auto_topic_creation=False))
    assert counts.errors == {
        ("ListOffsets", "UNKNOWN_TOPIC_OR_PARTITION"): 2,
        ("Produce", "INVALID_RECORD"): 1,
        ("Fetch", "OFFSET_OUT_OF_RANGE"): 1,
        ("Metadata", "UNKNOWN_TOPIC_OR_PARTITION"): 1,
    }
