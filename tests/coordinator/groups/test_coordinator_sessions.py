"""The driver of groups: sessions, its timer and its memory, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.coordinator.groups.driven import Driven
from tests.coordinator.groups.plain_machine import SESSION_MS
from tests.coordinator.virtual_time import LoopClock, virtually

from tidelog.coordinator.groups import group_turns
from tidelog.coordinator.groups.heartbeat_pace import INTERVAL_MS_MIN, MS_PER_MEMBER
from tidelog.coordinator.groups.stored import member_key
from tidelog.storage.errors import Overloaded, Unavailable, UnknownMember


@virtually
async def test_a_session_ends_when_it_is_due_and_not_before() -> None:
    driven = Driven()
    await driven.join("g", "m")
    await asyncio.sleep(SESSION_MS / 1000 - 0.1)
    assert "m" in driven.machines["g"].sessions
    await asyncio.sleep(0.3)
    assert member_key("g", "m") not in driven.stored.keys
    with pytest.raises(UnknownMember):
        await driven.beat("g", "m")


@virtually
async def test_nobody_is_expired_while_the_store_is_away() -> None:
    driven = Driven()
    await driven.join("g", "m")
    driven.reachable = False
    await asyncio.sleep(60)
    await driven.beat("g", "m")
    await asyncio.sleep(60)
    driven.reachable = True
    await asyncio.sleep(SESSION_MS / 1000 - 2)
    assert "m" in driven.machines["g"].sessions
    await asyncio.sleep(4)
    assert not driven.machines["g"].sessions


@virtually
async def test_nobody_is_expired_while_writes_fail() -> None:
    driven = Driven(wait_s=1.0)
    await driven.join("g", "m")
    driven.stored.failing = True
    with pytest.raises(Unavailable):
        await driven.commit("g", 1)
    await asyncio.sleep(60)
    assert "m" in driven.machines["g"].sessions
    driven.stored.failing = False
    await asyncio.sleep(5)
    await driven.beat("g", "m")


@virtually
async def test_nobody_is_expired_while_leadership_cannot_be_proved() -> None:
    driven = Driven()
    await driven.join("g", "m")
    driven.proof_error = Unavailable("the log does not answer")
    with pytest.raises(Unavailable):
        await driven.beat("g", "m")
    await asyncio.sleep(60)
    driven.proof_error = None
    await asyncio.sleep(3)
    await driven.beat("g", "m")


@virtually
async def test_members_get_a_whole_session_after_the_process_was_paused() -> None:
    driven = Driven()
    await driven.join("g", "m")
    loop: Any = asyncio.get_running_loop()
    loop._jumping.now_s += 60  # nothing ran for a minute
    await asyncio.sleep(SESSION_MS / 1000 - 2)
    await driven.beat("g", "m")


class BusyLoopClock(LoopClock):
    """A task that lets others run continues a second later."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds or 1.0)


@virtually
async def test_a_long_turn_over_many_groups_is_no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_turns, "STEPS_AT_ONCE", 1)
    driven = Driven(clock=BusyLoopClock())
    for name in "abcdefgh":
        await driven.join(name, "m")
    driven.topics = dict(driven.topics)  # every group is due
    await asyncio.sleep(SESSION_MS / 1000 + 20)
    assert driven.counts.extensions == 0
    with pytest.raises(UnknownMember):
        await driven.beat("a", "m")


@virtually
async def test_thousands_of_quiet_groups_are_not_ticked() -> None:
    driven = Driven(idle_s=1_000.0)
    await asyncio.gather(*(driven.commit(f"g{n}", 1) for n in range(3_000)))
    await asyncio.sleep(3)
    before = {name: machine.ticks for name, machine in driven.machines.items()}
    await driven.join("g1", "m")
    await asyncio.sleep(30)
    assert {name for name, machine in driven.machines.items() if machine.ticks > before[name]} == {"g1"}


@virtually
async def test_members_send_heartbeats_as_often_as_their_coordinator_can_afford() -> None:
    driven = Driven()
    await driven.join("g", "m")
    await asyncio.sleep(1.5)
    assert (await driven.beat("g", "m")).heartbeat_interval_ms == INTERVAL_MS_MIN
    await asyncio.gather(*(driven.join("g", f"m{number}") for number in range(999)))
    await asyncio.sleep(1.5)
    assert (await driven.beat("g", "m")).heartbeat_interval_ms == 1_000 * MS_PER_MEMBER


@virtually
async def test_groups_are_ticked_when_topics_have_changed() -> None:
    driven = Driven()
    await driven.join("g", "m")
    await asyncio.sleep(2)
    ticks = driven.machines["g"].ticks
    driven.topics = {}
    await asyncio.sleep(2)
    assert driven.machines["g"].ticks == ticks + 1


@virtually
async def test_idle_groups_are_dropped_from_memory_and_read_again() -> None:
    driven = Driven(idle_s=5.0)
    await driven.commit("g", 7)
    await driven.join("busy", "m")
    for _ in range(10):
        await driven.beat("busy", "m")
        await asyncio.sleep(2)
    assert len(driven.coordinator.loaded) == 1
    assert await driven.committed("g") == [7]


@virtually
async def test_memory_holds_a_bounded_number_of_groups() -> None:
    driven = Driven(groups_max=3)
    for name in "abcde":
        await driven.commit(name, 1)
    assert len(driven.coordinator.loaded) == 3
    for name in "xyz":
        await driven.join(name, "m")
    with pytest.raises(Overloaded, match="3 groups"):
        await driven.commit("one more", 1)
