"""The commits that a consumer makes by itself: every few seconds, before partitions are given up, and at the end."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING

from tidelog.client.consumed import CommittedPosition, TopicPartition
from tidelog.storage.errors import TidelogError
from tidelog.storage.runtime import Clock

if TYPE_CHECKING:
    from tidelog.client.consumer_core import ConsumerCore

logger = logging.getLogger("tidelog.client")


class AutoCommits:
    """Commits positions that no automatic commit has stored yet. A commit that fails is only logged: the next one
    includes its offsets, and without one records are read again."""

    def __init__(self, consumer: ConsumerCore, clock: Clock, interval_s: float) -> None:
        self._consumer = consumer
        self._clock = clock
        self._interval_s = interval_s
        self._due_at = clock.monotonic() + interval_s
        self._stored: dict[TopicPartition, int] = {}
        self._committing: Future[None] | None = None

    def commit_if_due(self, now: float) -> None:
        """Commit on a thread what earlier polls gave out, if the interval is over and no commit is under way."""
        if now < self._due_at or (self._committing is not None and not self._committing.done()):
            return
        self._due_at = now + self._interval_s
        if wanted := self._uncommitted(self._consumer.given_out.offsets(done=True)):
            self._committing = self._commit_soon(wanted)

    def commit_revoked(self, revoked: frozenset[TopicPartition]) -> None:
        """Commit what was read of partitions that are given up. A failure only makes others read more again."""
        with self._consumer.changed:
            self._stored = {one: at for one, at in self._stored.items() if one not in revoked}
        wanted = {
            one: CommittedPosition(at) for one, at in self._consumer.given_out.offsets().items() if one in revoked
        }
        try:
            if wanted:
                self._consumer.session().commit(wanted)
        except TidelogError as error:
            logger.warning("the offsets of revoked partitions were not committed: %s", error)

    def commit_last(self, partitions: frozenset[TopicPartition], give_up_at: float, *, done: bool) -> None:
        """Commit for the last time, until `give_up_at`. `done`: only what earlier polls gave out."""
        given_out = self._consumer.given_out.offsets(done=done)
        wanted = self._uncommitted({one: at for one, at in given_out.items() if one in partitions})
        try:
            if wanted:
                self._commit_soon(wanted).result(max(0.0, give_up_at - self._clock.monotonic()))
        except FutureTimeoutError:
            logger.warning("the last offsets were not committed in time: their records are read again")
        except TidelogError:
            pass  # it is logged

    def _uncommitted(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, CommittedPosition]:
        """Those of `offsets` that no automatic commit has stored yet."""
        return {one: CommittedPosition(at) for one, at in offsets.items() if self._stored.get(one) != at}

    def _commit_soon(self, wanted: Mapping[TopicPartition, CommittedPosition]) -> Future[None]:
        def on_commit(error: TidelogError | None) -> None:
            if error is not None:
                logger.warning("offsets were not committed: %s. The next commit includes them", error)
                return
            with self._consumer.changed:
                self._stored.update({one: at.offset for one, at in wanted.items()})

        return self._consumer.session().commit_soon(wanted, on_commit)
