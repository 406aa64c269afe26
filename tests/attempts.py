"""Bounds on time that hold on a busy machine: a test fails only if each of several attempts exceeds its bound.

Other processes, a paused virtual machine or a garbage collection can slow any single attempt down. A fault of Tidelog
slows each of them down. So a test repeats what it times until one attempt is quick enough::

    for attempt in attempts():
        with attempt, quicker_than(0.02, "a plan", time.process_time):
            plan(manifest)

Only `TooSlow` leads to another attempt. Every other failure ends the test at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType

ATTEMPTS_MAX = 8


class TooSlow(AssertionError):
    """One attempt exceeded a bound on time."""


def within(bound_s: float, took_s: float, what: str) -> None:
    """Raise `TooSlow` unless `took_s` is below `bound_s`."""
    if took_s >= bound_s:
        raise TooSlow(f"{what}: {took_s:.4f} s, the bound is {bound_s:g} s")


@contextmanager
def quicker_than(bound_s: float, what: str, now_s: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Raise `TooSlow` if the block takes `bound_s` or longer by the clock `now_s`."""
    began_s = now_s()
    yield
    within(bound_s, now_s() - began_s, what)


@dataclass
class Attempt:
    """One attempt, a context. `slow`: how it exceeded its bound, if it did."""

    slow: TooSlow | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> bool:
        self.slow = error if isinstance(error, TooSlow) else None
        return self.slow is not None


def attempts(attempts_max: int = ATTEMPTS_MAX) -> Iterator[Attempt]:
    """Yield attempts until one is not too slow. Raise an AssertionError with all figures if there is none."""
    figures = []
    for _ in range(attempts_max):
        attempt = Attempt()
        yield attempt
        if attempt.slow is None:
            return
        figures.append(str(attempt.slow))
    raise AssertionError("\n".join((f"each of {attempts_max} attempts was too slow", *figures)))
