"""Decides when a shard's write-ahead log is archived. Pure.

- **Size.** A log is archived at `bytes_min`, or at `entries_max` entries: each costs a read when a broker opens it.
- **Age and cost.** A commit takes one PUT for any number of partitions. A pass takes one for each topic with records,
  and one for the manifest. So a log that is only old waits, within bounds, until a pass costs no more PUTs than its
  entries did (docs/adr/0014-archiving-pays.md).
- **The bound.** All logs of a broker together may hold `debt_bytes_max` that is not archived (`shard.debt_brake`). From
  a quarter on archiving has fallen behind: it gets its share of the processors, and upkeep waits. From half on each log
  is due, the largest first, because many small logs may reach the bound together.
"""

from __future__ import annotations

from dataclasses import dataclass

PATIENCE = 10
"""A WAL is archived at this multiple of `interval_ms` although the pass costs more PUTs than its entries did."""

PUTS_FREE = 16
"""A pass of so few PUTs is never put off: records of few topics are archived after `interval_ms`."""

MANIFEST_PUTS = 1

BEHIND_SHARE = 0.25
PRESSED_SHARE = 0.5
BEHIND_ENTRIES_FACTOR = 8
"""Archiving has also fallen behind if one log has this multiple of `entries_max`."""


@dataclass(frozen=True)
class WalDebt:
    """The part of a WAL that is not archived: its entries, bytes and topics, and the age of its oldest entry."""

    entries: int
    bytes: int
    topics: int
    age_ms: int


@dataclass(frozen=True)
class ArchivePolicy:
    """Archive a WAL at `bytes_min`, at `entries_max` entries, or at the age of `interval_ms` if the pass is worth its
    PUTs; any WAL if the debt of all is near `debt_bytes_max`."""

    interval_ms: int
    bytes_min: int
    debt_bytes_max: int = 1 << 30
    entries_max: int = 4_000

    def is_due(self, debt: WalDebt, all_debt_bytes: int = 0) -> bool:
        """Whether to archive a WAL with `debt`, on a broker with `all_debt_bytes`."""
        if not debt.entries:
            return False
        full = debt.bytes >= self.bytes_min or debt.entries >= self.entries_max
        return full or self._is_pressed(all_debt_bytes) or (debt.age_ms >= self.interval_ms and self._is_worth_it(debt))

    def is_behind(self, entries_most: int, all_debt_bytes: int) -> bool:
        """Whether so much is not archived that archiving must not run at low priority any longer. `entries_most`: of
        the longest log."""
        too_long = entries_most >= self.entries_max * BEHIND_ENTRIES_FACTOR
        return too_long or all_debt_bytes >= self.debt_bytes_max * BEHIND_SHARE

    def _is_pressed(self, all_debt_bytes: int) -> bool:
        return all_debt_bytes >= self.debt_bytes_max * PRESSED_SHARE

    def _is_worth_it(self, debt: WalDebt) -> bool:
        """Whether a pass costs no more PUTs than the entries did, or has waited long enough."""
        puts = debt.topics + MANIFEST_PUTS
        return puts <= max(debt.entries, PUTS_FREE) or debt.age_ms >= PATIENCE * self.interval_ms
