"""The pauses of a call that looks for a leader, in virtual time."""

from __future__ import annotations

import asyncio
from typing import cast

from tests.coordinator.virtual_time import LoopClock, virtually

from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.broker.cluster.leader_calls import PAUSE_S_FIRST, PAUSE_S_MAX, LeaderCalls, Pauses
from tidelog.services.broker.cluster.leader_router import LeaderRouter


class Places:
    """A router whose shards move when a test says so. It notifies no caller: the pauses have to look."""

    def __init__(self) -> None:
        self.moves = 0
        self.current = True
        self.closed = False
        self.waits: list[float] = []

    def places(self) -> object:
        return self.moves

    async def changed(self, timeout_s: float) -> None:
        self.waits.append(timeout_s)
        await asyncio.sleep(timeout_s)


def looking(places: Places) -> Pauses:
    clock = LoopClock()
    return LeaderCalls(cast(LeaderRouter, places), clock, 30.0).pauses(RequestContext("r"))


async def at_longest(places: Places) -> Pauses:
    """Pauses that have grown to their bound."""
    pauses = looking(places)
    for _ in range(10):
        assert await pauses.passed()
    return pauses


@virtually
async def test_the_pauses_grow_up_to_their_bound() -> None:
    places = Places()
    await at_longest(places)
    assert places.waits[0] == PAUSE_S_FIRST
    assert places.waits[-1] == PAUSE_S_MAX


@virtually
async def test_after_a_move_during_an_attempt_the_next_attempt_comes_soon() -> None:
    places = Places()
    pauses = await at_longest(places)
    places.moves += 1  # while the call is refused: no notification wakes it
    await pauses.passed()
    assert places.waits[-1] == PAUSE_S_FIRST


@virtually
async def test_after_a_move_during_a_pause_the_pauses_begin_anew() -> None:
    places = Places()
    pauses = await at_longest(places)
    asyncio.get_running_loop().call_later(PAUSE_S_MAX / 2, setattr, places, "moves", 1)
    await pauses.passed()
    await pauses.passed()
    assert places.waits[-2:] == [PAUSE_S_MAX, PAUSE_S_FIRST]
