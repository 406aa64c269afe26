"""The offsets of a stream in Kafka's JSON form, and which offsets a micro-batch between two of them reads."""

from __future__ import annotations

import json

import pytest

from tidelog.spark_connector.streams.stream_lag import kafka_metrics, stream_lag
from tidelog.spark_connector.streams.stream_offsets import BEGINNING, StreamOffsets, TopicOffsets, parse_stream_offsets
from tidelog.spark_connector.streams.stream_progress import ranges_between
from tidelog.storage.errors import Invalid

A, B = "a" * 32, "b" * 32


def offsets(**topics: tuple[str | None, dict[int, int]]) -> StreamOffsets:
    return StreamOffsets({name: TopicOffsets(*topic) for name, topic in topics.items()})


def test_offsets_have_kafkas_form_with_a_topic_without_partitions_for_each_id() -> None:
    written = offsets(web=(A, {10: 7, 2: 23}), app=(B, {0: 0})).json()

    assert json.dumps(written) == (
        f'{{"app": {{"0": 0}}, "app#{B}": {{}}, "web": {{"2": 23, "10": 7}}, "web#{A}": {{}}}}'
    )
    assert parse_stream_offsets(written) == offsets(web=(A, {10: 7, 2: 23}), app=(B, {0: 0}))


def test_a_checkpoint_of_kafkas_source_is_read() -> None:
    found = parse_stream_offsets(json.loads('{"web":{"0":23,"1":7},"app":{"0":1}}'))

    assert found == offsets(web=(None, {0: 23, 1: 7}), app=(None, {0: 1}))
    assert not found.has_ids


def test_a_stream_that_has_begun_without_a_topic_is_not_at_its_beginning() -> None:
    begun = StreamOffsets()

    assert parse_stream_offsets(begun.json()) == begun != BEGINNING
    assert parse_stream_offsets(BEGINNING.json()) == BEGINNING


@pytest.mark.parametrize("given", [{"web": {"0": "x"}}, {"web": 7}, [1], {"web": {"zero": 1}}])
def test_other_json_is_refused(given: object) -> None:
    with pytest.raises(Invalid, match="the offsets of the checkpoint are not those of a stream"):
        parse_stream_offsets(given)


def test_a_batch_reads_from_the_old_offset_or_from_0_if_a_partition_or_topic_is_new() -> None:
    start = offsets(web=(A, {0: 5, 1: 9}), old=(A, {0: 100}))
    end = offsets(web=(A, {0: 8, 1: 9, 2: 4}), app=(B, {0: 3}), old=(B, {0: 6}))

    assert [(batch.name, batch.topic_id, batch.offsets) for batch in ranges_between(start, end)] == [
        ("web", A, {0: (5, 8), 2: (0, 4)}),
        ("app", B, {0: (0, 3)}),
        ("old", B, {0: (0, 6)}),
    ]


def test_ids_that_are_not_known_count_as_the_same() -> None:
    (batch,) = ranges_between(offsets(web=(None, {0: 5})), offsets(web=(A, {0: 8})))

    assert (batch.topic_id, batch.offsets) == (A, {0: (5, 8)})


def test_the_batch_at_the_beginning_reads_nothing() -> None:
    assert ranges_between(BEGINNING, offsets(web=(A, {0: 8}))) == []
    assert ranges_between(BEGINNING, StreamOffsets()) == []


def test_an_unfinished_first_batch_of_kafkas_source_is_refused() -> None:
    with pytest.raises(Invalid, match="let the old query finish a batch"):
        ranges_between(BEGINNING, offsets(web=(None, {0: 8})))


def test_the_lag_is_the_offsets_between_the_end_of_the_batch_and_the_end_of_the_log() -> None:
    source = {
        "endOffset": json.dumps(offsets(web=(A, {0: 5, 1: 9})).json()),
        "latestOffset": json.dumps(offsets(web=(A, {0: 15, 1: 9, 2: 2})).json()),
    }
    other = {"endOffset": '{"kafka":{"0":1}}', "latestOffset": '{"kafka":{"0":5}}'}
    rates = {"endOffset": "17", "latestOffset": None}

    lag = stream_lag({"sources": [source, other, rates]})

    assert lag == {"web": {0: 10, 1: 0, 2: 2}}
    assert kafka_metrics(lag) == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "10",
        "avgOffsetsBehindLatest": "4.0",
    }
    assert kafka_metrics({}) == {}
