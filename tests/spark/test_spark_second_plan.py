"""A task that finds a segment gone asks where the rest of its records are, once, and reads each record once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.topic_segments import TOPIC, TOPIC_ID, Ends, log_of, write_segment

from tidelog.spark_connector.reads import cold_reader
from tidelog.spark_connector.reads.broker_connection import BrokerConnection
from tidelog.spark_connector.reads.rows import ReadTask, TaskReader, arrow_schema, row_schema
from tidelog.spark_connector.reads.slices import DataLoss, PartitionRange, TopicRef, slices_of
from tidelog.storage.errors import NotFound
from tidelog.storage.manifests.shard_values import TopicSegment
from tidelog.wire.topic_log import TopicLogDescription, TopicLogRequest

ENDS = {0: Ends(0, 300, 300), 1: Ends(0, 200, 200)}


class Answers(BrokerConnection):
    """Describes these segments, and notes what was asked."""

    def __init__(self, root: Path, segments: Sequence[TopicSegment], ends: Mapping[int, Ends] = ENDS) -> None:
        super().__init__("http://127.0.0.1:1")
        self.describe = partial(log_of, root, segments, ends)
        self.asked: list[TopicLogRequest] = []

    def topic_log(self, topic: str, request: TopicLogRequest) -> TopicLogDescription:
        assert topic == TOPIC
        self.asked.append(request)
        return self.describe(request)


def planned(log: TopicLogDescription, *, fails: bool = True) -> ReadTask:
    ranges = [PartitionRange(ends, ends.log_start_offset, ends.high_watermark) for ends in log.partitions]
    return ReadTask(TopicRef(TOPIC, TOPIC_ID, 0), tuple(slices_of(log, ranges)), "", log.store, fails)


def places(task: ReadTask, connection: BrokerConnection) -> list[tuple[int, int]]:
    reader = TaskReader(task, connection, arrow_schema(row_schema(include_headers=False)))
    return [place for each in task.slices for batch in reader.read(each) for place in places_of(batch)]


def places_of(batch: pa.RecordBatch) -> Iterator[tuple[int, int]]:
    return zip(batch.column("partition").to_pylist(), batch.column("offset").to_pylist(), strict=True)


@pytest.fixture
def small(tmp_path: Path) -> list[TopicSegment]:
    """Two segments, which a merge replaces."""
    return [
        write_segment(tmp_path, {0: range(100), 1: range(150)}, 0, ends=[50, 100, 200, 250]),
        write_segment(tmp_path, {0: range(100, 300), 1: range(150, 200)}, 1),
    ]


def merged(root: Path) -> TopicSegment:
    return write_segment(root, {0: range(300), 1: range(200)}, 2, level=2)


EVERY = [(p, offset) for p, ends in ENDS.items() for offset in range(ends.cold_end)]


def test_the_records_of_merged_segments_are_read_from_the_merged_one(
    tmp_path: Path, small: Sequence[TopicSegment]
) -> None:
    task = planned(log_of(tmp_path, small, ENDS))
    now = [merged(tmp_path)]
    for each in small:
        (tmp_path / each.key).unlink()
    connection = Answers(tmp_path, now)
    assert sorted(places(task, connection)) == EVERY
    assert [(asked.partitions, asked.min_offset, asked.max_offset) for asked in connection.asked] == [
        ((0, 1), 0, 149),
        ((0, 1), 100, 299),
    ]


@pytest.mark.parametrize("reads", range(5))
def test_a_segment_that_is_lost_between_two_range_requests_is_continued(
    tmp_path: Path, small: Sequence[TopicSegment], monkeypatch: pytest.MonkeyPatch, reads: int
) -> None:
    """One row group a request, so that the task has handed out some of them before."""
    task = planned(log_of(tmp_path, small, ENDS))
    now = [merged(tmp_path)]
    monkeypatch.setattr(cold_reader, "STRETCH_RAW_BYTES", 1)
    left = reads
    whole = cold_reader._range

    def counted(file: Any, start: int, end: int) -> bytes:
        nonlocal left
        left -= 1
        if left == -1:
            raise OSError("AWS Error NO_SUCH_KEY during GetObject operation: The specified key does not exist.")
        return whole(file, start, end)

    monkeypatch.setattr(cold_reader, "_range", counted)
    connection = Answers(tmp_path, now)
    assert sorted(places(task, connection)) == EVERY
    assert len(connection.asked) == 1


def test_records_that_are_gone_the_second_time_are_lost(tmp_path: Path, small: Sequence[TopicSegment]) -> None:
    log = log_of(tmp_path, small, ENDS)
    (tmp_path / small[0].key).unlink()
    with pytest.raises(NotFound, match=r"by partition 0: \[0, 100\), 1: \[0, 150\)"):
        places(planned(log), Answers(tmp_path, small))
    rest = [place for place in EVERY if place[1] >= (100, 150)[place[0]]]
    assert sorted(places(planned(log, fails=False), Answers(tmp_path, small))) == rest


def test_records_below_the_new_log_start_are_data_loss(tmp_path: Path, small: Sequence[TopicSegment]) -> None:
    log = log_of(tmp_path, small, ENDS)
    expired = Answers(tmp_path, small[1:], {0: Ends(100, 300, 300), 1: Ends(150, 200, 200)})
    (tmp_path / small[0].key).unlink()
    with pytest.raises(DataLoss, match=r"web-0: the read takes offsets \[0, 100\), but the log holds \[100, 300\)"):
        places(planned(log), expired)
    assert len(places(planned(log, fails=False), expired)) == 250


def test_another_topic_of_the_same_name_is_not_read(tmp_path: Path, small: Sequence[TopicSegment]) -> None:
    log = log_of(tmp_path, small, ENDS)
    (tmp_path / small[0].key).unlink()
    again = replace(planned(log), topic=TopicRef(TOPIC, "71" * 16, 0))
    with pytest.raises(NotFound, match="deleted and created again"):
        places(again, Answers(tmp_path, small))
