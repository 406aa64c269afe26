"""How much a micro-batch takes, and the options that say so."""

from __future__ import annotations

import pytest

from tidelog.spark_connector.options.bounds import AtLatest, AtOffsets, AtTimestamp
from tidelog.spark_connector.options.read_options import KNOWN_OPTIONS
from tidelog.spark_connector.options.stream_options import AdmissionLimits, parse_stream_options
from tidelog.spark_connector.streams.admission import Backlog, shared_out, waits_for_more
from tidelog.storage.errors import Invalid

SMALL, LARGE, NONE, GONE = ("web", 0), ("web", 1), ("web", 2), ("app", 0)
BACKLOGS = {SMALL: Backlog(10, 12), LARGE: Backlog(0, 998), NONE: Backlog(7, 7), GONE: Backlog(9, 5)}


def test_a_bound_is_shared_in_proportion_and_every_partition_advances() -> None:
    assert shared_out(BACKLOGS, 100) == {SMALL: 11, LARGE: 99, NONE: 7, GONE: 5}
    assert shared_out(BACKLOGS, 1) == {SMALL: 11, LARGE: 1, NONE: 7, GONE: 5}


@pytest.mark.parametrize("offsets_max", [None, 1_000, 5_000])
def test_without_a_bound_that_counts_everything_is_taken(offsets_max: int | None) -> None:
    assert shared_out(BACKLOGS, offsets_max) == {SMALL: 12, LARGE: 998, NONE: 7, GONE: 5}


def test_large_offsets_are_shared_exactly_enough() -> None:
    ends = shared_out({SMALL: Backlog(0, 2**62), LARGE: Backlog(2**40, 2**62)}, 2**50)

    assert sum(ends.values()) - 2**40 <= 2**50
    assert all(end > 0 for end in ends.values())


def test_a_stream_waits_until_there_is_enough_or_it_waited_long_enough() -> None:
    limits = AdmissionLimits(offsets_min=1_001, delay_ms_max=500)

    assert waits_for_more(BACKLOGS, limits, 499)
    assert not waits_for_more(BACKLOGS, limits, 500)
    assert not waits_for_more(BACKLOGS, limits, None), "the first batch does not wait"
    assert not waits_for_more(BACKLOGS, AdmissionLimits(offsets_min=1_000), 0)
    assert not waits_for_more(BACKLOGS, AdmissionLimits(), 0)


def test_the_options_of_a_stream() -> None:
    options = parse_stream_options(
        {
            "subscribe": "web",
            "maxoffsetspertrigger": "1000",
            "minOffsetsPerTrigger": "10",
            "maxTriggerDelay": "30s",
            "maxBytesPerTrigger": "64m",
        }
    )

    assert options.limits == AdmissionLimits(1_000, 64 << 20, 10, 30_000)
    assert options.read.start == AtLatest()
    assert parse_stream_options({"subscribe": "web"}).limits == AdmissionLimits(delay_ms_max=900_000)


def test_a_stream_may_begin_at_both_ends_and_at_a_time() -> None:
    given = {"subscribe": "web", "startingOffsets": '{"web":{"0":-1,"1":-2,"2":7}}'}

    places = (("web", 0, -1), ("web", 1, -2), ("web", 2, 7))
    assert parse_stream_options(given).read.start == AtOffsets("startingOffsets", places)
    assert parse_stream_options({**given, "startingTimestamp": "9"}).read.start == AtTimestamp(9, must_match=True)


@pytest.mark.parametrize(
    ("given", "field", "words"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets", "a stream has no end"),
        ({"endingTimestamp": "9"}, "endingTimestamp", "trigger(availableNow=True)"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "minOffsetsPerTrigger", "is more than"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger", "above 0"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay", "such as 30s"),
        ({"maxTriggerDelay": "3 weeks"}, "maxTriggerDelay", "such as 30s"),
        ({"maxBytesPerTrigger": "0"}, "maxBytesPerTrigger", "such as 64m"),
        ({"maxBytesPerTrigger": "1x"}, "maxBytesPerTrigger", "such as 64m"),
    ],
)
def test_a_wrong_option_of_a_stream_is_named(given: dict[str, str], field: str, words: str) -> None:
    with pytest.raises(Invalid) as refusal:
        parse_stream_options({"subscribe": "web", **given})

    assert refusal.value.field == field
    assert words in str(refusal.value)
    assert field in KNOWN_OPTIONS
