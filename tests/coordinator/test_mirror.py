"""A mirror of a prefix equals the store at one revision, for any fate of the watch."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from tests.coordinator.embedded_kv.embedded import EmbeddedKeyValueStore
from tests.coordinator.faulty_key_value_store import FaultyKeyValueStore
from tests.coordinator.virtual_time import LoopClock, virtually

from tidelog.coordinator.cluster.cluster_keys import ClusterKeys
from tidelog.coordinator.kv.key_value import DeleteKey, KeyValueStore, PutKey
from tidelog.coordinator.leadership.cluster_snapshot import SnapshotDecoder
from tidelog.coordinator.leadership.mirror import CHECK_S, OVERDUE_S, REJECTED_RETRY_S, Items, KeyMirror
from tidelog.storage.errors import Unavailable
from tidelog.storage.runtime import Runtime, SeededEntropy

PREFIX = "/p/"


class Mirrored:
    """A mirror, its connection to the store, and the store."""

    def __init__(self) -> None:
        self.runtime = Runtime(LoopClock(), SeededEntropy(1))
        self.store: KeyValueStore = EmbeddedKeyValueStore(self.runtime, history_events_max=50)
        self.network = FaultyKeyValueStore(self.store, self.runtime)
        self.mirror = KeyMirror(self.network, PREFIX, self.runtime, accepts=self.believes)
        self.changes = 0
        self.mirror.on_change(self._count)

    def _count(self) -> None:
        self.changes += 1

    def believes(self, items: Items) -> bool:
        return PREFIX + "anchor" in items

    def values(self) -> dict[str, bytes]:
        return {key.removeprefix(PREFIX): item.value for key, item in self.mirror.items.items()}

    def stale(self) -> bool:
        return self.mirror.stale

    def refused(self) -> bool:
        return self.mirror.rejected

    async def a_while(self, seconds: float = 0.01) -> None:
        await self.runtime.clock.sleep(seconds)


@asynccontextmanager
async def mirrored() -> AsyncGenerator[Mirrored]:
    it = Mirrored()
    await it.store.put(PREFIX + "anchor", b"")
    await it.mirror.start()
    try:
        yield it
    finally:
        await it.mirror.aclose()


@virtually
async def test_every_change_is_seen() -> None:
    async with mirrored() as it:
        await it.store.put(PREFIX + "a", b"1")
        await it.store.transact([], [PutKey(PREFIX + "a", b"2"), PutKey(PREFIX + "b", b"1")])
        revision = (await it.store.transact([], [DeleteKey(PREFIX + "b"), PutKey("/else", b"")])).revision
        await it.a_while()
        assert it.values() == {"anchor": b"", "a": b"2"}
        assert it.mirror.revision == revision
        assert it.changes >= 3
        assert not it.stale()


@virtually
async def test_more_keys_than_a_page_holds() -> None:
    it = Mirrored()
    for number in range(2_500):
        await it.store.put(f"{PREFIX}{number:05}", b"")
    await it.mirror.start()
    assert len(it.mirror.items) == 2_500
    await it.mirror.aclose()


@virtually
async def test_a_first_reading_that_fails_is_reported() -> None:
    it = Mirrored()
    it.network.cut()
    with pytest.raises(Unavailable):
        await it.mirror.start()


@virtually
async def test_a_compacted_watch_rereads() -> None:
    async with mirrored() as it:
        it.network.cut()
        for number in range(200):  # more than the store keeps
            await it.store.put(PREFIX + "a", b"%d" % number)
        it.network.heal()
        await it.a_while(CHECK_S + OVERDUE_S + 5.0)
        assert it.values()["a"] == b"199"
        await it.store.put(PREFIX + "a", b"after")
        await it.a_while()
        assert it.values()["a"] == b"after"


@virtually
async def test_a_watch_that_hangs_is_found_out() -> None:
    async with mirrored() as it:
        await it.a_while()
        it.network.deaf = True
        await it.store.put(PREFIX + "a", b"1")
        await it.a_while(CHECK_S / 2)
        assert "a" not in it.values()
        await it.a_while(CHECK_S + OVERDUE_S)
        assert it.values()["a"] == b"1"


@virtually
async def test_a_refresh_shows_what_was_written_before_it() -> None:
    async with mirrored() as it:
        await it.a_while()
        it.network.deaf = True
        await it.store.put(PREFIX + "a", b"1")
        await it.mirror.refresh()
        assert it.values()["a"] == b"1"
        it.network.cut()
        with pytest.raises(Unavailable):
            await it.mirror.refresh()
        assert it.stale()
        assert it.values()["a"] == b"1"
        it.network.heal()
        await it.a_while(5.0)
        assert not it.stale()


@virtually
async def test_another_store_is_reread() -> None:
    async with mirrored() as it:
        other = EmbeddedKeyValueStore(it.runtime)
        await other.put(PREFIX + "anchor", b"other")
        it.network.replace(other)
        await it.a_while(1.0)
        assert it.values() == {"anchor": b"other"}


@virtually
async def test_an_empty_store_is_refused_until_it_has_the_required_keys() -> None:
    async with mirrored() as it:
        await it.store.put(PREFIX + "a", b"1")
        await it.a_while()
        other = EmbeddedKeyValueStore(it.runtime)
        it.network.replace(other)
        for number in range(20):
            await other.put(PREFIX + "a", b"foreign %d" % number)
        await it.a_while(60.0)
        assert it.refused()
        assert it.values() == {"anchor": b"", "a": b"1"}, "nothing of the other store is mixed in"
        await other.put(PREFIX + "anchor", b"")
        await it.a_while(REJECTED_RETRY_S + 0.1)
        assert not it.refused()
        assert it.values() == {"anchor": b"", "a": b"foreign 19"}


@virtually
async def test_a_store_without_the_required_keys_is_refused_too() -> None:
    async with mirrored() as it:
        await it.store.delete(PREFIX + "anchor")
        await it.a_while()
        assert it.refused()
        assert it.values() == {"anchor": b""}


@virtually
async def test_a_value_that_cannot_be_decoded_is_left_out() -> None:
    it, keys = Mirrored(), ClusterKeys("main")
    for key in (keys.leader(3), keys.broker("a"), keys.epoch(1), keys.leaders + "x", keys.identity):
        await it.store.put(key, b"no JSON")
    await it.store.put(keys.epoch(2), b"7")
    page = await it.store.range(keys.root)
    snapshot = SnapshotDecoder(keys).snapshot({item.key: item for item in page.items}, page.revision)
    assert (snapshot.leaders, snapshot.brokers, snapshot.identity) == ({}, {}, None)
    assert {shard: stored.epoch for shard, stored in snapshot.epochs.items()} == {2: 7}
