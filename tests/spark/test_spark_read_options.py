"""The options of a read mean the same as in Spark's Kafka source in batch mode, and a wrong one fails before any
read."""

from __future__ import annotations

import re

import pytest

from tidelog.spark_connector.options.bounds import (
    AtEarliest,
    AtLatest,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    check_covers,
)
from tidelog.spark_connector.options.option_text import DEFAULT_BROKER
from tidelog.spark_connector.options.read_options import KNOWN_OPTIONS, asks_for_headers, parse_options
from tidelog.spark_connector.options.subscription import Assignment, TopicNames, TopicPattern
from tidelog.storage.errors import Invalid


def test_a_subscription_alone_reads_everything_from_the_local_broker() -> None:
    options = parse_options({"subscribe": "web"})

    assert options.subscription == TopicNames(("web",))
    assert (options.start, options.end) == (AtEarliest(), AtLatest())
    assert (options.include_headers, options.fail_on_data_loss) == (False, True)
    assert (options.broker, options.store) == (DEFAULT_BROKER, None)


def test_option_names_are_known_in_any_case() -> None:
    options = parse_options({"SUBSCRIBE": "web", "includeheaders": "TRUE", "FailOnDataLoss": "False"})

    assert options.include_headers
    assert not options.fail_on_data_loss


def test_subscribe_takes_names_separated_by_commas_once_each() -> None:
    assert parse_options({"subscribe": " web , app,web,"}).subscription == TopicNames(("web", "app"))


def test_assign_takes_partitions_of_topics_as_json() -> None:
    options = parse_options({"assign": '{"web": [1, 0, 1], "app": [2]}'})

    assert options.subscription == Assignment((("web", 1), ("web", 0), ("app", 2)))


def test_a_subscribe_pattern_is_a_regular_expression() -> None:
    assert parse_options({"subscribePattern": "web.*"}).subscription == TopicPattern(re.compile("web.*"))


def test_offsets_by_partition_come_as_json_with_kafkas_names_for_the_ends() -> None:
    options = parse_options(
        {"subscribe": "web", "startingOffsets": '{"web":{"0":23,"1":-2}}', "endingOffsets": '{"web":{"0":50,"1":-1}}'}
    )

    assert options.start == AtOffsets("startingOffsets", (("web", 0, 23), ("web", 1, -2)))
    assert options.end == AtOffsets("endingOffsets", (("web", 0, 50), ("web", 1, -1)))


def test_timestamps_go_before_offsets_and_the_start_has_to_match_by_default() -> None:
    given = {"subscribe": "web", "startingOffsets": "earliest", "startingTimestamp": "5", "endingTimestamp": "9"}

    assert parse_options(given).start == AtTimestamp(5, must_match=True)
    assert parse_options(given).end == AtTimestamp(9, option="endingTimestamp")
    lenient = parse_options({**given, "startingOffsetsByTimestampStrategy": "latest"})
    assert lenient.start == AtTimestamp(5, must_match=False)


def test_one_time_goes_before_times_by_partition_and_these_before_offsets() -> None:
    given = {
        "subscribe": "web",
        "startingOffsets": '{"web":{"0":3}}',
        "startingOffsetsByTimestamp": '{"web":{"0":5,"1":-2}}',
        "endingOffsets": '{"web":{"0":3}}',
        "endingOffsetsByTimestamp": '{"web":{"0":9,"1":-1}}',
    }

    options = parse_options(given)
    places = (("web", 0, 5), ("web", 1, -2))
    assert options.start == AtTimestamps("startingOffsetsByTimestamp", places, must_match=True)
    assert options.end == AtTimestamps("endingOffsetsByTimestamp", (("web", 0, 9), ("web", 1, -1)))
    assert isinstance(parse_options({**given, "startingTimestamp": "1"}).start, AtTimestamp)
    assert isinstance(parse_options({**given, "endingTimestamp": "1"}).end, AtTimestamp)


def test_the_schema_depends_on_one_option_and_on_no_other_value() -> None:
    assert asks_for_headers({"includeheaders": "TRUE", "startingOffsets": "anything"})
    assert not asks_for_headers({})
    with pytest.raises(Invalid, match="unknown option"):
        asks_for_headers({"header": "true"})


def test_the_options_of_a_stream_do_nothing_in_a_batch_read(caplog: pytest.LogCaptureFixture) -> None:
    assert parse_options({"subscribe": "web", "maxOffsetsPerTrigger": "any"}) == parse_options({"subscribe": "web"})
    assert "a batch read ignores maxOffsetsPerTrigger" in caplog.text


@pytest.mark.parametrize(
    ("given", "field", "words"),
    [
        ({}, "subscribe", "exactly one of subscribe, assign, subscribePattern; found none"),
        ({"subscribe": "a", "assign": '{"a":[0]}'}, "subscribe", "found subscribe and assign"),
        ({"subscribe": " , "}, "subscribe", "names no topic"),
        ({"subscribePattern": "("}, "subscribePattern", "not a regular expression"),
        ({"assign": "web"}, "assign", "does not parse"),
        ({"assign": "[0]"}, "assign", "assign is JSON"),
        ({"assign": "{}"}, "assign", "names no partition"),
        ({"assign": '{"web": 0}'}, "assign", "'web' has 0"),
        ({"assign": '{"web": [-1]}'}, "assign", "'web' has [-1]"),
        ({"assign": '{"web": [true]}'}, "assign", "'web' has [true]"),
        ({"subscribe": "a", "startingOffsets": "latest"}, "startingOffsets", "cannot have startingOffsets=latest"),
        ({"subscribe": "a", "endingOffsets": "Earliest"}, "endingOffsets", "cannot have endingOffsets=earliest"),
        ({"subscribe": "a", "startingOffsets": '{"a":{"0":-1}}'}, "startingOffsets", "latest (-1) for a-0"),
        ({"subscribe": "a", "endingOffsets": '{"a":{"0":-2}}'}, "endingOffsets", "earliest (-2) for a-0"),
        ({"subscribe": "a", "startingOffsets": '{"a":{"0":-3}}'}, "startingOffsets", "'a' has {\"0\":-3}"),
        ({"subscribe": "a", "startingOffsets": '{"a":{"x":1}}'}, "startingOffsets", "'a' has {\"x\":1}"),
        ({"subscribe": "a", "startingOffsets": '{"a":{"0":"1"}}'}, "startingOffsets", '\'a\' has {"0":"1"}'),
        ({"subscribe": "a", "startingOffsets": '{"a":7}'}, "startingOffsets", "'a' has 7"),
        ({"subscribe": "a", "startingOffsets": "soon"}, "startingOffsets", "earliest, latest or JSON"),
        ({"subscribe": "a", "startingOffsets": "[" * 100_000}, "startingOffsets", "does not parse"),
        (
            {"subscribe": "a", "startingOffsets": '{"a":{"0":9223372036854775808}}'},
            "startingOffsets",
            "'a' has {\"0\":92",
        ),
        (
            {"subscribe": "a", "startingOffsetsByTimestamp": '{"a":{"0":-1}}'},
            "startingOffsetsByTimestamp",
            "cannot have startingOffsetsByTimestamp=latest (-1) for a-0",
        ),
        ({"subscribe": "a", "endingOffsetsByTimestamp": "9"}, "endingOffsetsByTimestamp", "JSON of milliseconds"),
        ({"subscribe": "a", "startingTimestamp": "2026-01-01"}, "startingTimestamp", "milliseconds since 1970"),
        ({"subscribe": "a", "endingTimestamp": "-5"}, "endingTimestamp", "milliseconds since 1970"),
        (
            {"subscribe": "a", "startingOffsetsByTimestampStrategy": "first"},
            "startingOffsetsByTimestampStrategy",
            "error or latest",
        ),
        ({"subscribe": "a", "includeHeaders": "yes"}, "includeHeaders", "true or false"),
        ({"subscribe": "a", "failOnDataLoss": "0"}, "failOnDataLoss", "true or false"),
        ({"subscribe": "a", "minPartitions": "0"}, "minPartitions", "above 0"),
        ({"subscribe": "a", "maxRecordsPerPartition": "many"}, "maxRecordsPerPartition", "above 0"),
        ({"subscribe": "a", "broker": "127.0.0.1:8080"}, "broker", "broker is a URL such as http://127.0.0.1:8080"),
    ],
)
def test_a_wrong_option_is_named_and_explained(given: dict[str, str], field: str, words: str) -> None:
    with pytest.raises(Invalid) as refusal:
        parse_options(given)

    assert refusal.value.field == field
    assert words in str(refusal.value)


def test_an_unknown_option_is_refused_with_the_list_of_the_known() -> None:
    with pytest.raises(
        Invalid, match=r"unknown option of the tidelog source: path, startOffset \(did you mean startingOffsets\?\);"
    ) as refusal:
        parse_options({"subscribe": "web", "startOffset": "3", "path": "/x"})

    assert all(name in str(refusal.value) for name in KNOWN_OPTIONS)


def test_kafkas_bootstrap_servers_are_refused_with_the_name_to_use() -> None:
    with pytest.raises(Invalid, match="the broker's address goes into 'broker'"):
        parse_options({"subscribe": "web", "kafka.bootstrap.servers": "127.0.0.1:9092"})


def test_offsets_by_partition_have_to_name_exactly_the_partitions_read() -> None:
    bound = AtOffsets("startingOffsets", (("web", 0, 5), ("web", 7, 5)))

    check_covers(bound, [("web", 0), ("web", 7)])
    with pytest.raises(Invalid, match="startingOffsets lacks web-1"):
        check_covers(bound, [("web", 0), ("web", 1), ("web", 7)])
    with pytest.raises(Invalid, match="names, though it is not read, web-7"):
        check_covers(bound, [("web", 0)])
