"""The conformance tests for watches of a `KeyValueStore`; a part of `key_value_conformance`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from tidelog.coordinator.kv.key_value import (
    Compacted,
    DeleteKey,
    EventKind,
    KeyValueStore,
    PutKey,
    WatchBatch,
    WatchEvent,
)

SEEN_S_MAX = 20.0


class WatchConformance:
    """Tests each sentence of the contract of watch."""

    async def forget(self, store: KeyValueStore, revision: int) -> None:
        """Let the store discard history before `revision`."""
        raise NotImplementedError

    async def test_changes_come_in_order(self, store: KeyValueStore, prefix: str) -> None:
        start = await store.put(prefix + "a", b"before")
        async with aclosing(store.watch(prefix, start + 1)) as watch:
            first = await store.put(prefix + "a", b"1")
            second = await store.put(prefix + "b", b"2")
            third = await store.put(prefix + "a", b"3")
            events = await take(watch, 3)
        assert [(event.item.key, event.item.value, event.item.mod_revision) for event in events] == [
            (prefix + "a", b"1", first),
            (prefix + "b", b"2", second),
            (prefix + "a", b"3", third),
        ]
        assert [event.item.version for event in events] == [2, 1, 3]

    async def test_a_put_carries_all_and_a_delete_its_key_and_revision(self, store: KeyValueStore, prefix: str) -> None:
        lease = await store.grant(60.0)
        start = await store.put(prefix + "a", b"value", lease_id=lease.lease_id)
        await store.delete(prefix + "a")
        async with aclosing(store.watch(prefix, start)) as watch:
            put, delete = await take(watch, 2)
        assert put.kind is EventKind.PUT
        assert (put.item.value, put.item.lease_id, put.item.create_revision) == (b"value", lease.lease_id, start)
        assert delete.kind is EventKind.DELETE
        assert (delete.item.key, delete.item.value) == (prefix + "a", b"")
        assert delete.item.mod_revision > start

    async def test_a_watch_may_begin_in_the_past(self, store: KeyValueStore, prefix: str) -> None:
        revisions = [await store.put(prefix + "a", b"%d" % number) for number in range(10)]
        async with aclosing(store.watch(prefix, revisions[4])) as watch:
            assert [event.item.mod_revision for event in await take(watch, 6)] == revisions[4:]

    async def test_a_watch_ends_with_its_prefix(self, store: KeyValueStore, prefix: str) -> None:
        start = await store.put(prefix + "a", b"")
        async with aclosing(store.watch(prefix + "a/", start)) as watch:
            for name in ("a0", "a", "a/1", "b", "a/"):
                await store.put(prefix + name, b"")
            assert [event.item.key for event in await take(watch, 2)] == [prefix + "a/1", prefix + "a/"]

    async def test_the_events_of_a_transaction_come_together(self, store: KeyValueStore, prefix: str) -> None:
        start = await store.put(prefix + "old", b"")
        done = await store.transact(
            [], [PutKey(prefix + "a", b""), DeleteKey(prefix + "old"), PutKey(prefix + "b", b"")]
        )
        async with aclosing(store.watch(prefix, start + 1)) as watch, asyncio.timeout(SEEN_S_MAX):
            batch = await anext(nonempty(watch))
        assert {event.item.key for event in batch.events} == {prefix + "a", prefix + "old", prefix + "b"}
        assert {event.item.mod_revision for event in batch.events} == {done.revision}
        assert batch.revision == done.revision

    async def test_a_delete_of_an_absent_key_is_no_change(self, store: KeyValueStore, prefix: str) -> None:
        start = await store.put(prefix + "a", b"")
        await store.delete(prefix + "absent")
        await store.put(prefix + "b", b"")
        async with aclosing(store.watch(prefix, start + 1)) as watch:
            assert [event.item.key for event in await take(watch, 1)] == [prefix + "b"]

    async def test_every_change_comes_once_while_many_write(self, store: KeyValueStore, prefix: str) -> None:
        start = await store.put(prefix + "start", b"")
        async with aclosing(store.watch(prefix, start + 1)) as watch:
            writes = [store.put(f"{prefix}{number % 7}", b"%d" % number) for number in range(200)]
            taken, revisions = await asyncio.gather(take(watch, 200), asyncio.gather(*writes))
        assert [event.item.mod_revision for event in taken] == sorted(revisions)

    async def test_watches_do_not_disturb_each_other(self, store: KeyValueStore, prefix: str) -> None:
        start = await store.put(prefix + "start", b"")
        async with aclosing(store.watch(prefix, start + 1)) as one, aclosing(store.watch(prefix, start + 1)) as other:
            await store.put(prefix + "a", b"")
            assert [event.item.key for event in await take(one, 1)] == [prefix + "a"]
            await one.aclose()
            await store.put(prefix + "b", b"")
            assert [event.item.key for event in await take(other, 2)] == [prefix + "a", prefix + "b"]

    async def test_the_revision_of_a_batch_tells_how_far_it_reaches(self, store: KeyValueStore, prefix: str) -> None:
        start = await store.put(prefix + "start", b"")
        for number in range(20):
            await store.put(f"{prefix}{number}", b"")
        reached, count = start, 0
        async with aclosing(store.watch(prefix, start + 1)) as watch, asyncio.timeout(SEEN_S_MAX):
            async for batch in watch:
                assert all(reached < event.item.mod_revision <= batch.revision for event in batch.events)
                reached, count = batch.revision, count + len(batch.events)
                if count == 20:
                    break
        assert count == 20

    async def test_a_watch_from_a_forgotten_revision_is_refused(self, store: KeyValueStore, prefix: str) -> None:
        old = await store.put(prefix + "a", b"old")
        await store.put(prefix + "a", b"newer")
        await self.forget(store, await store.put(prefix + "a", b"newest"))
        async with aclosing(store.watch(prefix, old)) as watch, asyncio.timeout(SEEN_S_MAX):
            with pytest.raises(Compacted):
                await anext(nonempty(watch))


async def take(watch: AsyncGenerator[WatchBatch], count: int) -> list[WatchEvent]:
    """The next `count` events, and the other events of the last batch."""
    events: list[WatchEvent] = []
    async with asyncio.timeout(SEEN_S_MAX):
        while len(events) < count:
            events.extend((await anext(watch)).events)
    return events


async def nonempty(watch: AsyncGenerator[WatchBatch]) -> AsyncGenerator[WatchBatch]:
    """Batches with events."""
    async for batch in watch:
        if batch.events:
            yield batch
