"""The driver's side of a stream beside a real broker: where a stream begins, what it reads next, and from where."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.spark.planning import Planning, offsets_of, places, planning_beside, span
from tests.spark.serving import ARCHIVES, KEEPS_HOT, START_MS, Serving, records, serving
from tests.spark.upkeep_worker import UpkeepWorker

from tidelog.spark_connector.reads.slices import ColdSlice, DataLoss, HotSlice
from tidelog.spark_connector.streams.stream_offsets import BEGINNING, StreamOffsets, TopicOffsets
from tidelog.storage.errors import Invalid, NotFound


def test_a_stream_begins_where_the_options_say_and_its_first_batch_reads_nothing(
    hot_broker: Serving, plan: Planning
) -> None:
    hot_broker.create_topic("begin", 2)
    hot_broker.produce("begin", 0, records(0, 0, 10))

    def begun(**options: str) -> dict[int, int]:
        stream = plan(subscribe="begin", **options)
        first = stream.next_end(BEGINNING, limited=True)
        assert stream.tasks(BEGINNING, first) == []
        return offsets_of(first)["begin"]

    assert begun() == {0: 10, 1: 0}, "latest is the default of a stream"
    assert begun(startingOffsets="earliest") == {0: 0, 1: 0}
    assert begun(startingOffsets='{"begin": {"0": 4, "1": -1}}') == {0: 4, 1: 0}
    late = {"startingOffsetsByTimestampStrategy": "latest"}
    assert begun(startingTimestamp=str(START_MS + 30), **late) == {0: 3, 1: 0}
    by_partition = f'{{"begin": {{"0": {START_MS + 70}, "1": -2}}}}'
    assert begun(startingOffsetsByTimestamp=by_partition) == {0: 7, 1: 0}
    with pytest.raises(Invalid, match="begin-1 has no record at or after startingTimestamp"):
        begun(startingTimestamp=str(START_MS + 30))
    with pytest.raises(DataLoss, match=r"begin-0: .*\[11, 11\), but the log holds \[0, 10\)"):
        begun(startingOffsets='{"begin": {"0": 11, "1": 0}}')
    with pytest.raises(NotFound, match="there is no topic nowhere: create it before"):
        plan(subscribe="nowhere").next_end(BEGINNING, limited=True)


def test_topics_and_partitions_that_appear_are_read_from_their_first_record(
    hot_broker: Serving, plan: Planning
) -> None:
    stream = plan(subscribePattern="grow.*")
    nothing = stream.next_end(BEGINNING, limited=True)
    assert nothing.begun

    hot_broker.create_topic("grow-a", 1)
    hot_broker.produce("grow-a", 0, records(0, 0, 5))
    first = stream.next_end(nothing, limited=True)
    assert places(stream.tasks(nothing, first)) == span("grow-a", 0, 0, 5)

    hot_broker.http.patch("/v1/topics/grow-a", json={"partitions": 2}).raise_for_status()
    hot_broker.produce("grow-a", 1, records(1, 0, 3))
    hot_broker.produce("grow-a", 0, records(0, 5, 6))
    hot_broker.create_topic("grow-b", 1)
    hot_broker.produce("grow-b", 0, records(0, 0, 2))
    second = stream.next_end(first, limited=True)
    assert places(stream.tasks(first, second)) == [
        ("grow-a", 0, 5), *span("grow-a", 1, 0, 3), *span("grow-b", 0, 0, 2)
    ]  # fmt: skip
    assert stream.next_end(second, limited=True) == second


def test_a_stream_of_assigned_partitions_reads_no_others(hot_broker: Serving, plan: Planning) -> None:
    hot_broker.create_topic("some", 3)
    for partition in range(3):
        hot_broker.produce("some", partition, records(partition, 0, 4))
    stream = plan(assign='{"some": [2, 0]}', startingOffsets="earliest")

    first = stream.next_end(BEGINNING, limited=True)
    assert places(stream.tasks(first, stream.next_end(first, limited=True))) == [
        *span("some", 0, 0, 4), *span("some", 2, 0, 4)
    ]  # fmt: skip


def test_limits_bound_a_batch_unless_spark_asks_for_everything(hot_broker: Serving, plan: Planning) -> None:
    hot_broker.create_topic("bound", 2)
    hot_broker.produce("bound", 0, records(0, 0, 300))
    hot_broker.produce("bound", 1, records(1, 0, 100))
    start = plan(subscribe="bound", startingOffsets="earliest").next_end(BEGINNING, limited=True)

    limited = plan(subscribe="bound", maxOffsetsPerTrigger="40")
    assert offsets_of(limited.next_end(start, limited=True)) == {"bound": {0: 30, 1: 10}}
    assert offsets_of(limited.next_end(start, limited=False)) == {"bound": {0: 300, 1: 100}}
    assert offsets_of(limited.latest or BEGINNING) == {"bound": {0: 300, 1: 100}}

    def offsets_within(size: str) -> int:
        end = plan(subscribe="bound", maxBytesPerTrigger=size).next_end(start, limited=True)
        return sum(offsets_of(end)["bound"].values())

    assert 2 <= offsets_within("1") < offsets_within("4k") < offsets_within("8k") < offsets_within("10m") == 400


def test_a_stream_that_waits_for_more_goes_on_after_the_delay(hot_broker: Serving, plan: Planning) -> None:
    hot_broker.create_topic("wait", 1)
    stream = plan(subscribe="wait", minOffsetsPerTrigger="10", maxTriggerDelay="5s")
    start = stream.next_end(BEGINNING, limited=True)

    def next_after(seconds: float) -> int:
        plan.clock.now_s += seconds
        return offsets_of(stream.next_end(start, limited=True))["wait"][0]

    hot_broker.produce("wait", 0, records(0, 0, 4))
    assert next_after(0) == 4, "the first batch does not wait"
    assert next_after(4.9) == 0
    assert next_after(0.2) == 4
    assert next_after(1) == 0
    hot_broker.produce("wait", 0, records(0, 4, 10))
    assert next_after(0) == 10
    hot_broker.produce("wait", 0, records(0, 10, 11))
    stream.end_now()
    start = StreamOffsets({"wait": start.topics["wait"].moved({0: 10})})
    assert next_after(0) == 11, "Trigger.AvailableNow never waits"


def test_available_now_ends_where_the_log_ended_when_it_began(hot_broker: Serving, plan: Planning) -> None:
    hot_broker.create_topic("now", 1)
    hot_broker.produce("now", 0, records(0, 0, 6))
    stream = plan(subscribePattern="now.*", startingOffsets="earliest", maxOffsetsPerTrigger="4")
    stream.end_now()
    hot_broker.produce("now", 0, records(0, 6, 9))
    hot_broker.create_topic("now-later", 1)

    seen = [stream.next_end(BEGINNING, limited=True)]
    while (end := stream.next_end(seen[-1], limited=True)) != seen[-1]:
        seen.append(end)

    assert [offsets_of(end) for end in seen] == [{"now": {0: 0}}, {"now": {0: 4}}, {"now": {0: 6}}]


def test_a_batch_is_planned_again_with_the_same_offsets_wherever_they_are_by_then(tmp_path: Path) -> None:
    """Hot, then in segments of the archiver, then in a merged one whose sources are deleted."""
    store, settings = f"file:{tmp_path}/store", {**ARCHIVES, "archiver.upkeep": "false"}
    expected = [*span("web", 0, 40, 200), *span("web", 1, 0, 70)]
    with serving(tmp_path, store, KEEPS_HOT) as broker:
        broker.create_topic("web", 2)
        broker.produce("web", 0, records(0, 0, 200))
        broker.produce("web", 1, records(1, 0, 70))
        topic_id = broker.log("web").topic_id
        start = StreamOffsets({"web": TopicOffsets(topic_id, {0: 40})})
        end = StreamOffsets({"web": TopicOffsets(topic_id, {0: 200, 1: 70})})
        with planning_beside(broker) as plan:
            hot = plan(subscribe="web").tasks(start, end)
        assert {type(each) for task in hot for each in task.slices} == {HotSlice}
        assert places(hot) == expected
    with serving(tmp_path, store, settings) as broker:
        for batch in range(200, 400, 100):
            broker.wait_until_archived("web")
            broker.produce("web", 0, records(0, batch, batch + 100))
        broker.wait_until_archived("web")
        with planning_beside(broker) as plan:
            cold = plan(subscribe="web").tasks(start, end)
            assert {type(each) for task in cold for each in task.slices} == {ColdSlice}
            assert places(cold) == expected
            worker = UpkeepWorker(tmp_path / "store", "web", topic_id)
            asyncio.run(worker.merge())
            asyncio.run(worker.collect())
            assert places(cold) == expected, "a task that lost its segments asks once where they are"
            assert places(plan(subscribe="web").tasks(start, end)) == expected


def test_a_backlog_is_cut_into_tasks_as_a_batch_read_is(hot_broker: Serving, plan: Planning) -> None:
    hot_broker.create_topic("cut", 1)
    hot_broker.produce("cut", 0, records(0, 0, 100))
    stream = plan(subscribe="cut", startingOffsets="earliest", maxRecordsPerPartition="30")
    start = stream.next_end(BEGINNING, limited=True)

    tasks = stream.tasks(start, stream.next_end(start, limited=True))

    assert [sum(each.offsets for each in task.slices) for task in tasks] == [30, 30, 30, 10]
