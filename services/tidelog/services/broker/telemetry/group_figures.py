"""The groups that a broker coordinates, as figures for exporters."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelog.coordinator.groups.group_counts import GroupCounts


@dataclass(frozen=True)
class GroupFigures:
    """Groups in memory, their members, and requests without an answer, now; `counts` since the broker started."""

    groups: int = 0
    members: int = 0
    waiting: int = 0
    counts: GroupCounts = field(default_factory=GroupCounts)
