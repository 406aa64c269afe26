"""A proof by the log covers only the calls that began before it was requested."""

import asyncio

import pytest
from tests.coordinator.stepped_clock import SteppedClock, turn

from tidelog.services.broker.shard.leadership_proof import LeadershipProof
from tidelog.storage.errors import Unavailable


class Log:
    """Says whether another leader has begun; each answer waits for `answer`."""

    def __init__(self) -> None:
        self.asked = 0
        self.overtaken = False
        self._answers: list[asyncio.Future[None]] = []

    async def ask(self) -> bool:
        self.asked += 1
        seen = self.overtaken
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._answers.append(answer)
        await answer
        return seen

    def end_check(self, error: Exception | None = None) -> None:
        """The oldest running check gets its answer; nobody has seen it yet."""
        if error:
            self._answers.pop(0).set_exception(error)
        else:
            self._answers.pop(0).set_result(None)

    async def answer(self, error: Exception | None = None) -> None:
        """End the running check with its result, or with `error`."""
        await turn()
        self.end_check(error)
        for _ in range(5):
            await turn()


async def test_calls_that_begin_together_share_one_check() -> None:
    log, clock = Log(), SteppedClock()
    proof = LeadershipProof(log.ask, clock)
    calls = [asyncio.create_task(proof.led()) for _ in range(100)]
    await log.answer()
    assert await asyncio.gather(*calls) == [True] * 100
    assert log.asked == 1


async def test_a_check_that_was_sent_before_a_call_began_does_not_cover_it() -> None:
    """The first check read the log before another leader began; the second call began after that."""
    log, clock = Log(), SteppedClock()
    proof = LeadershipProof(log.ask, clock)
    first = asyncio.create_task(proof.led())
    await turn()
    await turn()
    log.overtaken = True
    late = [asyncio.create_task(proof.led()) for _ in range(10)]
    await log.answer()
    assert await first
    assert not any(call.done() for call in late)
    await log.answer()
    assert await asyncio.gather(*late) == [False] * 10
    assert log.asked == 2


@pytest.mark.timeout(60)
async def test_a_call_that_begins_in_the_moment_when_a_check_ends_asks_again() -> None:
    """The check has its answer, but the event loop has not delivered it yet. If the call joined this check again and
    again, the loop could never deliver it."""
    log, clock = Log(), SteppedClock()
    proof = LeadershipProof(log.ask, clock)
    first = asyncio.create_task(proof.led())
    await turn()
    await turn()
    log.end_check()
    late = asyncio.create_task(proof.led())  # its first step comes right after the check's last step
    await turn()
    assert log.asked == 2
    await log.answer()
    assert await asyncio.gather(first, late) == [True, True]


async def test_a_commit_that_began_after_a_call_proves_as_much_as_a_check() -> None:
    log, clock = Log(), SteppedClock()
    proof = LeadershipProof(log.ask, clock)
    proof.succeeded(proof.begin())
    assert await proof.led(within_s=1)
    call = asyncio.create_task(proof.led())
    await turn()
    await turn()
    proof.succeeded(proof.begin())
    await log.answer()
    assert await call
    assert log.asked == 1, "the commit before the call did not cover it"


async def test_a_proof_is_old_by_when_it_was_asked_for_and_not_by_when_the_answer_came() -> None:
    log, clock = Log(), SteppedClock()
    proof = LeadershipProof(log.ask, clock)
    ask = proof.begin()
    clock.advance(2)
    proof.succeeded(ask)
    assert await asyncio.wait_for(proof.led(within_s=3), 1)
    call = asyncio.create_task(proof.led(within_s=1))
    await log.answer()
    assert await call
    assert log.asked == 1


async def test_a_log_that_cannot_be_asked_proves_nothing() -> None:
    log, clock = Log(), SteppedClock()
    proof = LeadershipProof(log.ask, clock)
    call = asyncio.create_task(proof.led())
    await log.answer(Unavailable("the store is gone"))
    with pytest.raises(Unavailable):
        await call
    again = asyncio.create_task(proof.led())
    await log.answer()
    assert await again
