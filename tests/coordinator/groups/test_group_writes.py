"""Writes of groups: in order, gathered, and bounded while the store is away."""

from __future__ import annotations

import asyncio

from tests.broker.brokers import until
from tests.coordinator.groups.memory_group_store import MemoryGroupStore, StoredGroups

from tidelog.coordinator.groups.group_counts import GroupCounts
from tidelog.coordinator.groups.group_writes import GroupWrites, WriteBounds
from tidelog.coordinator.groups.stored import head_key, member_key, offset_key
from tidelog.coordinator.kv.key_value import PutKey
from tidelog.storage.runtime import Runtime

A, B = member_key("g", "a"), member_key("g", "b")
OFFSET = offset_key("g", "web", 0)


def writes_to(stored: StoredGroups, unhurried_s: float = 0.0) -> GroupWrites:
    def ended(error: Exception) -> None:
        raise AssertionError(error)

    return GroupWrites(MemoryGroupStore(stored), Runtime(), WriteBounds(unhurried_s=unhurried_s), GroupCounts(), ended)


async def test_of_a_key_that_changes_twice_in_a_write_the_last_change_is_stored() -> None:
    stored = StoredGroups()
    stored.open.clear()
    writes = writes_to(stored)
    writes.add("g", [PutKey(head_key("g"), b"first")])
    await asyncio.sleep(0)
    for change in (PutKey(A, b"gave up"), PutKey(B, b"got"), PutKey(A, b"got another")):
        writes.add("g", [change])
    stored.open.set()
    await writes.flush(5.0)
    assert {change.key: change.value for change in stored.writes[-1] if isinstance(change, PutKey)} == {
        A: b"got another",
        B: b"got",
    }
    assert len(stored.writes[-1]) == 2


async def test_commits_that_wait_for_the_store_take_the_room_of_one() -> None:
    stored = StoredGroups()
    stored.open.clear()
    writes = writes_to(stored)
    for number in range(10_000):
        writes.add("g", [PutKey(OFFSET, b"%d" % number)])
    await asyncio.sleep(0)
    assert not writes.full
    stored.open.set()
    await writes.flush(5.0)
    assert sum(map(len, stored.writes)) <= 2
    assert stored.groups["g"][OFFSET] == b"9999"


async def test_an_answer_waits_for_the_keys_that_it_rests_on() -> None:
    stored = StoredGroups()
    stored.open.clear()
    writes = writes_to(stored)
    given: list[str] = []
    writes.add("g", [PutKey(A, b"1"), PutKey(A, b"2")])
    assert writes.after("g", frozenset({A}), lambda _: given.append("a"))
    assert not writes.after("g", frozenset({B}), lambda _: given.append("b"))
    assert writes.after("g", None, lambda _: given.append("all"))
    stored.open.set()
    await writes.flush(5.0)
    assert given == ["a", "all"]


async def test_changes_that_no_reply_waits_for_are_one_write() -> None:
    stored = StoredGroups()
    writes = writes_to(stored, unhurried_s=3600.0)
    for number in range(100):
        writes.add("g", [PutKey(OFFSET, b"%d" % number)])
        await asyncio.sleep(0)
    assert stored.writes == []
    writes.add("g", [PutKey(A, b"1")])
    given: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    assert writes.after("g", frozenset({A}), given.set_result)
    async with asyncio.timeout(5):
        assert await given is None
    assert (len(stored.writes), stored.groups["g"][OFFSET]) == (1, b"99")


async def test_unhurried_changes_are_stored_by_a_flush_and_after_their_time() -> None:
    stored = StoredGroups()
    writes = writes_to(stored, unhurried_s=3600.0)
    writes.add("g", [PutKey(A, b"1")])
    await asyncio.sleep(0)
    await writes.flush(5.0)
    assert stored.groups["g"][A] == b"1"
    writes = writes_to(stored, unhurried_s=0.001)
    writes.add("g", [PutKey(A, b"2")])
    await until(lambda: stored.groups["g"][A] == b"2")
