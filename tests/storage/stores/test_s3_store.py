"""The S3 store on real servers: MinIO, where it is available, and moto."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.components.s3_endpoint import S3Bucket
from tests.storage.stores.conformance import ObjectStoreConformance

from tidelog.storage.object_store import ObjectStore
from tidelog.storage.stores.s3 import S3ObjectStore


class TestS3ObjectStoreOnMinio(ObjectStoreConformance):
    @pytest.fixture
    async def store(self, minio_bucket: S3Bucket) -> AsyncIterator[ObjectStore]:
        store = S3ObjectStore(minio_bucket.name, "some/prefix", minio_bucket.endpoint.settings())
        yield store
        await store.aclose()


class TestS3ObjectStoreOnMoto(ObjectStoreConformance):
    test_list_all_goes_through_every_page = None  # its 1,003 PUTs take moto 12 s; MinIO runs it

    @pytest.fixture
    async def store(self, moto_bucket: S3Bucket) -> AsyncIterator[ObjectStore]:
        store = S3ObjectStore(moto_bucket.name, "", moto_bucket.endpoint.settings())
        yield store
        await store.aclose()
