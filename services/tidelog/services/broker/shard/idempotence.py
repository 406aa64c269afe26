"""Remembers the batches of idempotent producers, so that a repeated batch is in the log once (inv. 7).

`ProducerTable` applies Kafka's rules to one partition (KIP-98, KIP-360; `ProducerAppendInfo`, `ProducerStateEntry`):

- The sequences of a producer's batches follow each other without a gap. - The last five batches are remembered. A batch
that repeats one of them is a duplicate. - A newer epoch begins at sequence 0 and fences the older one. - A producer
that is unknown or was forgotten may begin at any sequence. If its first batch is refused because the broker
  is overloaded, it has to begin with that batch (`expect`): with several requests in flight, the second batch would
  otherwise be appended before the retry of the first.

Sequences of Kafka's protocol are int32 and **wrap** from 2**31 - 1 to 0 (`ProducerSequence.wraps`). The table, the
marks in WAL entries and the manifests hold them unwrapped: a number below 2**62 whose remainder by 2**31 is the
sequence on the wire. `unwrapped` chooses the number nearest to the one that the producer's last batch is followed by,
so retries, duplicates and gaps are found around the wrap as elsewhere, also by a later leader. Kafka's other rules are
those above:

- The id of a producer that is not transactional is new at each InitProducerId, at epoch 0. The client itself raises the
  epoch after an error that it cannot repeat (KIP-360), and begins again at sequence 0.
- UNKNOWN_PRODUCER_ID is not answered, as by Kafka since 2.5: an unknown producer just begins.

Batches that are buffered and not committed are remembered too. They fail only together with everything behind them,
when the shard's leader steps down.

`ProducerMemory` bounds the producers of all tables. A producer is forgotten after ``producer.id.expiration.ms`` without
a batch, or when there are more than ``producer.ids.max`` (the longest silent one first). A batch that is repeated later
than that is appended again. The expiry counts from the last batch, by the monotonic clock. For a batch found in the
bucket it counts from when it was found, which is later than necessary, never earlier.

A producer that says how old its batch may be (`ProducerSequence.age_s`) is refused if it is unknown and may have been
forgotten since then. A table knows what it forgot itself. What an earlier leader or the archiver forgot expired, so
half of the expiry is the bound; the other half is a margin for clocks that differ.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tidelog.services.broker.api.produce import ActiveProducer, ProducerSequence
from tidelog.storage.errors import Conflict, Invalid, ProducerFenced, SequenceConflict
from tidelog.storage.manifests.shard_values import KnownProducer
from tidelog.storage.runtime import Clock
from tidelog.storage.wal.wal_entry import ProducerMark

BATCHES_REMEMBERED = 5
PRODUCERS_MAX = 10_000
SEQUENCE_MAX = 2**62
WRAP = 2**31
"""Wrapping sequences are below it."""


@dataclass(frozen=True)
class RememberedBatch:
    """A batch that is committed or buffered. `timestamp_ms`: as answered to the producer, None if another broker
    answered."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    timestamp_ms: int | None = None

    @property
    def count(self) -> int:
        return self.last_sequence - self.first_sequence + 1


@dataclass
class _Producer:
    """`first_sequence`: where it has to begin."""

    epoch: int
    first_sequence: int
    batches: deque[RememberedBatch] = field(default_factory=lambda: deque(maxlen=BATCHES_REMEMBERED))

    @property
    def next_sequence(self) -> int:
        return self.batches[-1].last_sequence + 1 if self.batches else self.first_sequence


class ProducerTable:
    """The producers of one partition, at most `producers_max`: the longest silent one is forgotten first. `memory`, if
    given, bounds the producers of all tables as well."""

    def __init__(self, producers_max: int = PRODUCERS_MAX, memory: ProducerMemory | None = None) -> None:
        self._producers_max = producers_max
        self._memory = memory
        self._producers: OrderedDict[str, _Producer] = OrderedDict()
        self.forgotten_s = -math.inf
        """When a producer that is forgotten now last wrote, at the latest."""

    def __len__(self) -> int:
        return len(self._producers)

    def forget(self, producer_id: str, last_s: float) -> None:
        """`last_s`: when it last wrote."""
        self._producers.pop(producer_id, None)
        self.forgotten_s = max(self.forgotten_s, last_s)

    def active(self) -> Sequence[ActiveProducer]:
        """The producers that are not forgotten."""
        found = []
        for producer_id, known in self._producers.items():
            if self._memory is None or not self._memory.expired(self, producer_id):
                last = known.batches[-1] if known.batches else None
                time_ms = last.timestamp_ms if last and last.timestamp_ms is not None else -1
                found.append(ActiveProducer(producer_id, known.epoch, last.last_sequence if last else -1, time_ms))
        return found

    def find(self, sequence: ProducerSequence, count: int) -> RememberedBatch | None:
        """The remembered batch that `count` records from `sequence` on repeat; None if they are new and may be
        appended. Raises `SequenceConflict`, `ProducerFenced`, `Invalid`. Changes nothing."""
        _check_numbers(sequence, count)
        sequence = self.unwrapped(sequence)
        known = self._producers.get(sequence.producer_id)
        if known is None or (self._memory is not None and self._memory.expired(self, sequence.producer_id)):
            self._check_not_forgotten(sequence)
            return None
        if sequence.producer_epoch < known.epoch:
            raise ProducerFenced(
                f"producer {sequence.producer_id} is at epoch {known.epoch}; epoch {sequence.producer_epoch} is fenced",
                current_epoch=known.epoch,
            )
        if sequence.producer_epoch > known.epoch:
            _check_next(sequence, 0)
            return None
        last_sequence = sequence.first_sequence + count - 1
        for batch in known.batches:
            if (batch.first_sequence, batch.last_sequence) == (sequence.first_sequence, last_sequence):
                return batch
        _check_next(sequence, known.next_sequence)
        return None

    def unwrapped(self, sequence: ProducerSequence) -> ProducerSequence:
        """`sequence` as the table counts it, if it wraps."""
        if not sequence.wraps:
            return sequence
        known = self._producers.get(sequence.producer_id)
        first = sequence.first_sequence
        if known is not None and known.epoch == sequence.producer_epoch:
            first = _nearest(first, known.next_sequence)
        return replace(sequence, first_sequence=first, wraps=False)

    def remember(self, mark: ProducerMark | KnownProducer, timestamp_ms: int | None) -> None:
        """Note a batch as its producer's last one. An older batch than the last one changes nothing."""
        self._forget_expired(mark.producer_id)
        known = self._producers.get(mark.producer_id)
        if known is None or mark.producer_epoch > known.epoch:
            known = self._producers[mark.producer_id] = _Producer(mark.producer_epoch, mark.first_sequence)
        elif mark.producer_epoch < known.epoch or (known.batches and mark.base_offset <= known.batches[-1].base_offset):
            return
        known.batches.append(RememberedBatch(mark.first_sequence, mark.last_sequence, mark.base_offset, timestamp_ms))
        self._used(mark.producer_id)

    def expect(self, sequence: ProducerSequence) -> None:
        """An unknown producer was refused at `sequence` and will repeat it: it has to begin there."""
        self._forget_expired(sequence.producer_id)
        if sequence.producer_id not in self._producers:
            self._producers[sequence.producer_id] = _Producer(sequence.producer_epoch, sequence.first_sequence)
            self._used(sequence.producer_id)

    def _check_not_forgotten(self, sequence: ProducerSequence) -> None:
        if self._memory is None or sequence.age_s is None:
            return
        if not self._memory.reaches_back(self, sequence.age_s):
            raise Conflict(
                f"producer {sequence.producer_id} is unknown, and an earlier attempt may have appended this batch "
                f"{sequence.age_s:.0f} s ago: the broker may have forgotten it (producer.id.expiration.ms, "
                "producer.ids.max). The records were not appended"
            )

    def _forget_expired(self, producer_id: str) -> None:
        if self._memory is not None and self._memory.expired(self, producer_id):
            self.forget(producer_id, self._memory.last_s(self, producer_id))

    def _used(self, producer_id: str) -> None:
        self._producers.move_to_end(producer_id)
        if len(self._producers) > self._producers_max:
            oldest_id, _ = self._producers.popitem(last=False)
            if self._memory is not None:
                self.forgotten_s = max(self.forgotten_s, self._memory.dropped(self, oldest_id))
        if self._memory is not None:
            self._memory.used(self, producer_id)

    def restore(self, marks: Sequence[ProducerMark | KnownProducer]) -> None:
        """Note batches that were found in the bucket, in the order of their offsets."""
        for mark in sorted(marks, key=lambda mark: mark.base_offset):
            self.remember(mark, None)


class ProducerMemory:
    """The producers of all tables of a broker."""

    def __init__(self, clock: Clock, expiration_s: float, producers_max: int) -> None:
        self._clock = clock
        self._expiration_s = expiration_s
        self._producers_max = producers_max
        self._last_s: OrderedDict[tuple[ProducerTable, str], float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._last_s)

    def used(self, table: ProducerTable, producer_id: str) -> None:
        """`table` has remembered a batch of this producer. Other producers may be forgotten for it."""
        key, now_s = (table, producer_id), self._clock.monotonic()
        self._last_s[key] = now_s
        self._last_s.move_to_end(key)
        while len(self._last_s) > self._producers_max or self._oldest_s() < now_s - self._expiration_s:
            (oldest, oldest_id), last_s = self._last_s.popitem(last=False)
            oldest.forget(oldest_id, last_s)

    def expired(self, table: ProducerTable, producer_id: str) -> bool:
        last_s = self._last_s.get((table, producer_id))
        return last_s is not None and last_s < self._clock.monotonic() - self._expiration_s

    def last_s(self, table: ProducerTable, producer_id: str) -> float:
        """When this producer last wrote to the partition of `table`."""
        return self._last_s[table, producer_id]

    def reaches_back(self, table: ProducerTable, age_s: float) -> bool:
        """Whether a producer that `table` does not know has not written within the last `age_s` seconds."""
        return age_s <= self._expiration_s / 2 and table.forgotten_s < self._clock.monotonic() - age_s

    def dropped(self, table: ProducerTable, producer_id: str) -> float:
        """`table` has forgotten this producer because of its own bound. Returns when it last wrote."""
        return self._last_s.pop((table, producer_id))

    def _oldest_s(self) -> float:
        return next(iter(self._last_s.values()))


def _check_numbers(sequence: ProducerSequence, count: int) -> None:
    if sequence.producer_epoch < 0 or not 0 <= sequence.first_sequence <= SEQUENCE_MAX - count:
        raise Invalid(
            "a producer's epoch and sequence must not be negative, and the sequence at most 2**62", field="sequence"
        )
    if sequence.wraps and sequence.first_sequence >= WRAP:
        raise Invalid(f"a sequence of Kafka's protocol is below 2**31, not {sequence.first_sequence}", field="sequence")


def _nearest(sequence: int, expected: int) -> int:
    """The number nearest to `expected` whose remainder by `WRAP` is `sequence`; never negative."""
    ahead = (sequence - expected + WRAP // 2) % WRAP - WRAP // 2
    return expected + ahead if expected + ahead >= 0 else sequence


def _check_next(sequence: ProducerSequence, expected: int) -> None:
    if sequence.first_sequence != expected:
        raise SequenceConflict(
            f"the next sequence of producer {sequence.producer_id} is {expected}, not {sequence.first_sequence}",
            expected_sequence=expected,
        )
