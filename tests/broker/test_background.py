"""Background threads with low priority, until their work becomes urgent, and their turns on the processors."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from tests.broker.set_clock import SetClock

from tidelog.services.broker.archive.background_threads import NICENESS, BackgroundThreads, processors
from tidelog.services.broker.archive.processor_turns import ProcessorTurns, Work
from tidelog.services.broker.shard.producer_activity import ACTIVE_S, ProducerActivity

linux = pytest.mark.skipif(sys.platform != "linux", reason="a thread has a priority of its own on Linux alone")
DEADLINE_S = 10.0


def _niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def threads_of(count: int, work: Work = Work.ARCHIVE) -> BackgroundThreads:
    """Threads that take turns with no others, while producers are quiet."""
    return BackgroundThreads(ProcessorTurns(count, lambda: False), work)


@linux
@pytest.mark.parametrize("work", list(Work))
def test_work_stands_back_while_it_is_not_hurried(work: Work) -> None:
    own = _niceness()
    with threads_of(1, work) as threads:
        assert threads.submit(_niceness).result() == max(own, NICENESS[work])
        threads.hurried = True
        assert threads.submit(_niceness).result() == own
        threads.hurried = False
        assert threads.submit(_niceness).result() == max(own, NICENESS[work])


@linux
def test_no_thread_is_one_that_a_busy_machine_may_starve() -> None:
    """Under SCHED_IDLE, a thread that holds the GIL would stop the broker for seconds (ADR 0033)."""

    def policy() -> int:
        return os.sched_getscheduler(threading.get_native_id())

    for work in Work:
        with threads_of(1, work) as threads:
            assert threads.submit(policy).result() == os.SCHED_OTHER


def test_archiving_goes_before_upkeep_on_all_processors() -> None:
    assert 0 < NICENESS[Work.ARCHIVE] < NICENESS[Work.UPKEEP]
    assert processors() >= 1


def test_an_error_reaches_the_caller_who_submitted_the_work() -> None:
    with threads_of(1) as threads, pytest.raises(ZeroDivisionError):
        threads.submit(divmod, 1, 0).result()


def test_nothing_is_taken_once_it_is_shut_down() -> None:
    threads = threads_of(1)
    threads.shutdown()
    for threads.hurried in (False, True):
        with pytest.raises(RuntimeError):
            threads.submit(_niceness)


class Held:
    """Works that stay on their threads until they are released."""

    def __init__(self) -> None:
        self._begun = threading.Semaphore(0)
        self._released = threading.Event()
        self.order: list[str] = []

    def run(self, name: str = "") -> None:
        self.order.append(name)
        self._begun.release()
        assert self._released.wait(DEADLINE_S)

    def has_begun(self, timeout_s: float = DEADLINE_S) -> bool:
        """Whether one more has begun."""
        return self._begun.acquire(timeout=timeout_s)

    def release(self) -> None:
        self._released.set()


@contextmanager
def busy(clock: SetClock, count: int) -> Iterator[tuple[ProducerActivity, BackgroundThreads, BackgroundThreads, Held]]:
    """A broker's archiving and upkeep threads on `count` processors, each thread with a work that is held."""
    producers, held = ProducerActivity(clock), Held()
    turns = ProcessorTurns(count, lambda: producers.active)
    with ExitStack() as stack:
        archiving, upkeep = (stack.enter_context(BackgroundThreads(turns, work)) for work in Work)
        stack.callback(held.release)
        yield producers, archiving, upkeep, held


@pytest.mark.parametrize(("count", "at_once"), [(1, 1), (2, 1), (4, 3)])
def test_active_producers_keep_one_processor_from_all_background_work(count: int, at_once: int) -> None:
    clock = SetClock()
    with busy(clock, count) as (producers, archiving, upkeep, held):
        producers.appended()
        for threads in (archiving, upkeep):
            for _ in range(count):
                threads.submit(held.run)
        assert all(held.has_begun() for _ in range(at_once))
        assert not held.has_begun(0.05)
        clock.pass_time(ACTIVE_S)
        assert all(held.has_begun() for _ in range(count - at_once)), "producers are quiet: all processors"
        assert not held.has_begun(0.05), "no more than processors, archiving and upkeep together"


def test_hurried_work_uses_all_processors_whatever_producers_do() -> None:
    with busy(SetClock(), 2) as (producers, archiving, upkeep, held):
        producers.appended()
        upkeep.submit(held.run)
        assert held.has_begun()
        archiving.hurried = True
        for _ in range(2):
            archiving.submit(held.run)
        assert held.has_begun()
        assert held.has_begun()


def test_archiving_that_waits_for_a_turn_goes_before_upkeep_that_waited_longer() -> None:
    with busy(SetClock(), 1) as (_, archiving, upkeep, held):
        first = upkeep.submit(held.run, "first")
        assert held.has_begun()
        last = upkeep.submit(held.run, "upkeep")
        archiving.submit(held.run, "archiving")
        assert not held.has_begun(0.05)
        held.release()
        for work in (first, last):
            work.result(DEADLINE_S)
        assert held.order == ["first", "archiving", "upkeep"]
