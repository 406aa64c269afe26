import logging

import pytest
from tests.broker.fast_clock import FastClock

from tidelog.storage.background_loop import BackgroundLoop
from tidelog.storage.errors import Unavailable
from tidelog.storage.runtime import Runtime


class Scripted(BackgroundLoop):
    """Each step takes the next item: it returns a pause or raises an error."""

    def __init__(self, clock: FastClock, steps: list[float | Exception]) -> None:
        super().__init__("the test", Runtime(clock))
        self.steps = steps
        self.at_s: list[float] = []

    async def step(self) -> float:
        self.at_s.append(self._clock.monotonic())
        step = self.steps.pop(0) if self.steps else 3_600.0
        if isinstance(step, Exception):
            raise step
        return step


async def test_a_failed_step_is_logged_and_tried_again_after_the_backoff(caplog: pytest.LogCaptureFixture) -> None:
    clock = FastClock(100)
    loop = Scripted(clock, [0.0, Unavailable("no store"), ValueError("a defect"), 10.0])
    loop.start()
    while len(loop.at_s) < 5:
        await clock.sleep(1)
    await loop.close()
    second, third, fourth, fifth = loop.at_s[1:5]
    assert third - second >= 5
    assert fourth - third >= 5
    assert fifth - fourth >= 10
    levels = [(record.levelno, bool(record.exc_info)) for record in caplog.records]
    assert levels == [(logging.WARNING, False), (logging.ERROR, True)]
    assert "the test failed and is tried again in 5 s: no store" in caplog.text


async def test_a_loop_that_was_not_started_closes() -> None:
    await Scripted(FastClock(1), []).close()
