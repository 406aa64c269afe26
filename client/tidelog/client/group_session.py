"""A consumer's side of its group over HTTP: the thread that sends heartbeats, commits, and committed offsets.

Heartbeats go on while the program works. `Membership` decides them; this file only sends.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TypeVar

import msgspec

from tidelog.client.connection import JSON, Connection, Request, decoded
from tidelog.client.consumed import CommittedPosition, TopicPartition, grouped
from tidelog.client.membership import Membership, Phase
from tidelog.client.request_paths import group_path
from tidelog.storage.errors import (
    MemberFenced,
    StaleMemberEpoch,
    TidelogError,
    Unavailable,
    UnknownMember,
)
from tidelog.storage.runtime import Clock
from tidelog.wire.groups import (
    CommitOffsets,
    Done,
    FetchOffsets,
    GroupRequest,
    Heartbeat,
    HeartbeatAnswer,
    OffsetsAnswer,
    PartitionOffset,
)

A = TypeVar("A")

HEARTBEAT_DEADLINE_S = 5.0
STALE_EPOCH_TRIES = 5
"""How often a commit is repeated because the member was in a later epoch."""
EPOCH_WAIT_S = 1.0

logger = logging.getLogger("tidelog.client")


class GroupSession:
    """`membership` is guarded by `changed`; None: a consumer that assigns its own partitions and only commits.
    `works`: whether the program has gone on with its records since the last call."""

    def __init__(
        self,
        connection: Connection,
        group: str,
        membership: Membership | None,
        changed: threading.Condition,
        clock: Clock,
        instance_id: str | None = None,
        works: Callable[[], bool] = lambda: False,
    ) -> None:
        self.group = group
        self.membership = membership
        self._connection = connection
        self._changed = changed
        self._clock = clock
        self._instance_id = instance_id
        self._works = works
        self._closing = False
        self._commits = ThreadPoolExecutor(1, thread_name_prefix="tidelog-commit")
        self._thread = threading.Thread(target=self._run, name="tidelog-heartbeat", daemon=True)
        if membership is not None:
            self._thread.start()

    def commit(self, offsets: Mapping[TopicPartition, CommittedPosition]) -> None:
        """Commit, and return when it is stored. Raises `MemberFenced` or `UnknownMember` if the partitions belong to
        others now, `Unavailable` after the connection's deadline."""
        for left in reversed(range(STALE_EPOCH_TRIES)):
            epoch, request = self._commit_request(offsets)
            try:
                self.call("commit", request, Done)
                return
            except StaleMemberEpoch:
                if not left:
                    raise
                self._await_epoch_after(epoch)
            except (MemberFenced, UnknownMember):
                with self._changed:
                    if self.membership is not None:
                        self.membership.fenced(self._clock.monotonic())
                    self._changed.notify_all()
                raise

    def commit_soon(
        self,
        offsets: Mapping[TopicPartition, CommittedPosition],
        on_commit: Callable[[TidelogError | None], None],
    ) -> Future[None]:
        """Commit on a thread of its own, after earlier commits. If `stop` comes first, nothing is committed."""

        def run() -> None:
            try:
                self.commit(offsets)
            except TidelogError as error:
                on_commit(error)
                raise
            on_commit(None)

        def ended(commit: Future[None]) -> None:
            if commit.cancelled():
                on_commit(Unavailable("the consumer was closed before these offsets were committed"))
            elif (error := commit.exception()) is not None and not isinstance(error, TidelogError):
                logger.error("an asynchronous commit failed", exc_info=error)  # for example in `on_commit`

        commit = self._commits.submit(run)
        commit.add_done_callback(ended)
        return commit

    def await_commits(self, give_up_at: float) -> None:
        """Wait until `give_up_at` for the commits of `commit_soon`."""
        with contextlib.suppress(FutureTimeoutError):  # `stop` tells those that are left
            self._commits.submit(lambda: None).result(max(0.0, give_up_at - self._clock.monotonic()))

    def committed(self, partitions: frozenset[TopicPartition]) -> Mapping[TopicPartition, CommittedPosition]:
        """The committed offsets of `partitions`, without those that have none."""
        answer = self.call("offsets", FetchOffsets(partitions=grouped(partitions)), OffsetsAnswer)
        return {
            TopicPartition(one.topic, one.partition): CommittedPosition(one.offset, one.metadata)
            for one in answer.offsets
        }

    def call(self, call: str, request: GroupRequest[A], shape: type[A], deadline_s: float | None = None) -> A:
        """Send `request` to the group's coordinator. All of these may be repeated."""
        body = [memoryview(msgspec.json.encode(request))]
        http = Request("POST", group_path(self.group, call), headers={"content-type": JSON}, body=body)
        return decoded(self._connection.call(http, deadline_s=deadline_s), shape)

    def leave(self, give_up_at: float) -> None:
        """Leave the group, so that others are assigned its partitions at once. Waits until `give_up_at`; after that the
        session ends by its timeout."""
        member = self.membership
        if member is None:
            return
        with self._changed:
            if member.leave(self._clock.monotonic()):
                self._changed.notify_all()
                left_s = max(0.0, give_up_at - self._clock.monotonic())
                self._changed.wait_for(lambda: member.phase is Phase.LEFT, left_s)

    def stop(self) -> None:
        """End the threads; those in a request end with it."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._commits.shutdown(wait=False, cancel_futures=True)

    def _commit_request(self, offsets: Mapping[TopicPartition, CommittedPosition]) -> tuple[int, CommitOffsets]:
        stored = tuple(
            PartitionOffset(topic=one.topic, partition=one.partition, offset=at.offset, metadata=at.metadata)
            for one, at in sorted(offsets.items())
        )
        if self.membership is None:
            return 0, CommitOffsets(offsets=stored)
        with self._changed:
            epoch, member_id = self.membership.epoch, self.membership.member_id
        return epoch, CommitOffsets(
            offsets=stored, member_id=member_id, member_epoch=epoch, instance_id=self._instance_id
        )

    def _await_epoch_after(self, epoch: int) -> None:
        """Send a heartbeat at once, and wait a moment for the epoch that it brings."""
        member = self.membership
        if member is not None:
            with self._changed:
                member.hurry(self._clock.monotonic())
                self._changed.notify_all()
                self._changed.wait_for(lambda: member.epoch != epoch, EPOCH_WAIT_S)

    def _run(self) -> None:
        while (heartbeat := self._await_heartbeat()) is not None:
            try:
                answer = self.call("heartbeat", heartbeat, HeartbeatAnswer, HEARTBEAT_DEADLINE_S)
            except TidelogError as error:
                self._failed(error)
            else:
                with self._changed:
                    self._member.on_answer(answer, self._clock.monotonic())
                    self._changed.notify_all()

    def _failed(self, error: TidelogError) -> None:
        with self._changed:
            if not self._closing:
                log = logger.info if isinstance(error, Unavailable) else logger.warning
                log("a heartbeat of %s to group %s failed: %s", self._member.member_id, self.group, error)
            self._member.on_error(error, self._clock.monotonic())
            self._changed.notify_all()

    def _await_heartbeat(self) -> Heartbeat | None:
        """Wait until a heartbeat is due; None when the session stops."""
        with self._changed:
            while not self._closing:
                now = self._clock.monotonic()
                if self._works():
                    self._member.worked(now)
                heartbeat = self._member.next_heartbeat(now)
                if heartbeat is not None:
                    return heartbeat
                due_at = self._member.due_at
                self._changed.wait(None if due_at is None else max(0.0, due_at - now))
            return None

    @property
    def _member(self) -> Membership:
        assert self.membership is not None, "only a member sends heartbeats"
        return self.membership
