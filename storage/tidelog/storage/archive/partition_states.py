"""The states of partitions after a pass of the archiver. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidelog.storage.archive.topic_plan import PartitionPart
from tidelog.storage.manifests.losses import past_losses
from tidelog.storage.manifests.shard_values import ColdState, KnownProducer, LeaderEpoch
from tidelog.storage.wal.wal_entry import ProducerMark


@dataclass(frozen=True, slots=True)
class ProducerLimits:
    """At most `producers_max` producers of a partition are kept, and none longer than `expiration_ms` after its last
    batch was archived (inv. 7)."""

    producers_max: int = 10_000
    expiration_ms: int = 86_400_000


def state_after(state: ColdState, part: PartitionPart, limits: ProducerLimits, now_ms: int) -> ColdState:
    """`state` after the records of `part`."""
    return replace(
        state,
        cold_end=past_losses(state.losses, part.next_offset),
        epochs=_epochs(state, part.epochs),
        producers=_producers(state.producers, part.producers, limits, now_ms),
    )


def _epochs(state: ColdState, added: Sequence[LeaderEpoch]) -> tuple[LeaderEpoch, ...]:
    last = state.epochs[-1].epoch if state.epochs else -1
    return (*state.epochs, *(epoch for epoch in added if epoch.epoch > last))


def _producers(
    known: Sequence[KnownProducer], marks: Sequence[ProducerMark], limits: ProducerLimits, now_ms: int
) -> tuple[KnownProducer, ...]:
    """The last batch of each producer, by offset. Beyond the most, the oldest are dropped: their retries are long
    over."""
    living = [each for each in known if each.archived_at_ms >= now_ms - limits.expiration_ms]
    added = [KnownProducer(mark, now_ms) for mark in marks]
    last = {each.mark.producer_id: each for each in sorted((*living, *added), key=_offset)}
    return tuple(sorted(last.values(), key=_offset)[-limits.producers_max :])


def _offset(known: KnownProducer) -> int:
    return known.mark.base_offset
