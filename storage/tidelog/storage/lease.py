"""The right to lead, as a write-ahead log's writer asks for it.

A lease is only ever an economy here: it saves the read of the floor after each commit. Safety stands on the log alone
(`wal_writer`), so with the coordinator down, or no coordinator at all, everything goes on.
"""

from __future__ import annotations

from typing import Protocol


class Lease(Protocol):
    """What is known of it without asking anyone."""

    def is_fresh(self) -> bool:
        """Whether nobody else can have led up to now: by the monotonic clock, the time to live counted from before the
        last keep-alive was sent. False whenever that is not certain."""
        ...


class NoLease:
    """No lease is held: every commit reads the floor."""

    def is_fresh(self) -> bool:
        return False
