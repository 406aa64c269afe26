"""Records that a stream should read and that are gone: an error names them, or with failOnDataLoss off the rest is
read."""

from __future__ import annotations

import pytest
from tests.spark.planning import Planning, offsets_of, places, span
from tests.spark.serving import Serving, records

from tidelog.spark_connector.reads.slices import DataLoss
from tidelog.spark_connector.streams.stream_offsets import BEGINNING, StreamOffsets, TopicOffsets
from tidelog.storage.errors import NotFound


def started(hot_broker: Serving, plan: Planning, topic: str, count: int) -> StreamOffsets:
    """A stream that has read `count` records of the only partition of a new topic."""
    hot_broker.create_topic(topic, 1)
    hot_broker.produce(topic, 0, records(0, 0, count))
    return plan(subscribe=topic).next_end(BEGINNING, limited=True)


def created_again(hot_broker: Serving, topic: str, count: int) -> None:
    hot_broker.http.delete(f"/v1/topics/{topic}").raise_for_status()
    hot_broker.create_topic(topic, 1)
    hot_broker.produce(topic, 0, records(0, 0, count))


def test_records_that_retention_deleted(hot_broker: Serving, plan: Planning) -> None:
    start = started(hot_broker, plan, "expired", 10)
    hot_broker.produce("expired", 0, records(0, 10, 40))
    deleted = hot_broker.http.post("/v1/topics/expired/partitions/0/delete-records", json={"before_offset": 30})
    deleted.raise_for_status()

    strict = plan(subscribe="expired")
    end = strict.next_end(start, limited=True)
    with pytest.raises(DataLoss, match=r"expired-0: .*\[10, 40\), but the log holds \[30, 40\)"):
        strict.tasks(start, end)
    lenient = plan(subscribe="expired", failOnDataLoss="false", maxOffsetsPerTrigger="4")
    assert places(lenient.tasks(start, end)) == span("expired", 0, 30, 40)
    assert offsets_of(lenient.next_end(start, limited=True)) == {"expired": {0: 34}}, "deleted records do not count"


def test_a_topic_that_was_created_again_is_another_topic(hot_broker: Serving, plan: Planning) -> None:
    start = started(hot_broker, plan, "again", 10)
    created_again(hot_broker, "again", 25)

    with pytest.raises(NotFound, match=r"topic again was deleted and created again\. Records may have been missed"):
        plan(subscribe="again").next_end(start, limited=True)
    lenient = plan(subscribe="again", failOnDataLoss="false")
    end = lenient.next_end(start, limited=True)
    assert places(lenient.tasks(start, end)) == span("again", 0, 0, 25)


def test_a_topic_that_was_created_again_between_two_plans_of_a_batch(hot_broker: Serving, plan: Planning) -> None:
    start = started(hot_broker, plan, "replayed", 10)
    hot_broker.produce("replayed", 0, records(0, 10, 12))
    end = plan(subscribe="replayed").next_end(start, limited=True)
    created_again(hot_broker, "replayed", 25)

    with pytest.raises(NotFound, match="topic replayed was deleted and created again before the batch was read"):
        plan(subscribe="replayed").tasks(start, end)
    assert plan(subscribe="replayed", failOnDataLoss="false").tasks(start, end) == []


def test_a_topic_that_was_deleted(hot_broker: Serving, plan: Planning) -> None:
    start = started(hot_broker, plan, "deleted", 10)
    hot_broker.produce("deleted", 0, records(0, 10, 12))
    end = plan(subscribe="deleted").next_end(start, limited=True)
    hot_broker.http.delete("/v1/topics/deleted").raise_for_status()

    with pytest.raises(NotFound, match="topic deleted is in the checkpoint, but it was deleted"):
        plan(subscribe="deleted").next_end(start, limited=True)
    with pytest.raises(NotFound, match="topic deleted was deleted before the batch was read"):
        plan(subscribe="deleted").tasks(start, end)
    lenient = plan(subscribe="deleted", failOnDataLoss="false")
    assert lenient.tasks(start, end) == []
    gone = lenient.next_end(start, limited=True)
    assert gone.begun
    assert gone.topics == {}
    created_again_later = plan(subscribe="deleted", failOnDataLoss="false")
    hot_broker.create_topic("deleted", 1)
    hot_broker.produce("deleted", 0, records(0, 0, 3))
    assert places(created_again_later.tasks(gone, created_again_later.next_end(gone, limited=True))) == span(
        "deleted", 0, 0, 3
    )


def test_a_name_that_was_added_to_the_subscription_must_exist(hot_broker: Serving, plan: Planning) -> None:
    start = started(hot_broker, plan, "kept", 3)

    with pytest.raises(NotFound, match="there is no topic kept-2"):
        plan(subscribe="kept,kept-2").next_end(start, limited=True)
    assert offsets_of(plan(subscribe="kept,kept-2", failOnDataLoss="false").next_end(start, limited=True)) == {
        "kept": {0: 3}
    }


def test_a_checkpoint_of_kafka_that_is_ahead_of_the_log_or_has_more_partitions(
    hot_broker: Serving, plan: Planning
) -> None:
    started(hot_broker, plan, "moved", 10)
    ahead = StreamOffsets({"moved": TopicOffsets(None, {0: 12, 1: 5})})

    with pytest.raises(NotFound, match=r"offset 12 of moved-0, but the log holds \[0, 10\); moved-1 is in the check"):
        plan(subscribe="moved").next_end(ahead, limited=True)
    lenient = plan(subscribe="moved", failOnDataLoss="false")
    end = lenient.next_end(ahead, limited=True)
    assert offsets_of(end) == {"moved": {0: 10}}
    assert lenient.tasks(ahead, end) == []
    unfinished = StreamOffsets({"moved": TopicOffsets(None, {0: 10, 1: 9})})
    start = StreamOffsets({"moved": TopicOffsets(None, {0: 8, 1: 5})})
    with pytest.raises(NotFound, match="moved has no partition 1"):
        plan(subscribe="moved").tasks(start, unfinished)
    assert places(lenient.tasks(start, unfinished)) == span("moved", 0, 8, 10)
