"""No worker that was away appends a version number that was collected meanwhile, and the checks for this cost
little."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import pytest
from tests.storage.archive_scenes import NEVER, CrashingStore, GatedStore, ManualClock, lost_answer
from tests.storage.segment_lists import PLACE, SHARD, Pass, dense, passes_of

from tidelog.storage.errors import Conflict, Unavailable
from tidelog.storage.manifests import topic_lists
from tidelog.storage.manifests.shard_log import LOOKS_MAX, ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest, encode_version
from tidelog.storage.manifests.shard_values import ChangeKind
from tidelog.storage.object_store import Body, ObjectStore
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.stores.counting import CountingObjectStore, Usage
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Attempt, Request, Verb, WrappingObjectStore
from tidelog.storage.upkeep.log_starts import delete_records
from tidelog.storage.wal.floor import Floor
from tidelog.storage.wal.floor_trust import FLOOR_TRUST_S, GRACE_S_MIN

T = TypeVar("T")
SWEEP = ManifestChange(ChangeKind.SWEEP)


@pytest.fixture
def store() -> MemoryObjectStore:
    return MemoryObjectStore()


def log_of(store: ObjectStore, clock: ManualClock | None = None, seed: int = 0) -> ShardLog:
    return ShardLog(store, SHARD, Runtime(clock or ManualClock(), SeededEntropy(seed)))


async def others(store: ObjectStore, versions: int) -> ShardManifest:
    """Another worker appends `versions`."""
    log = log_of(store, seed=9)
    for _ in range(versions):
        await log.append(SWEEP, await log.latest())
    return await log.latest()


async def test_a_number_that_is_collected_while_its_append_is_judged_is_not_won(store: MemoryObjectStore) -> None:
    """The create was refused, but the version that refused it is gone when the worker reads it."""
    await others(store, 1)
    gated = GatedStore(store, 3)
    late = log_of(gated)
    manifest = await late.latest()
    await others(store, 1)
    appending = asyncio.create_task(late.append(SWEEP, manifest))
    await gated.reached.wait()
    newest = await others(store, 1)
    await store.delete(late.key(1))
    gated.gate.set()
    with pytest.raises(Conflict):
        await appending
    assert await late.latest() == newest


async def test_a_worker_that_never_looked_does_not_win_a_collected_number_either(store: MemoryObjectStore) -> None:
    await others(store, 3)
    log = log_of(store)
    await store.delete(log.key(0))
    with pytest.raises(Conflict, match="was used and collected"):
        await log.append(ManifestChange(ChangeKind.ARCHIVE, floor=Floor(99, 1)))


class Slow(CrashingStore):
    """Its creates are answered late, after another worker has appended a version."""

    def __init__(self, inner: ObjectStore, clock: ManualClock) -> None:
        super().__init__(inner, NEVER, after=False)
        self.clock = clock

    async def create(self, key: str, data: Body) -> str:
        tag = await super().create(key, data)
        self.clock.now_s += FLOOR_TRUST_S + 1
        await others(self.inner, 1)
        return tag


async def test_a_slow_append_that_was_the_first_is_won_though_others_followed(store: MemoryObjectStore) -> None:
    clock = ManualClock()
    slow = log_of(Slow(store, clock), clock)
    await slow.latest()
    assert (await slow.append(SWEEP)).version == 0


async def test_within_the_trust_an_append_is_one_request(store: MemoryObjectStore) -> None:
    clock, counting = ManualClock(), CountingObjectStore(store)
    log = log_of(counting, clock)
    await log.latest()
    before = counting.usage()
    for _ in range(2):
        clock.now_s += FLOOR_TRUST_S
        await log.append(SWEEP)
    assert (counting.usage() - before).requests() == 2


# ---- who appends now and then


@dataclass
class Seldom:
    """A worker that appends later after its last append than it may trust its knowledge."""

    store: MemoryObjectStore
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.counting = CountingObjectStore(self.store)
        self.log = log_of(self.counting, self.clock)

    async def append(self) -> Usage:
        """Append to the version it knows. Return the cost."""
        before = self.counting.usage()
        await self.log.append(SWEEP, self.log.known or await self.log.latest())
        self.clock.now_s += FLOOR_TRUST_S + 1
        return self.counting.usage() - before


async def test_it_looks_with_one_head_whether_its_own_version_before_is_there(store: MemoryObjectStore) -> None:
    seldom = Seldom(store)
    assert (await seldom.append()).requests(Verb.LIST) == 1, "it knows nothing yet"
    for _ in range(3):
        spent = await seldom.append()
        assert (spent.requests(), spent.requests(Verb.CREATE), spent.requests(Verb.HEAD)) == (2, 1, 1)


@pytest.mark.parametrize("made_anew", [False, True], ids=["gone", "made anew"])
async def test_it_does_not_win_a_number_that_was_collected(store: MemoryObjectStore, made_anew: bool) -> None:
    """The versions that it knows were collected, and also the one it would append. One of them may exist again, from
    another stalled worker."""
    seldom = Seldom(store)
    await seldom.append()
    newest = await others(store, 4)
    for version in range(3):
        await store.delete(seldom.log.key(version))
    if made_anew:
        await store.create(seldom.log.key(0), b"another worker's")
    with pytest.raises(Conflict, match="was used and collected"):
        await seldom.append()
    assert seldom.log.known is None
    assert await seldom.log.latest() == newest


async def test_after_an_append_that_failed_nothing_is_known(store: MemoryObjectStore) -> None:
    log = log_of(lost_answer(store, 1))
    known = [log.known]
    manifest = await log.latest()
    known.append(log.known)
    with pytest.raises(Unavailable):
        await log.append(SWEEP)
    known.append(log.known)
    latest = await log.latest()
    known.append(log.known)
    assert latest.version == 0
    assert known == [None, manifest, None, latest]


async def test_more_versions_than_a_page_holds_are_passed_over(store: MemoryObjectStore) -> None:
    newest = await others(store, 1_001)
    assert await log_of(store).latest() == newest
    assert newest.version == 1_000


# ---- a log that changes all the time


class Restless(WrappingObjectStore):
    """Before each request, another worker appends versions, and a collector may delete all old ones. A request takes
    longer than the grace."""

    def __init__(self, store: ObjectStore, clock: ManualClock, change: Callable[[Request], Awaitable[None]]) -> None:
        super().__init__(store)
        self.clock = clock
        self.change = change
        self.requests = 0

    async def _send(self, request: Request, attempt: Attempt[T]) -> T:
        self.requests += 1
        self.clock.now_s += GRACE_S_MIN + 1
        await self.change(request)
        return await attempt()


async def collected(store: MemoryObjectStore) -> None:
    """Delete all versions but the newest."""
    log = log_of(store, seed=8)
    newest = (await log.latest()).version
    async for version in log.versions():
        if version < newest:
            await store.delete(log.key(version))


async def test_the_newest_version_is_read_in_one_look_while_versions_are_appended(store: MemoryObjectStore) -> None:
    clock = ManualClock()
    listed = await others(store, 3)

    async def append(_: Request) -> None:
        await others(store, 2)

    restless = Restless(store, clock, append)
    log = log_of(restless, clock)
    assert (await log.latest()).version == listed.version + 2, "the newest when it was listed"
    assert restless.requests == 2
    with pytest.raises(Conflict):
        await log.append(SWEEP)


async def test_looking_for_the_newest_version_ends_though_it_is_always_collected(store: MemoryObjectStore) -> None:
    clock = ManualClock()
    await others(store, 3)

    async def append_and_collect(_: Request) -> None:
        await others(store, 2)
        await collected(store)

    restless = Restless(store, clock, append_and_collect)
    log = log_of(restless, clock)
    with pytest.raises(Unavailable, match="deleted before it was read"):
        await log.latest()
    assert restless.requests == 2 * LOOKS_MAX
    assert log.known is None


async def test_a_version_that_was_made_anew_while_it_was_read_is_not_the_newest(store: MemoryObjectStore) -> None:
    """A stalled worker's create of a collected number."""
    clock, changes = ManualClock(), 0
    await others(store, 3)

    async def make_anew(request: Request) -> None:
        nonlocal changes
        if request.verb is not Verb.GET or changes:
            return
        changes += 1
        stalled = log_of(MemoryObjectStore(), seed=7)
        for _ in range(3):
            made = await stalled.append(SWEEP, await stalled.latest())
        await others(store, 1)
        await collected(store)
        await store.create(stalled.key(2), encode_version(made))

    found = await log_of(Restless(store, clock, make_anew), clock).latest()
    assert found == await log_of(store).latest()
    assert found.version == 3


# ---- size


async def test_an_append_to_a_long_list_sends_what_one_to_a_short_list_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_lists, "DIFFERENCES_MIN", 256)
    sent = []
    for segments in (1_000, 20_000):
        counting = CountingObjectStore(MemoryObjectStore())
        log = log_of(counting)
        await log.latest()
        await log.append(passes_of(dense([Pass({n % 3: 1}) for n in range(segments)])))
        before = counting.usage()
        await delete_records(log, PLACE, 0, 1)
        sent.append(sum(tally.sent_bytes for tally in (counting.usage() - before).tallies.values()))
    assert sent[1] < 1.1 * sent[0] < 5_000
