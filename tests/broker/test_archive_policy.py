"""When a WAL is archived: by size, entries, age and cost, and by what all shards owe together."""

import pytest

from tidelog.services.broker.archive.archive_policy import (
    BEHIND_ENTRIES_FACTOR,
    BEHIND_SHARE,
    PATIENCE,
    PRESSED_SHARE,
    PUTS_FREE,
    ArchivePolicy,
    WalDebt,
)

MINUTE = 60_000
POLICY = ArchivePolicy(interval_ms=MINUTE, bytes_min=1_000, debt_bytes_max=100_000, entries_max=1_000)


def due(entries: int, wal_bytes: int, age_ms: int, *, topics: int = 1, all_debt_bytes: int = 0) -> bool:
    return POLICY.is_due(WalDebt(entries, wal_bytes, topics, age_ms), all_debt_bytes)


def test_an_empty_wal_is_never_due() -> None:
    assert not due(0, 0, 10**13, topics=0, all_debt_bytes=10**9)


def test_a_wal_is_due_by_size_by_age_and_by_its_entries() -> None:
    assert not due(999, 999, MINUTE - 1)
    assert due(1, 1_000, 0)
    assert due(1, 1, MINUTE)
    assert due(1_000, 1, 0)


@pytest.mark.parametrize(
    ("entries", "topics", "expected"),
    [
        (1, 1, True),  # few PUTs: archiving need not wait
        (1, PUTS_FREE - 1, True),
        (1, PUTS_FREE, False),
        (240, 239, True),  # one minute of a busy shard on S3: four entries a second
        (240, 240, False),
        (241, 240, True),
        (999, 1_000, False),
    ],
)
def test_an_old_wal_waits_until_a_pass_costs_no_more_than_its_entries(
    entries: int, topics: int, expected: bool
) -> None:
    assert not due(entries, 1, MINUTE - 1, topics=topics)
    for age_ms in (MINUTE, PATIENCE * MINUTE - 1):
        assert due(entries, 1, age_ms, topics=topics) == expected


@pytest.mark.parametrize(("entries", "wal_bytes", "age_ms"), [(1_000, 1, 0), (1, 1_000, 0), (1, 1, PATIENCE * MINUTE)])
def test_however_many_topics_a_wal_is_bounded_by_entries_bytes_and_age(
    entries: int, wal_bytes: int, age_ms: int
) -> None:
    assert due(entries, wal_bytes, age_ms, topics=10_000)


def test_many_small_logs_that_reach_half_the_bound_together_are_due() -> None:
    half = int(100_000 * PRESSED_SHARE)
    assert not due(1, 1, 0, all_debt_bytes=half - 1)
    assert due(1, 1, 0, all_debt_bytes=half)


def test_archiving_has_fallen_behind_by_the_longest_log_or_by_the_debt_of_all() -> None:
    entries, debt_bytes = 1_000 * BEHIND_ENTRIES_FACTOR, int(100_000 * BEHIND_SHARE)
    assert POLICY.is_behind(entries, 0)
    assert POLICY.is_behind(0, debt_bytes)
    assert not POLICY.is_behind(entries - 1, debt_bytes - 1)
