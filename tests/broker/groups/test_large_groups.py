"""A group of 1,000 members and 10,000 partitions."""

import asyncio

from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker

from tidelog.services.broker.local_broker import LocalBroker
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.wire import groups as calls

MEMBERS, PARTITIONS = 1_000, 10_000
EACH = PARTITIONS // MEMBERS


async def settled(broker: LocalBroker, answer: calls.HeartbeatAnswer) -> calls.HeartbeatAnswer:
    """The member of `answer`, once it has its share."""
    while sum(len(part.partitions) for part in answer.assignment) != EACH:
        await asyncio.sleep(0.2)
        beat = calls.Heartbeat(member_id=answer.member_id, member_epoch=answer.member_epoch, owned=answer.assignment)
        answer = await broker.groups.call(ANYBODY, "g", beat)
    return answer


async def test_a_thousand_members_that_join_at_once_need_few_assignments() -> None:
    async with running_broker(MemoryObjectStore()) as broker:
        await broker.create_topic(ANYBODY, "web", PARTITIONS, {})
        joins = (broker.groups.call(ANYBODY, "g", calls.Heartbeat(topics=("web",))) for _ in range(MEMBERS))
        joined = await asyncio.gather(*joins)
        answers = await asyncio.gather(*(settled(broker, answer) for answer in joined))
        owned = [partition for each in answers for part in each.assignment for partition in part.partitions]
        assert sorted(owned) == list(range(PARTITIONS))
        assert broker.local_groups.counts.assignments <= 5
