"""A sweep as an S3 user with the policy of docs/stores.md, and as a user with fewer permissions, on MinIO."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker
from tests.broker.drafts import numbered, values_of
from tests.components.minio_admin import MinioAdmin
from tests.components.s3_endpoint import S3Bucket
from tests.storage.archive_scenes import keys
from tests.storage.stores.test_partial_uploads import begin_upload

from tidelog.coordinator.topics.journal_topics import JournalTopics
from tidelog.services.broker.api.fetch import FetchLimits
from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.broker.archive.slow_sweep import SlowSweep
from tidelog.storage.bucket.sweep.bucket_sweep import BucketSweep, SweepSettings
from tidelog.storage.bucket.sweep.sweep_report import Reason
from tidelog.storage.layout import shard_segment_id, staging_prefix, topic_prefix
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.s3 import S3ObjectStore

PAGE = Path(__file__).parents[2] / "docs/stores.md"
PREFIX = "tidelog"
EVERYTHING = SweepSettings(-60_000, delete=True)
"""Of any age, even if the store's clock is behind."""
ALL = FetchLimits(1_000, 1 << 20)
OF_UPLOADS = ("s3:ListBucketMultipartUploads", "s3:ListMultipartUploadParts", "s3:AbortMultipartUpload")


def policy_on_the_page(bucket: S3Bucket) -> dict[str, Any]:
    """The policy for `bucket` that the page says is all that brokers need."""
    blocks: list[str] = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (policy,) = [block for block in blocks if "Statement" in block]
    parsed: dict[str, Any] = json.loads(policy.replace("my-bucket", bucket.name))
    return parsed


def without(policy: Mapping[str, Any], actions: tuple[str, ...]) -> dict[str, Any]:
    def left(statement: Mapping[str, Any]) -> list[str]:
        named = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
        return [action for action in named if action not in actions]

    kept = [{**each, "Action": left(each)} for each in policy["Statement"] if left(each)]
    return {**policy, "Statement": kept}


@asynccontextmanager
async def store_of_a_user(bucket: S3Bucket, policy: Mapping[str, Any]) -> AsyncIterator[S3ObjectStore]:
    user = MinioAdmin(bucket.endpoint).user(policy)
    store = S3ObjectStore(bucket.name, PREFIX, user.settings())
    try:
        yield store
    finally:
        await store.aclose()


async def filled(bucket: S3Bucket, policy: Mapping[str, Any]) -> str:
    """A broker writes and archives as a user with `policy`, and an orphan is left. Return the orphan's key."""
    async with store_of_a_user(bucket, policy) as store, running_broker(store, shards=1) as broker:
        topic = await broker.create_topic(ANYBODY, "t", 1, {})
        await broker.produce(ANYBODY, "t", numbered(0, 5), ProduceOptions(partition=0))
        await broker.archive_now()
        (segment,) = await keys(store, topic_prefix("t", topic.topic_id))
        orphan = segment.replace(shard_segment_id(segment), "ab" * 16)
        await store.put(orphan, (await store.get(segment)).data)
        return orphan


async def test_the_policy_on_the_page_is_enough_for_a_broker_and_for_a_sweep(minio_bucket: S3Bucket) -> None:
    policy = policy_on_the_page(minio_bucket)
    orphan = await filled(minio_bucket, policy)
    own = f"{staging_prefix('job')}part"
    begin_upload(minio_bucket, f"{PREFIX}/{own}", 100)
    begin_upload(minio_bucket, "of-others/file", 100)
    async with store_of_a_user(minio_bucket, policy) as store:
        sweep = BucketSweep(store, JournalTopics(store, Runtime()), Runtime(), EVERYTHING)
        strays = {(stray.key, stray.reason) async for stray in sweep.strays()}
        assert strays == {(orphan, Reason.UPLOAD), (own, Reason.PARTIAL)}
        assert sweep.report.unjudged == {}
    async with (
        store_of_a_user(minio_bucket, policy) as store,
        running_broker(store, shards=1) as broker,
    ):
        assert values_of(await broker.fetch(ANYBODY, "t", 0, 0, ALL)) == [b"%d" % n for n in range(5)]


@pytest.mark.parametrize("missing", [OF_UPLOADS, OF_UPLOADS[1:], OF_UPLOADS[2:]], ids=["list", "parts", "abort"])
async def test_without_the_permissions_for_uploads_the_rest_is_swept_and_it_is_said_once(
    minio_bucket: S3Bucket, missing: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    policy = without(policy_on_the_page(minio_bucket), missing)
    begin_upload(minio_bucket, f"{PREFIX}/{staging_prefix('job')}part", 100)
    orphan = await filled(minio_bucket, policy)
    async with store_of_a_user(minio_bucket, policy) as store:
        sweep = SlowSweep(store, Runtime(), EVERYTHING, requests_per_s=1_000.0)
        for _ in range(2):
            await sweep.run()
        assert (sweep.counts.finished, sweep.counts.cut_off, sweep.counts.left_alone) == (2, 0, 1)
        assert sweep.counts.deleted == {"upload": 1}
        assert orphan not in [info.key for info in await store.list("topics/")]
    warnings = [record for record in caplog.records if record.levelname == "WARNING" and "uploads" in record.message]
    assert len(warnings) == 1
    assert "s3:ListBucketMultipartUploads" in warnings[0].message
