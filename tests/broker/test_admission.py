import pyarrow as pa
import pytest
from tests.broker.drafts import draft

from tidelog.coordinator.topics.topic import TopicConfig
from tidelog.services.broker.api.produce import Draft
from tidelog.services.broker.shard.record_columns import payload_bytes
from tidelog.services.broker.write.admission import Admitted, admit
from tidelog.storage.errors import Invalid, TooLarge
from tidelog.storage.records import TIMESTAMP_MS_MAX

NOW_MS = 1_000


def admitted(one: Draft, config: TopicConfig | None = None, key_bytes_max: int = 100) -> Admitted:
    return admit(one.records, config or TopicConfig(), key_bytes_max=key_bytes_max, now_ms=NOW_MS)


def test_timestamps_are_kept_and_missing_ones_stamped() -> None:
    assert admitted(draft([b"a", b"b"], timestamps=[7, None])).timestamps_ms.tolist() == [7, NOW_MS]
    assert admitted(draft([b"a", b"b"])).timestamps_ms.tolist() == [NOW_MS, NOW_MS]


def test_log_append_time_stamps_all() -> None:
    config = TopicConfig(message_timestamp_type="LogAppendTime")
    assert admitted(draft([b"a", b"b"], timestamps=[7, None]), config).timestamps_ms.tolist() == [NOW_MS, NOW_MS]


@pytest.mark.parametrize("timestamp_ms", [-1, TIMESTAMP_MS_MAX + 1, 2**62])
def test_a_timestamp_out_of_this_world_is_invalid(timestamp_ms: int) -> None:
    with pytest.raises(Invalid) as raised:
        admitted(draft([b"a", b"b"], timestamps=[7, timestamp_ms]))
    assert (raised.value.field, raised.value.record) == ("timestamp", 1)


def test_a_record_is_measured_by_key_and_value() -> None:
    config = TopicConfig(max_message_bytes=10)
    fitting = draft([b"1234567", None], keys=[b"abc", b"1234567890"])
    assert admitted(fitting, config).payload_bytes.tolist() == [10, 10]
    with pytest.raises(TooLarge) as raised:
        admitted(draft([b"ok", b"12345678"], keys=[b"k", b"abc"]), config)
    assert (raised.value.limit_name, raised.value.limit_bytes) == ("max.message.bytes", 10)
    assert raised.value.record == 1


def test_a_key_over_its_limit_is_too_large() -> None:
    admitted(draft([b""], keys=[b"k" * 100]))
    with pytest.raises(TooLarge) as raised:
        admitted(draft([b"", b"", b""], keys=[b"k", b"k" * 101, None]))
    assert (raised.value.limit_name, raised.value.record) == ("key.max.bytes", 1)


def test_a_compacted_topic_takes_no_record_without_a_key() -> None:
    config = TopicConfig(cleanup_policy="compact")
    assert len(admitted(draft([b"a"], keys=[b""]), config).payload_bytes) == 1
    with pytest.raises(Invalid) as raised:
        admitted(draft([b"a", b"b"], keys=[b"k", None]), config)
    assert (raised.value.field, raised.value.record) == ("key", 1)


def test_a_request_without_a_record_is_invalid() -> None:
    with pytest.raises(Invalid):
        admitted(draft([]))


def test_slices_and_chunks_are_measured_by_what_they_show() -> None:
    whole = draft([b"x" * 50, b"ab", b"c", b"x" * 50], keys=[None, b"k", None, None]).records
    chunked = pa.concat_tables([whole.slice(1, 1), whole.slice(2, 1)])
    assert admitted(Draft(chunked, None, 0), TopicConfig(max_message_bytes=10)).payload_bytes.tolist() == [3, 1]


def test_another_schema_is_refused() -> None:
    with pytest.raises(Invalid):
        admitted(Draft(pa.table({"value": [b"a"]}), None, 0))


@pytest.mark.parametrize("first", [0, 2])
def test_lengths_are_those_of_the_rows_whatever_they_lie_in(first: int) -> None:
    values = [b"abc", None, b"", b"de", b"f"]
    without_nulls = [b"abc", b"", b"de", b"f", b"ghi"]
    for keys, told in ((None, without_nulls), (values, without_nulls), (without_nulls, values)):
        given = [None] * 5 if keys is None else keys
        columns = [pa.array(given, pa.binary()), pa.array(told, pa.binary())]
        expected = [len(key or b"") + len(value or b"") for key, value in zip(given, told, strict=True)][first:4]
        batch = pa.RecordBatch.from_arrays(columns, names=["key", "value"])
        for records in (
            batch,
            pa.Table.from_batches([batch]),
            pa.Table.from_batches([batch.slice(0, 1), batch.slice(1)]),
        ):
            assert payload_bytes(records.slice(first, 4 - first)).tolist() == expected
