"""The part of ``compact`` that runs on executors: makes segments of a part of a rewrite, and uploads them."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tidelog.spark_connector.jobs.opened_bucket import opened_bucket
from tidelog.storage.manifests.shard_values import TopicSegment
from tidelog.storage.parquet.parquet_flavor import ParquetFlavor
from tidelog.storage.runtime import Runtime
from tidelog.storage.segments.topic_segment import SegmentPlace
from tidelog.storage.upkeep.split_rewrite import Part, made_part


@dataclass(frozen=True)
class PartTask:
    """What one task makes, in the bucket `store`."""

    store: str
    place: SegmentPlace
    part: Part
    flavor: ParquetFlavor
    level: int
    segment_bytes: int
    memory_bytes: int


def make_part(task: PartTask) -> list[TopicSegment]:
    """See `split_rewrite.made_part`. A task that Spark runs twice leaves orphans, which the sweep deletes."""
    return asyncio.run(_made(task))


async def _made(task: PartTask) -> list[TopicSegment]:
    with tempfile.TemporaryDirectory(prefix="tidelog-compact-") as folder:
        async with opened_bucket(task.store) as bucket:
            return await made_part(
                bucket,
                Runtime(),
                task.place,
                task.part,
                task.flavor,
                level=task.level,
                segment_bytes=task.segment_bytes,
                memory_bytes=task.memory_bytes,
                spill_folder=Path(folder),
            )
