"""The groups that a broker coordinates, as figures for exporters."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelog.coordinator.groups.group_counts import GroupCounts


@dataclass(frozen=True)
class GroupFigures:
    """Groups in memory, their members, and requests without an answer, now; `counts` since the broker started.
    `copy_age_s`: as `GroupStores.copy_age_s`."""

    groups: int = 0
    members: int = 0
    waiting: int = 0
    copy_age_s: float = 0.0
    counts: GroupCounts = field(default_factory=GroupCounts)
