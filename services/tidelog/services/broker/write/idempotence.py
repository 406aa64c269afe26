"""Which batches of idempotent producers a partition has, so that a retry is in the log once (inv. 7).

Kafka's rules (KIP-98, KIP-360; `ProducerAppendInfo`, `ProducerStateEntry`): a producer's batches follow each other
without a gap in their sequences; its last five are remembered, and one of these sent again is a duplicate; a newer
epoch begins at sequence 0 and shuts the older one out; a producer that is not known, or was forgotten
(`ProducerMemory`, or this table's bound), may begin anywhere.

Batches that are buffered but not committed are remembered too. They fail only together with everything behind them,
when the shard steps down.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from tidelog.services.broker.api.produce import ProducerSequence
from tidelog.services.broker.write.producer_memory import ProducerMemory
from tidelog.storage.errors import Invalid, ProducerFenced, SequenceConflict
from tidelog.storage.wal_entry import ProducerMark

BATCHES_REMEMBERED = 5
PRODUCERS_MAX = 10_000
SEQUENCE_MAX = 2**62


@dataclass(frozen=True)
class RememberedBatch:
    """A batch that is in the log or on its way. `timestamp_ms` is what its producer was answered, None if that was
    before this broker."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    timestamp_ms: int | None = None

    @property
    def count(self) -> int:
        return self.last_sequence - self.first_sequence + 1


@dataclass
class _Producer:
    epoch: int
    batches: deque[RememberedBatch] = field(default_factory=lambda: deque(maxlen=BATCHES_REMEMBERED))


class ProducerTable:
    """The producers of one partition; of more than `producers_max` the one silent for longest is forgotten. `memory`
    bounds the producers of all tables, in number and time; without it this table's bound is the only one."""

    def __init__(self, producers_max: int = PRODUCERS_MAX, memory: ProducerMemory | None = None) -> None:
        self._producers_max = producers_max
        self._memory = memory
        self._producers: OrderedDict[str, _Producer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._producers)

    def forget(self, producer_id: str) -> None:
        self._producers.pop(producer_id, None)

    def find(self, sequence: ProducerSequence, count: int) -> RememberedBatch | None:
        """The batch that `count` records from `sequence` on repeat, None if they are new and may be appended.
        Raises `SequenceConflict`, `ProducerFenced`, `Invalid`; changes nothing."""
        _check_numbers(sequence, count)
        known = self._producers.get(sequence.producer_id)
        if known is None or (self._memory is not None and self._memory.expired(self, sequence.producer_id)):
            return None
        if sequence.producer_epoch < known.epoch:
            raise ProducerFenced(
                f"producer {sequence.producer_id} is at epoch {known.epoch} by now; "
                f"epoch {sequence.producer_epoch} may write no more",
                current_epoch=known.epoch,
            )
        if sequence.producer_epoch > known.epoch:
            _check_next(sequence, 0)
            return None
        last_sequence = sequence.first_sequence + count - 1
        for batch in known.batches:
            if (batch.first_sequence, batch.last_sequence) == (sequence.first_sequence, last_sequence):
                return batch
        _check_next(sequence, known.batches[-1].last_sequence + 1)
        return None

    def remember(self, mark: ProducerMark, timestamp_ms: int | None) -> None:
        """Note a batch as its producer's last. One that is older than what is known already changes nothing."""
        if self._memory is not None and self._memory.expired(self, mark.producer_id):
            self.forget(mark.producer_id)
        known = self._producers.get(mark.producer_id)
        if known is None or mark.producer_epoch > known.epoch:
            known = self._producers[mark.producer_id] = _Producer(mark.producer_epoch)
        elif mark.producer_epoch < known.epoch or mark.base_offset <= known.batches[-1].base_offset:
            return
        known.batches.append(RememberedBatch(mark.first_sequence, mark.last_sequence, mark.base_offset, timestamp_ms))
        self._producers.move_to_end(mark.producer_id)
        if len(self._producers) > self._producers_max:
            oldest_id, _ = self._producers.popitem(last=False)
            if self._memory is not None:
                self._memory.dropped(self, oldest_id)
        if self._memory is not None:
            self._memory.used(self, mark.producer_id)

    def restore(self, marks: Sequence[ProducerMark]) -> None:
        """Note batches found in the bucket, in the order of their offsets."""
        for mark in sorted(marks, key=lambda mark: mark.base_offset):
            self.remember(mark, None)


def _check_numbers(sequence: ProducerSequence, count: int) -> None:
    if sequence.producer_epoch < 0 or not 0 <= sequence.first_sequence <= SEQUENCE_MAX - count:
        raise Invalid("a producer's epoch and sequence are not negative, and far below 2**62", field="sequence")


def _check_next(sequence: ProducerSequence, expected: int) -> None:
    if sequence.first_sequence != expected:
        raise SequenceConflict(
            f"producer {sequence.producer_id} goes on at sequence {expected}, not {sequence.first_sequence}",
            expected_sequence=expected,
        )
