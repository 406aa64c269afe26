"""The commit protocol, stepped by hand through every transition, with the requests of each step."""

from __future__ import annotations

from functools import partial

import pytest
from tests.storage.log_scene import FLOOR_LIST, SHARD, LogScene, floor_head
from tests.storage.scripted_store import Answer

from tidelog.storage.errors import Contended, Corrupt, Denied, Fenced, Invalid, Unavailable
from tidelog.storage.wal.commit_fsm import State
from tidelog.storage.wal.commit_retries import DENIED_BACKOFF, DENIED_LOG_EVERY_S
from tidelog.storage.wal.floor_trust import FLOOR_TRUST_S, GRACE_S_MIN, floor_trust_s
from tidelog.storage.wal.wal_entry import EntryKind, PreparedEntry

PREFIX = f"wal/{SHARD:04d}/"
LIST = f"list {PREFIX}0"


def entry_key(seq: int) -> str:
    return f"{PREFIX}{seq:020d}.parquet"


@pytest.fixture
def log() -> LogScene:
    return LogScene()


async def leading(log: LogScene) -> None:
    """The writer has claimed an empty log: its START is entry 0."""
    assert await log.writer.claim() == 1
    log.store.taken_requests()


async def putting(log: LogScene) -> PreparedEntry:
    """The writer leads and is about to PUT entry 1."""
    await leading(log)
    entry = log.entry()
    log.writer.begin_commit(entry)
    return entry


async def test_nothing_happens_before_a_claim(log: LogScene) -> None:
    assert await log.writer.step() is State.IDLE
    assert log.store.requests == []


async def test_claiming_an_empty_log_takes_four_requests(log: LogScene) -> None:
    log.writer.begin_claim()
    assert await log.states(2) == [State.SEARCHING, State.PUTTING]
    assert await log.states(1) == [State.CHECKING_TRUST]
    assert await log.states(2) == [State.CHECKING_FLOOR, State.LEADING]
    assert log.store.requests == [FLOOR_LIST, LIST, f"create {entry_key(0)}", floor_head()]
    assert (log.writer.epoch, log.writer.next_seq) == (1, 1)


async def test_claiming_a_log_with_entries_reads_the_last_header_too(log: LogScene) -> None:
    await log.rival_commits(2)
    assert await log.writer.claim() == 2
    assert log.store.requests == [*(FLOOR_LIST, LIST, f"get {entry_key(2)}", f"create {entry_key(3)}", floor_head())]
    start = await log.wal.header(3)
    assert (start.kind, start.epoch, start.writer_id, start.spans) == (EntryKind.START, 2, "writer", ())


async def test_claiming_an_emptied_log_takes_number_and_epoch_from_the_floor(log: LogScene) -> None:
    await log.rival_commits(2)
    await log.truncate(3)
    assert await log.writer.claim() == 2
    assert (await log.wal.header(3)).epoch == 2


async def test_a_claim_that_loses_its_number_reads_the_tail_again(log: LogScene) -> None:
    log.writer.begin_claim()
    await log.states(2)
    log.store.before = log.rival_commits
    expected = [State.RESOLVING, State.SEARCHING, State.SEARCHING, State.SEARCHING, State.PUTTING]
    assert await log.states(5) == expected
    assert await log.states(3) == [State.CHECKING_TRUST, State.CHECKING_FLOOR, State.LEADING]
    assert (log.writer.epoch, log.writer.next_seq) == (2, 3)


async def test_a_claim_that_created_a_deleted_number_again_reads_the_tail_again(log: LogScene) -> None:
    log.writer.begin_claim()
    await log.states(2)
    await log.rival_commits(2)
    await log.truncate(3)
    assert await log.states(3) == [State.CHECKING_TRUST, State.CHECKING_FLOOR, State.SEARCHING]
    await log.states(5)
    assert log.writer.state is State.LEADING
    assert (log.writer.epoch, log.writer.next_seq) == (2, 4)


async def test_a_start_is_checked_against_the_floor_however_lately_that_was_known(log: LogScene) -> None:
    await log.writer.claim()
    await log.writer.commit(log.entry())
    await log.writer.claim()
    assert log.store.requests[-2:] == [f"create {entry_key(2)}", floor_head()]


async def test_a_commit_soon_after_the_claim_is_one_put(log: LogScene) -> None:
    await putting(log)
    assert await log.states(2) == [State.CHECKING_TRUST, State.LEADING]
    assert log.store.requests == [f"create {entry_key(1)}"]
    assert log.writer.next_seq == 2


async def test_the_floor_is_read_once_the_trust_is_over(log: LogScene) -> None:
    await putting(log)
    log.clock.now_s += FLOOR_TRUST_S
    assert await log.states(3) == [State.CHECKING_TRUST, State.CHECKING_FLOOR, State.LEADING]
    assert log.store.requests == [f"create {entry_key(1)}", FLOOR_LIST]


async def test_trust_counts_until_the_answer_came_not_until_the_put_was_sent(log: LogScene) -> None:
    await putting(log)
    assert await log.states(1) == [State.CHECKING_TRUST]
    log.clock.now_s += FLOOR_TRUST_S
    assert await log.states(1) == [State.CHECKING_FLOOR]


async def test_each_commit_renews_the_trust_from_when_it_was_first_sent(log: LogScene) -> None:
    await putting(log)
    log.store.answers.extend([Answer(Unavailable("503"))] * 3)
    sent_s = log.clock.now_s
    await log.states(8)
    assert log.writer.state is State.LEADING
    assert log.clock.now_s > sent_s
    log.writer.begin_commit(log.entry())
    log.clock.now_s = sent_s + FLOOR_TRUST_S
    assert await log.states(2) == [State.CHECKING_TRUST, State.CHECKING_FLOOR]


async def test_a_read_of_the_floor_renews_the_trust_from_when_it_was_sent(log: LogScene) -> None:
    await putting(log)
    log.clock.now_s += FLOOR_TRUST_S
    await log.states(2)
    asked_s = log.clock.now_s
    log.store.before = partial(sleep, log, FLOOR_TRUST_S)
    assert await log.states(1) == [State.LEADING]
    log.writer.begin_commit(log.entry())
    assert log.clock.now_s == asked_s + FLOOR_TRUST_S
    assert await log.states(2) == [State.CHECKING_TRUST, State.CHECKING_FLOOR]


async def sleep(log: LogScene, seconds: float) -> None:
    """Let a request take that long."""
    log.clock.now_s += seconds


async def test_a_hundred_commits_in_a_row_cost_a_hundred_creates_and_at_most_one_read(log: LogScene) -> None:
    await leading(log)
    for _ in range(100):
        log.clock.now_s += FLOOR_TRUST_S * 0.4
        await log.writer.commit(log.entry())
    creates = [request for request in log.store.requests if request.startswith("create ")]
    assert creates == [f"create {entry_key(seq)}" for seq in range(1, 101)]
    assert len(log.store.requests) - len(creates) <= 1


def test_the_trust_is_half_the_grace_at_most() -> None:
    assert floor_trust_s(900.0) == floor_trust_s(GRACE_S_MIN) == FLOOR_TRUST_S
    assert floor_trust_s(1.0) == 0.5
    assert floor_trust_s(0.0) == 0.0


async def test_a_lost_answer_is_found_to_be_a_success(log: LogScene) -> None:
    await putting(log)
    log.store.answers.append(Answer(Unavailable("reset"), after_effect=True))
    assert await log.states(2) == [State.BACKING_OFF, State.PUTTING]
    assert await log.states(2) == [State.RESOLVING, State.CHECKING_TRUST]
    assert await log.states(1) == [State.LEADING]
    create, get = f"create {entry_key(1)}", f"get {entry_key(1)}"
    assert log.store.requests == [create, create, get]


async def test_a_put_that_did_not_happen_is_sent_again_with_the_same_bytes(log: LogScene) -> None:
    entry = await putting(log)
    log.store.answers.append(Answer(Unavailable("503")))
    await log.states(5)
    assert log.writer.state is State.LEADING
    assert (await log.bucket.get(entry_key(1))).data == entry.body


async def test_a_409_is_sent_again_after_a_wait(log: LogScene) -> None:
    await putting(log)
    log.store.answers.append(Answer(Contended("409")))
    assert await log.states(3) == [State.BACKING_OFF, State.PUTTING, State.CHECKING_TRUST]
    assert len(log.clock.slept_s) == 1


async def test_anothers_entry_fences(log: LogScene) -> None:
    await putting(log)
    await log.rival_commits()
    assert await log.states(2) == [State.RESOLVING, State.FENCED]
    assert log.store.requests == [f"create {entry_key(1)}", f"get {entry_key(1)}"]
    assert log.writer.in_doubt is None


async def test_a_number_created_again_fences_by_the_floor(log: LogScene) -> None:
    await putting(log)
    await log.rival_commits(2)
    await log.truncate(3)
    assert await log.states(3) == [State.CHECKING_TRUST, State.CHECKING_FLOOR, State.FENCED]


async def test_the_own_entry_created_again_and_found_by_a_conflict_fences_too(log: LogScene) -> None:
    await putting(log)
    await log.rival_commits(2)
    await log.truncate(3)
    log.store.answers.append(Answer(Unavailable("reset"), after_effect=True))
    await log.states(2)
    assert await log.states(4) == [State.RESOLVING, State.CHECKING_TRUST, State.CHECKING_FLOOR, State.FENCED]


async def test_a_conflict_whose_entry_is_deleted_meanwhile_fences(log: LogScene) -> None:
    await putting(log)
    await log.rival_commits(2)
    assert await log.writer.step() is State.RESOLVING
    await log.truncate(3)
    assert await log.writer.step() is State.FENCED


@pytest.mark.parametrize("steps", [0, 1, 2], ids=["searching", "putting", "checking the floor"])
async def test_a_claim_continues_where_the_store_failed(log: LogScene, steps: int) -> None:
    log.writer.begin_claim()
    await log.states(2 * steps)
    before = log.writer.state
    log.store.answers.append(Answer(Unavailable("503")))
    assert await log.states(2) == [State.BACKING_OFF, before]


async def test_an_error_that_no_retry_mends_surfaces_and_leaves_the_state(log: LogScene) -> None:
    await putting(log)
    log.store.answers.append(Answer(Corrupt("wal", "torn")))
    with pytest.raises(Corrupt):
        await log.writer.step()
    assert log.writer.state is State.PUTTING
    await log.states(3)
    assert log.writer.state is State.LEADING


async def test_a_commit_that_is_denied_is_tried_again_as_it_is_with_longer_waits(log: LogScene) -> None:
    mine = await putting(log)
    log.store.answers.extend([Answer(Denied("403"))] * 20)
    await log.states(40)
    assert log.writer.retries.denied is not None
    bounds_s = [min(DENIED_BACKOFF.max_s, 0.25 * 2**tried) for tried in range(20)]
    assert all(bound / 2 <= slept <= bound for slept, bound in zip(log.clock.slept_s, bounds_s, strict=True))
    await log.writer.commit(mine)
    assert log.writer.retries.denied is None
    assert (await log.wal.header(mine.header.seq)).entry_id == mine.header.entry_id


@pytest.mark.parametrize("steps", [0, 1, 2], ids=["searching", "putting", "checking the floor"])
async def test_a_claim_that_is_denied_says_so_at_once(log: LogScene, steps: int) -> None:
    log.writer.begin_claim()
    await log.states(2 * steps)
    log.store.answers.append(Answer(Denied("403")))
    with pytest.raises(Denied):
        await log.writer.step()
    assert log.clock.slept_s == []


async def test_refused_commits_are_logged_when_they_begin_now_and_then_and_when_they_end(
    log: LogScene, caplog: pytest.LogCaptureFixture
) -> None:
    await putting(log)
    log.store.answers.extend([Answer(Denied("403: expired"))] * 30)
    await log.states(30)
    log.store.answers.appendleft(Answer(Unavailable("503")))  # does not end the wait
    while log.writer.state is not State.LEADING:
        await log.writer.step()
    told = [record for record in caplog.records if record.name == "tidelog.storage.wal.commit_retries"]
    refused_s = sum(log.clock.slept_s)
    assert 2 + refused_s // DENIED_LOG_EVERY_S - 1 <= len(told) <= 2 + refused_s // DENIED_LOG_EVERY_S
    assert [record.levelname for record in told] == ["ERROR"] * (len(told) - 1) + ["WARNING"]
    assert "expired" in told[0].message


async def test_waits_double_and_begin_again_after_a_success(log: LogScene) -> None:
    await putting(log)
    log.clock.now_s += FLOOR_TRUST_S
    log.store.answers.extend([Answer(Unavailable("503"))] * 4)
    await log.states(9)
    log.store.answers.append(Answer(Unavailable("503")))
    assert await log.states(3) == [State.CHECKING_FLOOR, State.BACKING_OFF, State.CHECKING_FLOOR]
    bounds_s = [0.05, 0.1, 0.2, 0.4, 0.05]
    assert all(bound / 2 <= slept <= bound for slept, bound in zip(log.clock.slept_s, bounds_s, strict=True))


async def test_only_the_next_entry_of_this_epoch_is_taken(log: LogScene) -> None:
    await leading(log)
    too_far = log.entry(after=log.entry().header)
    with pytest.raises(Invalid, match="the next is 1 of 1"):
        log.writer.begin_commit(too_far)


async def test_a_writer_that_never_claimed_takes_nothing(log: LogScene) -> None:
    with pytest.raises(Fenced, match="claim it first"):
        log.writer.begin_commit(log.entry())


async def test_a_fenced_writer_takes_nothing_until_it_claims_again(log: LogScene) -> None:
    await putting(log)
    await log.rival_commits()
    await log.states(2)
    with pytest.raises(Fenced):
        log.writer.begin_commit(log.entry())
    assert await log.writer.claim() == 3
