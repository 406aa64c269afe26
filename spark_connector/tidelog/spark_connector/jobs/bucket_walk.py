"""The part of ``verify`` that runs on the driver alone: lists the segments, and checks everything but their bytes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from tidelog.spark_connector.jobs.opened_bucket import opened_bucket
from tidelog.spark_connector.jobs.segment_checks import HARM
from tidelog.storage.bucket.finding import UNREADABLE, Finding, Summary, unreadable
from tidelog.storage.bucket.listing import shards_in
from tidelog.storage.bucket.segment_reading import check_segment
from tidelog.storage.bucket.shard_look import ShardLooks
from tidelog.storage.bucket.verify.verification import BucketVerification
from tidelog.storage.errors import NotFound
from tidelog.storage.manifests.shard_values import TopicSegment
from tidelog.storage.runtime import Runtime


async def listed_segments(store: str) -> list[TopicSegment]:
    """All segments that the manifests name, in the order of their keys. Those of a manifest that cannot be read are
    left out; the walk of the rest reports it."""
    async with opened_bucket(store) as bucket:
        looks = ShardLooks(bucket, Runtime())
        found: list[TopicSegment] = []
        for shard in sorted(await shards_in(bucket)):
            await looks(shard).refresh()
        for place in looks.places():
            with suppress(*UNREADABLE):
                if topic := await looks(place.shard).topic(place.topic_id):
                    found += [segment for key in topic.keys if (segment := topic.segment(key))]
        return sorted(found, key=lambda segment: segment.key)


async def check_rest(store: str, gone: Sequence[TopicSegment]) -> tuple[list[Finding], Summary]:
    """The findings about everything but the bytes of segments. The walk also reports missing segments. Those in `gone`
    that exist after all, because the store was away for a moment, are read now."""
    async with opened_bucket(store) as bucket:
        walk = BucketVerification(bucket, deep=True, reads_segments=False)
        found = [finding async for finding in walk.findings()]
        for segment in gone:
            try:
                await check_segment(bucket, segment)
            except UNREADABLE as fault:
                found.append(unreadable(fault, segment.size_bytes, harm=HARM))
            except NotFound:
                pass  # merged or deleted since, or among the findings
        return found, walk.summary
