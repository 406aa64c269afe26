"""The first record with the largest timestamp (KIP-734): in segments, above them, and among deleted records."""

import random

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker
from tests.broker.drafts import draft

from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.storage.errors import NotFound
from tidelog.storage.stores.memory import MemoryObjectStore

PARTITIONS = 2


@pytest.mark.parametrize("seed", range(6))
async def test_it_is_found_wherever_the_records_are(seed: int) -> None:
    """Both partitions share their segments, so the largest time of a segment may be the other partition's."""
    chance = random.Random(seed)
    async with running_broker(MemoryObjectStore(), shards=1) as broker:
        await broker.create_topic(ANYBODY, "t", PARTITIONS, {})
        times: list[list[int]] = [[] for _ in range(PARTITIONS)]
        starts = [0] * PARTITIONS
        for _ in range(6):
            for partition in range(PARTITIONS):
                sent = [chance.randrange(1_000) for _ in range(chance.randint(1, 4))]
                records = draft([b"v"] * len(sent), timestamps=sent)
                await broker.produce(ANYBODY, "t", records, ProduceOptions(partition=partition))
                times[partition] += sent
            if chance.random() < 0.5:
                await broker.archive_now()
            if chance.random() < 0.3:
                starts[0] = chance.randint(starts[0], len(times[0]))
                await broker.delete_records(ANYBODY, "t", 0, starts[0])
            for partition, (of_partition, start) in enumerate(zip(times, starts, strict=True)):
                left = of_partition[start:]
                wanted = start + left.index(max(left)) if left else len(of_partition)
                assert await broker.largest_timestamp(ANYBODY, "t", partition) == wanted


async def test_an_empty_partition_has_none_and_an_unknown_one_is_refused() -> None:
    async with running_broker(MemoryObjectStore(), shards=1) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        assert await broker.largest_timestamp(ANYBODY, "t", 0) == 0
        with pytest.raises(NotFound):
            await broker.largest_timestamp(ANYBODY, "t", 1)
