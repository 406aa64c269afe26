"""`BucketGroupStore`: the contract in memory, on a disk and on S3."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.components.s3_endpoint import S3Bucket
from tests.coordinator.groups.group_store_conformance import GroupStoreConformance, OpenNext

from tidelog.coordinator.groups.bucket_group_store import BucketGroupStore
from tidelog.coordinator.groups.group_store import GroupStore
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.local import LocalObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.s3 import S3ObjectStore

GRACE_S = 60.0


class _OnABucket(GroupStoreConformance):
    @pytest.fixture
    async def open_next(self, bucket: ObjectStore) -> AsyncIterator[OpenNext]:
        opened: list[BucketGroupStore] = []

        async def open_next() -> GroupStore:
            opened.append(BucketGroupStore(bucket, Runtime(), grace_s=GRACE_S))
            return opened[-1]

        yield open_next
        for store in opened:
            await store.aclose()


class TestInMemory(_OnABucket):
    @pytest.fixture
    async def bucket(self) -> ObjectStore:
        return MemoryObjectStore()


class TestOnADisk(_OnABucket):
    @pytest.fixture
    async def bucket(self, tmp_path: Path) -> AsyncIterator[ObjectStore]:
        store = LocalObjectStore(tmp_path)
        yield store
        await store.aclose()


class TestOnS3(_OnABucket):
    @pytest.fixture
    async def bucket(self, minio_bucket: S3Bucket) -> AsyncIterator[ObjectStore]:
        store = S3ObjectStore(minio_bucket.name, "", minio_bucket.endpoint.settings())
        yield store
        await store.aclose()
