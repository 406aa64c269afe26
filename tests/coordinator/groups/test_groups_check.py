"""`bucket verify` and `bucket copy` know the journals of groups."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
import pytest
from tests.coordinator.groups.group_store_conformance import put
from tests.coordinator.groups.test_offset_copies import GROUP, committed, offset_in
from tests.storage.copy_scenes import Alive, copy_of, source_bucket
from tests.storage.damage_by_hand import cut, delete, flip
from tests.storage.instant_clock import InstantClock

from tidelog.coordinator.groups.bucket_group_store import BucketGroupStore
from tidelog.coordinator.groups.copied_groups import copied_groups
from tidelog.coordinator.groups.journal import journal_compaction
from tidelog.coordinator.groups.journal.journal_entry import decode_entry, encode_entry
from tidelog.coordinator.groups.stored import offset_key
from tidelog.coordinator.recovery.groups_check import GroupsCheck
from tidelog.storage.bucket.finding import Finding, Looked, Severity
from tidelog.storage.bucket.verify.verification import BucketVerification
from tidelog.storage.errors import Conflict
from tidelog.storage.object_store import ObjectStore, list_all
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.stores.memory import MemoryObjectStore

SHARDS = 4
GRACE_S = 60.0


@pytest.fixture(autouse=True)
def short_journals(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot after 10 entries."""
    monkeypatch.setattr(journal_compaction, "ENTRIES_MAX", 10)


async def commit(store: ObjectStore, commits: range, seed: int = 1) -> None:
    """As a broker without etcd that starts, commits once for each number, a minute apart, and stops."""
    clock = InstantClock()
    groups = BucketGroupStore(store, Runtime(clock, SeededEntropy(seed)), grace_s=GRACE_S)
    for number in commits:
        await groups.write(committed(GROUP, number))
        if groups._compacting:
            await groups._compacting
        clock.now_s += GRACE_S
    await groups.aclose()


async def a_bucket() -> MemoryObjectStore:
    store = MemoryObjectStore()
    await commit(store, range(35))
    assert len(await names(store, "_snapshots/")) == 2
    return store


async def names(store: ObjectStore, prefix: str = "") -> list[str]:
    return [info.key async for info in list_all(store, f"groups/embedded/{prefix}0")]


async def checked(store: ObjectStore, *, deep: bool = True) -> list[Finding]:
    return [seen async for seen in GroupsCheck(store, deep=deep).findings() if isinstance(seen, Finding)]


@pytest.mark.parametrize("deep", [False, True])
async def test_sound_journals_have_no_findings_and_every_object_is_counted(deep: bool) -> None:
    store = await a_bucket()
    seen = [seen async for seen in GroupsCheck(store, deep=deep).findings()]
    looked = [each for each in seen if isinstance(each, Looked)]
    assert len(looked) == len(seen) == len([info async for info in list_all(store, "groups/")])
    assert not any(each.waiting for each in looked)
    check = GroupsCheck(store, deep=deep)
    assert [each async for each in BucketVerification(store, deep=deep, groups=check.findings).findings()] == []


async def hole(store: ObjectStore) -> str:
    key = (await names(store))[-2]
    await delete(store, key)
    return key


async def truncated_entry(store: ObjectStore) -> str:
    key = (await names(store))[-1]
    await cut(store, key)
    return key


async def flipped_snapshot(store: ObjectStore) -> str:
    key = (await names(store, "_snapshots/"))[-1]
    await flip(store, key)
    return key


async def no_offset(store: ObjectStore) -> str:
    groups = BucketGroupStore(store, Runtime(InstantClock(), SeededEntropy(7)), grace_s=GRACE_S)
    await groups.write([put(offset_key(GROUP, "web", 7), "no offset")])
    return f"groups/embedded/ {offset_key(GROUP, 'web', 7)}"


@pytest.mark.parametrize("damage", [hole, truncated_entry, flipped_snapshot, no_offset])
@pytest.mark.parametrize("deep", [False, True])
async def test_damage_is_an_error_that_names_the_object(
    damage: Callable[[ObjectStore], Awaitable[str]], deep: bool
) -> None:
    store = await a_bucket()
    key = await damage(store)
    assert [(each.severity, each.key) for each in await checked(store, deep=deep)] == [(Severity.ERROR, key)]


async def test_a_deep_check_finds_an_entry_that_was_altered_with_its_checksum() -> None:
    store = await a_bucket()
    (_, newest), keys = await names(store, "_snapshots/"), await names(store)
    key = keys[3]
    number = int(key[-25:-5])
    entry = decode_entry(key, number, (await store.get(key)).data)
    altered = msgspec.structs.replace(entry, changes=((entry.changes[0][0], None), *entry.changes[1:]))
    later = decode_entry(keys[4], number + 1, (await store.get(keys[4])).data)
    await store.put(key, encode_entry(altered))
    assert await checked(store) == [], "the next entry puts the key again"
    for each in keys[4:]:
        found = decode_entry(each, int(each[-25:-5]), (await store.get(each)).data)
        await store.put(each, encode_entry(msgspec.structs.replace(found, changes=found.changes[1:])))
    assert [each.key for each in await checked(store)] == [newest]
    assert await checked(store, deep=False) == []
    assert later.changes


async def test_foreign_objects_are_named() -> None:
    store = await a_bucket()
    foreign = ["groups/embedded/_snapshots/x", "groups/embedded/note.txt", "groups/other/1", "groups/readme"]
    for key in foreign:
        await store.create(key, b"x")
    found = await checked(store)
    assert sorted(each.key for each in found) == sorted(foreign)
    assert {each.severity for each in found} == {Severity.WARNING}


async def copied(alive: Alive, source: ObjectStore, target: ObjectStore) -> int:
    """Copy; returns the offset that the copy has."""
    assert (await copy_of(source, target, alive).run()).whole
    assert await checked(target) == []
    return offset_in((await copied_groups(target, SHARDS)).get(GROUP, {}))


async def test_a_copy_has_the_groups_and_a_later_copy_removes_what_is_covered() -> None:
    source, alive = await source_bucket()
    target = MemoryObjectStore()
    assert await copied(alive, source, target) == -1
    for number in range(5):
        await commit(source, range(number * 13, number * 13 + 13), seed=number)
        assert await copied(alive, source, target) == number * 13 + 12
        assert len(await names(target)) <= 10
    assert len(await names(target, "_snapshots/")) == 1
    await commit(target, range(100, 125), seed=99)
    assert offset_in((await copied_groups(target, SHARDS))[GROUP]) == 124


async def test_a_copy_that_was_written_to_is_refused() -> None:
    source, alive = await source_bucket()
    target = MemoryObjectStore()
    await commit(source, range(3))
    await copied(alive, source, target)
    await commit(target, range(50, 52), seed=8)
    await commit(source, range(3, 5), seed=9)
    with pytest.raises(Conflict, match="another journal of groups"):
        await copied(alive, source, target)


async def test_a_journal_may_be_compacted_at_any_request_of_a_copy() -> None:
    source, alive = await source_bucket()
    await commit(source, range(15))

    class Busy(MemoryObjectStore):
        async def create(self, key: str, data: bytes | bytearray | memoryview) -> str:
            if key.startswith("groups/"):
                await commit(source, range(self.next, self.next + 4), seed=self.next)
                self.next += 4
            return await super().create(key, data)

        next = 15

    target = Busy()
    report = await copy_of(source, target, alive).run()
    if report.whole:
        assert offset_in((await copied_groups(target, SHARDS))[GROUP]) >= 14
    assert [each for each in await checked(target) if each.severity is Severity.ERROR] == []
