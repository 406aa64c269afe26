"""The journal of groups in the bucket: damaged and missing objects, and entries that do not count."""

from __future__ import annotations

import msgspec
import pytest
from tests.coordinator.groups.group_store_conformance import put
from tests.coordinator.groups.journal_scene import GRACE_S, OFFSET, Scene, commit_until_deleted, compacted, last
from tests.storage.scripted_store import ScriptedObjectStore

from tidelog.coordinator.groups.journal.journal_entry import encode_entry
from tidelog.coordinator.groups.journal.journal_reading import JournalReader
from tidelog.storage.errors import Corrupt
from tidelog.storage.layout import EMBEDDED_GROUPS


@pytest.mark.usefixtures("short_journals")
async def test_a_reader_that_is_overtaken_by_compaction_reads_the_newer_snapshot(scene: Scene) -> None:
    store, _ = scene.open()
    await store.write([put(OFFSET, "1")])
    script = ScriptedObjectStore(scene.bucket)

    async def overtaken() -> None:
        await commit_until_deleted(scene, store, 1)

    async def listed() -> None:
        script.before = overtaken

    script.before = listed
    state = await JournalReader(script, EMBEDDED_GROUPS).read()
    assert int(state.keys.get(OFFSET) or 0) == await scene.offset() > 100


@pytest.mark.usefixtures("short_journals")
@pytest.mark.parametrize("snapshot", [False, True])
@pytest.mark.parametrize("damage", ["truncated", "flipped", "version", "foreign", "swapped"])
async def test_a_damaged_object_is_named(scene: Scene, damage: str, snapshot: bool) -> None:
    store, _ = scene.open()
    for number in range(12):
        await store.write([put(OFFSET, str(number))])
        await compacted(store)
    names = await scene.names()
    name = last(names, "groups/embedded/_snapshots/0" if snapshot else "groups/embedded/0")
    good = (await scene.bucket.get(name)).data
    other = (await scene.bucket.get(min(n for n in names if ("_snap" in n) is snapshot))).data
    bad = {
        "truncated": good[: len(good) // 2],
        "flipped": good.replace(b'"epoch":1', b'"epoch":3'),
        "version": good.replace(b'"format_version":1', b'"format_version":9'),
        "foreign": b'{"format_version":1}',
        "swapped": other,
    }[damage]
    assert bad != good
    await scene.bucket.put(name, bad)
    again, _ = scene.open()
    for _ in range(2):
        with pytest.raises(Corrupt) as raised:
            await again.write([put(OFFSET, "99")])
        assert raised.value.name == name
    assert await scene.names() == names


@pytest.mark.usefixtures("short_journals")
async def test_without_its_newest_snapshot_the_journal_is_whole(scene: Scene) -> None:
    store, _ = scene.open()
    for number in range(40):
        await store.write([put(OFFSET, str(number))])
        await compacted(store)
        scene.clock.now_s += GRACE_S
    names = await scene.names()
    assert names[0] != "groups/embedded/00000000000000000000.json", "nothing was deleted: no test"
    await scene.bucket.delete(last(names, "groups/embedded/_snapshots/0"))
    assert await scene.offset() == 39
    again, _ = scene.open()
    await again.write([put(OFFSET, "40")])
    assert await scene.offset() == 40


@pytest.mark.usefixtures("short_journals")
async def test_nothing_is_deleted_before_the_grace_is_over(scene: Scene) -> None:
    store, script = scene.open()
    for number in range(40):
        await store.write([put(OFFSET, str(number))])
        await compacted(store)
        scene.clock.now_s += 1
    assert len([request for request in script.taken_requests() if request.startswith("delete")]) == 0


async def test_a_missing_entry_is_named(scene: Scene) -> None:
    store, _ = scene.open()
    for number in range(4):
        await store.write([put(OFFSET, str(number))])
    await scene.bucket.delete("groups/embedded/00000000000000000002.json")
    with pytest.raises(Corrupt, match=r"00002\.json: is missing"):
        await scene.open()[0].load("g")


async def test_an_entry_of_an_earlier_epoch_after_a_later_one_does_not_count(scene: Scene) -> None:
    store, _ = scene.open()
    await store.write([put(OFFSET, "1")])
    later, _ = scene.open()
    await later.write([put(OFFSET, "2")])
    reader = JournalReader(scene.bucket, EMBEDDED_GROUPS)
    old, _ = await reader.entry(1)
    assert old.epoch == 1
    assert old.changes
    late = msgspec.structs.replace(old, number=(await reader.read()).next_number, entry_id="late")
    await scene.bucket.create(reader.log.key(late.number), encode_entry(late))
    assert await scene.offset() == 2
