"""Carries out the assignments and revocations of a group, in the program's own thread.

A revocation calls the program first, then commits the records that were read, then confirms the revocation. The group
assigns the partitions to others only after that, so no member reads a record that this consumer has read and committed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tidelog.client.consumed import TopicPartition
from tidelog.client.fetching import Fetching
from tidelog.client.group_session import GroupSession
from tidelog.client.membership import Change, Membership
from tidelog.client.reading import Reading
from tidelog.storage.errors import Fenced, Unavailable
from tidelog.storage.runtime import Clock

OnPartitions: TypeAlias = Callable[[Any, Sequence[TopicPartition]], object]
"""Called with the consumer and the partitions concerned, sorted."""

logger = logging.getLogger("tidelog.client")


@dataclass(frozen=True)
class RebalanceCallbacks:
    """`on_assign`: before the first record of new partitions; it may `seek`. `on_revoke`: before partitions are given
    up; it may `commit`. `on_lost`: others may read them already; None: `on_revoke` is called."""

    on_assign: OnPartitions | None = None
    on_revoke: OnPartitions | None = None
    on_lost: OnPartitions | None = None


@dataclass
class Rebalances:
    """`start`: where to begin in a partition without a committed offset. `commit_read` commits what was read of some
    partitions. `reading` and the membership are guarded by `changed`."""

    consumer: Any
    session: GroupSession
    member: Membership
    reading: Reading
    fetching: Fetching
    changed: threading.Condition
    clock: Clock
    start: str | int
    commit_read: Callable[[frozenset[TopicPartition]], None]
    callbacks: RebalanceCallbacks = RebalanceCallbacks()

    def carry_out(self) -> None:
        """Apply every change that is due. Raises an error that ends the membership, and those of the callbacks."""
        while True:
            with self.changed:
                if self.member.failure is not None:
                    raise self.member.failure
                change = self.member.next_change()
            if change is None:
                return
            if change.lost:
                self._lose(change)
            elif change.revoked:
                self._give_up(change)
            elif not self._take(change.assigned):
                return

    def give_up_all(self) -> None:
        """Before the consumer leaves: as if all its partitions were revoked."""
        with self.changed:
            owned = self.member.owned
        if owned:
            self._give_up(Change(revoked=owned))

    def _lose(self, change: Change) -> None:
        logger.warning("group %s took partitions away: %s", self.session.group, _names(change.lost))
        self._apply(change)
        self._call(self.callbacks.on_lost or self.callbacks.on_revoke, change.lost)

    def _give_up(self, change: Change) -> None:
        try:
            self._call(self.callbacks.on_revoke, change.revoked)
            self.commit_read(change.revoked)
        finally:  # also after an error of the program, or the group would wait for this member
            self._apply(change)

    def _take(self, assigned: frozenset[TopicPartition]) -> bool:
        """False: the committed offsets cannot be read now; the next poll tries again."""
        try:
            starts = self._starts(assigned)
        except (Unavailable, Fenced) as error:
            logger.warning("new partitions of group %s wait for their offsets: %s", self.session.group, error)
            return False
        with self.changed:
            taken = assigned & self.member.target  # the group may have changed its mind meanwhile
            self.reading.assign({one: starts[one] for one in taken})
            self.member.apply(Change(assigned=taken), self.clock.monotonic())
            self.fetching.wake()
        self._call(self.callbacks.on_assign, taken)
        return True

    def _starts(self, partitions: frozenset[TopicPartition]) -> Mapping[TopicPartition, int | str]:
        committed = self.session.committed(partitions)
        return {one: committed[one].offset if one in committed else self.start for one in partitions}

    def _apply(self, change: Change) -> None:
        with self.changed:
            self.reading.drop(change.lost | change.revoked)
            self.member.apply(change, self.clock.monotonic())
            self.changed.notify_all()

    def _call(self, callback: OnPartitions | None, partitions: frozenset[TopicPartition]) -> None:
        if callback is not None and partitions:
            callback(self.consumer, sorted(partitions))


def _names(partitions: frozenset[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions)[:10])) + (", ..." if len(partitions) > 10 else "")
