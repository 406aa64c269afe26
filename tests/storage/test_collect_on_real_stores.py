"""A shard is written, collected and opened on a local directory and on MinIO: listings there begin, end and page as the
code expects, and objects are deleted together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.components.s3_endpoint import S3Bucket
from tests.storage.collect_scenes import CollectScene

from tidelog.storage.manifests import topic_lists
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.stores.local import LocalObjectStore
from tidelog.storage.stores.s3 import S3ObjectStore


class ShardStory:
    """The same scenario on each store."""

    @pytest.fixture(autouse=True)
    def _short_lists(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(topic_lists, "DIFFERENCES_MIN", 64)

    async def test_a_shard_grows_and_is_collected(self, store: ObjectStore) -> None:
        scene = CollectScene(store, seed=3)
        await scene.grow(18)
        await scene.check()
        await scene.worker().see_wait_and_run()
        assert len(await scene.blocks()) == 4
        assert len(await scene.versions()) < 8
        assert await scene.objects() == await scene.needed()
        await scene.check()


class TestOnALocalDirectory(ShardStory):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[ObjectStore]:
        store = LocalObjectStore(tmp_path)
        yield store
        await store.aclose()


class TestOnMinIO(ShardStory):
    @pytest.fixture
    async def store(self, minio_bucket: S3Bucket) -> AsyncIterator[ObjectStore]:
        store = S3ObjectStore(minio_bucket.name, "log", minio_bucket.endpoint.settings())
        yield store
        await store.aclose()
