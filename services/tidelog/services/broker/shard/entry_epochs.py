"""The leader epochs of a shard's log, by the number of the first entry of each.

They are noted when the log is opened, so they are as many as there are leaders in the log that is not archived. The
manifest has those of archived records (`ColdState.epochs`). `leader_epochs` joins both for one partition.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.services.broker.shard.partition_state import PartitionState
from tidelog.storage.manifests.shard_values import LeaderEpoch
from tidelog.storage.wal.wal_entry import WalHeader


class EntryEpochs:
    """An epoch never goes back from one entry to the next: a later leader fences the earlier ones (inv. 3)."""

    def __init__(self) -> None:
        self._begun: list[tuple[int, int]] = []

    def add(self, header: WalHeader) -> None:
        """Note an entry; they come in order."""
        if not self._begun or header.epoch > self._begun[-1][1]:
            self._begun.append((header.seq, header.epoch))

    def begun(self) -> Sequence[tuple[int, int]]:
        """The first entry of each epoch, and the epoch."""
        return tuple(self._begun)


def leader_epochs(state: PartitionState, entries: EntryEpochs) -> Sequence[LeaderEpoch]:
    """The epochs in which records of a partition were committed, ascending, from that of the log start on."""
    found = list(state.view.state.epochs)
    for first_seq, epoch in entries.begun():
        first_offset = state.first_offset_from_entry(first_seq)
        if first_offset is None:
            break
        if found and found[-1].first_offset == first_offset and found[-1].epoch < epoch:
            found.pop()  # nothing of the partition was written in that epoch
        if not found or epoch > found[-1].epoch:
            found.append(LeaderEpoch(epoch, first_offset))
    return found
