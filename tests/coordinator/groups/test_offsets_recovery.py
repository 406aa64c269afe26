"""Committed offsets are written back from their copies in the bucket."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.coordinator.groups.copied_cluster import GRACE_S, GROUP, MINE, OFFSET, OTHERS, Cluster, committed, offset_in
from tests.coordinator.groups.group_leaderships import SHARD, SHARDS
from tests.coordinator.groups.group_store_conformance import put

from tidelog.coordinator.groups.bucket_group_store import BucketGroupStore
from tidelog.coordinator.groups.copied_groups import copied_groups
from tidelog.coordinator.groups.group_shards import shard_of_group
from tidelog.coordinator.groups.redo_record import recorded
from tidelog.coordinator.groups.stored import REDO, StoredHead, head_key, is_offset, member_key, offset_key
from tidelog.coordinator.kv.key_value import DeleteKey, PutKey
from tidelog.coordinator.recovery.group_recovery import plan_group_recovery
from tidelog.storage.errors import Corrupt
from tidelog.storage.object_store import list_all


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


async def test_recover_completes_what_an_older_etcd_was_applying(cluster: Cluster) -> None:
    store, copies = await cluster.lead()
    await store.write(committed(GROUP, 1))
    await store.write(committed(GROUP, 9))
    await copies.step()
    prefix = cluster.leaderships.keys.groups
    for change in recorded(GROUP, [*committed(GROUP, 5), put(offset_key(GROUP, "app", 0), "x")]):
        assert isinstance(change, PutKey)
        await cluster.kv.put(prefix + change.key, change.value)
    await cluster.kv.put(prefix + OFFSET, committed(GROUP, 1)[1].value)
    await cluster.recover()
    later, _ = await cluster.lead()
    found = await later.load(GROUP)
    assert offset_in(found) == 9
    assert found[offset_key(GROUP, "app", 0)] == b"x"
    assert not (await cluster.kv.range(prefix + REDO)).items
