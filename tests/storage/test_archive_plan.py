"""Plans of a pass, without a bucket."""

from __future__ import annotations

import pytest
from tests.storage.record_tables import SHOP, WEB, WEB_1, record_table, records_header, spans_of, wal_table

from tidelog.storage.archive.archive_plan import PartitionPlan, plan_archive
from tidelog.storage.errors import Corrupt
from tidelog.storage.layout import TopicPartition
from tidelog.storage.records import WAL_SCHEMA
from tidelog.storage.wal.wal_entry import ProducerMark, WalEntry


def entry(*parts: tuple[TopicPartition, int, int], seq: int = 0, marks: tuple[ProducerMark, ...] = ()) -> WalEntry:
    spans = spans_of(*parts)
    table = wal_table(spans) if spans else WAL_SCHEMA.empty_table()
    return WalEntry(records_header(spans, seq=seq, producers=marks), table)


def mark(producer: str, base_offset: int, sequence: int = 0) -> ProducerMark:
    return ProducerMark(WEB, producer, 0, sequence, sequence, base_offset)


def web_plan() -> PartitionPlan:
    return plan_archive([entry((WEB, 10, 3)), entry((WEB, 13, 4), seq=1)])[0]


def test_each_partition_gets_its_records_in_order_across_entries() -> None:
    plans = plan_archive([entry((WEB, 5, 2), (SHOP, 0, 1)), entry(seq=1), entry((WEB, 7, 3), (WEB_1, 0, 2), seq=2)])
    assert [(plan.topic_partition, plan.base_offset, plan.next_offset) for plan in plans] == [
        (WEB, 5, 10),
        (WEB_1, 0, 2),
        (SHOP, 0, 1),
    ]
    assert plans[0].records_from(5).equals(record_table(range(5, 10)))


@pytest.mark.parametrize("cold_end", [10, 11, 13, 14, 16, 17, 18, 1_000])
def test_records_in_the_manifest_are_skipped(cold_end: int) -> None:
    assert web_plan().records_from(cold_end).equals(record_table(range(cold_end, 17)))


def test_a_gap_before_the_plan_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="offsets 8 to 9 are neither"):
        web_plan().records_from(8)


def test_a_gap_between_entries_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="begins at offset 4, not 3"):
        plan_archive([entry((WEB, 0, 3)), entry((WEB, 4, 1), seq=1)])


def test_nothing_is_planned_without_records() -> None:
    assert plan_archive([]) == plan_archive([entry()]) == ()


def test_the_last_batch_of_each_producer_is_kept_by_offset() -> None:
    entries = [entry((WEB, 0, 3), marks=(mark("a", 0), mark("b", 1), mark("a", 2, 1)))]
    plan = plan_archive(entries)[0]
    assert plan.producers_after((mark("c", 0), mark("b", 0)), 10) == (mark("c", 0), mark("b", 1), mark("a", 2, 1))
    assert plan.producers_after((mark("c", 0),), 2) == (mark("b", 1), mark("a", 2, 1))
    assert plan.producers_after((mark("a", 9, 7),), 10)[-1] == mark("a", 9, 7)
