"""Calls at the leader of a shard that their callers give up."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any, NoReturn, cast

import pytest

from tidelog.services.broker.api.cluster import Leader
from tidelog.services.broker.cluster.leader_calls import LeaderCalls
from tidelog.services.broker.cluster.leader_router import LeaderRouter
from tidelog.storage.errors import LeaderUnknown, Unavailable
from tidelog.storage.runtime import SystemClock

LEADER = Leader("broker-2", "http://127.0.0.1:1")


class OneRoute:
    """A router of shard 0. `move` replaces its leader."""

    def __init__(self) -> None:
        self.move: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def moved(self, shard: int, leader: Leader) -> asyncio.Future[None]:
        return self.move


@pytest.fixture
async def defects() -> list[dict[str, Any]]:
    """The errors that asyncio reports because no one has taken them."""
    found: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: found.append(told))
    return found


async def fails_when_it_is_cancelled(leader: Leader) -> NoReturn:
    try:
        await asyncio.Event().wait()
    finally:
        raise Unavailable("the connection to the peer broke")


async def give_up(end: Callable[[asyncio.Future[Any], OneRoute], object], error: type[BaseException]) -> None:
    """Make a call, let `end` end it, and let asyncio report the errors that no one has taken."""
    router = OneRoute()
    calls = LeaderCalls(cast(LeaderRouter, router), SystemClock(), 1.0)
    call = asyncio.ensure_future(calls.at_leader((0,), LEADER, fails_when_it_is_cancelled))
    await asyncio.sleep(0.01)
    end(call, router)
    with pytest.raises(error):
        await call
    del call
    await asyncio.sleep(0)
    gc.collect()


async def test_the_late_error_of_a_peer_is_no_defect_if_the_caller_was_cancelled(defects: list[Any]) -> None:
    await give_up(lambda call, _: call.cancel(), asyncio.CancelledError)
    assert defects == []


async def test_the_late_error_of_a_leader_that_was_replaced_is_no_defect(defects: list[Any]) -> None:
    await give_up(lambda _, router: router.move.set_result(None), LeaderUnknown)
    assert defects == []
