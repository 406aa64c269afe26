"""The right to lead, as a write-ahead log's writer asks for it.

A lease is only ever an economy here: it saves the read of the floor after each commit. Safety stands on the log alone
(`commit_fsm`), so with the coordinator down, or no coordinator at all, everything goes on. But the economy rests on a
promise: if one writer of a shard relies on a lease, every writer claims only while it holds it.
"""

from __future__ import annotations

from typing import Protocol


class Lease(Protocol):
    """What is known of it without asking anyone."""

    def is_fresh(self) -> bool:
        """Whether nobody else was given the right to lead since this epoch was claimed, up to now: held without a break
        from before the claim (one that ran out and was regained is another lease), and by the monotonic clock not run
        out yet, the time to live counted from before the last keep-alive was sent. False whenever that is not certain.
        """
        ...


class NoLease:
    """No lease is held: every commit reads the floor."""

    def is_fresh(self) -> bool:
        return False
