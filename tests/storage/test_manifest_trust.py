"""No worker that was away appends a version number that was collected meanwhile, and the checks for this cost
little."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from tests.storage.archive_scenes import GatedStore, ManualClock, lost_answer
from tests.storage.manifest_histories import TOPIC, archived, history_of
from tests.storage.record_tables import WEB

from tidelog.storage.errors import Conflict, Unavailable
from tidelog.storage.manifests import manifest_codec
from tidelog.storage.manifests.manifest import Manifest
from tidelog.storage.manifests.manifest_codec import encode_manifest
from tidelog.storage.manifests.manifest_log import ManifestLog
from tidelog.storage.stores.counting import CountingObjectStore, Usage
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb
from tidelog.storage.wal.floor_trust import FLOOR_TRUST_S


@pytest.fixture
def store() -> MemoryObjectStore:
    return MemoryObjectStore()


async def test_a_number_that_was_collected_is_not_won_again(store: MemoryObjectStore) -> None:
    """A worker stalls between reading version 2 and appending version 3. Meanwhile version 3 was appended and
    collected."""
    clock = ManualClock()
    history = history_of(store)
    await history.run(3)
    stalled = ManifestLog(store, TOPIC, WEB, clock)
    seen = await stalled.latest()
    await history.run(7)
    for version in range(9):
        await store.delete(history.log.key(version))
    clock.now_s += FLOOR_TRUST_S + 1
    with pytest.raises(Conflict, match="was used and collected"):
        await stalled.append(archived(seen, 99))
    assert await stalled.latest() == history.versions[-1], "and it starts over from the newest"


async def test_a_number_that_is_collected_while_its_append_is_judged_is_not_won(store: MemoryObjectStore) -> None:
    """The create was refused, but the version that refused it is gone when the worker reads it."""
    history = history_of(store)
    await history.run(1)
    gated = GatedStore(store, 3)
    late = ManifestLog(gated, TOPIC, WEB)
    manifest = await late.latest()
    await history.run(1)
    appending = asyncio.create_task(late.append(archived(manifest, 99)))
    await gated.reached.wait()
    await history.run(1)
    await store.delete(history.log.key(1))
    gated.gate.set()
    with pytest.raises(Conflict):
        await appending
    assert await late.latest() == history.versions[-1]


async def test_a_worker_that_never_looked_does_not_win_a_collected_number_either(store: MemoryObjectStore) -> None:
    history = history_of(store)
    await history.run(3)
    await store.delete(history.log.key(0))
    with pytest.raises(Conflict, match="was used and collected"):
        await ManifestLog(store, TOPIC, WEB).append(archived(Manifest(WEB), 99))


async def test_a_slow_append_that_was_the_first_is_won_though_others_followed(store: MemoryObjectStore) -> None:
    clock = ManualClock()
    slow = ManifestLog(store, TOPIC, WEB, clock)
    manifest = await slow.append(archived(await slow.latest(), 0))
    body = (await store.get(slow.key(0))).data
    follower = ManifestLog(store, TOPIC, WEB)
    following = await follower.append(archived(await follower.latest(), 1))
    again = ManifestLog(store, TOPIC, WEB, clock)
    clock.now_s += FLOOR_TRUST_S + 1
    assert await again.append(archived(Manifest(WEB), 0)) == manifest, "its own body, and version 1 follows it"
    assert (await store.get(slow.key(0))).data == body
    assert await again.latest() == following


async def test_within_the_trust_an_append_is_one_request(store: MemoryObjectStore) -> None:
    clock = ManualClock()
    counting = CountingObjectStore(store)
    log = ManifestLog(counting, TOPIC, WEB, clock)
    manifest = await log.latest()
    before = counting.usage()
    clock.now_s += FLOOR_TRUST_S
    manifest = await log.append(archived(manifest, 0))
    clock.now_s += FLOOR_TRUST_S
    manifest = await log.append(archived(manifest, 1))
    assert (counting.usage() - before).requests() == 2


# ---- who appends now and then


@dataclass
class Seldom:
    """A worker that appends later after its last append than it may trust its knowledge."""

    store: MemoryObjectStore
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.counting = CountingObjectStore(self.store)
        self.log = ManifestLog(self.counting, TOPIC, WEB, self.clock)

    async def append(self, number: int) -> Usage:
        """Append to the version it knows. Return the cost."""
        before = self.counting.usage()
        manifest = self.log.known or await self.log.latest()
        await self.log.append(archived(manifest, number))
        self.clock.now_s += FLOOR_TRUST_S + 1
        return self.counting.usage() - before


async def test_it_looks_with_one_head_whether_its_own_version_before_is_there(store: MemoryObjectStore) -> None:
    seldom = Seldom(store)
    assert (await seldom.append(0)).requests(Verb.LIST) == 1, "it knows nothing yet"
    for number in range(1, 4):
        spent = await seldom.append(number)
        assert (spent.requests(), spent.requests(Verb.CREATE), spent.requests(Verb.HEAD)) == (2, 1, 1)


@pytest.mark.parametrize("made_anew", [False, True], ids=["gone", "made anew"])
async def test_it_does_not_win_a_number_that_was_collected(store: MemoryObjectStore, made_anew: bool) -> None:
    """The versions that it knows were collected, and also the one it would append. One of them may exist again, from
    another stalled worker."""
    seldom = Seldom(store)
    await seldom.append(0)
    other = ManifestLog(store, TOPIC, WEB)
    for number in range(1, 5):
        await other.append(archived(await other.latest(), number))
    for version in range(3):
        await store.delete(other.key(version))
    if made_anew:
        await store.create(other.key(0), encode_manifest(Manifest(WEB, 0)))
    with pytest.raises(Conflict, match="was used and collected"):
        await seldom.append(1)
    assert seldom.log.known is None
    assert await seldom.log.latest() == await other.latest()


async def test_a_base_that_stays_behind_proves_nothing(
    store: MemoryObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here more than 3 segments count as long: version 3 is a difference to version 2, which is kept for it."""
    monkeypatch.setattr(manifest_codec, "WHOLE_SEGMENTS_MAX", 3)
    seldom = Seldom(store)
    for number in range(3):
        await seldom.append(number)
    other = ManifestLog(store, TOPIC, WEB)
    for number in range(3, 6):
        made = await other.append(archived(await other.latest(), number))
    assert made.base_version == 2
    for version in (0, 1, 3, 4):
        await store.delete(other.key(version))
    with pytest.raises(Conflict, match="was used and collected"):
        await seldom.append(3)


async def test_after_an_append_that_failed_nothing_is_known(store: MemoryObjectStore) -> None:
    log = ManifestLog(lost_answer(store, 1), TOPIC, WEB)
    known = [log.known]
    manifest = await log.latest()
    known.append(log.known)
    with pytest.raises(Unavailable):
        await log.append(archived(manifest, 0))
    known.append(log.known)
    latest = await log.latest()
    known.append(log.known)
    assert latest.version == 0
    assert known == [None, manifest, None, latest]
