"""Work on many things at once: errors and cancellation leave nothing half done."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tidelog.storage.errors import Unavailable
from tidelog.storage.in_flight import each_of


class Works:
    """Work on numbers: waits until a number's turn ends, and fails for some numbers."""

    def __init__(self, failing: Sequence[int] = ()) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.may_end = asyncio.Event()
        self._failing = failing

    async def __call__(self, number: int) -> None:
        self.begun.append(number)
        if number in self._failing:
            raise Unavailable(f"{number} fails")
        await self.may_end.wait()
        self.ended.append(number)


async def turns(count: int) -> None:
    """Let other tasks run."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_so_many_are_under_way_at_once_and_all_are_done() -> None:
    works = Works()
    all_of_it = asyncio.create_task(each_of(range(10), works, at_once=3))
    await turns(5)
    assert works.begun == [0, 1, 2]
    works.may_end.set()
    await all_of_it
    assert sorted(works.ended) == list(range(10))


async def test_after_an_error_those_under_way_end_and_no_others_begin() -> None:
    works = Works(failing=[1])
    all_of_it = asyncio.create_task(each_of(range(10), works, at_once=3))
    await turns(5)
    assert not all_of_it.done()
    works.may_end.set()
    with pytest.raises(Unavailable, match="1 fails"):
        await all_of_it
    assert works.begun == [0, 1, 2]
    assert works.ended == [0, 2]


async def test_of_two_errors_one_is_raised() -> None:
    with pytest.raises(Unavailable, match="fails"):
        await each_of(range(10), Works(failing=[0, 1]), at_once=2)


async def test_nothing_to_do_is_done() -> None:
    await each_of([], Works(), at_once=3)


async def test_with_the_caller_all_is_cancelled() -> None:
    works = Works()
    all_of_it = asyncio.create_task(each_of(range(10), works, at_once=3))
    await turns(5)
    all_of_it.cancel()
    with pytest.raises(asyncio.CancelledError):
        await all_of_it
    works.may_end.set()
    await turns(5)
    assert (works.begun, works.ended) == ([0, 1, 2], [])
