"""Kafka and Tidelog side by side: each request goes to both, and their answers are compared."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import reduce
from typing import Any

from kio.schema.errors import ErrorCode
from tests.kafka.kio_client import KioClient
from tests.kafka.oracle.differences import DIFFERENCES
from tests.kafka.oracle.messages import Each, flat, request

from tidelog.services.kafka.protocol.api_table import API_TABLE, CREATE_TOPICS, METADATA

LIST_OFFSETS, OFFSET_FETCH = 2, 9
WAIT_S = 30.0
_ABSENT = "absent"


class Pair:
    """A connection to each. `found` gets the differences that are not declared, one line each."""

    def __init__(self, kafka: KioClient, tidelog: KioClient) -> None:
        self._kafka, self._tidelog = kafka, tidelog
        self.scenario = ""
        self.found: list[str] = []
        self._names: dict[str, str] = {}

    async def ask(self, api_key: int, version: int, **values: Any) -> Each:
        """Send the request to both and compare the answers."""
        answers = await self.unchecked(api_key, version, **values)
        self.compare(api_key, version, answers)
        return answers

    def compare(self, api_key: int, version: int, answers: Each) -> None:
        name = f"{self.scenario}: {API_TABLE[api_key].name} v{version}"
        kafka, tidelog = (self._named(flat(answer)) for answer in (answers.kafka, answers.tidelog))
        self.found += [f"{name} {line}" for line in compared(name, kafka, tidelog)]

    async def unchecked(self, api_key: int, version: int, **values: Any) -> Each:
        """Send the request to both, where the answers are only a step to something else."""
        kafka, tidelog = (request(api_key, version, values, to_kafka=to_kafka) for to_kafka in (True, False))
        return Each(*await asyncio.gather(self._kafka.ask(kafka), self._tidelog.ask(tidelog)))

    @asynccontextmanager
    async def beside(self) -> AsyncIterator[Pair]:
        """Two further connections, whose differences count here."""
        kafka, tidelog = await self._kafka.another(), await self._tidelog.another()
        other = Pair(kafka, tidelog)
        other.scenario, other.found, other._names = self.scenario, self.found, self._names
        yield other
        await kafka.aclose()
        await tidelog.aclose()

    async def topic(self, name: str, partitions: int = 1, **configs: str) -> Each:
        """Create the topic on both, and wait until its partitions serve. Returns its ids."""
        wanted = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
        }
        await self.unchecked(CREATE_TOPICS, 7, topics=[wanted], timeout=10_000)
        asked = [{"partition_index": number, "timestamp": -1} for number in range(partitions)]
        await self._until(
            LIST_OFFSETS,
            7,
            lambda answer: all(part.error_code == 0 for part in answer.topics[0].partitions),
            replica_id=-1,
            topics=[{"name": name, "partitions": asked}],
        )
        found = await self.unchecked(METADATA, 12, topics=[{"name": name, "topic_id": None}])
        ids = Each(found.kafka.topics[0].topic_id, found.tidelog.topics[0].topic_id)
        self.name("topic_id", ids, name)
        return ids

    def name(self, field: str, ids: Each, name: str) -> None:
        """Elements of arrays whose `field` is one of `ids` are the same."""
        self._names |= {f"{field}={each}": f"{field}={name}" for each in (ids.kafka, ids.tidelog)}

    def _named(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """`fields` with names in their paths instead of ids, which differ."""
        return {
            reduce(lambda path, each: path.replace(*each), self._names.items(), path): fields[path] for path in fields
        }

    async def coordinator_ready(self, group: str) -> None:
        """Wait until Kafka has created and loaded its topic of groups."""
        asked = [{"group_id": group, "topics": None}]
        await self._until(10, 4, lambda answer: answer.coordinators[0].error_code == 0, coordinator_keys=[group])
        await self._until(OFFSET_FETCH, 9, lambda answer: answer.groups[0].error_code == 0, groups=asked)

    async def producer_ids_ready(self) -> None:
        """Wait until Kafka has a block of producer ids."""
        await self._until(22, 4, lambda answer: answer.error_code == 0, transactional_id=None)

    async def rebalances(self, **member: Any) -> None:
        """Wait until the group of `member`, the fields of a heartbeat, has begun to rebalance on both."""
        await self._until(12, 4, lambda answer: answer.error_code is ErrorCode.rebalance_in_progress, **member)

    async def _until(self, api_key: int, version: int, serves: Callable[[Any], bool], **values: Any) -> None:
        async with asyncio.timeout(WAIT_S):
            while True:
                answers = await self.unchecked(api_key, version, **values)
                if serves(answers.kafka) and serves(answers.tidelog):
                    return
                await asyncio.sleep(0.02)


def compared(name: str, kafka: Any, tidelog: Any) -> Sequence[str]:
    """The fields that differ, without those that `DIFFERENCES` declares."""
    lines = (
        f"{path}: Kafka {kafka.get(path, _ABSENT)!r}, Tidelog {tidelog.get(path, _ABSENT)!r}"
        for path in sorted(kafka.keys() | tidelog.keys())
        if kafka.get(path, _ABSENT) != tidelog.get(path, _ABSENT)
    )
    return [line for line in lines if not any(each.covers(f"{name} {line}") for each in DIFFERENCES)]
