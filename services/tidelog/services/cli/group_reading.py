"""Reads for `topic consume --group`: commits printed records, and stops without losing or repeating a record."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidelog.client import Consumer, ConsumerOptions
from tidelog.services.cli.console import complain
from tidelog.services.cli.consume_options import FETCH_BYTES
from tidelog.services.cli.stopping import StopBetweenSteps
from tidelog.services.cli.topic_reading import complain_of_not_json
from tidelog.storage.runtime import SystemClock

if TYPE_CHECKING:
    from tidelog.client import Batch
    from tidelog.client.consumed import TopicPartition
    from tidelog.services.cli.broker_options import BrokerChoice
    from tidelog.services.cli.consume_options import ConsumeOptions
    from tidelog.services.cli.where.selection import Selection

POLL_S = 0.25
"""How soon Ctrl-C takes effect."""
ASSIGNMENT_S_MAX = 15.0
"""With -e: how long to wait for the first partition. All may be assigned to other members."""
COMMIT_EVERY_S = 1.0


@contextlib.contextmanager
def group_batches(
    broker: BrokerChoice, topic: str, options: ConsumeOptions, selection: Selection | None
) -> Iterator[Iterator[Batch]]:
    """The batches to print. Raises `KeyboardInterrupt` at the end, after the last commit, if Ctrl-C ended them."""
    wanted = ConsumerOptions(max_bytes=FETCH_BYTES, auto_commit_interval_s=COMMIT_EVERY_S, client_id="tidelog-cli")
    with StopBetweenSteps() as stopping:
        with Consumer(broker.access(), topic, group=options.group, start=options.start, options=wanted) as consumer:
            yield GroupReading(consumer, stopping, selection, options.follow).batches(options.count)
        complain_of_not_json(selection)
        stopping.raise_if_asked()


@dataclass
class GroupReading:
    """The batches that a member of a group is given. A batch counts as printed when the next one is asked for; printed
    records are committed every second, before partitions are given up, and when the consumer closes. Ctrl-C ends the
    iteration between two batches."""

    consumer: Consumer
    stopping: StopBetweenSteps
    selection: Selection | None
    follow: bool

    def batches(self, count: int | None) -> Iterator[Batch]:
        """Batches with `count` records in all; None: without a bound."""
        left = count
        for batch in self._given() if count != 0 else ():
            chosen = batch
            if self.selection is not None:
                chosen = replace(batch, records=self.selection.matching(batch.records, batch.partition))
            if left is not None and left <= chosen.records.num_rows:
                yield self._cut(chosen, left)
                return
            if chosen.records.num_rows:
                yield chosen
            if left is not None:
                left -= chosen.records.num_rows

    def _cut(self, batch: Batch, count: int) -> Batch:
        """The first `count` records; the group goes on behind the last of them."""
        records = batch.records.slice(0, count)
        self.consumer.seek(batch.topic_partition, records.column("offset")[-1].as_py() + 1)
        return replace(batch, records=records)

    def _given(self) -> Iterator[Batch]:
        ends: dict[TopicPartition, int] | None = None
        clock = SystemClock()
        give_up_at = clock.monotonic() + ASSIGNMENT_S_MAX
        while not self.stopping.asked:
            batch = self.consumer.poll(POLL_S)
            if not self.follow and self.consumer.assignment:
                ends = ends or dict(self.consumer.end_offsets())
            if batch is not None:
                end = None if ends is None else ends.get(batch.topic_partition)
                if end is None or batch.next_offset <= end:
                    yield batch
                else:  # records behind the end were not printed, so they must not be committed
                    self.consumer.seek(batch.topic_partition, end)
                    yield batch.before(end)
            if self.follow:
                continue
            if ends is not None and self._reached(ends):
                return
            if ends is None and clock.monotonic() > give_up_at:
                complain("no partition was assigned to this member: other members have all of them")
                return

    def _reached(self, ends: dict[TopicPartition, int]) -> bool:
        """Whether every partition that is still assigned was read to its end."""
        assigned = self.consumer.assignment
        return all(self.consumer.position(one) >= end for one, end in ends.items() if one in assigned)
