import pytest
from tests.broker.drafts import draft

from tidelog.services.broker.shard.append_buffer import Append, AppendBuffer, BufferBudget
from tidelog.services.broker.shard.partition_state import PartitionState
from tidelog.storage.errors import Overloaded, TooLarge
from tidelog.storage.layout import TopicPartition
from tidelog.storage.manifests.partition_view import view_of
from tidelog.storage.manifests.shard_manifest import ShardManifest

STATE = PartitionState("t", view_of(ShardManifest(0), TopicPartition("t", 0)))


def append(held_bytes: int) -> Append:
    return Append(STATE, draft([b"v"]).records, 0, held_bytes, 1, 1)


async def test_a_batch_is_closed_before_it_would_grow_over_its_bound() -> None:
    buffer = AppendBuffer(100)
    outcomes = [buffer.add(append(size)) for size in (60, 40, 1, 99, 100)]
    assert outcomes[0] is outcomes[1]
    assert outcomes[2] is outcomes[3]
    assert [buffer.take().held_bytes for _ in range(3)] == [100, 100, 100]


async def test_an_append_over_the_bound_is_a_batch_of_its_own() -> None:
    buffer = AppendBuffer(100)
    for size in (10, 500, 10):
        buffer.add(append(size))
    assert [buffer.take().held_bytes for _ in range(3)] == [10, 500, 10]


async def test_a_closed_batch_counts_as_full() -> None:
    buffer = AppendBuffer(100)
    assert buffer.next_bytes == 0
    buffer.add(append(60))
    assert buffer.next_bytes == 60
    buffer.add(append(60))
    assert buffer.next_bytes == 100
    assert buffer.held_bytes == 120
    buffer.take()
    assert (buffer.next_bytes, buffer.held_bytes) == (60, 60)
    buffer.take_all()
    assert (buffer.next_bytes, buffer.held_bytes) == (0, 0)


def test_the_budget_is_kept_to_the_byte() -> None:
    budget = BufferBudget(100)
    budget.reserve(60)
    budget.reserve(40)
    with pytest.raises(Overloaded):
        budget.reserve(1)
    budget.release(60)
    budget.reserve(60)
    assert budget.used_bytes == 100


def test_records_that_never_fit_are_too_large_rather_than_overloaded() -> None:
    with pytest.raises(TooLarge):
        BufferBudget(100).reserve(101)
