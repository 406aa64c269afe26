"""Until when a rebalance of a classic group waits for its members: the time of its join barrier, then of its sync
barrier.

The first rebalance of an empty group waits ``group.initial.rebalance.delay.ms``, and again as long after each wait in
which members came, at most the longest rebalance timeout of the members in all.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class _FirstJoin:
    """`left_ms`: by how much the barrier may still be put off, for `grew`: members that came since it was."""

    left_ms: int
    grew: bool = False


class JoinBarrier:
    """Times in ms on the monotonic clock. `due_ms`: when the time is over; None: there is no barrier."""

    def __init__(self, delay_ms: int) -> None:
        self._delay_ms = delay_ms
        self._first: _FirstJoin | None = None
        self.due_ms: int | None = None

    @property
    def first(self) -> bool:
        """Whether this is the first rebalance of a group that was empty."""
        return self._first is not None

    def begin(self, now_ms: int, wait_ms: int) -> None:
        self._first = None
        self.due_ms = now_ms + wait_ms

    def begin_first(self, now_ms: int, wait_ms: int) -> None:
        """`wait_ms`: for so long it may be put off in all."""
        self._first = _FirstJoin(max(wait_ms - self._delay_ms, 0))
        self.due_ms = now_ms + self._delay_ms

    def restart(self, now_ms: int, wait_ms: int) -> None:
        """Wait a whole time from now on. The first rebalance keeps its time."""
        if self.due_ms is not None and self._first is None:
            self.due_ms = now_ms + wait_ms

    def prolong(self, now_ms: int, wait_ms: int) -> None:
        """Wait on, in the same rebalance."""
        self.due_ms = now_ms + wait_ms

    def end(self) -> None:
        self.due_ms = None

    def grow(self) -> None:
        """A member came."""
        if self._first is not None:
            self._first.grew = True

    def over(self, now_ms: int) -> bool:
        return self.due_ms is not None and now_ms >= self.due_ms

    def first_over(self, now_ms: int) -> bool:
        """As `over` for the first rebalance, which is put off if members came."""
        assert self._first is not None, "only the first rebalance is put off"
        if self.over(now_ms) and self._first.grew:
            delay_ms = min(self._delay_ms, self._first.left_ms)
            self.due_ms, self._first = now_ms + delay_ms, _FirstJoin(self._first.left_ms - delay_ms)
        return self.over(now_ms)
