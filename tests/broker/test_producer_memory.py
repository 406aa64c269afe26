"""A broker remembers a bounded number of idempotent producers, for a bounded time."""

from __future__ import annotations

import tracemalloc

import pytest
from tests.broker.set_clock import SetClock

from tidelog.services.broker.api.produce import ProducerSequence
from tidelog.services.broker.shard.idempotence import ProducerMemory, ProducerTable
from tidelog.storage.errors import Conflict, SequenceConflict
from tidelog.storage.layout import TopicPartition
from tidelog.storage.wal.wal_entry import ProducerMark

PLACE = TopicPartition("t", 0)
DAY_S = 86_400.0


def mark(producer: str, first: int = 0, base_offset: int = 0) -> ProducerMark:
    return ProducerMark(PLACE, producer, 0, first, first, base_offset)


def sequence(producer: str, first: int = 0) -> ProducerSequence:
    return ProducerSequence(producer, 0, first)


def test_a_producer_that_was_silent_for_too_long_is_forgotten() -> None:
    clock = SetClock()
    memory = ProducerMemory(clock, DAY_S, 100)
    table = ProducerTable(memory=memory)
    table.remember(mark("p"), 7)
    clock.pass_time(DAY_S - 1)
    assert table.find(sequence("p"), 1) is not None, "its retry is still known"
    with pytest.raises(SequenceConflict):
        table.find(sequence("p", 7), 1)
    clock.pass_time(2)
    assert table.find(sequence("p"), 1) is None, "the late retry is appended again"
    table.remember(mark("p", 7, base_offset=0), 7)
    assert table.find(sequence("p", 8), 1) is None
    assert (len(table), len(memory)) == (1, 1)


def test_a_producer_that_continues_is_not_forgotten() -> None:
    clock = SetClock()
    table = ProducerTable(memory=ProducerMemory(clock, DAY_S, 100))
    for number in range(5):
        table.remember(mark("p", number, number), 7)
        clock.pass_time(DAY_S * 0.9)
    with pytest.raises(SequenceConflict):
        table.find(sequence("p", 9), 1)


def test_those_that_expired_are_dropped_when_another_comes() -> None:
    clock = SetClock()
    memory = ProducerMemory(clock, DAY_S, 100)
    first, second = ProducerTable(memory=memory), ProducerTable(memory=memory)
    for number in range(50):
        first.remember(mark(f"p{number}", base_offset=number), 7)
    clock.pass_time(DAY_S + 1)
    second.remember(mark("q"), 7)
    assert (len(first), len(second), len(memory)) == (0, 1, 1)


def test_at_the_bound_the_one_silent_for_longest_in_any_partition_goes() -> None:
    memory = ProducerMemory(SetClock(), DAY_S, 3)
    first, second = ProducerTable(memory=memory), ProducerTable(memory=memory)
    first.remember(mark("a"), 7)
    second.remember(mark("b"), 7)
    second.remember(mark("c", base_offset=1), 7)
    first.remember(mark("a", 1, 1), 7)
    first.remember(mark("d", base_offset=2), 7)
    assert (len(first), len(second), len(memory)) == (2, 1, 3)
    assert second.find(sequence("b"), 1) is None
    assert second.find(sequence("c"), 1) is not None


def test_a_partition_that_reaches_its_own_bound_gives_its_places_back() -> None:
    memory = ProducerMemory(SetClock(), DAY_S, 100)
    table = ProducerTable(2, memory)
    for number in range(10):
        table.remember(mark(f"p{number}", base_offset=number), 7)
    assert (len(table), len(memory)) == (2, 2)


def test_a_flood_of_producer_ids_takes_a_bounded_memory() -> None:
    memory = ProducerMemory(SetClock(), DAY_S, 2_000)
    tables = [ProducerTable(memory=memory) for _ in range(10)]
    tracemalloc.start()
    for number in range(20_000):
        tables[number % 10].remember(mark(f"producer-{number}", base_offset=number), 7)
    held_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert sum(map(len, tables)) == len(memory) == 2_000
    assert held_bytes < 2_000 * 2_500


def aged(producer: str, age_s: float, first: int = 0) -> ProducerSequence:
    return ProducerSequence(producer, 0, first, age_s=age_s)


def test_an_unknown_producer_with_an_old_batch_is_refused_although_nothing_was_forgotten_here() -> None:
    table = ProducerTable(memory=ProducerMemory(SetClock(), DAY_S, 100))
    assert table.find(aged("p", DAY_S / 2), 1) is None
    with pytest.raises(Conflict, match="may have forgotten it"):
        table.find(aged("p", DAY_S / 2 + 1), 1)


def test_a_known_producer_is_never_too_old() -> None:
    clock = SetClock()
    table = ProducerTable(memory=ProducerMemory(clock, DAY_S, 100))
    table.remember(mark("p"), 7)
    clock.pass_time(DAY_S - 1)
    assert table.find(aged("p", 10 * DAY_S), 1) is not None
    assert table.find(aged("p", 10 * DAY_S, first=1), 1) is None


@pytest.mark.parametrize("bound", ["of all tables", "of the table"])
def test_a_batch_that_is_older_than_the_last_one_of_a_forgotten_producer_is_refused(bound: str) -> None:
    clock = SetClock()
    table = ProducerTable(2 if bound == "of the table" else 100, ProducerMemory(clock, DAY_S, 2))
    for number, producer in enumerate("abc"):
        table.remember(mark(producer, base_offset=number), 7)
        clock.pass_time(10)
    assert table.find(aged("a", 20), 1) is None, "an attempt after its last batch cannot have appended it"
    with pytest.raises(Conflict, match="may have forgotten it"):
        table.find(aged("a", 40), 1)
    assert table.find(aged("b", 30), 1) is not None


def test_a_producer_that_expired_and_came_back_is_new_for_a_young_batch_only() -> None:
    clock = SetClock()
    table = ProducerTable(memory=ProducerMemory(clock, DAY_S, 100))
    table.remember(mark("p"), 7)
    clock.pass_time(DAY_S + 1)
    assert table.find(aged("p", 60, first=1), 1) is None
    with pytest.raises(Conflict, match="may have forgotten it"):
        table.find(aged("p", DAY_S), 1)
