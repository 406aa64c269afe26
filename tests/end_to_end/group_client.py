"""A client of groups that calls coordinators as another broker would: it knows the cluster's secret, and looks for the
coordinator of a group at all brokers.

It measures what a member notices: the refusals that it got, and the longest time between two answers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, TypeVar

import httpx
import msgspec

from tidelog.services.broker.peer_secrets import PeerSecrets
from tidelog.services.http.forwarding.group_calls import MSGPACK
from tidelog.services.peers.proof import PEER_HEADER, PeerProofs
from tidelog.storage.errors import LeaderUnknown, NotLeader, TidelogError, Unavailable
from tidelog.storage.runtime import SystemClock
from tidelog.wire import groups as calls
from tidelog.wire.errors import error_of_answer
from tidelog.wire.group_calls import answer_type
from tidelog.wire.groups import GroupRequest
from tidelog.wire.paths import group_target

SECRET = "the-secret-of-these-tests"
A = TypeVar("A")
CALL_S_MAX = 8.0
PAUSE_S = 0.02


class GroupClient:
    """`refusals`: answers other than of the coordinator's."""

    def __init__(self, urls: Sequence[str]) -> None:
        self.urls = urls
        self._proofs = PeerProofs(PeerSecrets(SECRET, SystemClock()), SystemClock())
        self._http = httpx.AsyncClient(timeout=httpx.Timeout(CALL_S_MAX, connect=1.0), trust_env=False)
        self._places: dict[str, str] = {}

    async def __aenter__(self) -> GroupClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def once(self, url: str, group: str, request: GroupRequest[A]) -> A:
        """The answer of the broker at `url`. Raises its error, or `Unavailable` if there was no answer."""
        target = group_target(group)
        headers = {"Content-Type": MSGPACK, PEER_HEADER: self._proofs.sign("POST", target, "anonymous")}
        try:
            answer = await self._http.post(url + target, content=msgspec.msgpack.encode(request), headers=headers)
        except httpx.TransportError as error:
            raise Unavailable(f"no answer: {error!r}") from error
        if answer.status_code != 200:
            raise error_of_answer(answer.status_code, answer.headers, answer.content)
        return msgspec.msgpack.decode(answer.content, type=answer_type(request))

    async def call(self, group: str, request: GroupRequest[A], *, patience_s: float = 30.0) -> A:
        """The coordinator's answer, wherever it is, within `patience_s`."""
        give_up_at = time.monotonic() + patience_s
        while True:
            last: TidelogError | None = None
            for url in sorted(self.urls, key=lambda url: url != self._places.get(group)):
                try:
                    answer = await self.once(url, group, request)
                except (NotLeader, LeaderUnknown, Unavailable) as refusal:
                    last = refusal
                else:
                    self._places[group] = url
                    return answer
            if time.monotonic() > give_up_at:
                raise last or Unavailable("no broker")
            await asyncio.sleep(PAUSE_S)

    async def place(self, group: str) -> str:
        """The address of the broker that coordinates `group`."""
        await self.call(group, calls.FetchOffsets())
        return self._places[group]

    async def committed(self, group: str) -> dict[int, int]:
        """The committed offset of each partition."""
        return {o.partition: o.offset for o in (await self.call(group, calls.FetchOffsets())).offsets}


class LiveMember:
    """A member that sends heartbeats and commits until `stop`. `error`: that which ended it."""

    def __init__(self, client: GroupClient, group: str, topic: str, *, session_ms: int = 10_000) -> None:
        self.client = client
        self._group = group
        self._topic = topic
        self._session_ms = session_ms
        self._tasks: list[asyncio.Task[None]] = []
        self.answer = calls.HeartbeatAnswer("", 0, 0, ())
        self.answered_at: list[float] = []
        self.committed_at: list[float] = []
        self.epochs: list[int] = []
        self.commits = 0

    @property
    def partitions(self) -> tuple[int, ...]:
        return tuple(partition for part in self.answer.assignment for partition in part.partitions)

    async def join(self) -> None:
        join = calls.Heartbeat(topics=(self._topic,), session_timeout_ms=self._session_ms)
        self.answer = await self.client.call(self._group, join)

    async def beat(self) -> None:
        self.answer = await self.client.call(
            self._group,
            calls.Heartbeat(
                member_id=self.answer.member_id, member_epoch=self.answer.member_epoch, owned=self.answer.assignment
            ),
        )
        self.answered_at.append(time.monotonic())
        self.epochs.append(self.answer.member_epoch)

    async def settle(self, count: int) -> None:
        """Return once it has so many partitions."""
        while len(self.partitions) != count:
            await self.beat()
            await asyncio.sleep(0.05)
        await self.beat()

    async def commit(self) -> None:
        offsets = (calls.PartitionOffset(topic=self._topic, partition=self.partitions[0], offset=self.commits + 1),)
        member_id, epoch = self.answer.member_id, self.answer.member_epoch
        await self.client.call(
            self._group, calls.CommitOffsets(offsets=offsets, member_id=member_id, member_epoch=epoch)
        )
        self.commits += 1
        self.committed_at.append(time.monotonic())

    def live(self, *, beat_s: float = 0.1, commit_s: float | None = 0.05) -> None:
        self._tasks = [asyncio.create_task(self._repeat(self.beat, beat_s))]
        if commit_s is not None:
            self._tasks.append(asyncio.create_task(self._repeat(self.commit, commit_s)))

    async def die(self) -> None:
        """Stop without leaving. Raises the error that ended it before."""
        for task in self._tasks:
            task.cancel()
        for outcome in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome
        self._tasks = []

    async def _repeat(self, act: Any, pause_s: float) -> None:
        while True:
            await act()
            await asyncio.sleep(pause_s)


def longest_gap_s(times: Sequence[float], since: float) -> float:
    """The longest time between two of `times`, beginning with the last one before `since`."""
    later = [at for at in times if at >= since]
    before = max((at for at in times if at < since), default=since)
    return max((b - a for a, b in zip([before, *later], later, strict=False)), default=float("inf"))
