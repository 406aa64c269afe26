"""A partition is written, collected, opened and attested on a local directory and on MinIO: listings there begin, end
and page as the code expects."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.components.s3_endpoint import S3Bucket
from tests.storage.collect_scenes import CollectScene
from tests.storage.manifest_histories import TOPIC, history_of
from tests.storage.record_tables import SHOP, WEB, WEB_1

from tidelog.storage.bucket.attest import BucketAttestation, PartitionHead
from tidelog.storage.manifests import manifest_codec
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.stores.local import LocalObjectStore
from tidelog.storage.stores.s3 import S3ObjectStore


class PartitionStory:
    """The same scenario on each store."""

    @pytest.fixture(autouse=True)
    def _short(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(manifest_codec, "WHOLE_SEGMENTS_MAX", 2)
        monkeypatch.setattr(manifest_codec, "DIFFERENCES_MAX", 10)

    async def test_a_partition_grows_is_collected_and_attested(self, store: ObjectStore) -> None:
        for place in (WEB_1, SHOP):
            await history_of(store, place=place).run(3)
        scene = CollectScene(store, seed=3)
        await scene.grow(9)
        earlier = await self._attested(store, None)
        assert [head.place.topic_partition for head in earlier] == [WEB, WEB_1, SHOP]
        await scene.grow(9)
        await scene.collector().see_wait_and_run()
        newest = await ManifestLog(store, TOPIC, WEB).latest()
        assert len(await scene.blocks()) == 4
        assert len(await scene.versions()) < 8
        assert await scene.segment_objects() == {segment.key for segment in newest.segments}
        await scene.check()
        assert len(await self._attested(store, earlier)) == 3

    async def _attested(self, store: ObjectStore, earlier: list[PartitionHead] | None) -> list[PartitionHead]:
        told = [told async for told in BucketAttestation(store, earlier).partitions()]
        heads = [head for head in told if isinstance(head, PartitionHead)]
        assert heads == told
        return heads


class TestOnALocalDirectory(PartitionStory):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[ObjectStore]:
        store = LocalObjectStore(tmp_path)
        yield store
        await store.aclose()


class TestOnMinIO(PartitionStory):
    @pytest.fixture
    async def store(self, minio_bucket: S3Bucket) -> AsyncIterator[ObjectStore]:
        store = S3ObjectStore(minio_bucket.name, "log", minio_bucket.endpoint.settings())
        yield store
        await store.aclose()
