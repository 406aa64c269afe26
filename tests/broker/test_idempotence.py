import pytest

from tidelog.services.broker.api.produce import ProducerSequence
from tidelog.services.broker.shard.idempotence import BATCHES_REMEMBERED, SEQUENCE_MAX, ProducerTable, RememberedBatch
from tidelog.storage.errors import Invalid, ProducerFenced, SequenceConflict
from tidelog.storage.layout import TopicPartition
from tidelog.storage.wal.wal_entry import ProducerMark

PLACE = TopicPartition("t", 0)


def mark(first: int, count: int, base_offset: int, *, epoch: int = 0, producer: str = "p") -> ProducerMark:
    return ProducerMark(PLACE, producer, epoch, first, first + count - 1, base_offset)


def sequence(first: int, *, epoch: int = 0, producer: str = "p") -> ProducerSequence:
    return ProducerSequence(producer, epoch, first)


def table_with(*marks: ProducerMark, producers_max: int = 100) -> ProducerTable:
    table = ProducerTable(producers_max)
    for one in marks:
        table.remember(one, 7)
    return table


def test_a_producer_that_is_not_known_may_begin_anywhere() -> None:
    assert ProducerTable().find(sequence(1_000), 5) is None


def test_the_next_sequence_is_new() -> None:
    assert table_with(mark(0, 10, 0)).find(sequence(10), 3) is None


def test_a_batch_sent_again_is_known_with_its_offset() -> None:
    table = table_with(mark(0, 10, 40), mark(10, 5, 90))
    assert table.find(sequence(0), 10) == RememberedBatch(0, 9, 40, 7)
    assert table.find(sequence(10), 5) == RememberedBatch(10, 14, 90, 7)


def test_a_gap_is_refused_with_the_sequence_expected() -> None:
    with pytest.raises(SequenceConflict) as raised:
        table_with(mark(0, 10, 0)).find(sequence(11), 1)
    assert raised.value.expected_sequence == 10


def test_a_batch_of_another_length_at_a_known_sequence_is_no_duplicate() -> None:
    with pytest.raises(SequenceConflict):
        table_with(mark(0, 10, 0)).find(sequence(0), 9)


def test_a_batch_older_than_those_remembered_is_refused() -> None:
    table = table_with(*(mark(number, 1, number) for number in range(BATCHES_REMEMBERED + 1)))
    assert table.find(sequence(1), 1) is not None
    with pytest.raises(SequenceConflict):
        table.find(sequence(0), 1)


def test_an_older_epoch_is_shut_out() -> None:
    with pytest.raises(ProducerFenced) as raised:
        table_with(mark(0, 1, 0, epoch=3)).find(sequence(1, epoch=2), 1)
    assert raised.value.current_epoch == 3


def test_a_newer_epoch_begins_at_zero() -> None:
    table = table_with(mark(0, 10, 0))
    assert table.find(sequence(0, epoch=1), 4) is None
    with pytest.raises(SequenceConflict) as raised:
        table.find(sequence(10, epoch=1), 4)
    assert raised.value.expected_sequence == 0


@pytest.mark.parametrize(("epoch", "first"), [(-1, 0), (0, -1), (0, SEQUENCE_MAX)])
def test_numbers_out_of_range_are_invalid(epoch: int, first: int) -> None:
    with pytest.raises(Invalid):
        ProducerTable().find(sequence(first, epoch=epoch), 1)


def test_finding_changes_nothing() -> None:
    table = ProducerTable()
    table.find(sequence(0), 5)
    assert len(table) == 0


def test_the_producer_silent_for_longest_is_forgotten_at_the_bound() -> None:
    table = table_with(
        mark(0, 1, 0, producer="a"), mark(0, 1, 1, producer="b"), mark(1, 1, 2, producer="a"), producers_max=2
    )
    table.remember(mark(0, 1, 3, producer="c"), 7)
    assert len(table) == 2
    assert table.find(sequence(77, producer="b"), 1) is None
    with pytest.raises(SequenceConflict):
        table.find(sequence(77, producer="a"), 1)


def test_marks_from_manifest_and_wal_may_overlap() -> None:
    table = ProducerTable()
    table.restore([mark(10, 5, 90), mark(0, 10, 40), mark(10, 5, 90)])
    assert table.find(sequence(0), 10) == RememberedBatch(0, 9, 40, None)
    assert table.find(sequence(10), 5) == RememberedBatch(10, 14, 90, None)
    assert table.find(sequence(15), 1) is None
