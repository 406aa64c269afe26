"""No worker that was away appends a version number that was collected meanwhile, and the checks for this cost
little."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from tests.storage.archive_scenes import NEVER, CrashingStore, GatedStore, ManualClock, lost_answer
from tests.storage.segment_lists import PLACE, SHARD, Pass, dense, passes_of

from tidelog.storage.errors import Conflict, Unavailable
from tidelog.storage.manifests import shard_log
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange, ShardManifest
from tidelog.storage.manifests.shard_values import ChangeKind
from tidelog.storage.object_store import Body, ObjectStore
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.stores.counting import CountingObjectStore, Usage
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb
from tidelog.storage.upkeep.record_deletion import delete_records
from tidelog.storage.wal.floor import Floor
from tidelog.storage.wal.floor_trust import FLOOR_TRUST_S

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


# ---- size


async def test_an_append_to_a_long_list_sends_what_one_to_a_short_list_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_log, "DIFFERENCES_MIN", 256)
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
