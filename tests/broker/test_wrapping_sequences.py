"""Kafka's sequences are int32 and wrap from 2**31 - 1 to 0. Retries, duplicates and gaps are found around the wrap."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker, until
from tests.broker.cluster_world import running_world
from tests.broker.part_drafts import appended, batch, errors_of, offsets, stored_values

from tidelog.services.broker.api.produce import ProducerSequence
from tidelog.services.broker.shard.idempotence import BATCHES_REMEMBERED, WRAP, ProducerTable
from tidelog.storage.errors import Invalid, SequenceConflict
from tidelog.storage.layout import TopicPartition
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.wal.wal_entry import ProducerMark

PLACE = TopicPartition("t", 0)
Bucket = Callable[[], ObjectStore]


def wire(sequence: int, epoch: int = 0) -> ProducerSequence:
    """A sequence as Kafka's clients send it."""
    return ProducerSequence("p", epoch, sequence % WRAP, wraps=True)


def remember(table: ProducerTable, sequence: ProducerSequence, count: int, base_offset: int) -> None:
    first = table.unwrapped(sequence).first_sequence
    table.remember(ProducerMark(PLACE, "p", sequence.producer_epoch, first, first + count - 1, base_offset), 7)


def table_before_the_wrap(*counts: int, first: int = WRAP - 10) -> ProducerTable:
    """A table with batches of `counts` records, from sequence `first` on, at the offsets from 0 on."""
    table, offset = ProducerTable(), 0
    for count in counts:
        assert table.find(wire(first + offset), count) is None
        remember(table, wire(first + offset), count, offset)
        offset += count
    return table


def test_the_sequence_after_the_last_one_is_zero() -> None:
    assert table_before_the_wrap(10).find(wire(0), 1) is None


def test_a_batch_that_crosses_the_wrap_is_remembered_whole() -> None:
    table = table_before_the_wrap(7, 8)
    found = table.find(wire(WRAP - 3), 8)
    assert found is not None
    assert found.base_offset == 7
    assert table.find(wire(5), 1) is None


@pytest.mark.parametrize("first", [-8, -1, 1, 2, 1_000, WRAP // 2 - 1])
def test_a_gap_at_the_wrap_is_refused(first: int) -> None:
    with pytest.raises(SequenceConflict):
        table_before_the_wrap(10).find(wire(WRAP + first), 1)


def test_the_last_five_batches_around_the_wrap_are_duplicates_and_older_ones_conflicts() -> None:
    counts = (3, 4, 2, 5, 1, 6, 3)
    table = table_before_the_wrap(*counts)
    offsets_ = [sum(counts[:n]) for n in range(len(counts))]
    for number, (offset, count) in enumerate(zip(offsets_, counts, strict=True)):
        if number < len(counts) - BATCHES_REMEMBERED:
            with pytest.raises(SequenceConflict):
                table.find(wire(WRAP - 10 + offset), count)
        else:
            found = table.find(wire(WRAP - 10 + offset), count)
            assert found is not None
            assert found.base_offset == offset


def test_a_newer_epoch_begins_at_zero_behind_the_wrap_too() -> None:
    table = table_before_the_wrap(7, 8)
    with pytest.raises(SequenceConflict):
        table.find(wire(5, epoch=1), 1)
    assert table.find(wire(0, epoch=1), 4) is None
    remember(table, wire(0, epoch=1), 4, 15)
    assert table.find(wire(4, epoch=1), 1) is None


def test_a_sequence_from_before_the_first_one_is_a_conflict() -> None:
    table = ProducerTable()
    remember(table, wire(0), 3, 0)
    with pytest.raises(SequenceConflict):
        table.find(wire(WRAP - 2), 1)


def test_a_sequence_above_int32_is_invalid() -> None:
    with pytest.raises(Invalid):
        ProducerTable().find(ProducerSequence("p", 0, WRAP, wraps=True), 1)


@given(st.integers(0, 2 * WRAP), st.lists(st.integers(1, 1 << 20), min_size=1, max_size=12))
def test_the_table_says_the_same_of_wrapping_sequences_as_of_numbers_without_a_bound(
    first: int, counts: list[int]
) -> None:
    wrapping, plain, at = ProducerTable(), ProducerTable(), first
    for number, count in enumerate(counts):
        for table, sequence in ((wrapping, wire(at)), (plain, ProducerSequence("p", 0, at))):
            assert table.find(sequence, count) is None
            remember(table, sequence, count, number)
        for back in range(-2 * count, 2 * count, max(1, count // 2)):
            assert found(wrapping, wire(at + back), count) == found(plain, ProducerSequence("p", 0, at + back), count)
        at += count


def found(table: ProducerTable, sequence: ProducerSequence, count: int) -> int | None:
    """The offset of the batch that is repeated, None if it is new, -1 for a conflict."""
    try:
        batch_ = table.find(sequence, count)
    except (SequenceConflict, Invalid):
        return -1
    return None if batch_ is None else batch_.base_offset


async def test_the_wrap_outlives_restarts_in_the_wal_and_in_the_manifest(bucket: Bucket) -> None:
    async with running_broker(bucket()) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        assert offsets(await appended(broker, batch(WRAP - 5, 3), batch(WRAP - 2, 4))) == [0, 3]
    async with running_broker(bucket()) as broker:
        again, gap, new = await appended(broker, batch(WRAP - 2, 4), batch(3), batch(2, 2))
        assert (again.base_offset, again.duplicate) == (3, True)
        assert isinstance(gap.error, SequenceConflict)
        assert new.base_offset == 7
        await broker.archive_now()
    async with running_broker(bucket()) as broker:
        again, gap, new = await appended(broker, batch(2, 2), batch(WRAP - 1), batch(4))
        assert (again.base_offset, again.duplicate) == (7, True)
        assert isinstance(gap.error, SequenceConflict)
        assert new.base_offset == 9
        assert len(await stored_values(broker)) == 10


async def test_the_wrap_outlives_a_takeover() -> None:
    store = MemoryObjectStore()
    async with running_world(dict.fromkeys("ab", store), shards=1) as world:
        await world.brokers["a"].create_topic(ANYBODY, "t", 1, {})
        for first, count in ((WRAP - 4, 2), (WRAP - 2, 1), (WRAP - 1, 3)):
            assert errors_of(await appended(world.brokers["a"], batch(first, count))) == [None]
        await world.kill("a")
        await world.usurp(0, "b")
        await until(lambda: world.brokers["b"].shards.leads(0))
        answers = await appended(world.brokers["b"], batch(WRAP - 4, 2), batch(WRAP - 1, 3), batch(2), batch(2))
        assert offsets(answers) == [0, 3, 6, 6]
        assert [answer.duplicate for answer in answers] == [True, True, False, True]
