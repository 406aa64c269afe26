"""The journal of groups in the bucket: requests, lost answers, other writers, numbers that are free again."""

from __future__ import annotations

import asyncio

import pytest
from tests.coordinator.groups.group_store_conformance import offsets, put
from tests.coordinator.groups.journal_scene import OFFSET, Scene, commit_until_deleted
from tests.storage.scripted_store import Answer

from tidelog.coordinator.groups.bucket_group_store import WAITING_BYTES_MAX
from tidelog.coordinator.groups.journal.group_journal import GroupJournal
from tidelog.coordinator.groups.journal.journal_reading import JournalReader
from tidelog.coordinator.groups.stored import offset_key
from tidelog.storage.errors import Denied, Fenced, Overloaded, TidelogError, Unavailable
from tidelog.storage.runtime import Runtime, SeededEntropy


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
