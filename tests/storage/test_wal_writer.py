"""Claims and commits through `WalWriter`: timeouts, cancelled tasks, entries with an unknown outcome, entries prepared
ahead."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial

import pytest
from tests.storage.log_scene import SHARD, LogScene
from tests.storage.scripted_store import Answer

from tidelog.storage.errors import Denied, Fenced, Invalid, Unavailable
from tidelog.storage.wal.commit_fsm import State
from tidelog.storage.wal.floor_trust import FLOOR_TRUST_S
from tidelog.storage.wal.wal_entry import EntryKind

OUTAGE = [Answer(Unavailable("503"))] * 1_000


@pytest.fixture
async def log() -> LogScene:
    """A log whose writer leads in epoch 1."""
    scene = LogScene()
    await scene.writer.claim()
    return scene


async def entry_ids(log: LogScene) -> list[str]:
    return [(await log.others_wal.header(info.number)).entry_id async for info in log.others_wal.entries()]


async def test_entries_follow_one_another(log: LogScene) -> None:
    entries = []
    for _ in range(3):
        entries.append(log.entry())
        await log.writer.commit(entries[-1])
    assert (await entry_ids(log))[1:] == [entry.header.entry_id for entry in entries]
    assert log.writer.next_seq == 4


async def test_the_next_entry_can_be_made_while_one_is_in_flight(log: LogScene) -> None:
    first = log.entry()
    second = log.entry(after=first.header)
    assert (second.header.seq, second.header.epoch, second.header.shard) == (2, 1, SHARD)
    await log.writer.commit(first)
    await log.writer.commit(second)
    assert (await log.wal.header(2)).entry_id == second.header.entry_id


async def test_a_new_epoch_discards_entries_prepared_for_the_old_one(log: LogScene) -> None:
    old = log.entry()
    await log.writer.claim()
    with pytest.raises(Invalid, match="of epoch 1"):
        await log.writer.commit(old)


async def test_of_two_leaders_the_older_is_fenced_and_the_log_continues(log: LogScene) -> None:
    await log.rival.claim()
    with pytest.raises(Fenced):
        await log.writer.commit(log.entry())
    await log.rival.commit(log.entry(log.rival))
    assert [(await log.wal.header(seq)).epoch for seq in range(3)] == [1, 2, 2]


async def test_a_commit_rides_out_an_outage(log: LogScene) -> None:
    log.store.answers.extend(OUTAGE[:50])
    await log.writer.commit(log.entry())
    assert log.writer.state is State.LEADING


async def test_a_commit_gives_up_in_time_and_remembers_the_entry(log: LogScene) -> None:
    entry = log.entry()
    log.store.answers.extend(OUTAGE)
    started_s = log.clock.now_s
    with pytest.raises(Unavailable, match="no answer for entry 1 in time"):
        await log.writer.commit(entry, timeout_s=10)
    assert 5 < log.clock.now_s - started_s < 10
    assert log.writer.in_doubt == entry.header


async def test_an_entry_in_doubt_must_come_first(log: LogScene) -> None:
    entry, other = log.entry(), log.entry()
    log.store.answers.append(Answer(Unavailable("reset"), after_effect=True))
    with pytest.raises(Unavailable):
        await log.writer.commit(entry, timeout_s=0)
    with pytest.raises(Invalid, match="is in doubt"):
        await log.writer.commit(other)
    await log.writer.commit(entry)
    assert (await entry_ids(log)).count(entry.header.entry_id) == 1


async def test_committing_the_last_entry_again_answers_at_once(log: LogScene) -> None:
    entry = log.entry()
    await log.writer.commit(entry)
    log.store.taken_requests()
    await log.writer.commit(entry)
    assert log.store.requests == []


async def test_a_claim_lets_go_of_the_entry_in_doubt_which_stays_if_it_was_written(log: LogScene) -> None:
    entry = log.entry()
    log.store.answers.append(Answer(Unavailable("reset"), after_effect=True))
    with pytest.raises(Unavailable):
        await log.writer.commit(entry, timeout_s=0)
    assert await log.writer.claim() == 2
    assert (await log.wal.header(1)).entry_id == entry.header.entry_id
    assert (await log.wal.header(2)).kind is EntryKind.START


async def test_a_claim_gives_up_in_time_and_can_be_made_again(log: LogScene) -> None:
    log.store.answers.extend(OUTAGE)
    with pytest.raises(Unavailable):
        await log.writer.claim(timeout_s=5)
    log.store.answers.clear()
    assert await log.writer.claim() == 2


async def test_a_refused_permission_surfaces_in_time_and_the_same_entry_can_follow(log: LogScene) -> None:
    entry = log.entry()
    log.store.answers.extend([Answer(Denied("403: grant s3:PutObject"))] * 20)
    with pytest.raises(Denied, match="PutObject"):
        await log.writer.commit(entry, timeout_s=20)
    await log.writer.commit(entry)
    assert (await log.wal.header(1)).entry_id == entry.header.entry_id


async def cancel_in_request(log: LogScene, call: Coroutine[None, None, object], number: int) -> None:
    """Start `call` and cancel it during its request `number` (from 0)."""
    task = asyncio.create_task(call)
    for _ in range(number + 1):
        reached, release = asyncio.Event(), asyncio.Event()
        log.store.before = partial(wait_between, reached, release)
        await reached.wait()
        release.set()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def wait_between(reached: asyncio.Event, release: asyncio.Event) -> None:
    reached.set()
    await release.wait()


@pytest.mark.parametrize("number", [0, 1], ids=["in its PUT", "in its look at the floor"])
async def test_a_cancelled_commit_is_gone_on_with_by_the_next(log: LogScene, number: int) -> None:
    entry = log.entry()
    log.clock.now_s += FLOOR_TRUST_S
    await cancel_in_request(log, log.writer.commit(entry), number)
    assert log.writer.in_doubt == entry.header
    await log.writer.commit(entry)
    assert (await entry_ids(log)).count(entry.header.entry_id) == 1


@pytest.mark.parametrize("number", range(4), ids=["floor", "list", "create", "floor again"])
async def test_after_a_cancelled_claim_the_next_one_begins_its_own_epoch(number: int) -> None:
    log = LogScene()
    await cancel_in_request(log, log.writer.claim(), number)
    assert await log.writer.claim() == (2 if number == 3 else 1)
    await log.writer.commit(log.entry())


async def test_two_calls_at_once_are_refused(log: LogScene) -> None:
    entry = log.entry()
    release = asyncio.Event()
    log.store.before = release.wait
    task = asyncio.create_task(log.writer.commit(entry))
    await asyncio.sleep(0)
    with pytest.raises(Invalid, match="one PUT"):
        await log.writer.commit(entry)
    with pytest.raises(Invalid, match="one PUT"):
        await log.writer.claim()
    release.set()
    await task


async def test_an_epoch_that_a_coordinator_gave_out_is_begun_though_it_leaves_a_gap(log: LogScene) -> None:
    assert await log.rival.claim(epoch=7) == 7
    assert (await log.wal.header(1)).epoch == 7
    with pytest.raises(Fenced):
        await log.writer.commit(log.entry())


@pytest.mark.parametrize("epoch", [6, 7])
async def test_an_epoch_that_the_log_has_passed_cannot_be_claimed(log: LogScene, epoch: int) -> None:
    await log.rival.claim(epoch=7)
    with pytest.raises(Fenced, match="cannot be claimed"):
        await log.writer.claim(epoch=epoch)
    assert log.writer.state is State.FENCED
    assert len(await entry_ids(log)) == 2


async def test_of_two_that_claim_the_same_epoch_one_gets_it(log: LogScene) -> None:
    answers = await asyncio.gather(log.writer.claim(epoch=3), log.rival.claim(epoch=3), return_exceptions=True)
    assert sorted(isinstance(answer, Fenced) for answer in answers) == [False, True]
    assert len(await entry_ids(log)) == 2
