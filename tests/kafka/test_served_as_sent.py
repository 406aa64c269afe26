"""Recent records go out in the batches in which they came; they are the records that the log holds, at its offsets."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest
from tests.broker.drafts import draft
from tests.kafka.conftest import SETTINGS, KafkaServed
from tests.kafka.kio_client import KioClient
from tests.kafka.records_client import fetch, produce
from tests.kafka.sent_batches import BEGAN_MS, records_of
from tests.record_batches.reference import batch_of, encode_records

from tidelog.record_batches.batch_header import BatchHeader, Codec, unpack_header
from tidelog.record_batches.compression import compressed
from tidelog.record_batches.decode import batches_in, decode_batch
from tidelog.services.broker.api.produce import ProduceOptions
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.kafka.apis.fetch import TAKES_ANY_CODEC_SINCE
from tidelog.services.settings.settings import Settings

HERE = RequestContext("test")
PLACE_ENDS_AT = 16
"""After the base offset, the length and the leader epoch of a batch."""
ENCODED, AS_SENT = TAKES_ANY_CODEC_SINCE - 1, TAKES_ANY_CODEC_SINCE


@pytest.fixture
def settings() -> Settings:
    return replace(SETTINGS, shards=1, archiver_interval_ms=86_400_000)


@pytest.fixture(autouse=True)
async def events(served: KafkaServed) -> None:
    await served.broker.create_topic(HERE, "events", 1, {})


def batch(values: Sequence[bytes], codec: Codec = Codec.NONE) -> bytes:
    records = compressed(codec, pa.py_buffer(encode_records(records_of(*values), BEGAN_MS))).to_pybytes()
    return batch_of(records, len(values), base_timestamp=BEGAN_MS, attributes=codec)


def batches_of(data: bytes | None) -> list[bytes]:
    return [each.to_pybytes() for each in batches_in(pa.py_buffer(data or b""))]


def headers_of(data: bytes | None) -> list[BatchHeader]:
    return [unpack_header(memoryview(each)) for each in batches_of(data)]


def records_in(data: bytes | None, offset: int) -> list[tuple[object, ...]]:
    """The records from `offset` on, as a client takes them from the batches in `data`."""
    rows: list[tuple[object, ...]] = []
    for each in batches_in(pa.py_buffer(data or b"")):
        decoded = decode_batch(each, 1 << 20)
        offsets = decoded.header.base_offset + decoded.offset_deltas
        columns = [column.to_pylist() for column in decoded.records.columns]
        rows += [(int(at), *map(repr, row)) for at, *row in zip(offsets, *columns, strict=True) if at >= offset]
    return rows


@pytest.mark.parametrize("codec", Codec)
async def test_a_recent_batch_goes_out_as_it_came(client: KioClient, codec: Codec) -> None:
    await produce(client, "events", batch([b"a"]))
    sent = batch([b"b" * 500, b"c"], codec)
    await produce(client, "events", sent)
    answer = await fetch(client, "events", 1, version=AS_SENT)
    (found,) = batches_of(answer.records)
    assert found[PLACE_ENDS_AT:] == sent[PLACE_ENDS_AT:]
    (header,) = headers_of(answer.records)
    assert (header.base_offset, header.length, header.codec_number) == (1, len(sent), codec)
    assert header.leader_epoch > 0


async def test_an_offset_within_a_batch_returns_the_whole_batch(client: KioClient) -> None:
    await produce(client, "events", batch([b"a", b"b", b"c"]))
    assert [each.base_offset for each in headers_of((await fetch(client, "events", 2)).records)] == [0]


async def test_a_client_that_may_not_know_zstd_gets_no_zstd(client: KioClient) -> None:
    await produce(client, "events", batch([b"a"], Codec.ZSTD))
    answer = await fetch(client, "events", 0, version=ENCODED)
    assert [each.codec_number for each in headers_of(answer.records)] == [Codec.NONE]


async def test_an_answer_stops_at_its_bytes_and_has_a_batch_at_least(client: KioClient) -> None:
    sent = batch([b"a" * 1_000])
    for _ in range(5):
        await produce(client, "events", sent)
    for bytes_max, count in ((1, 1), (2 * len(sent), 2), (2 * len(sent) + 1, 2), (1 << 20, 5)):
        answer = await fetch(client, "events", 0, version=AS_SENT, max_bytes=bytes_max)
        assert len(headers_of(answer.records)) == count


async def test_archived_records_are_read_from_the_archive(client: KioClient, served: KafkaServed) -> None:
    """Compaction may have removed some of them."""
    await produce(client, "events", batch([b"a", b"b"], Codec.ZSTD))
    await served.broker.archive_now()
    await produce(client, "events", batch([b"c"], Codec.GZIP))
    answer = await fetch(client, "events", 1, version=AS_SENT)
    assert headers_of(answer.records)[0].base_offset == 1
    assert {each.codec_number for each in headers_of(answer.records)} == {Codec.NONE}
    (recent,) = headers_of((await fetch(client, "events", 2, version=AS_SENT)).records)
    assert recent.codec_number == Codec.GZIP


async def test_with_log_append_time_records_have_the_time_of_the_log(client: KioClient, served: KafkaServed) -> None:
    await served.broker.create_topic(HERE, "stamped", 1, {"message.timestamp.type": "LogAppendTime"})
    await produce(client, "stamped", batch([b"a"]))
    (found,) = records_in((await fetch(client, "stamped", 0, version=AS_SENT)).records, 0)
    (other,) = records_in((await fetch(client, "stamped", 0, version=ENCODED)).records, 0)
    assert found == other
    assert str(BEGAN_MS) not in str(found)


async def test_a_topic_with_the_name_of_a_deleted_one_has_its_own_records(
    client: KioClient, served: KafkaServed
) -> None:
    await produce(client, "events", batch([b"old"]))
    await served.broker.delete_topic(HERE, "events")
    await served.broker.create_topic(HERE, "events", 1, {})
    assert (await fetch(client, "events", 0)).records in {None, b""}
    await produce(client, "events", batch([b"new"]))
    (found,) = records_in((await fetch(client, "events", 0)).records, 0)
    assert repr(b"new") in found


async def _produce_by_http(served: KafkaServed, value: bytes) -> None:
    await served.broker.produce(HERE, "events", draft([value] * 2), ProduceOptions(partition=0))


async def test_its_memory_counts_until_the_commit_and_then_in_the_cache(client: KioClient, served: KafkaServed) -> None:
    resources = served.broker._parts.resources
    before = resources.hot_tail.held_bytes
    sent = batch([b"a" * 10_000])
    await produce(client, "events", sent)
    assert resources.budget.used_bytes == 0
    assert resources.hot_tail.held_bytes - before > 2 * len(sent)


@pytest.mark.parametrize("seed", range(4))
async def test_both_ways_give_the_same_records_from_every_offset(
    client: KioClient, served: KafkaServed, seed: int
) -> None:
    """Batches of all codecs, records by HTTP between them, a moved log start, an archive, and a memory that forgets."""
    chance = random.Random(seed)
    end = start = 0
    for step in range(30):
        value = b"%d-" % step * chance.randrange(1, 60)
        count = chance.randrange(1, 4)
        act = chance.choice(["kafka"] * 6 + ["http"] * 3 + ["archive", "delete", "forget"])
        if act == "kafka":
            await produce(client, "events", batch([value] * count, chance.choice(list(Codec))))
            end += count
        elif act == "http":
            await _produce_by_http(served, value)
            end += 2
        elif act == "archive":
            await served.broker.archive_now()
        elif act == "delete" and end:
            start = max(start, chance.randrange(end))
            await served.broker.delete_records(HERE, "events", 0, start)
        elif act == "forget":
            served.broker._parts.resources.hot_tail.drop(0)
        await _check_same(client, chance, range(start, end))


async def _check_same(client: KioClient, chance: random.Random, offsets: range) -> None:
    if not offsets:
        return
    offset = chance.choice(offsets)
    ask = partial(fetch, client, "events", max_bytes=chance.choice([1, 300, 1 << 20]))
    whole = records_in((await fetch(client, "events", offset, version=ENCODED)).records, offset)
    assert [row[0] for row in whole] == list(range(offset, offsets.stop))
    found: list[tuple[object, ...]] = []
    while len(found) < len(whole):
        answer = await ask(offset + len(found), version=AS_SENT)
        more = records_in(answer.records, offset + len(found))
        assert more, "each answer has a record"
        found += more
        last = headers_of(answer.records)[-1]
        assert last.base_offset + last.last_offset_delta + 1 == offset + len(found)
    assert found == whole
