"""Which fetches go on where an earlier one ended: those of consumers that replay a partition, for whom it pays to read
ahead.

Nobody says that they replay; a fetch that begins exactly where another ended does so nearly always.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from tidelog.storage.layout import TopicPartition

ENDS_MAX = 10_000
"""Ends of fetches that are remembered, the latest ones."""


@dataclass(frozen=True)
class _End:
    topic_partition: TopicPartition
    next_offset: int


class Replays:
    """Ends of fetches of cold records."""

    def __init__(self) -> None:
        self._ends: OrderedDict[_End, None] = OrderedDict()

    def goes_on(self, topic_partition: TopicPartition, offset: int) -> bool:
        """Whether an earlier fetch ended at `offset`. Two consumers that meet there both go on."""
        return _End(topic_partition, offset) in self._ends

    def ended(self, topic_partition: TopicPartition, next_offset: int) -> None:
        """A fetch ended before `next_offset`."""
        end = _End(topic_partition, next_offset)
        self._ends[end] = None
        self._ends.move_to_end(end)
        if len(self._ends) > ENDS_MAX:
            self._ends.popitem(last=False)
