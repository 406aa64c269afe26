"""The driver of groups, with a plain machine and a store in memory, in virtual time."""

from __future__ import annotations

import asyncio

import pytest
from tests.coordinator.groups.driven import Driven, turns
from tests.coordinator.groups.memory_group_store import StoredGroups
from tests.coordinator.virtual_time import virtually

from tidelog.coordinator.groups.stored import offset_key
from tidelog.storage.errors import LeaderUnknown, Overloaded, Unavailable
from tidelog.wire import groups as calls
from tidelog.wire.classic_groups import JoinGroup

JOIN = JoinGroup(session_timeout_ms=1, rebalance_timeout_ms=1, protocol_type="consumer", protocols=())


@virtually
async def test_a_commit_is_answered_once_it_is_stored() -> None:
    driven = Driven()
    driven.stored.open.clear()
    commit = asyncio.create_task(driven.commit("g", 7))
    await turns()
    assert not commit.done()
    driven.stored.open.set()
    await commit
    assert offset_key("g", "t", 0) in driven.stored.keys


@virtually
async def test_commits_that_arrive_during_a_write_go_together_into_the_next() -> None:
    driven = Driven()
    driven.stored.open.clear()
    commits = [asyncio.create_task(driven.commit(f"g{n % 10}", n, partition=n)) for n in range(1_000)]
    await turns()
    driven.stored.open.set()
    await asyncio.gather(*commits)
    assert len(driven.stored.writes) <= 3
    assert sum(key.startswith("parts/") for key in driven.stored.keys) == 1_000


@virtually
async def test_a_read_waits_for_the_offset_that_it_gives() -> None:
    driven = Driven()
    driven.stored.open.clear()
    commit = asyncio.create_task(driven.commit("g", 7))
    await turns()
    read = asyncio.create_task(driven.committed("g"))
    await turns()
    assert not read.done()
    driven.stored.open.set()
    assert await read == [7]
    await commit


@virtually
async def test_a_group_is_loaded_once_for_all_its_callers() -> None:
    stored = StoredGroups()
    await Driven(stored).commit("g", 7)
    driven = Driven(stored)
    stored.loads.clear()
    assert await asyncio.gather(*(driven.committed("g") for _ in range(50))) == [[7]] * 50
    assert stored.loads == ["g"]


@virtually
async def test_a_heartbeat_without_changes_writes_nothing() -> None:
    driven = Driven()
    await driven.join("g", "m")
    writes = len(driven.stored.writes)
    for _ in range(10):
        await driven.beat("g", "m")
    assert len(driven.stored.writes) == writes
    assert driven.proofs >= 10


@virtually
async def test_a_write_whose_answer_was_lost_is_repeated() -> None:
    driven = Driven()
    driven.stored.failing_after = True
    commit = asyncio.create_task(driven.commit("g", 7))
    await asyncio.sleep(1.0)
    assert not commit.done()
    assert len(driven.stored.writes) > 1
    driven.stored.failing_after = False
    await commit


@virtually
async def test_a_request_does_not_wait_for_the_store_longer_than_its_bound() -> None:
    driven = Driven(wait_s=3.0)
    driven.stored.open.clear()
    began_s = asyncio.get_running_loop().time()
    with pytest.raises(Unavailable, match="did not answer within 3 s"):
        await driven.commit("g", 7)
    assert 3.0 <= asyncio.get_running_loop().time() - began_s <= 5.0
    driven.stored.open.set()
    await turns()
    assert await driven.committed("g") == [7]  # the write went on


@virtually
async def test_requests_that_add_changes_are_refused_while_too_many_wait() -> None:
    driven = Driven(bytes_max=5_000)
    await driven.join("g", "m")
    driven.stored.failing = True
    commits = [asyncio.create_task(driven.commit("g", n, partition=n)) for n in range(100)]
    await turns()
    with pytest.raises(Overloaded, match="many changes wait"):
        await driven.commit("g", 1, partition=200)
    await driven.beat("g", "m")
    driven.stored.failing = False
    outcomes = await asyncio.gather(*commits, return_exceptions=True)
    assert 10 < sum(outcome is None for outcome in outcomes) < 100


@virtually
async def test_a_fenced_coordinator_ends_and_sends_its_requests_to_the_next() -> None:
    driven = Driven()
    await driven.commit("g", 1)
    waiting = asyncio.create_task(driven.coordinator.call("g", JOIN))
    await turns()
    driven.stored.epochs[0] = 2
    with pytest.raises(LeaderUnknown):
        await driven.commit("g", 2)
    with pytest.raises(LeaderUnknown):
        await waiting
    with pytest.raises(LeaderUnknown):
        await driven.committed("g")
    assert driven.coordinator.ended
    assert len(driven.stored.writes) == 1


@virtually
async def test_a_coordinator_without_proof_gives_no_answer_from_memory() -> None:
    driven = Driven()
    await driven.commit("g", 1)
    driven.proof_error = LeaderUnknown("another one leads", retry_after_s=0.1)
    with pytest.raises(LeaderUnknown):
        await driven.committed("g")


@virtually
async def test_a_storm_of_joins_leads_to_few_assignments() -> None:
    driven = Driven()
    driven.assigning.clear()
    await driven.join("g", "m")
    await asyncio.gather(*(driven.join("g", f"m{n}") for n in range(99)))
    driven.assigning.set()
    await turns()
    assert driven.assigned == ["g 1", "g 100"]
    assert driven.machines["g"].targets == [(1, "target of g 1"), (100, "target of g 100")]


@virtually
async def test_a_join_waits_for_the_others_and_is_withdrawn_when_its_client_leaves() -> None:
    driven = Driven()
    gone = asyncio.create_task(driven.coordinator.call("g", JOIN))
    await turns()
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    assert len(driven.machines["g"].withdrawn) == 1
    await asyncio.gather(*(driven.coordinator.call("g", JOIN) for _ in range(2)))


@virtually
async def test_requests_that_wait_are_bounded() -> None:
    driven = Driven(requests_max=3)
    driven.stored.open.clear()
    commits = [asyncio.create_task(driven.commit("g", n)) for n in range(3)]
    await turns()
    with pytest.raises(Overloaded, match="3 requests"):
        await driven.commit("g", 9)
    driven.stored.open.set()
    await asyncio.gather(*commits)


@virtually
async def test_requests_that_wait_for_a_group_to_be_read_are_bounded_in_number_and_in_time() -> None:
    driven = Driven(requests_max=50, wait_s=3.0)
    driven.stored.readable.clear()
    reads = [asyncio.create_task(driven.committed(f"g{number}")) for number in range(50)]
    await turns()
    with pytest.raises(Overloaded, match="50 requests"):
        await driven.committed("h")
    began_s = asyncio.get_running_loop().time()
    for outcome in await asyncio.gather(*reads, return_exceptions=True):
        assert isinstance(outcome, Unavailable)
    assert asyncio.get_running_loop().time() - began_s <= 3.0


@virtually
async def test_a_defect_of_a_machine_harms_its_group_alone() -> None:
    driven = Driven()
    await driven.commit("g", 7)
    with pytest.raises(Unavailable, match="its log has the cause"):
        await driven.coordinator.call("g", calls.DescribeGroup())
    assert await driven.committed("g") == [7]


@virtually
async def test_a_released_coordinator_answers_what_it_accepted() -> None:
    driven = Driven()
    driven.stored.open.clear()
    commit = asyncio.create_task(driven.commit("g", 7))
    waiting = asyncio.create_task(driven.coordinator.call("h", JOIN))
    await turns()
    closing = asyncio.create_task(driven.coordinator.close(drain_s=5.0))
    await turns()
    with pytest.raises(LeaderUnknown):
        await waiting
    with pytest.raises(LeaderUnknown):
        await driven.commit("g", 8)
    driven.stored.open.set()
    await asyncio.gather(commit, closing)
    assert not driven.machines["h"].withdrawn


@virtually
async def test_closing_is_bounded_while_the_store_is_away() -> None:
    driven = Driven()
    driven.stored.failing = True
    driven.machines.clear()
    commit = asyncio.create_task(driven.commit("g", 7))
    await turns()
    driven.stored.failing = False
    driven.stored.open.clear()
    second = asyncio.create_task(driven.commit("g", 8))
    await turns()
    began_s = asyncio.get_running_loop().time()
    await driven.coordinator.close(drain_s=2.0)
    assert asyncio.get_running_loop().time() - began_s <= 2.5
    for ended in await asyncio.gather(commit, second, return_exceptions=True):
        assert isinstance(ended, Unavailable)
