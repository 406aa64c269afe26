"""Distributes the slices of a batch read or a micro-batch over Spark's tasks."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.spark_connector.options.read_options import ReadOptions
from tidelog.spark_connector.reads.pruning import EVERYTHING, Pruning
from tidelog.spark_connector.reads.reach import check_bucket
from tidelog.spark_connector.reads.rows import ReadTask
from tidelog.spark_connector.reads.slices import Slice, dealt_to_tasks, offsets_per_task
from tidelog.spark_connector.reads.snapshot import TopicSnapshot, slices_to_read, store_of


def tasks_of(options: ReadOptions, topics: Sequence[TopicSnapshot], pruning: Pruning = EVERYTHING) -> list[ReadTask]:
    """The tasks that read what `topics` take, as far as `pruning` needs it. Raises `Unavailable` if this process does
    not reach the bucket."""
    wanted = [(topic, pruning.narrowed(slices_to_read(options, topic))) for topic in topics]
    every = [each for _, slices in wanted for each in slices]
    if topics:
        check_bucket(options, store_of(options, topics[0].log), every)
    limit = offsets_per_task(every, options.tasks_min, options.records_per_task_max)
    return [
        _task(options, topic, slices, pruning) for topic, found in wanted for slices in dealt_to_tasks(found, limit)
    ]


def _task(options: ReadOptions, topic: TopicSnapshot, slices: tuple[Slice, ...], pruning: Pruning) -> ReadTask:
    return ReadTask(
        topic=topic.topic,
        slices=slices,
        broker=options.broker,
        store=store_of(options, topic.log),
        fail_on_data_loss=options.fail_on_data_loss,
        timestamps_ms=pruning.timestamps_ms,
    )
