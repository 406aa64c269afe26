"""Members of one KIP-848 group that send their heartbeats by hand: over HTTP, and over Kafka's protocol."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol

import httpx
from kio.schema.errors import ErrorCode
from tests.kafka.kio_client import KioClient, nested_of, request_of

HEARTBEAT = 68
LEAVES = -1
GROUP, TOPIC = "mixed", "events"
SESSION_MS = 1_000
BEAT_S = 0.02


class Member(Protocol):
    """`partitions`: those that it may read now. It gives up what an answer does not assign any more, and its next
    heartbeat says so."""

    partitions: set[int]

    async def beat(self, epoch: int | None = None) -> None:
        """One heartbeat; `LEAVES` as `epoch` leaves the group."""


class HttpMember:
    """Over ``POST /v1/groups/GROUP/heartbeat``."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self._id, self.epoch = str(uuid.uuid4()), 0
        self.partitions: set[int] = set()

    async def beat(self, epoch: int | None = None) -> None:
        joins = {"topics": [TOPIC], "session_timeout_ms": SESSION_MS} if self.epoch == 0 else {}
        sent = {"member_id": self._id, "member_epoch": self.epoch if epoch is None else epoch}
        owned = {"owned": [{"topic": TOPIC, "partitions": sorted(self.partitions)}] if self.partitions else []}
        answer = await self._http.post(f"/v1/groups/{GROUP}/heartbeat", json={**sent, **owned, **joins})
        assert answer.status_code == 200, answer.text
        told = answer.json()
        self.epoch = told["member_epoch"]
        self.partitions = {number for part in told["assignment"] for number in part["partitions"]}

    async def commit(self, partition: int, offset: int) -> None:
        offsets = [{"topic": TOPIC, "partition": partition, "offset": offset}]
        body = {"member_id": self._id, "member_epoch": self.epoch, "offsets": offsets}
        (await self._http.post(f"/v1/groups/{GROUP}/commit", json=body)).raise_for_status()


class KafkaMember:
    """Over ConsumerGroupHeartbeat."""

    def __init__(self, client: KioClient, topic_id: uuid.UUID) -> None:
        self._client, self._topic_id = client, topic_id
        self._id, self.epoch = str(uuid.uuid4()), 0
        self.partitions: set[int] = set()
        self.error = ErrorCode.none

    async def beat(self, epoch: int | None = None) -> None:
        (owned,) = nested_of(HEARTBEAT, 1, "TopicPartitions")
        joins = self.epoch == 0
        held = (owned(topic_id=self._topic_id, partitions=tuple(sorted(self.partitions))),) if self.partitions else ()
        request = request_of(
            HEARTBEAT,
            1,
            group_id=GROUP,
            member_id=self._id,
            member_epoch=self.epoch if epoch is None else epoch,
            instance_id=None,
            rack_id=None,
            rebalance_timeout=timedelta(seconds=30) if joins else timedelta(milliseconds=-1),
            subscribed_topic_names=(TOPIC,) if joins else None,
            subscribed_topic_regex=None,
            server_assignor=None,
            topic_partitions=held,
        )
        answer: Any = await self._client.ask(request)
        self.error = answer.error_code
        if self.error is ErrorCode.none:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:  # null: as before
                self.partitions = {number for part in answer.assignment.topic_partitions for number in part.partitions}


def assert_no_partition_has_two_owners(members: Sequence[Member]) -> None:
    owned = [number for member in members for number in member.partitions]
    assert len(owned) == len(set(owned)), [member.partitions for member in members]


async def beat_until(members: Sequence[Member], done: Callable[[], bool]) -> None:
    """Let members take turns. No partition has two owners at any time."""
    async with asyncio.timeout(20):
        while not done():
            for member in members:
                await member.beat()
                assert_no_partition_has_two_owners(members)
            await asyncio.sleep(BEAT_S)
