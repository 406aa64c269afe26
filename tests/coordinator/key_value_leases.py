"""The conformance tests for leases of a `KeyValueStore`; a part of `key_value_conformance`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from tidelog.coordinator.kv.key_value import EventKind, KeyValueStore, LeaseLost, WatchBatch

EXPIRY_S_MAX = 20.0


class LeaseConformance:
    """Tests each sentence of the contract of grant, keep_alive and revoke."""

    async def test_a_lease_lasts_at_least_as_long_as_asked(self, store: KeyValueStore) -> None:
        lease = await store.grant(7.5)
        assert lease.ttl_s >= 7.5
        assert lease.lease_id != (await store.grant(7.5)).lease_id

    async def test_a_key_names_its_lease(self, store: KeyValueStore, prefix: str) -> None:
        lease = await store.grant(60.0)
        await store.put(prefix + "a", b"", lease_id=lease.lease_id)
        item = await store.get(prefix + "a")
        assert item is not None
        assert item.lease_id == lease.lease_id

    async def test_a_revoked_lease_takes_its_keys_along(self, store: KeyValueStore, prefix: str) -> None:
        lease = await store.grant(60.0)
        await store.put(prefix + "kept", b"")
        for name in ("a", "b"):
            await store.put(prefix + name, b"", lease_id=lease.lease_id)
        await store.revoke(lease.lease_id)
        assert [item.key for item in (await store.range(prefix)).items] == [prefix + "kept"]

    async def test_a_second_revoke_does_nothing(self, store: KeyValueStore) -> None:
        lease = await store.grant(60.0)
        await store.revoke(lease.lease_id)
        await store.revoke(lease.lease_id)

    async def test_a_key_put_again_leaves_its_lease(self, store: KeyValueStore, prefix: str) -> None:
        first, second = await store.grant(60.0), await store.grant(60.0)
        for name in ("none", "other"):
            await store.put(prefix + name, b"", lease_id=first.lease_id)
        await store.put(prefix + "none", b"")
        await store.put(prefix + "other", b"", lease_id=second.lease_id)
        await store.revoke(first.lease_id)
        assert [item.key for item in (await store.range(prefix)).items] == [prefix + "none", prefix + "other"]
        await store.revoke(second.lease_id)
        assert [item.key for item in (await store.range(prefix)).items] == [prefix + "none"]

    async def test_requests_for_an_expired_lease_say_so(self, store: KeyValueStore, prefix: str) -> None:
        lease = await store.grant(60.0)
        await store.revoke(lease.lease_id)
        with pytest.raises(LeaseLost):
            await store.keep_alive(lease.lease_id)
        with pytest.raises(LeaseLost):
            await store.put(prefix + "a", b"", lease_id=lease.lease_id)
        assert await store.get(prefix + "a") is None

    async def test_a_kept_lease_has_its_whole_time_again(self, store: KeyValueStore) -> None:
        lease = await store.grant(60.0)
        assert await store.keep_alive(lease.lease_id) == lease.ttl_s

    async def test_a_lease_that_is_kept_alive_outlives_its_time_and_then_ends(
        self, store: KeyValueStore, prefix: str
    ) -> None:
        left, kept = await store.grant(1.0), await store.grant(1.0)
        await store.put(prefix + "left", b"", lease_id=left.lease_id)
        revision = await store.put(prefix + "kept", b"", lease_id=kept.lease_id)
        async with aclosing(store.watch(prefix, revision + 1)) as watch, asyncio.timeout(EXPIRY_S_MAX):
            deleted = asyncio.create_task(_deleted(watch))
            while not deleted.done():
                await store.keep_alive(kept.lease_id)
                await asyncio.wait([deleted], timeout=kept.ttl_s / 4)
            assert deleted.result() == prefix + "left"
            assert await store.get(prefix + "kept") is not None
            assert await _deleted(watch) == prefix + "kept"
        with pytest.raises(LeaseLost):
            await store.keep_alive(kept.lease_id)


async def _deleted(watch: AsyncGenerator[WatchBatch]) -> str:
    """The key of the next deletion."""
    async for batch in watch:
        for event in batch.events:
            if event.kind is EventKind.DELETE:
                return event.item.key
    raise AssertionError("the watch ended")
