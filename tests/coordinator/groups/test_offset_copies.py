"""Committed offsets in the bucket: at most ten seconds old, and no older ones from a paused leader."""

from __future__ import annotations

import pytest
from tests.coordinator.groups.copied_cluster import GRACE_S, GROUP, MINE, OFFSET, OTHERS, Cluster, committed, offset_in
from tests.coordinator.groups.group_leaderships import SHARD, SHARDS
from tests.coordinator.groups.group_store_conformance import put
from tests.coordinator.stepped_clock import SteppedClock
from tests.coordinator.virtual_time import virtually
from tests.storage.scripted_store import Answer, ScriptedObjectStore

from tidelog.coordinator.groups.copied_groups import copied_groups
from tidelog.coordinator.groups.copy_loop import CopyLoop
from tidelog.coordinator.groups.journal import journal_compaction
from tidelog.coordinator.groups.offset_copies import COPY_EVERY_S, OffsetCopies
from tidelog.coordinator.groups.stored import head_key, member_key
from tidelog.coordinator.kv.key_value import DeleteKey, PutKey
from tidelog.storage.errors import Corrupt, Fenced, Unavailable
from tidelog.storage.object_store import list_all
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.wrapping import Verb


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


async def test_a_noted_change_does_not_replace_a_later_one_whose_answer_was_lost(cluster: Cluster) -> None:
    store, copies = await cluster.lead()
    await store.write(committed(GROUP, 1))
    for change in committed(GROUP, 2):  # stored, and nobody learns of it
        assert isinstance(change, PutKey)
        await cluster.kv.put(cluster.leaderships.keys.groups + change.key, change.value)
    await copies.step()
    assert offset_in(await cluster.copied()) == 2
    assert not copies.noted


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
