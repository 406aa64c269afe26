"""Unfinished multipart uploads are listed and removed, on MinIO."""

from __future__ import annotations

import boto3
import pytest
from botocore.config import Config
from tests.components.s3_endpoint import REGION, S3Bucket
from tests.storage.known_topics import SaidTopics

from tidelog.storage.bucket.sweep.bucket_sweep import BucketSweep, SweepSettings
from tidelog.storage.bucket.sweep.sweep_report import Reason
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.partial_uploads import partial_uploads_of
from tidelog.storage.stores.retrying import RetryingObjectStore
from tidelog.storage.stores.s3 import S3ObjectStore

TOPIC_ID = "0123456789abcdef" * 2
OWN = f"topics/web/{TOPIC_ID}/partition=0/x"


def begin_upload(bucket: S3Bucket, key: str, size_bytes: int) -> None:
    """Upload a part as an uploader that then dies."""
    client = boto3.client(
        "s3",
        endpoint_url=bucket.endpoint.url,
        region_name=REGION,
        aws_access_key_id=bucket.endpoint.access_key_id,
        aws_secret_access_key=bucket.endpoint.secret_access_key,
        config=Config(s3={"addressing_style": "path"}),
    )
    upload_id = client.create_multipart_upload(Bucket=bucket.name, Key=key)["UploadId"]
    client.upload_part(Bucket=bucket.name, Key=key, UploadId=upload_id, PartNumber=1, Body=b"x" * size_bytes)


async def test_unfinished_multipart_uploads_under_the_prefix_are_found_and_aborted(minio_bucket: S3Bucket) -> None:
    store = S3ObjectStore(minio_bucket.name, "log", minio_bucket.endpoint.settings())
    begin_upload(minio_bucket, f"log/{OWN}", 1_000)
    begin_upload(minio_bucket, "another/y", 1_000)
    uploads = store.partial_uploads
    (upload,) = [upload async for upload in uploads.pending()]
    assert (upload.key, upload.size_bytes) == (OWN, 1_000)
    await uploads.abort(upload)
    await uploads.abort(upload)
    assert [upload async for upload in uploads.pending()] == []
    await store.aclose()


async def test_a_sweep_aborts_those_that_are_old_enough(minio_bucket: S3Bucket) -> None:
    runtime = Runtime()
    store = RetryingObjectStore(
        CountingObjectStore(S3ObjectStore(minio_bucket.name, "", minio_bucket.endpoint.settings())), runtime
    )
    begin_upload(minio_bucket, OWN, 1_000)
    sweep = BucketSweep(store, SaidTopics(), runtime, SweepSettings(delete=True))
    assert ([stray async for stray in sweep.strays()], sweep.report.young) == ([], 1)
    strays = [s async for s in BucketSweep(store, SaidTopics(), runtime, SweepSettings(-60_000, delete=True)).strays()]
    assert [(stray.key, stray.reason, stray.size_bytes) for stray in strays] == [(OWN, Reason.PARTIAL, 1_000)]
    uploads = partial_uploads_of(store)
    assert uploads is not None
    assert [upload async for upload in uploads.pending()] == []
    await store.aclose()


async def test_without_a_prefix_the_uploads_of_other_applications_are_left_alone(minio_bucket: S3Bucket) -> None:
    store = S3ObjectStore(minio_bucket.name, "", minio_bucket.endpoint.settings())
    own = [
        OWN,
        f"topics/web/{TOPIC_ID}/_manifest/00000/x",
        "wal/0003/00000000000000000017.parquet",
        "meta/00000000000000000017.json",
        "_staging/job/x",
    ]
    for key in own:
        begin_upload(minio_bucket, key, 100)
    foreign = ("backup.tar", "topics/web/partition=0/web+0+17.json", "wal/segment-1", "meta/x", "x/wal/0003/x")
    for key in foreign:
        begin_upload(minio_bucket, key, 100)
    assert sorted([upload.key async for upload in store.partial_uploads.pending()]) == sorted(own)
    await store.aclose()


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_store_without_such_things_has_none(wrapped: bool) -> None:
    store = MemoryObjectStore()
    assert partial_uploads_of(CountingObjectStore(store) if wrapped else store) is None
