"""How much of what there is to read a micro-batch takes. All functions are pure.

As in Spark's Kafka source, a bound on offsets is shared by the partitions in proportion to their backlogs, so all of
them reach the end of the log together. A share is at least one offset, so that every partition advances.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.spark_connector.options.stream_options import AdmissionLimits

TopicPartition = tuple[str, int]


@dataclass(frozen=True)
class Backlog:
    """The offsets ``[start, end)`` of a partition that can be read now; none if `end` is not after `start`."""

    start: int
    end: int

    @property
    def offsets(self) -> int:
        return max(0, self.end - self.start)


Backlogs = Mapping[TopicPartition, Backlog]


def backlog_offsets(backlogs: Backlogs) -> int:
    return sum(each.offsets for each in backlogs.values())


def waits_for_more(backlogs: Backlogs, limits: AdmissionLimits, waited_ms: float | None) -> bool:
    """Whether there is too little for a micro-batch. `waited_ms`: since the last one; None before the first one, which
    does not wait."""
    if limits.offsets_min is None or waited_ms is None or waited_ms >= limits.delay_ms_max:
        return False
    return backlog_offsets(backlogs) < limits.offsets_min


def shared_out(backlogs: Backlogs, offsets_max: int | None) -> dict[TopicPartition, int]:
    """The end of the micro-batch in each partition, with about `offsets_max` offsets in all."""
    total = backlog_offsets(backlogs)
    if offsets_max is None or total <= offsets_max:
        return {place: each.end for place, each in backlogs.items()}
    return {
        place: each.start + _share(each.offsets, offsets_max, total) if each.offsets else each.end
        for place, each in backlogs.items()
    }


def _share(offsets: int, offsets_max: int, total: int) -> int:
    return min(offsets, max(1, offsets * offsets_max // total))
