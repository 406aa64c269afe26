"""Node ids and producer ids are given out once, whatever fails in between."""

import asyncio

import msgspec
import pytest

from tidelog.coordinator.cluster.allotted_ids import (
    NODE_ID_MAX,
    PRODUCER_ID_BLOCK,
    ProducerIds,
    allot_node_id,
    node_id_of,
)
from tidelog.coordinator.journal import Journal, Put
from tidelog.storage.errors import Corrupt, Invalid, Unavailable
from tidelog.storage.object_store import Body
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.memory import MemoryObjectStore


class LostAnswers(MemoryObjectStore):
    """Of the next creates, `lost` are done and not answered, then `refused` are not done."""

    lost = 0
    refused = 0

    async def create(self, key: str, data: Body) -> str:
        if self.refused and not self.lost:
            self.refused -= 1
            raise Unavailable("not done")
        tag = await super().create(key, data)
        if self.lost:
            self.lost -= 1
            raise Unavailable("the answer is lost")
        return tag


async def opened(store: MemoryObjectStore) -> Journal:
    journal = Journal(store, Runtime())
    await journal.open()
    return journal


async def test_brokers_that_join_at_once_get_different_ids_from_zero_on() -> None:
    store = MemoryObjectStore()
    journals = [await opened(store) for _ in range(6)]
    ids = await asyncio.gather(
        *(allot_node_id(journal, f"b{number}", kept=True) for number, journal in enumerate(journals))
    )
    assert sorted(ids) == list(range(6))


async def test_a_broker_keeps_its_node_id_for_ever() -> None:
    store = MemoryObjectStore()
    first = await allot_node_id(await opened(store), "a", kept=True)
    for other in range(70):  # beyond a checkpoint of the journal
        await allot_node_id(await opened(store), f"b{other}", kept=True)
    journal = await opened(store)
    entries = journal.next_number
    assert await allot_node_id(journal, "a", kept=True) == first == 0
    assert journal.next_number == entries, "nothing is written for a known broker"


async def test_a_broker_without_an_id_of_its_own_gets_a_new_one_at_each_start_and_leaves_nothing_behind() -> None:
    journal = await opened(MemoryObjectStore())
    assert [await allot_node_id(journal, f"broker-{n}", kept=False) for n in range(3)] == [0, 1, 2]
    assert [key for key, _ in journal.items("")] == ["nodes"]
    assert await allot_node_id(journal, "a", kept=True) == 3
    assert node_id_of(journal, "broker-1") is None


async def test_a_node_id_whose_answer_was_lost_is_found_again() -> None:
    store = LostAnswers()
    journal = await opened(store)
    store.lost = 1
    with pytest.raises(Unavailable):
        await allot_node_id(journal, "a", kept=True)
    assert await allot_node_id(journal, "a", kept=True) == 0
    assert await allot_node_id(journal, "b", kept=True) == 1


async def test_node_ids_are_int32() -> None:
    journal = await opened(MemoryObjectStore())
    await journal.update(lambda: (Put("nodes", msgspec.Raw(b"%d" % NODE_ID_MAX)),))
    assert await allot_node_id(journal, "a", kept=True) == NODE_ID_MAX
    with pytest.raises(Invalid, match=r"broker\.id"):
        await allot_node_id(journal, "b", kept=True)
    assert await allot_node_id(journal, "a", kept=True) == NODE_ID_MAX


async def test_two_brokers_never_give_out_the_same_producer_id() -> None:
    store = MemoryObjectStore()
    brokers = [ProducerIds(await opened(store), block=3) for _ in range(3)]
    taken = await asyncio.gather(*(broker.take() for _ in range(20) for broker in brokers))
    assert len(set(taken)) == 60
    assert min(taken) == 0


async def test_a_block_costs_one_entry_of_the_journal() -> None:
    journal = await opened(MemoryObjectStore())
    ids = ProducerIds(journal)
    assert [await ids.take() for _ in range(1_000)] == list(range(1_000))
    assert journal.next_number == 1


async def test_after_a_crash_ids_go_on_behind_the_block() -> None:
    store = MemoryObjectStore()
    assert await ProducerIds(await opened(store)).take() == 0
    assert await ProducerIds(await opened(store)).take() == PRODUCER_ID_BLOCK


@pytest.mark.parametrize(("lost", "refused"), [(1, 0), (0, 1), (1, 1), (2, 2)])
async def test_no_producer_id_is_given_out_twice_when_answers_are_lost(lost: int, refused: int) -> None:
    store = LostAnswers()
    brokers = [ProducerIds(await opened(store), block=2) for _ in range(2)]
    taken = []
    for round_ in range(12):
        if round_ % 3 == 1:
            store.lost, store.refused = lost, refused
        for broker in brokers:
            try:
                taken.append(await broker.take())
            except Unavailable:
                continue
    assert len(set(taken)) == len(taken) >= 8


async def test_a_number_that_is_damaged_is_named() -> None:
    journal = await opened(MemoryObjectStore())
    await journal.update(lambda: (Put("producer-ids", msgspec.Raw(b'"x"')), Put("nodes", msgspec.Raw(b"-1"))))
    with pytest.raises(Corrupt, match="producer-ids"):
        await ProducerIds(journal).take()
    with pytest.raises(Corrupt, match="nodes"):
        await allot_node_id(journal, "a", kept=True)
