"""Where the records of a leader epoch end: Kafka's OffsetForLeaderEpoch (KIP-320).

A consumer asks after a change of the leader whether the log still holds what it has read. A leader of Tidelog never
cuts committed records off, so an epoch never ends below an offset that was read in it."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.services.broker.api.cluster import EpochEnd
from tidelog.storage.manifests.shard_values import LeaderEpoch

NOT_BEGUN = EpochEnd(-1, -1)


def epoch_end(
    epochs: Sequence[LeaderEpoch], current: int, asked: int, *, log_start_offset: int, high_watermark: int
) -> EpochEnd:
    """The end of the newest epoch up to `asked` that has records. `epochs`: those of the partition's records,
    ascending; `current`: that of the leader, which is not among them if it has committed nothing here."""
    if not 0 <= asked <= current:
        return NOT_BEGUN
    if asked == current:
        return EpochEnd(current, high_watermark)
    begun = [found.epoch for found in epochs if found.epoch <= asked]
    later = next((found.first_offset for found in epochs if found.epoch > asked), high_watermark)
    return EpochEnd(begun[-1] if begun else asked, max(later, log_start_offset))
