"""Works of one background loop that run at the same time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest
from tests.broker.set_clock import SetClock

from tidelog.services.broker.archive.side_by_side import SideBySide
from tidelog.storage.errors import Unavailable


def works(clock: SetClock) -> SideBySide[str]:
    return SideBySide("work on", clock, at_once=2, pause_s=lambda _: 5.0)


async def test_one_work_for_each_key_runs_at_a_time() -> None:
    running, gate = works(SetClock()), asyncio.Event()
    running.begin("a", _waiting(gate))
    assert not running.may_begin("a")
    assert running.may_begin("b")
    assert running.has_room
    running.begin("b", _waiting(gate))
    assert not running.has_room
    gate.set()
    await running.all_ended()
    assert len(running) == 0
    assert running.may_begin("a")


async def test_a_key_whose_work_failed_pauses_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    clock = SetClock()
    running = works(clock)
    running.begin("a", _failing)
    await running.all_ended()
    assert "work on a failed, next in 5 s: the store is away" in caplog.text
    assert not running.may_begin("a")
    assert running.may_begin("b")
    clock.pass_time(5)
    assert running.may_begin("a")


async def test_a_defect_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    running = works(SetClock())

    async def defective() -> None:
        raise ZeroDivisionError

    running.begin("a", defective)
    await running.all_ended()
    (record,) = caplog.records
    assert (record.levelno, record.exc_info is not None) == (logging.ERROR, True)


async def test_closing_cancels_what_runs() -> None:
    running, gate = works(SetClock()), asyncio.Event()
    running.begin("a", _waiting(gate))
    await running.close()
    assert len(running) == 0
    running.begin("b", _waiting(gate))
    await asyncio.sleep(0)
    await running.close()
    assert len(running) == 0


def _waiting(gate: asyncio.Event) -> Callable[[], Awaitable[None]]:
    async def wait() -> None:
        await gate.wait()

    return wait


async def _failing() -> None:
    raise Unavailable("the store is away")
