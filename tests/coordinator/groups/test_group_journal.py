"""The journal of groups in the bucket: lost answers, other writers, numbers that are free again, damaged objects."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.coordinator.groups.group_store_conformance import offsets, put
from tests.storage.instant_clock import InstantClock
from tests.storage.scripted_store import Answer, ScriptedObjectStore

from tidelog.coordinator.groups.bucket_group_store import WAITING_BYTES_MAX, BucketGroupStore
from tidelog.coordinator.groups.journal import journal_compaction
from tidelog.coordinator.groups.journal.group_journal import GroupJournal
from tidelog.coordinator.groups.journal.journal_entry import encode_entry
from tidelog.coordinator.groups.journal.journal_reading import JournalReader
from tidelog.coordinator.groups.stored import offset_key
from tidelog.storage.errors import Corrupt, Denied, Fenced, Overloaded, TidelogError, Unavailable
from tidelog.storage.layout import EMBEDDED_GROUPS
from tidelog.storage.object_store import list_all
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.stores.memory import MemoryObjectStore

GRACE_S = 60.0
OFFSET = offset_key("g", "web", 0)


class Scene:
    """A bucket and a clock that moves only when something sleeps or the test says so."""

    def __init__(self) -> None:
        self.bucket = MemoryObjectStore()
        self.clock = InstantClock()
        self.opened = 0

    def open(self, bucket: object = None, interval_s: float = 0.0) -> tuple[BucketGroupStore, ScriptedObjectStore]:
        """A store over a script of its own."""
        self.opened += 1
        script = ScriptedObjectStore(self.bucket)
        runtime = Runtime(self.clock, SeededEntropy(self.opened))
        return BucketGroupStore(script, runtime, grace_s=GRACE_S, interval_s=interval_s), script

    async def names(self) -> list[str]:
        return [info.key async for info in list_all(self.bucket, "")]

    async def offset(self) -> int:
        """The committed offset, as a reader of the bucket finds it."""
        keys = (await JournalReader(self.bucket, EMBEDDED_GROUPS).read()).keys
        return int(keys.get(OFFSET) or -1)


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def short_journals(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot after 5 entries."""
    monkeypatch.setattr(journal_compaction, "ENTRIES_MAX", 5)


async def compacted(store: BucketGroupStore) -> None:
    """Let compaction finish."""
    if store._compacting:
        await store._compacting


async def test_a_store_that_is_not_used_sends_no_request(scene: Scene) -> None:
    store, script = scene.open()
    await store.aclose()
    assert script.taken_requests() == []


async def test_an_idle_store_sends_no_request(scene: Scene) -> None:
    store, script = scene.open()
    await store.write([put(OFFSET, "1")])
    script.taken_requests()
    for _ in range(100):
        await store.load("g")
        await store.heads("", 10)
    assert script.taken_requests() == []


async def test_writes_at_the_same_time_share_a_put(scene: Scene) -> None:
    store, script = scene.open()
    await store.load("g")
    script.taken_requests()
    await asyncio.gather(*(store.write(offsets(f"g{number}", 1, "1")) for number in range(500)))
    assert len(script.taken_requests()) <= 2


async def test_the_interval_bounds_the_puts(scene: Scene) -> None:
    store, script = scene.open(interval_s=1.0)
    await store.load("g")
    script.taken_requests()
    started_s = scene.clock.now_s

    async def commits(group: str) -> None:
        while scene.clock.now_s < started_s + 20:
            await store.write(offsets(group, 1, "1"))

    await asyncio.gather(*(commits(f"g{number}") for number in range(20)))
    assert len(script.taken_requests()) <= 22


@pytest.mark.parametrize("error", [Unavailable("no answer"), Denied("token expired")])
@pytest.mark.parametrize("after_effect", [False, True])
async def test_a_write_without_an_answer_is_settled_by_the_next_call(
    scene: Scene, error: TidelogError, after_effect: bool
) -> None:
    store, script = scene.open()
    await store.write([put(OFFSET, "1")])
    script.answers.append(Answer(error, after_effect))
    with pytest.raises(type(error)):
        await store.write([put(OFFSET, "2")])
    assert (await store.load("g"))[OFFSET] == b"2" == b"%d" % await scene.offset()
    await store.write([put(OFFSET, "3")])
    assert await scene.offset() == 3


async def test_while_the_outcome_is_unknown_nothing_is_read(scene: Scene) -> None:
    store, script = scene.open()
    await store.write([put(OFFSET, "1")])
    script.answers += [Answer(Unavailable("no answer"))] * 2
    with pytest.raises(Unavailable):
        await store.write([put(OFFSET, "2")])
    with pytest.raises(Unavailable):
        await store.load("g")
    assert (await store.load("g"))[OFFSET] == b"2"


@pytest.mark.parametrize("failing", range(4))
@pytest.mark.parametrize("after_effect", [False, True])
async def test_a_claim_that_fails_is_made_again(scene: Scene, failing: int, after_effect: bool) -> None:
    first, _ = scene.open()
    await first.write([put(OFFSET, "1")])
    store, script = scene.open()
    script.answers += [*[Answer()] * failing, Answer(Unavailable("no answer"), after_effect)]
    with pytest.raises(Unavailable):
        await store.load("g")
    assert (await store.load("g"))[OFFSET] == b"1"
    with pytest.raises(Fenced):
        await first.write([put(OFFSET, "2")])


async def test_of_two_brokers_on_one_bucket_the_second_fences_the_first_for_good(scene: Scene) -> None:
    first, _ = scene.open()
    second, _ = scene.open()
    await first.write([put(OFFSET, "1")])
    await second.write([put(OFFSET, "2")])
    for _ in range(2):
        with pytest.raises(Fenced, match="Stop one of the two brokers"):
            await first.write([put(OFFSET, "3")])
        with pytest.raises(Fenced):
            await first.load("g")
    assert await scene.offset() == 2


async def test_brokers_that_start_at_once_get_epochs_of_their_own(scene: Scene) -> None:
    stores = [scene.open()[0] for _ in range(8)]
    await asyncio.gather(*(store.load("g") for store in stores))
    results = await asyncio.gather(*(store.write([put(OFFSET, "1")]) for store in stores), return_exceptions=True)
    assert sorted(type(result).__name__ for result in results) == ["Fenced"] * 7 + ["NoneType"]


@pytest.mark.parametrize("request_number", range(5))
async def test_an_entry_of_the_broker_before_that_lands_during_the_claim_counts(
    scene: Scene, request_number: int
) -> None:
    first, _ = scene.open()
    await first.write([put(OFFSET, "1")])
    second, script = scene.open()
    left = request_number

    async def land() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            await first.write([put(OFFSET, "2")])
        else:
            script.before = land

    script.before = land
    assert await second.load("g") == {OFFSET: b"2"}
    assert await scene.offset() == 2
    with pytest.raises(Fenced):
        await first.write([put(OFFSET, "3")])


async def commit_until_deleted(scene: Scene, store: BucketGroupStore, number: int) -> int:
    """Commit offsets until entry `number` is deleted; returns the last offset."""
    offset, name = 100, f"groups/embedded/{number:020d}.json"
    await store.write([put(OFFSET, str(offset))])
    assert name in await scene.names()
    while name in await scene.names():
        offset += 1
        await store.write([put(OFFSET, str(offset))])
        await compacted(store)
        scene.clock.now_s += GRACE_S / 4
    return offset


@pytest.mark.usefixtures("short_journals")
async def test_a_broker_that_stalled_cannot_commit_under_a_number_that_is_free_again(scene: Scene) -> None:
    stalled, script = scene.open()
    await stalled.write([put(OFFSET, "1")])
    other, _ = scene.open()
    last = 0

    async def stall() -> None:
        nonlocal last
        last = await commit_until_deleted(scene, other, 2)

    script.before = stall
    with pytest.raises(Fenced):
        await stalled.write([put(OFFSET, "2")])
    assert "groups/embedded/00000000000000000002.json" in await scene.names(), "the number was not free: no test"
    assert await scene.offset() == last
    await other.write([put(OFFSET, "999")])
    assert await scene.offset() == 999


@pytest.mark.usefixtures("short_journals")
async def test_an_old_proof_costs_one_listing_and_a_fresh_one_none(scene: Scene) -> None:
    store, script = scene.open()
    await store.write([put(OFFSET, "1")])
    script.taken_requests()
    await store.write([put(OFFSET, "2")])
    assert [request.split()[0] for request in script.taken_requests()] == ["create"]
    scene.clock.now_s += 31
    await store.write([put(OFFSET, "3")])
    assert [request.split()[0] for request in script.taken_requests()] == ["create", "list"]


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


def last(names: list[str], prefix: str) -> str:
    return max(name for name in names if name.startswith(prefix))


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


async def test_more_writes_than_may_wait_are_refused_and_change_nothing(scene: Scene) -> None:
    store, script = scene.open()
    await store.load("g")
    held, release = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        held.set()
        await release.wait()

    script.before = hold
    first = asyncio.create_task(store.write([put(OFFSET, "1")]))
    await held.wait()
    large = asyncio.create_task(store.write([put(OFFSET, "x" * (WAITING_BYTES_MAX + 1))]))
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match="nothing was applied"):
        await store.write([put(OFFSET, "2")])
    release.set()
    await asyncio.gather(first, large)
    await store.write([put(OFFSET, "3")])
    assert await scene.offset() == 3


async def test_closing_answers_those_who_wait(scene: Scene) -> None:
    store, script = scene.open()
    await store.load("g")
    held = asyncio.Event()

    async def hold() -> None:
        held.set()
        await asyncio.Event().wait()

    script.before = hold
    writes = [asyncio.create_task(store.write([put(OFFSET, str(number))])) for number in range(3)]
    await held.wait()
    await store.aclose()
    assert all(isinstance(each, Unavailable) for each in await asyncio.gather(*writes, return_exceptions=True))
    with pytest.raises(Unavailable):
        await store.write([put(OFFSET, "9")])


async def test_a_leader_of_a_later_epoch_goes_on_after_a_late_entry_of_the_one_before(scene: Scene) -> None:
    runtime = Runtime(scene.clock, SeededEntropy(1))
    old, new = (GroupJournal(scene.bucket, "0003", runtime) for _ in range(2))
    await old.open(epoch=6)
    await old.append([put(OFFSET, "1")])
    await new.open(epoch=7)
    await old.append([put(OFFSET, "2"), put(offset_key("h", "web", 0), "5")])
    await new.append([put(OFFSET, "3")])
    with pytest.raises(Fenced, match="epoch 7"):
        await old.append([put(OFFSET, "4")])
    assert dict((await JournalReader(scene.bucket, "0003").read()).keys.items()) == {
        OFFSET: b"3",
        offset_key("h", "web", 0): b"5",
    }
    with pytest.raises(Fenced):
        await GroupJournal(scene.bucket, "0003", runtime).open(epoch=6)
