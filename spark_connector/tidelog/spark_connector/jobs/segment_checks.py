"""The part of ``verify`` that runs on executors: checks segments byte by byte."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from tidelog.spark_connector.reads.arrow_reads import ArrowReads
from tidelog.storage.bucket.finding import UNREADABLE, Finding, unreadable
from tidelog.storage.bucket.segment_reading import check_segment
from tidelog.storage.errors import NotFound
from tidelog.storage.manifests.shard_values import TopicSegment

HARM = "restore it from a copy of the bucket, or run `tidelog bucket repair`"


def check_segments(store: str, segments: Sequence[TopicSegment]) -> Iterator[Finding | TopicSegment]:
    """What is wrong with them; of those that are missing, the segment itself."""
    reads = ArrowReads(store)
    for segment in segments:
        try:
            asyncio.run(check_segment(reads, segment))
        except UNREADABLE as fault:
            yield unreadable(fault, segment.size_bytes, harm=HARM)
        except NotFound:
            yield segment
