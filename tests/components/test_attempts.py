"""`attempts` repeats only what was too slow, and tells all figures if every attempt was."""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.attempts import ATTEMPTS_MAX, Attempt, attempts, within
from tests.loop_stalls import watched_loop


def test_one_attempt_within_the_bound_is_enough_and_ends_the_attempts() -> None:
    took_s = [0.3, 0.2, 0.1, 0.4]
    for attempt in attempts():
        with attempt:
            within(0.2, took_s.pop(0), "a plan")
    assert took_s == [0.4]


def test_attempts_that_are_all_too_slow_are_told_in_full() -> None:
    made: list[float] = []

    def each_is_too_slow() -> None:
        for attempt in attempts():
            made.append(len(made) + 1.0)
            with attempt:
                within(0.2, made[-1], "a plan")

    with pytest.raises(AssertionError, match=r"each of 8 attempts.*\n.*a plan: 1\.0000 s, the bound is 0\.2 s") as told:
        each_is_too_slow()
    assert len(made) == ATTEMPTS_MAX
    assert all(f"{took_s:.4f} s" in str(told.value) for took_s in made)


def test_any_other_failure_ends_the_test_at_once() -> None:
    made: list[Attempt] = []

    def one_is_wrong() -> None:
        for attempt in attempts():
            made.append(attempt)
            with attempt:
                raise AssertionError("wrong answer")

    with pytest.raises(AssertionError, match="wrong answer"):
        one_is_wrong()
    assert len(made) == 1


async def test_a_turn_that_holds_the_loop_is_found_in_each_attempt() -> None:
    def hold() -> None:
        began_s = time.thread_time()
        while time.thread_time() - began_s < 0.05:
            pass

    async def each_holds_the_loop() -> None:
        for attempt in attempts(2):
            with attempt:
                async with watched_loop(0.01):
                    asyncio.get_running_loop().call_later(0.01, hold)
                    await asyncio.sleep(0.02)

    with pytest.raises(AssertionError, match=r"the longest of \d+ turns of the loop.*\n.*turns of the loop"):
        await each_holds_the_loop()
