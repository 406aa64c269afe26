"""The embedded store: the contract of every key-value store, and its own promises."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.coordinator.embedded_kv.embedded import EmbeddedKeyValueStore
from tests.coordinator.key_value_conformance import KeyValueConformance
from tests.coordinator.stepped_clock import SteppedClock

from tidelog.coordinator.journal import Journal
from tidelog.coordinator.kv.key_value import (
    Compacted,
    EventKind,
    GetKey,
    KeyValueStore,
    LeaseLost,
    PutKey,
    WatchBatch,
    absent,
    unchanged,
)
from tidelog.storage.errors import Conflict, Unavailable
from tidelog.storage.object_store import Body
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb

HISTORY_EVENTS = 300


class _Embedded(KeyValueConformance):
    async def forget(self, store: KeyValueStore, revision: int) -> None:
        await asyncio.gather(*(store.put("/forgotten", b"") for _ in range(2 * HISTORY_EVENTS + 1)))


class TestInMemory(_Embedded):
    @pytest.fixture
    async def store(self) -> AsyncIterator[KeyValueStore]:
        store = EmbeddedKeyValueStore(Runtime(), history_events_max=HISTORY_EVENTS)
        yield store
        await store.aclose()


class TestOnABucket(_Embedded):
    @pytest.fixture
    async def store(self) -> AsyncIterator[KeyValueStore]:
        journal = Journal(MemoryObjectStore(), Runtime())
        await journal.open()
        store = EmbeddedKeyValueStore(Runtime(), journal, history_events_max=HISTORY_EVENTS)
        await store.open()
        yield store
        await store.aclose()


class TroubledStore(MemoryObjectStore):
    """Creates fail according to `trouble`: ``lost`` (it took effect), ``refused`` (it did not), ``late`` (it will, at
    `land`)."""

    def __init__(self) -> None:
        super().__init__()
        self.trouble: str | None = None
        self.late: list[tuple[str, bytes]] = []

    async def create(self, key: str, data: Body) -> str:
        if self.trouble == "late":
            self.late.append((key, bytes(data)))
        if self.trouble in (None, "lost"):
            version = await super().create(key, data)
        if self.trouble:
            raise Unavailable(f"create {key}: {self.trouble}")
        return version

    async def land(self) -> None:
        """Apply the late creates now."""
        for key, data in self.late:
            await super().create(key, data)


class Scene:
    """A bucket, a clock, and stores on them."""

    def __init__(self) -> None:
        self.bucket = TroubledStore()
        self.counted = CountingObjectStore(self.bucket)
        self.clock = SteppedClock()
        self.stores: list[EmbeddedKeyValueStore] = []

    async def open(self, history_events_max: int = 100) -> EmbeddedKeyValueStore:
        runtime = Runtime(self.clock, SeededEntropy(len(self.stores)))
        journal = Journal(self.counted, runtime)
        await journal.open()
        store = EmbeddedKeyValueStore(runtime, journal, history_events_max=history_events_max)
        await store.open()
        self.stores.append(store)
        return store


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    yield scene
    for store in scene.stores:
        await store.aclose()


async def contents(store: EmbeddedKeyValueStore) -> dict[str, bytes]:
    return {item.key: item.value for item in (await store.range("")).items}


async def test_keys_without_a_lease_are_there_after_opening_again_and_others_are_not(scene: Scene) -> None:
    store = await scene.open()
    lease = await store.grant(6)
    await store.put("a", b"1")
    await store.put("a", b"2")
    await store.put("leased", b"x", lease_id=lease.lease_id)
    kept = await store.get("a")
    again = await scene.open()
    assert await again.get("a") == kept
    assert await contents(again) == {"a": b"2"}
    assert await again.incarnation() == await store.incarnation()


async def test_a_key_that_comes_under_a_lease_leaves_the_bucket(scene: Scene) -> None:
    store = await scene.open()
    await store.put("a", b"1")
    await store.put("a", b"2", lease_id=(await store.grant(6)).lease_id)
    assert await contents(await scene.open()) == {}


async def test_changes_at_the_same_time_share_an_entry(scene: Scene) -> None:
    store = await scene.open()
    await asyncio.gather(*(store.put(f"k{number:02d}", b"v") for number in range(50)))
    assert scene.counted.usage().requests(Verb.CREATE) == 1
    assert len(await contents(await scene.open())) == 50


async def test_of_two_that_create_the_same_key_at_once_one_succeeds(scene: Scene) -> None:
    store = await scene.open()
    results = await asyncio.gather(
        *(store.transact([absent("a")], [PutKey("a", value)], [GetKey("a")]) for value in (b"1", b"2"))
    )
    assert [result.succeeded for result in results] == [True, False]
    assert results[1].found[0] == await store.get("a")


async def test_changes_of_leased_keys_alone_cost_no_request(scene: Scene) -> None:
    store = await scene.open()
    before = scene.counted.usage()
    lease = await store.grant(6)
    await store.put("a", b"1", lease_id=lease.lease_id)
    await store.keep_alive(lease.lease_id)
    await store.revoke(lease.lease_id)
    assert (scene.counted.usage() - before).requests(Verb.CREATE) == 0
    assert await store.get("a") is None


async def test_a_lease_ends_on_the_clock_and_its_keys_with_it(scene: Scene) -> None:
    store = await scene.open()
    lease = await store.grant(6)
    revision = await store.put("a", b"1", lease_id=lease.lease_id)
    scene.clock.advance(5)
    assert await store.keep_alive(lease.lease_id) == 6
    scene.clock.advance(5)
    assert await store.get("a") is not None
    scene.clock.advance(2)
    with pytest.raises(LeaseLost):
        await store.keep_alive(lease.lease_id)
    batch = await first_batch(store, "", revision + 1)
    assert [(event.kind, event.item.key) for event in batch.events] == [(EventKind.DELETE, "a")]


async def first_batch(store: EmbeddedKeyValueStore, prefix: str, revision: int) -> WatchBatch:
    watch = store.watch(prefix, revision)
    async with asyncio.timeout(5):
        batch = await anext(watch)
    await watch.aclose()
    return batch


@pytest.mark.parametrize("trouble", ["lost", "refused"])
async def test_a_change_in_doubt_is_written_before_any_other(scene: Scene, trouble: str) -> None:
    store = await scene.open()
    await store.put("a", b"1")
    scene.bucket.trouble = trouble
    with pytest.raises(Unavailable):
        await store.put("a", b"2")
    scene.bucket.trouble = None
    await store.put("b", b"")
    assert await contents(store) == await contents(await scene.open()) == {"a": b"2", "b": b""}


async def test_a_lost_change_turns_up_though_nobody_asks_again(scene: Scene) -> None:
    store = await scene.open()
    scene.bucket.trouble = "lost"
    with pytest.raises(Unavailable):
        await store.put("a", b"1")
    scene.bucket.trouble = None
    await scene.clock.run(3)
    assert await contents(store) == {"a": b"1"}


async def test_a_lost_transaction_over_leased_and_kept_keys_is_never_seen_half_done(scene: Scene) -> None:
    store = await scene.open()
    first, second = await store.grant(60), await store.grant(60)
    scene.bucket.trouble = "late"
    with pytest.raises(Unavailable):
        await store.transact([absent("leader")], [PutKey("epoch", b"1"), PutKey("leader", b"first", first.lease_id)])
    scene.bucket.trouble = None
    await scene.bucket.land()
    taken = await store.transact(
        [absent("leader")], [PutKey("leader", b"second", second.lease_id)], [GetKey("leader"), GetKey("epoch")]
    )
    assert not taken.succeeded
    assert [item.value for item in taken.found if item] == [b"first", b"1"]


async def test_a_late_entry_cannot_land_behind_a_later_change(scene: Scene) -> None:
    store = await scene.open()
    lease = await store.grant(60)
    scene.bucket.trouble = "late"
    with pytest.raises(Unavailable):
        await store.transact([absent("leader")], [PutKey("epoch", b"1")])
    scene.bucket.trouble = None
    await store.put("leader", b"second", lease_id=lease.lease_id)
    with pytest.raises(Conflict):
        await scene.bucket.land()
    await store.put("other", b"")
    assert await contents(await scene.open()) == {"epoch": b"1", "other": b""}


async def test_writes_of_another_process_are_read_before_a_change_is_decided(scene: Scene) -> None:
    one, other = await scene.open(), await scene.open()
    await one.put("a", b"1")
    result = await other.transact([absent("a")], [PutKey("a", b"2")], [GetKey("a")])
    assert [item.value for item in result.found if item] == [b"1"]


async def test_a_watch_that_is_too_far_behind_must_begin_again(scene: Scene) -> None:
    store = EmbeddedKeyValueStore(Runtime(scene.clock, SeededEntropy(9)), history_events_max=10)
    for number in range(30):
        await store.put("k", b"%d" % number)
    with pytest.raises(Compacted):
        await first_batch(store, "", 2)
    batch = await first_batch(store, "", 22)
    assert [event.item.value for event in batch.events] == [b"%d" % number for number in range(20, 30)]


async def test_pages_of_one_reading_fit_together(scene: Scene) -> None:
    store = await scene.open()
    for key in "abcd":
        await store.put(key, b"old")
    page = await store.range("", limit=2)
    await asyncio.gather(store.delete("c"), store.put("d", b"new"), store.put("bb", b"new"))
    rest = await store.range("", limit=2, after=page.items[-1].key, revision=page.revision)
    assert [(item.key, item.value) for item in rest.items] == [("c", b"old"), ("d", b"old")]
    assert (page.more, rest.more) == (True, False)


async def test_an_item_that_changed_is_not_unchanged(scene: Scene) -> None:
    store = await scene.open()
    await store.put("a", b"1")
    item = await store.get("a")
    assert item
    await store.put("a", b"1")
    assert not (await store.transact([unchanged(item)], [PutKey("a", b"2")])).succeeded
