"""Many parts in one call: each is stored or refused on its own."""

import asyncio

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker
from tests.broker.cluster_world import running_world
from tests.broker.drafts import draft, numbered, timestamps_of
from tests.broker.gated_store import GatedObjectStore
from tests.broker.part_drafts import ALL, appended, batch, errors_of, offsets, part, stored_values

from tidelog.services.broker.api.produce import Acks, PartDraft, ProduceOptions, ProducerSequence
from tidelog.storage.errors import Invalid, LeaderUnknown, NotFound, NotLeader, Overloaded, TooLarge
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.stores.counting import CountingObjectStore, Kind
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.wrapping import Verb


async def test_parts_of_many_topics_are_stored_at_dense_offsets_and_answered_in_order(store: ObjectStore) -> None:
    async with running_broker(store) as broker:
        places = [(topic, number) for topic in ("a", "b", "c") for number in range(5)]
        for topic in ("a", "b", "c"):
            await broker.create_topic(ANYBODY, topic, 5, {})
        for call in range(3):
            parts = [part(numbered(call * 2, 2), number, topic=topic) for topic, number in reversed(places)]
            answers = await appended(broker, *parts)
            assert [answer.partition for answer in answers] == [number for _, number in reversed(places)]
            assert offsets(answers) == [call * 2] * 15
        for topic, number in places:
            assert await stored_values(broker, topic, number) == list(range(6))


async def test_a_call_for_a_thousand_partitions_makes_one_entry_for_each_shard() -> None:
    counting = CountingObjectStore(MemoryObjectStore())
    async with running_broker(counting, shards=2) as broker:
        await broker.create_topic(ANYBODY, "t", 1_000, {})
        before = counting.usage()
        answers = await appended(broker, *(part(numbered(number, 1), number) for number in range(1_000)))
        assert offsets(answers) == [0] * 1_000
        assert (counting.usage() - before).requests(Verb.CREATE, kind=Kind.WAL) == 2


async def test_a_part_that_is_refused_stops_no_other() -> None:
    async with running_broker(MemoryObjectStore()) as broker:
        await broker.create_topic(ANYBODY, "t", 2, {"max.message.bytes": 10})
        await broker.create_topic(ANYBODY, "keys", 1, {"cleanup.policy": "compact"})
        answers = await appended(
            broker,
            part(numbered(0, 1)),
            part(draft([b"x" * 11])),
            part(numbered(1, 1)),
            part(numbered(2, 1), 2),
            part(numbered(3, 1), topic="nowhere"),
            part(numbered(4, 1), topic="keys"),
            part(draft([])),
            part(draft([b"5"], timestamps=[-1])),
            part(numbered(6, 1), 1),
        )
        kinds = [None, TooLarge, None, NotFound, NotFound, Invalid, Invalid, Invalid, None]
        assert errors_of(answers) == kinds
        assert offsets(answers) == [0, None, 1, None, None, None, None, None, 0]
        assert await stored_values(broker) == [0, 1]
        assert await stored_values(broker, partition=1) == [6]
        assert [topic.name for topic in broker.topics(ANYBODY)] == ["keys", "t"], "no topic is created"


async def test_a_call_without_parts_has_no_answers() -> None:
    async with running_broker(MemoryObjectStore()) as broker:
        assert await appended(broker) == []


async def test_timestamps_follow_the_topic_of_each_part() -> None:
    async with running_broker(MemoryObjectStore()) as broker:
        await broker.create_topic(ANYBODY, "create", 1, {})
        await broker.create_topic(ANYBODY, "append", 1, {"message.timestamp.type": "LogAppendTime"})
        records = draft([b"a", b"b"], timestamps=[9, 4])
        created, stamped = await appended(broker, part(records, topic="create"), part(records, topic="append"))
        assert created.timestamp_ms == 9
        assert timestamps_of(await broker.fetch(ANYBODY, "append", 0, 0, ALL)) == [stamped.timestamp_ms] * 2


async def test_a_part_that_does_not_fit_is_refused_alone_and_its_retry_is_stored() -> None:
    gated = GatedObjectStore(MemoryObjectStore())
    async with running_broker(gated, buffer_max_bytes=100_000) as broker:
        await broker.create_topic(ANYBODY, "t", 2, {})
        gated.hold()
        parts = [part(draft([b"x" * size]), number) for number, size in ((0, 60_000), (1, 60_000), (1, 1_000))]
        appending = await broker.append_parts(ANYBODY, parts, Acks.ALL)
        gated.gate.set()
        assert errors_of(await appending.answers()) == [None, Overloaded, None]
        (again,) = await appended(broker, parts[1])
        assert again.base_offset == 1
        (never,) = await appended(broker, part(draft([b"x" * 100_000])))
        assert isinstance(never.error, TooLarge)
        assert broker.measurements().buffered_bytes == 0


async def test_a_producer_whose_first_batch_did_not_fit_has_to_repeat_that_one_first() -> None:
    """Its second batch, in flight already, would otherwise be in the log before the first."""
    gated = GatedObjectStore(MemoryObjectStore())
    async with running_broker(gated, buffer_max_bytes=100_000) as broker:
        await broker.create_topic(ANYBODY, "t", 2, {})
        gated.hold()
        full = await broker.append_parts(ANYBODY, [part(draft([b"x" * 92_000]), 1)], Acks.ALL)
        first = await broker.append_parts(ANYBODY, [batch(0, 2)], Acks.ALL)
        gated.gate.set()
        await full.answers()
        assert errors_of(await appended(broker, batch(2))) != [None]
        assert errors_of(await first.answers()) == [Overloaded]
        assert offsets([*await appended(broker, batch(0, 2)), *await appended(broker, batch(2))]) == [0, 2]
        assert await stored_values(broker) == [0, 1, 2]


async def test_at_the_limit_of_the_debt_parts_are_refused_and_repeated_batches_answered() -> None:
    async with running_broker(MemoryObjectStore(), shards=1, archiver_debt_max_bytes=1_000) as broker:
        await broker.create_topic(ANYBODY, "t", 2, {})
        (first,) = await appended(broker, batch(0))
        assert first.error is None, "nothing was owed yet"
        refused, again, other = await appended(broker, batch(1), batch(0), part(numbered(0, 1), 1))
        assert [type(refused.error), type(other.error)] == [Overloaded, Overloaded]
        assert (again.base_offset, again.duplicate) == (0, True)
        assert broker.measurements().brake.refused == 1, "once for each shard of a call"


async def test_a_topic_that_is_deleted_while_its_part_is_loaded_is_not_found() -> None:
    gated = GatedObjectStore(MemoryObjectStore())
    async with running_broker(gated, shards=1) as broker:
        for topic in ("t", "stays"):
            await broker.create_topic(ANYBODY, topic, 1, {})
            await appended(broker, part(numbered(0, 1), topic=topic))
        await broker.delete_topic(ANYBODY, "t")
        gone, stored = await appended(broker, part(numbered(1, 1)), part(numbered(1, 1), topic="stays"))
        assert isinstance(gone.error, NotFound)
        assert stored.base_offset == 1


async def test_a_broker_that_stops_takes_no_parts() -> None:
    async with running_broker(MemoryObjectStore()) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
    with pytest.raises(Overloaded, match="not applied"):
        await broker.append_parts(ANYBODY, [part(numbered(0, 1))], Acks.ALL)


async def test_parts_that_are_led_elsewhere_name_the_leader_and_are_not_forwarded() -> None:
    store = MemoryObjectStore()
    async with running_world(dict.fromkeys("abc", store)) as world:
        topic = await world.brokers["a"].create_topic(ANYBODY, "t", 3, {})
        await world.take(2)
        at = {shard: number for number, shard in enumerate(topic.shards)}
        parts = [part(numbered(0, 1), at[shard]) for shard in range(3)]
        here, there, nowhere = await appended(world.brokers["a"], *parts)
        assert here.base_offset == 0
        assert isinstance(there.error, NotLeader)
        assert there.error.leader == "http://b"
        assert isinstance(nowhere.error, LeaderUnknown)
        (moved,) = await appended(world.brokers["b"], parts[1])
        assert moved.base_offset == 0, "the first call has not applied it"


async def test_a_topic_that_another_broker_has_just_made_is_known() -> None:
    async with running_world(dict.fromkeys("abc", MemoryObjectStore())) as world:
        topic = await world.brokers["a"].create_topic(ANYBODY, "t", 3, {})
        number = next(number for number, shard in enumerate(topic.shards) if shard == 1)
        (answer,) = await appended(world.brokers["b"], part(numbered(0, 1), number))
        assert answer.base_offset == 0


async def test_http_and_parts_share_one_order_and_one_table_of_sequences() -> None:
    async with running_broker(MemoryObjectStore()) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        sequence = ProducerSequence("p", 0, 0)
        drafts = [PartDraft("t", 0, numbered(n, 1).records, 10, ProducerSequence("p", 0, n)) for n in range(3)]
        await asyncio.gather(*(appended(broker, one) for one in drafts))
        (again,) = await broker.produce(ANYBODY, "t", numbered(0, 1), ProduceOptions(partition=0, producer=sequence))
        assert (again.base_offset, again.duplicate) == (0, True)
        next_one = ProducerSequence("p", 0, 3)
        (fourth,) = await broker.produce(ANYBODY, "t", numbered(3, 1), ProduceOptions(partition=0, producer=next_one))
        assert fourth.base_offset == 3
        assert await stored_values(broker) == [0, 1, 2, 3]
