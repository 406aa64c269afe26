"""Committed offsets in the bucket: at most ten seconds old, no older ones from a paused leader, and written back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec
import pytest
from tests.coordinator.embedded_kv.embedded import EmbeddedKeyValueStore
from tests.coordinator.groups.group_leaderships import SHARD, SHARDS, Leaderships
from tests.coordinator.groups.group_store_conformance import put
from tests.coordinator.stepped_clock import SteppedClock
from tests.coordinator.virtual_time import LoopClock, virtually
from tests.storage.scripted_store import Answer, ScriptedObjectStore

from tidelog.coordinator.cluster.cluster_keys import ClusterKeys
from tidelog.coordinator.groups.bucket_group_store import BucketGroupStore
from tidelog.coordinator.groups.copied_groups import copied_groups
from tidelog.coordinator.groups.copy_loop import CopyLoop
from tidelog.coordinator.groups.group_shards import shard_of_group
from tidelog.coordinator.groups.group_step import Change
from tidelog.coordinator.groups.group_store import GroupStore
from tidelog.coordinator.groups.journal import journal_compaction
from tidelog.coordinator.groups.offset_copies import COPY_EVERY_S, CopiedGroupStore, OffsetCopies
from tidelog.coordinator.groups.stored import StoredHead, StoredOffset, head_key, is_offset, member_key, offset_key
from tidelog.coordinator.kv.key_value import DeleteKey, PutKey
from tidelog.coordinator.recovery.group_recovery import plan_group_recovery, recover_groups
from tidelog.storage.errors import Corrupt, Fenced, Unavailable
from tidelog.storage.object_store import ObjectStore, list_all
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb

GRACE_S = 60.0
MINE = [name for name in (f"g{number}" for number in range(200)) if shard_of_group(name, SHARDS) == SHARD]
OTHERS = [name for name in (f"g{number}" for number in range(200)) if shard_of_group(name, SHARDS) != SHARD]
GROUP = MINE[0]
OFFSET = offset_key(GROUP, "web", 0)


def committed(group: str, offset: int, at_ms: int | None = None) -> Sequence[Change]:
    stored = StoredOffset("t" * 32, offset, at_ms if at_ms is not None else offset)
    return [
        PutKey(head_key(group), msgspec.msgpack.encode(StoredHead(kind="consumer", epoch=offset))),
        PutKey(offset_key(group, "web", 0), msgspec.msgpack.encode(stored)),
    ]


def offset_in(keys: Mapping[str, bytes], group: str = GROUP) -> int:
    """-1 if there is none."""
    value = keys.get(offset_key(group, "web", 0))
    return -1 if value is None else msgspec.msgpack.decode(value, type=StoredOffset).offset


class Cluster:
    """A cluster's keys and bucket; leaderships of one shard, each with its store and copies."""

    def __init__(self) -> None:
        self.bucket = MemoryObjectStore()
        self.runtime = Runtime(LoopClock(), SeededEntropy(3))
        self.kv = EmbeddedKeyValueStore(self.runtime)
        self.leaderships = Leaderships(self.kv, "main")

    async def lead(self, bucket: ObjectStore | None = None) -> tuple[GroupStore, OffsetCopies]:
        store = await self.leaderships.next_store()
        copies = OffsetCopies(
            store,
            bucket or self.bucket,
            SHARD,
            self.leaderships.epoch,
            shards=SHARDS,
            owns=lambda group: shard_of_group(group, SHARDS) == SHARD,
            runtime=self.runtime,
            grace_s=GRACE_S,
        )
        return CopiedGroupStore(store, copies), copies

    async def copied(self, group: str = GROUP) -> Mapping[str, bytes]:
        return (await copied_groups(self.bucket, SHARDS)).get(group, {})

    async def wipe(self) -> None:
        for prefix in (self.leaderships.keys.root, self.leaderships.keys.groups):
            for item in (await self.kv.range(prefix)).items:
                await self.kv.delete(item.key)

    async def recover(self) -> None:
        keys: ClusterKeys = self.leaderships.keys
        await recover_groups(self.bucket, self.kv, keys, shards=SHARDS, now_ms=5_000_000)
        await self.leaderships.found()


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    cluster = Cluster()
    await cluster.leaderships.found()
    yield cluster
    await cluster.kv.aclose()


async def test_heads_and_offsets_are_copied_and_members_are_not(cluster: Cluster) -> None:
    store, copies = await cluster.lead()
    await store.write([*committed(GROUP, 1), put(member_key(GROUP, "m"), "x")])
    await copies.step()
    assert set(await cluster.copied()) == {head_key(GROUP), OFFSET}
    await store.write([DeleteKey(OFFSET)])
    await copies.step()
    assert set(await cluster.copied()) == {head_key(GROUP)}


async def test_a_new_leader_copies_what_the_last_one_did_not(cluster: Cluster) -> None:
    first, copies = await cluster.lead()
    await first.write([change for group in MINE[:3] for change in committed(group, 1)])
    await copies.step()
    await first.write(committed(MINE[0], 2))
    await first.write([DeleteKey(change.key) for change in committed(MINE[1], 0)])
    _, copies = await cluster.lead()
    await copies.step()
    assert offset_in(await cluster.copied()) == 2
    assert set(await copied_groups(cluster.bucket, SHARDS)) == {MINE[0], MINE[2]}


async def test_a_shard_without_groups_sends_no_request_to_the_bucket(cluster: Cluster) -> None:
    bucket = ScriptedObjectStore(cluster.bucket)
    _, copies = await cluster.lead(bucket)
    await copies.step()
    assert bucket.taken_requests() == []


async def test_groups_of_other_shards_are_left_alone(cluster: Cluster) -> None:
    store, copies = await cluster.lead()
    await store.write(committed(GROUP, 1))
    other = OTHERS[0]
    for change in committed(other, 1):
        assert isinstance(change, PutKey)
        await cluster.kv.put(cluster.leaderships.keys.groups + change.key, change.value)
    await copies.step()
    assert await cluster.copied(other) == {}


@pytest.mark.parametrize("after_effect", [False, True])
async def test_changes_that_could_not_be_copied_are_copied_later(cluster: Cluster, after_effect: bool) -> None:
    bucket = ScriptedObjectStore(cluster.bucket)
    store, copies = await cluster.lead(bucket)
    await store.write(committed(GROUP, 1))
    await copies.step()
    await store.write([*committed(GROUP, 2), *committed(MINE[1], 7)])
    bucket.answers.append(Answer(Unavailable("no answer"), after_effect))
    with pytest.raises(Unavailable):
        await copies.step()
    await store.write(committed(GROUP, 3))
    await copies.step()
    assert offset_in(await cluster.copied()) == 3
    assert offset_in(await cluster.copied(MINE[1]), MINE[1]) == 7


async def test_a_paused_leader_does_not_bring_old_offsets_back(cluster: Cluster) -> None:
    first, old = await cluster.lead()
    await first.write(committed(GROUP, 1))
    await old.step()
    await first.write(committed(GROUP, 2))  # stored, and the leader is paused before it copies
    second, new = await cluster.lead()
    await second.write(committed(GROUP, 3))
    await new.step()
    with pytest.raises(Fenced):
        await old.step()
    with pytest.raises(Fenced):
        await old.step()
    assert offset_in(await cluster.copied()) == 3


async def test_a_paused_leaders_late_entry_that_comes_first_is_replaced(cluster: Cluster) -> None:
    bucket = ScriptedObjectStore(cluster.bucket)
    first, old = await cluster.lead()
    await first.write(committed(GROUP, 1))
    await old.step()
    await first.write(committed(GROUP, 2))
    second, new = await cluster.lead(bucket)
    await second.write(committed(GROUP, 3))
    requests = 0

    async def at_each_request() -> None:
        nonlocal requests
        requests += 1
        if requests == 3:  # the journal is read, and the next request creates an entry
            await old.step()
        else:
            bucket.before = at_each_request

    bucket.before = at_each_request
    await new.step()
    assert offset_in(await cluster.copied()) == 3
    old.note(committed(GROUP, 2))
    with pytest.raises(Fenced):
        await old.step()


async def test_a_wiped_etcd_does_not_empty_the_copies(cluster: Cluster) -> None:
    store, copies = await cluster.lead()
    await store.write(committed(GROUP, 1))
    await copies.step()
    _, fresh = await cluster.lead()
    await cluster.wipe()
    with pytest.raises(Unavailable, match="cluster recover"):
        await fresh.step()
    assert offset_in(await cluster.copied()) == 1


async def test_the_journal_of_copies_is_compacted(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_compaction, "ENTRIES_MAX", 10)
    store, copies = await cluster.lead()
    for number in range(60):
        await store.write(committed(GROUP, number))
        await copies.step()
    names = [info.key async for info in list_all(cluster.bucket, "groups/0003/_snapshots/")]
    assert names
    _, copies = await cluster.lead()
    await copies.step()
    assert offset_in(await cluster.copied()) == 59


@virtually
async def test_a_copy_is_ten_seconds_old_at_most_and_idle_groups_cost_nothing() -> None:
    cluster = Cluster()
    await cluster.leaderships.found()
    bucket = CountingObjectStore(cluster.bucket)
    store, copies = await cluster.lead(bucket)
    loop = CopyLoop(lambda: {SHARD: 1}, lambda: SHARDS, lambda _: copies, cluster.runtime)
    loop.start()
    clock = cluster.runtime.clock
    committed_at: list[float] = []
    for number in range(300):
        await store.write(committed(GROUP, number))
        committed_at.append(clock.monotonic())
        await clock.sleep(0.7)
        oldest = offset_in(await cluster.copied()) + 1
        assert oldest > number or clock.monotonic() - committed_at[oldest] <= 10.0
    puts = bucket.usage().requests(Verb.CREATE)
    assert puts <= 300 * 0.7 / COPY_EVERY_S + 2
    await clock.sleep(15)
    assert offset_in(await cluster.copied()) == 299
    before = bucket.usage().total().requests
    await clock.sleep(3_600)
    assert bucket.usage().total().requests == before
    await loop.close()


@virtually
async def test_a_shard_whose_copying_fails_does_not_stop_the_others() -> None:
    cluster = Cluster()
    await cluster.leaderships.found()

    class Failing(OffsetCopies):
        async def step(self) -> None:
            raise Corrupt("groups/0002/0.json", "is damaged")

    failing = Failing(
        await cluster.leaderships.next_store(),
        cluster.bucket,
        2,
        1,
        shards=SHARDS,
        owns=lambda _: False,
        runtime=cluster.runtime,
        grace_s=GRACE_S,
    )
    store, copies = await cluster.lead()
    made = {2: failing, SHARD: copies}
    loop = CopyLoop(lambda: {2: 1, SHARD: 1}, lambda: SHARDS, lambda each: made[each.shard], cluster.runtime)
    loop.start()
    await store.write(committed(GROUP, 5))
    await cluster.runtime.clock.sleep(11)
    assert offset_in(await cluster.copied()) == 5
    await loop.close()


async def test_recover_writes_groups_back_as_groups_without_members(cluster: Cluster) -> None:
    store, copies = await cluster.lead()
    await store.write([*committed(GROUP, 17), put(member_key(GROUP, "m"), "x")])
    await copies.step()
    await cluster.wipe()
    plan = await plan_group_recovery(cluster.bucket, cluster.kv, cluster.leaderships.keys, shards=SHARDS, now_ms=1)
    assert (plan.groups, plan.offsets) == (1, 1)
    await cluster.recover()
    store, copies = await cluster.lead()
    loaded = await store.load(GROUP)
    assert set(loaded) == {head_key(GROUP), OFFSET}
    assert offset_in(loaded) == 17
    head = msgspec.msgpack.decode(loaded[head_key(GROUP)], type=StoredHead)
    assert (head.epoch, head.emptied_at_ms) == (17, 5_000_000)
    await copies.step()
    await store.write(committed(GROUP, 18))
    await copies.step()
    assert offset_in(await cluster.copied()) == 18


async def test_recover_takes_only_newer_commits_than_those_in_etcd(cluster: Cluster) -> None:
    store, copies = await cluster.lead()
    await store.write([*committed(MINE[0], 10, at_ms=10), *committed(MINE[1], 10, at_ms=10)])
    await copies.step()
    await cluster.wipe()
    for change in (*committed(MINE[0], 5, at_ms=9), *committed(MINE[1], 5, at_ms=11)):
        assert isinstance(change, PutKey)
        await cluster.kv.put(cluster.leaderships.keys.groups + change.key, change.value)
    await cluster.recover()
    store, _ = await cluster.lead()
    assert offset_in(await store.load(MINE[0])) == 10
    assert offset_in(await store.load(MINE[1]), MINE[1]) == 5


async def test_groups_of_a_broker_without_etcd_move_into_the_cluster_and_stay_deleted_there(cluster: Cluster) -> None:
    alone = BucketGroupStore(cluster.bucket, cluster.runtime, grace_s=GRACE_S)
    await alone.write([change for group in (*MINE[:2], OTHERS[0]) for change in committed(group, 4)])
    await alone.write([put(member_key(GROUP, "m"), "x")])
    await cluster.wipe()
    await cluster.recover()
    store, copies = await cluster.lead()
    assert offset_in(await store.load(GROUP)) == 4
    assert offset_in(await store.load(OTHERS[0]), OTHERS[0]) == 4
    await copies.step()
    await store.write([DeleteKey(change.key) for change in committed(MINE[1], 0)])
    await store.write(committed(GROUP, 3, at_ms=0))  # a reset backwards, by a clock that is behind
    await copies.step()
    found = await copied_groups(cluster.bucket, SHARDS)
    assert offset_in(found[GROUP]) == 3
    assert MINE[1] not in found, "a deleted group came back from the time before the cluster"
    assert OTHERS[0] in found, "its shard has not copied it yet"


async def test_a_group_that_moved_to_another_shard_is_taken_from_the_newest_copy(cluster: Cluster) -> None:
    store, copies = await cluster.lead()
    await store.write(committed(GROUP, 4))
    await copies.step()
    shards = next(count for count in range(SHARDS + 1, 99) if shard_of_group(GROUP, count) != SHARD)
    assert offset_in((await copied_groups(cluster.bucket, shards))[GROUP]) == 4


async def test_a_damaged_copy_is_named_with_what_to_do(cluster: Cluster) -> None:
    store, copies = await cluster.lead()
    await store.write(committed(GROUP, 4))
    await copies.step()
    await cluster.bucket.put("groups/0003/00000000000000000000.json", b"{}")
    with pytest.raises(Corrupt, match="To go on without the offsets of this journal, delete groups/0003/"):
        await copied_groups(cluster.bucket, SHARDS)


async def test_after_a_damaged_copy_was_deleted_everything_is_copied_again(cluster: Cluster) -> None:
    store, copies = await cluster.lead()
    await store.write([change for group in MINE[:5] for change in committed(group, 4)])
    await copies.step()
    await cluster.bucket.put("groups/0003/00000000000000000000.json", b"{}")
    _, copies = await cluster.lead()
    for _ in range(2):
        with pytest.raises(Corrupt):
            await copies.step()
    for key in [info.key async for info in list_all(cluster.bucket, "groups/0003/")]:
        await cluster.bucket.delete(key)
    await copies.step()
    found = await copied_groups(cluster.bucket, SHARDS)
    assert {group: offset_in(found[group], group) for group in found} == dict.fromkeys(MINE[:5], 4)


async def test_the_age_is_that_of_the_oldest_change_that_is_not_copied(cluster: Cluster) -> None:
    bucket = ScriptedObjectStore(cluster.bucket)
    clock = SteppedClock()
    cluster.runtime = Runtime(clock, SeededEntropy(1))
    store, copies = await cluster.lead(bucket)
    await copies.step()
    assert copies.age_s == 0
    await store.write(committed(GROUP, 1))
    clock.advance(30)
    await store.write(committed(GROUP, 2))
    bucket.answers.append(Answer(Unavailable("no answer")))
    with pytest.raises(Unavailable):
        await copies.step()
    clock.advance(5)
    assert copies.age_s == 35
    await copies.step()
    assert copies.age_s == 0


async def test_many_groups_are_compared_and_recovered_in_several_entries(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.coordinator.groups.offset_copies.ENTRY_CHANGES_MAX", 7)
    store, copies = await cluster.lead()
    changes = [change for group in MINE[:10] for change in committed(group, 4)]
    changes += [put(offset_key(MINE[0], "web", number), "") for number in range(1, 300)]
    await store.write([change for change in changes if not is_offset(change.key) or change.key.endswith("/0")])
    await asyncio.gather(copies.step())
    assert set(await copied_groups(cluster.bucket, SHARDS)) == set(MINE[:10])
    await cluster.wipe()
    await cluster.recover()
    store, _ = await cluster.lead()
    assert all([offset_in(await store.load(group), group) == 4 for group in MINE[:10]])
