"""Background threads with low priority, until their work becomes urgent."""

import os
import sys
import threading

import pytest

from tidelog.services.broker.archive.background_threads import (
    ARCHIVE_NICENESS,
    UPKEEP_NICENESS,
    BackgroundThreads,
    processors,
)

linux = pytest.mark.skipif(sys.platform != "linux", reason="a thread has a priority of its own on Linux alone")


def _niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


@linux
@pytest.mark.parametrize("niceness", [ARCHIVE_NICENESS, UPKEEP_NICENESS])
def test_work_stands_back_while_it_is_not_hurried(niceness: int) -> None:
    own = _niceness()
    with BackgroundThreads(1, niceness) as threads:
        assert threads.submit(_niceness).result() == max(own, niceness)
        threads.hurried = True
        assert threads.submit(_niceness).result() == own
        threads.hurried = False
        assert threads.submit(_niceness).result() == max(own, niceness)


def test_archiving_goes_before_upkeep_on_all_processors() -> None:
    assert 0 < ARCHIVE_NICENESS < UPKEEP_NICENESS
    assert processors() >= 1


def test_an_error_reaches_the_caller_who_submitted_the_work() -> None:
    with BackgroundThreads(1) as threads, pytest.raises(ZeroDivisionError):
        threads.submit(divmod, 1, 0).result()


def test_nothing_is_taken_once_it_is_shut_down() -> None:
    threads = BackgroundThreads(1)
    threads.shutdown()
    for threads.hurried in (False, True):
        with pytest.raises(RuntimeError):
            threads.submit(_niceness)
