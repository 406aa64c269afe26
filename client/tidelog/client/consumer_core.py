"""The parts of a consumer, wired together: connections, threads, group, and what was given out.

`Consumer` is the interface that programs see; `ConsumerCore` holds the state behind it. All of it is guarded by
`changed`, except the fields that only the program's thread uses.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from tidelog.client.admin import Admin
from tidelog.client.auto_commits import AutoCommits
from tidelog.client.broker_access import BrokerAccess
from tidelog.client.connection import Connection
from tidelog.client.consumed import Batch, TopicPartition, rows_before
from tidelog.client.consumer_options import ConsumerOptions
from tidelog.client.fetched_parts import Part
from tidelog.client.fetching import Fetching
from tidelog.client.given_out import GivenOut
from tidelog.client.group_session import GroupSession
from tidelog.client.leaders import Leaders
from tidelog.client.membership import Membership, Subscription
from tidelog.client.reading import Reading
from tidelog.client.rebalances import Rebalances
from tidelog.storage.errors import Invalid, RecordsLost
from tidelog.storage.runtime import Runtime

POOL = 12

logger = logging.getLogger("tidelog.client")


class ConsumerCore:
    """`start`: where to begin without a committed offset. `on_loss`: called for records that the log has lost."""

    def __init__(
        self,
        access: BrokerAccess,
        group: str | None,
        start: str,
        options: ConsumerOptions,
        on_loss: Callable[[TopicPartition, RecordsLost], object] | None,
        runtime: Runtime,
    ) -> None:
        self.options = options
        self.start: str | int = int(start) if start.isdigit() else start
        self.clock = runtime.clock
        self.changed = threading.Condition(threading.RLock())
        self.connection = Connection(access, deadline_s=options.deadline_s, runtime=runtime, pool=POOL)
        self.admin = Admin(
            access,
            deadline_s=min(10.0, options.deadline_s),
            connect_timeout_s=options.connect_timeout_s,
            runtime=runtime,
            beside=self.connection,
        )
        self.leaders = Leaders(access, self.connection, runtime)
        self.reading = Reading(options.buffer_bytes, None if group is None else start)
        self.given_out = GivenOut(self.reading, self.changed)
        self.fetching = Fetching(
            self.reading, self.leaders, self.changed, options, self.clock, patient=group is not None
        )
        self.rebalances: Rebalances | None = None
        self.lost_records = 0
        self.group = group
        self._session: GroupSession | None = None
        self._on_loss = on_loss
        self._entropy = runtime.entropy
        self._whole_topics: frozenset[str] = frozenset()
        self._commits = AutoCommits(self, self.clock, options.auto_commit_interval_s) if options.auto_commit else None

    def join(self, consumer: Any, wanted: Subscription) -> Rebalances:
        """Become a member of the group, or change its subscription."""
        now = self.clock.monotonic()
        if self.rebalances is not None:
            with self.changed:
                self.rebalances.member.resubscribe(wanted, now)
                self.changed.notify_all()
            return self.rebalances
        if self.group is None:
            raise Invalid("only a consumer with a group subscribes: give group=, or assign partitions", field="group")
        member = Membership(self._entropy.new_id(), wanted, self.options.max_poll_interval_s, now)
        self._session = GroupSession(
            self.connection, self.group, member, self.changed, self.clock, self.options.instance_id, self._works
        )
        self.rebalances = Rebalances(
            consumer=consumer,
            session=self._session,
            member=member,
            reading=self.reading,
            fetching=self.fetching,
            changed=self.changed,
            clock=self.clock,
            start=self.start,
            commit_read=(lambda _: None) if self._commits is None else self._commits.commit_revoked,
        )
        return self.rebalances

    def read_whole(self, topics: Collection[str]) -> None:
        """Without a group: read all partitions of `topics`, also those that are added later."""
        self._whole_topics = frozenset(topics)
        self.assign(self._starts(one for topic in topics for one in self._known(topic)))

    def read_some(self, topics: Collection[str], partitions: Collection[int]) -> None:
        """Without a group: read these partitions of `topics`. Raises `Invalid` if one does not exist."""
        wanted = [TopicPartition(topic, partition) for topic in topics for partition in dict.fromkeys(partitions)]
        for topic in topics:
            known = self._known(topic)
            for one in wanted:
                if one.topic == topic and one not in known:
                    raise Invalid(
                        f"{topic} has no partition {one.partition}: it has 0 to {len(known) - 1}", field="partition"
                    )
        self.assign(self._starts(wanted))

    def assign(self, starts: Mapping[TopicPartition, int | str]) -> None:
        """Read these partitions instead of those of before."""
        with self.changed:
            self.reading.drop(self.reading.assigned)
            self.reading.assign(starts)
            self.fetching.wake()

    def session(self) -> GroupSession:
        """The group's. Raises `Invalid` without a group."""
        if self.group is None:
            raise Invalid("a consumer without a group has no committed offsets: give group=", field="group")
        if self._session is None:
            self._session = GroupSession(self.connection, self.group, None, self.changed, self.clock)
        return self._session

    def pause(self, partitions: Iterable[TopicPartition], *, paused: bool) -> None:
        """Pause or resume. Raises `Invalid` for a partition that is not assigned."""
        wanted = [TopicPartition(*one) for one in partitions]
        with self.changed:
            for one in wanted:
                self._check_assigned(one)
            self.given_out.put_back()
            for one in wanted:
                self.reading.pause(one, paused=paused)
            self.fetching.wake()

    def seek(self, partition: TopicPartition, at: int | str) -> None:
        """Go on at `at`. Raises `Invalid`."""
        with self.changed:
            self._check_assigned(partition)
            self.given_out.put_back()
            self.reading.seek(partition, at)
            self.fetching.wake()

    def position(self, partition: TopicPartition) -> int:
        """The next record that the program gets. Words are looked up, and replaced by what they stand for."""
        with self.changed:
            self._check_assigned(partition)
            in_hand, at = self.given_out.position(partition), self.reading.where(partition)
        if in_hand is not None:
            return in_hand
        if isinstance(at, int):
            return at
        found = self.admin.offset(*partition, at)
        with self.changed:
            if partition in self.reading.assigned and self.reading.where(partition) == at:
                self.reading.seek(partition, found)
                self.fetching.wake()
        return found

    def reached(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Whether all that is before `ends` was given out."""
        with self.changed:
            at = self.reading.positions
        places = ((at.get(one, end), end) for one, end in ends.items())  # a partition that was taken away is no reason
        return all(place is not None and place >= end for place, end in places)

    def attend(self) -> None:
        """The part of a poll besides reading: report that the program lives, rebalance, and commit."""
        now = self.clock.monotonic()
        with self.changed:
            self.given_out.put_back()
            self.reading.done()
        if self.rebalances is not None:
            with self.changed:
                self.rebalances.member.polled(now)
                self.changed.notify_all()
            self.rebalances.carry_out()
        elif self._whole_topics:
            self._pick_up_new_partitions()
        if self._commits is not None and self._session is not None:
            self._commits.commit_if_due(now)

    def next_part(self, wait_s: float) -> Part | None:
        """The next part; None if none came within `wait_s`."""
        with self.changed:
            part = self.reading.next_part()
            if part is None and wait_s > 0:
                self.changed.wait(wait_s)
                part = self.reading.next_part()
            if part is not None:
                self.fetching.wake()  # the buffer has room again
            return part

    def opened(self, part: Part) -> Batch | None:
        """The records of `part`. Raises its error. None: a loss, which is reported here."""
        if part.outcome.error is not None:
            raise part.outcome.error
        if part.lost is not None:
            self._report_loss(part.partition, part.lost)
            return None
        records, outcome = part.body.records(part.partition), part.outcome
        if part.begin and records.num_rows:
            records = records.slice(rows_before(records, part.begin))
        topic, partition = part.partition
        return Batch(
            topic, partition, records, outcome.next_offset or 0, outcome.high_watermark, outcome.log_start_offset
        )

    def close(self, *, failed: bool) -> None:
        """Commit, leave, release. `failed`: the program stopped with an error, so its last records are not done."""
        give_up_at = self.clock.monotonic() + self.options.close_timeout_s
        try:
            if self.rebalances is not None:
                self.rebalances.commit_read = lambda revoked: self._commit_last(revoked, give_up_at, done=failed)
                self.rebalances.give_up_all()
            elif self._session is not None:
                self._commit_last(self.reading.assigned, give_up_at, done=failed)
        finally:
            self._release(give_up_at)

    def _commit_last(self, partitions: frozenset[TopicPartition], give_up_at: float, *, done: bool) -> None:
        if self._commits is not None:
            self._commits.commit_last(partitions, give_up_at, done=done)

    def _release(self, give_up_at: float) -> None:
        with self.changed:
            self.fetching.stop()
        if self._session is not None:
            self._session.await_commits(give_up_at)
            self._session.leave(give_up_at)
            self._session.stop()
        self.connection.close()
        self.leaders.close()
        self.admin.close()
        self.fetching.join(give_up_at)

    def _works(self) -> bool:
        """Whether the program goes on with the records of a batch. The heartbeat thread asks. If the group takes
        partitions away, the program's loop over records ends early, so that it polls."""
        if self.rebalances is not None and self.rebalances.member.takes_away:
            self.given_out.end_soon()
        return self.given_out.works()

    def _pick_up_new_partitions(self) -> None:
        counts = self.leaders.partition_counts()
        with self.changed:
            known = self.reading.assigned
            new = {
                TopicPartition(topic, n) for topic in self._whole_topics for n in range(counts.get(topic, 0))
            } - known
            if new:
                self.reading.assign(dict.fromkeys(new, "earliest"))
                self.fetching.wake()

    def _known(self, topic: str) -> Collection[TopicPartition]:
        return [TopicPartition(topic, one.partition) for one in self.admin.topic(topic).partitions]

    def _starts(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int | str]:
        return {one: self.admin.offset(*one, self.start) for one in partitions}

    def _check_assigned(self, partition: TopicPartition) -> None:
        if partition not in self.reading.assigned:
            raise Invalid(f"{partition} is not assigned to this consumer", field="partition")

    def _report_loss(self, partition: TopicPartition, loss: RecordsLost) -> None:
        self.lost_records += loss.next_offset - loss.first_offset
        last = loss.next_offset - 1
        logger.error("%s: offsets %d to %d are lost and skipped: %s", partition, loss.first_offset, last, loss)
        if self._on_loss is not None:
            self._on_loss(partition, loss)
