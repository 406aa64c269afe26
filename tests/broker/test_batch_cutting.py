import pytest

from tidelog.services.broker.shard.batch_cutting import FlushPolicy, ShardLoad, seconds_to_cut

POLICY = FlushPolicy(interval_s=0.25, batch_bytes_max=1_000)


def delay(
    waiting_bytes: int, last_cut_s: float | None, *, in_flight: int = 0, hurry: bool = False, now_s: float = 100.0
) -> float | None:
    return seconds_to_cut(POLICY, ShardLoad(waiting_bytes, last_cut_s, in_flight, hurry), now_s)


def test_nothing_waiting_is_never_cut() -> None:
    assert delay(0, None) is None
    assert delay(0, 1.0, hurry=True) is None


def test_an_idle_shard_flushes_at_once() -> None:
    assert delay(1, None) == 0
    assert delay(1, 99.0) == 0


def test_a_busy_shard_waits_for_what_is_left_of_the_interval() -> None:
    assert delay(1, 99.9) == pytest.approx(0.15)


def test_a_batch_fills_while_a_put_is_under_way() -> None:
    assert delay(999, 90.0, in_flight=1) is None


def test_a_full_batch_is_cut_at_once_whatever_is_under_way() -> None:
    assert delay(1_000, 99.99) == 0
    assert delay(1_000, 99.99, in_flight=1) == 0


def test_a_stopping_broker_waits_for_no_interval() -> None:
    assert delay(1, 99.99, hurry=True) == 0


def test_without_an_interval_a_batch_is_cut_when_the_put_before_it_ends() -> None:
    assert seconds_to_cut(FlushPolicy(0.0, 1_000), ShardLoad(1, 100.0, in_flight=0), 100.0) == 0


def test_where_puts_are_free_a_quarter_of_a_batch_is_cut_beside_the_put_under_way() -> None:
    free = FlushPolicy(0.0, 1_000)
    assert seconds_to_cut(free, ShardLoad(249, 100.0, in_flight=1), 100.0) is None
    assert seconds_to_cut(free, ShardLoad(250, 100.0, in_flight=1), 100.0) == 0
    assert seconds_to_cut(POLICY, ShardLoad(999, 100.0, in_flight=1), 100.0) is None


def test_where_puts_are_slow_although_they_are_free_the_next_batch_fills_up() -> None:
    """A second batch in flight waits for the disk, so a third small one would only add entries."""
    free = FlushPolicy(0.0, 1_000)
    assert seconds_to_cut(free, ShardLoad(999, 100.0, in_flight=2), 100.0) is None
    assert seconds_to_cut(free, ShardLoad(1_000, 100.0, in_flight=2), 100.0) == 0
