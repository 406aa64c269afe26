"""Where a batch read begins and ends, by offset and by time, beside a real broker."""

from __future__ import annotations

import json

import pytest
from tests.spark.serving import START_MS, Serving, records

from tidelog.spark_connector.options.read_options import parse_options
from tidelog.spark_connector.reads.snapshot import take_snapshot
from tidelog.storage.errors import Invalid


@pytest.fixture(scope="module")
def topic(hot_broker: Serving) -> str:
    """Record n of partition p has the time START_MS + 10 n + p."""
    hot_broker.create_topic("bounds", 3)
    hot_broker.produce("bounds", 0, records(0, 0, 20))
    hot_broker.produce("bounds", 1, records(1, 0, 10))
    return "bounds"


def taken(hot_broker: Serving, topic: str, **options: str) -> dict[int, tuple[int, int]]:
    """The offsets of each partition that a read takes."""
    (found,) = take_snapshot(parse_options({"broker": hot_broker.url, "subscribe": topic, **options}))
    return {each.ends.partition: (each.start, each.end) for each in found.ranges}


def times(first: int, second: int, third: int = -2) -> str:
    """Times by partition: those of the records with these offsets; -1 and -2 stay."""
    numbers = (START_MS + 10 * at if at >= 0 else at for at in (first, second, third))
    return json.dumps({"bounds": dict(enumerate(numbers))})


def test_times_by_partition_stand_for_the_first_record_at_or_after_them(hot_broker: Serving, topic: str) -> None:
    start = {"startingOffsetsByTimestamp": times(5, 3)}

    assert taken(hot_broker, topic, **start) == {0: (5, 20), 1: (3, 10), 2: (0, 0)}
    end = {"endingOffsetsByTimestamp": times(9, -1, -1)}
    assert taken(hot_broker, topic, **start, **end) == {0: (5, 9), 1: (3, 10), 2: (0, 0)}
    assert taken(hot_broker, topic, endingOffsetsByTimestamp=times(100, 0, 100)) == {0: (0, 20), 1: (0, 0), 2: (0, 0)}


def test_the_first_option_of_kafkas_precedence_counts(hot_broker: Serving, topic: str) -> None:
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    offsets = {"startingOffsets": '{"bounds": {"0": 1, "1": 1, "2": 0}}'}
    by_partition = {"startingOffsetsByTimestamp": times(2, 2)}
    at_once = {"startingTimestamp": str(START_MS + 40)}

    assert taken(hot_broker, topic, **offsets) == {0: (1, 20), 1: (1, 10), 2: (0, 0)}
    assert taken(hot_broker, topic, **offsets, **by_partition) == {0: (2, 20), 1: (2, 10), 2: (0, 0)}
    everything = {**offsets, **by_partition, **at_once, **latest}
    assert taken(hot_broker, topic, **everything) == {0: (4, 20), 1: (4, 10), 2: (0, 0)}


def test_a_start_that_no_record_meets_is_an_error_or_the_end(hot_broker: Serving, topic: str) -> None:
    start = {"startingOffsetsByTimestamp": times(5, 50)}

    with pytest.raises(Invalid, match=rf"bounds-1 .* startingOffsetsByTimestamp {START_MS + 500}: choose") as refusal:
        taken(hot_broker, topic, **start)
    assert refusal.value.field == "startingOffsetsByTimestamp"
    lenient = taken(hot_broker, topic, **start, startingOffsetsByTimestampStrategy="latest")
    assert lenient == {0: (5, 20), 1: (10, 10), 2: (0, 0)}


def test_times_by_partition_name_exactly_the_partitions_that_are_read(hot_broker: Serving, topic: str) -> None:
    with pytest.raises(Invalid, match="startingOffsetsByTimestamp lacks bounds-1, bounds-2"):
        taken(hot_broker, topic, startingOffsetsByTimestamp='{"bounds": {"0": 0}}')
