"""`HttpPeers` with a real broker on a socket: the same answers and errors as from the broker itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from tests.anybody import ANYBODY
from tests.http.sockets import happens
from tests.peers.listening_broker import SETTINGS, ListeningBroker, listening_broker, proofs
from tests.peers.scripted_peer import Turn, answer, scripted_peer

from tidelog.services.broker.api.cluster import Leader
from tidelog.services.broker.api.fetch import Anchor, FetchLimits, FetchPart, Position
from tidelog.services.broker.api.produce import Acks, ProduceOptions, ProducerSequence
from tidelog.services.broker.write.routing import Share
from tidelog.services.http.answers.arrow_answer import encode_parts
from tidelog.services.peers.http_peers import HttpPeers
from tidelog.services.peers.part_calls import read_parts
from tidelog.storage.errors import (
    Corrupt,
    LeaderUnknown,
    NotFound,
    NotLeader,
    OffsetConflict,
    OutOfRange,
    SequenceConflict,
    Unavailable,
)
from tidelog.storage.part_records import PART_RECORD_SCHEMA
from tidelog.storage.records import DRAFT_SCHEMA
from tidelog.storage.runtime import Runtime
from tidelog.wire.polls import ARROW_STATE
from tidelog.wire.topic_log import TopicLogRequest

LIMITS = FetchLimits(1_000, 1 << 20)
ONE_HEADER = [("h", b"x"), ("i", None)]


def share(*values: bytes | None, partition: int = 0, timestamp_ms: int = 1_000) -> Share:
    """Records as admission leaves them: each with its timestamp."""
    count = len(values)
    rows = {
        "timestamp": [timestamp_ms + n for n in range(count)],
        "key": [b"k", *[None] * (count - 1)],
        "value": list(values),
        "headers": [ONE_HEADER, *[None] * (count - 1)],
    }
    columns = [pa.array(rows[field.name], field.type) for field in DRAFT_SCHEMA]
    records = pa.Table.from_arrays(columns, schema=DRAFT_SCHEMA)
    return Share(partition, records, records.nbytes, records.nbytes, timestamp_ms + count - 1)


def large_share_of(partition: int) -> Share:
    """`large_share` for another partition."""
    return replace(large_share(), partition=partition)


def large_share() -> Share:
    """More than one piece; a slice of a larger table, like real shares."""
    count = 3_000
    values = pa.array([bytes([n % 251]) * 500 for n in range(count)], pa.binary())
    columns = [
        pa.array(np.arange(count), pa.int64()).cast(DRAFT_SCHEMA.field("timestamp").type),
        pa.nulls(count, pa.binary()),
        values,
        pa.nulls(count, DRAFT_SCHEMA.field("headers").type),
    ]
    records = pa.Table.from_arrays(columns, schema=DRAFT_SCHEMA).slice(500, 2_000)
    return Share(0, records, records.nbytes, records.nbytes, 2_499)


@pytest.fixture
async def listening() -> AsyncIterator[ListeningBroker]:
    async with listening_broker() as found:
        await found.http.post("/v1/topics", json={"name": "web", "partitions": 2})
        yield found


@pytest.fixture
async def peers() -> AsyncIterator[HttpPeers]:
    found = HttpPeers(Runtime(), SETTINGS, proofs())
    yield found
    await found.aclose()


@pytest.fixture
def leader(listening: ListeningBroker) -> Leader:
    return Leader("a", listening.url)


async def test_a_share_is_appended_and_read_back_as_it_was(peers: HttpPeers, leader: Leader) -> None:
    sent = share(b"one", None, b"\xff")
    appended = await peers.produce(ANYBODY, leader, "web", sent, ProduceOptions(partition=0))
    assert (appended.partition, appended.base_offset, appended.count, appended.timestamp_ms) == (0, 0, 3, 1_002)
    fetched = await peers.fetch(ANYBODY, leader, "web", 0, 0, LIMITS)
    records = pa.Table.from_batches(fetched.batches)
    assert records.select(DRAFT_SCHEMA.names).cast(DRAFT_SCHEMA).to_pylist() == sent.records.to_pylist()
    assert (fetched.next_offset, fetched.log_start_offset, fetched.high_watermark) == (3, 0, 3)


async def test_a_large_share_arrives_whole(peers: HttpPeers, leader: Leader) -> None:
    sent = large_share()
    appended = await peers.produce(ANYBODY, leader, "web", sent, ProduceOptions(partition=0))
    assert appended.count == 2_000
    fetched = await peers.fetch(ANYBODY, leader, "web", 0, 0, FetchLimits(10_000, 8 << 20))
    found = pa.Table.from_batches(fetched.batches)
    assert found.column("value").to_pylist() == sent.records.column("value").to_pylist()


@pytest.mark.parametrize(("acks", "base_offset"), [(Acks.NONE, None), (Acks.LEADER, 0), (Acks.ALL, 0)])
async def test_acks_mean_at_the_peer_what_they_mean_here(
    peers: HttpPeers, leader: Leader, acks: Acks, base_offset: int | None
) -> None:
    appended = await peers.produce(ANYBODY, leader, "web", share(b"x"), ProduceOptions(acks, partition=0))
    assert appended.base_offset == base_offset


async def test_a_sequence_is_kept_and_a_retry_is_a_duplicate(peers: HttpPeers, leader: Leader) -> None:
    options = ProduceOptions(partition=0, producer=ProducerSequence("p", 0, 0))
    first = await peers.produce(ANYBODY, leader, "web", share(b"x"), options)
    again = await peers.produce(ANYBODY, leader, "web", share(b"x"), options)
    assert (again.base_offset, again.duplicate) == (first.base_offset, True)
    gap = replace(options, producer=ProducerSequence("p", 0, 7))
    with pytest.raises(SequenceConflict) as refused:
        await peers.produce(ANYBODY, leader, "web", share(b"x"), gap)
    assert refused.value.expected_sequence == 1


async def test_an_expected_offset_is_kept(peers: HttpPeers, leader: Leader) -> None:
    with pytest.raises(OffsetConflict) as refused:
        await peers.produce(ANYBODY, leader, "web", share(b"x"), ProduceOptions(partition=0, expected_offset=5))
    assert refused.value.next_offset == 0


async def test_a_share_for_a_topic_that_is_gone_makes_no_other(peers: HttpPeers, leader: Leader) -> None:
    with pytest.raises(NotFound):
        await peers.produce(ANYBODY, leader, "gone", share(b"x"), ProduceOptions(partition=0))


async def test_a_share_may_be_larger_than_a_request(peers: HttpPeers) -> None:
    """As Arrow with timestamps, records are larger than as the lines that arrived."""
    small = replace(SETTINGS, request_max_bytes=10_000)
    async with listening_broker(small) as strict:
        await strict.http.post("/v1/topics", json={"name": "web"})
        sent = share(*[b"123456"] * 900)
        appended = await peers.produce(ANYBODY, Leader("a", strict.url), "web", sent, ProduceOptions(partition=0))
        assert appended.count == 900


async def test_positions_and_the_log_are_the_leaders(
    peers: HttpPeers, leader: Leader, listening: ListeningBroker
) -> None:
    await peers.produce(ANYBODY, leader, "web", share(b"a", b"b", b"c"), ProduceOptions(partition=0))
    expected = {
        Position(Anchor.EARLIEST): 0,
        Position(Anchor.LATEST): 3,
        Position(Anchor.FROM_END, 1): 2,
        Position(Anchor.TIMESTAMP, 1_001): 1,
        Position(Anchor.OFFSET, 9): 9,
    }
    assert {at: await peers.resolve(ANYBODY, leader, "web", 0, at, fresh=False) for at in expected} == expected
    await listening.broker.archive_now()
    shard = listening.broker.topic(ANYBODY, "web").shards[0]
    asked = TopicLogRequest(partitions=(0,), shard=shard)
    log = await peers.topic_log(ANYBODY, leader, "web", asked)
    assert log == await listening.broker.topic_log(ANYBODY.not_forwarded(), "web", asked)
    assert [(span.base_offset, span.last_offset) for _, span in log.spans()[0]] == [(0, 2)]


async def test_a_fetch_waits_at_the_leader(peers: HttpPeers, leader: Leader, listening: ListeningBroker) -> None:
    waiting = asyncio.ensure_future(peers.fetch(ANYBODY, leader, "web", 0, 0, replace(LIMITS, wait_ms=9_000)))
    await happens(lambda: listening.service.waiting.count == 1)
    await peers.produce(ANYBODY, leader, "web", share(b"x"), ProduceOptions(partition=0))
    assert (await waiting).next_offset == 1


async def test_a_fetch_out_of_range_says_what_the_range_is(peers: HttpPeers, leader: Leader) -> None:
    with pytest.raises(OutOfRange) as refused:
        await peers.fetch(ANYBODY, leader, "web", 0, 5, LIMITS)
    assert refused.value.high_watermark == 0


async def test_records_are_deleted_at_the_leader(peers: HttpPeers, leader: Leader) -> None:
    await peers.produce(ANYBODY, leader, "web", share(b"x", b"y", b"z"), ProduceOptions(partition=0))
    assert await peers.delete_records(ANYBODY, leader, "web", 0, 2) == 2
    assert await peers.delete_records(ANYBODY, leader, "web", 0, 1) == 2
    assert await peers.delete_records(ANYBODY, leader, "web", 0, -1) == 3
    with pytest.raises(OutOfRange) as refused:
        await peers.delete_records(ANYBODY, leader, "web", 0, 4)
    assert (refused.value.log_start_offset, refused.value.high_watermark) == (3, 3)
    with pytest.raises(NotFound):
        await peers.delete_records(ANYBODY, leader, "web", 9, 0)


async def test_a_peer_that_leads_no_longer_refuses(
    peers: HttpPeers, leader: Leader, listening: ListeningBroker
) -> None:
    listening.broker.led_by("http://10.0.0.7:8080")
    with pytest.raises(NotLeader) as refused:
        await peers.produce(ANYBODY, leader, "web", share(b"x"), ProduceOptions(partition=0))
    assert refused.value.leader == "http://10.0.0.7:8080"
    listening.broker.led_by(None)
    with pytest.raises(LeaderUnknown):
        await peers.fetch(ANYBODY, leader, "web", 0, 0, LIMITS)


async def test_a_peer_that_is_not_there_took_nothing(peers: HttpPeers) -> None:
    with pytest.raises(LeaderUnknown, match="the request was not sent"):
        await peers.produce(ANYBODY, Leader("a", "http://127.0.0.1:1"), "web", share(b"x"), ProduceOptions(partition=0))


@pytest.mark.parametrize("turn", [Turn(), Turn(answer(200, b"{", told_bytes=9))], ids=["dies", "is cut off"])
async def test_a_peer_that_dies_leaves_the_outcome_unknown(peers: HttpPeers, turn: Turn) -> None:
    async with scripted_peer(turn) as peer:
        with pytest.raises(Unavailable) as failed:
            await peers.produce(ANYBODY, Leader("a", peer.url), "web", share(b"x"), ProduceOptions(partition=0))
    assert type(failed.value) is Unavailable


async def test_a_peer_that_is_silent_is_not_waited_for_without_end() -> None:
    impatient = HttpPeers(Runtime(), replace(SETTINGS, forward_timeout_ms=100), proofs())
    async with scripted_peer(Turn(stays=True)) as peer:
        with pytest.raises(Unavailable, match="unknown"):
            await impatient.resolve(ANYBODY, Leader("a", peer.url), "web", 0, Position(Anchor.LATEST), fresh=True)
    await impatient.aclose()


@pytest.mark.parametrize("body", [b"", b"{}", b"\xff" * 64])
async def test_an_answer_that_is_none_is_reported_as_damaged(peers: HttpPeers, body: bytes) -> None:
    async with scripted_peer(Turn(answer(200, body))) as peer:
        leader = Leader("a", peer.url)
        with pytest.raises(Corrupt):
            await peers.fetch(ANYBODY, leader, "web", 0, 0, LIMITS)
        with pytest.raises(Corrupt):
            await peers.resolve(ANYBODY, leader, "web", 0, Position(Anchor.LATEST), fresh=True)


async def test_many_partitions_in_one_call(listening: ListeningBroker, peers: HttpPeers) -> None:
    leader = Leader("other", listening.url)
    await peers.produce(ANYBODY, leader, "web", share(b"one", None), ProduceOptions())
    await peers.produce(ANYBODY, leader, "web", large_share_of(1), ProduceOptions())
    parts = [
        FetchPart("web", 1, Position(Anchor.EARLIEST), 1 << 30),
        FetchPart("web", 0, 1, 1 << 30),
        FetchPart("none", 0, 0, 1),
        FetchPart("web", 0, 9, 1),
    ]
    large, one, unknown = await peers.fetch_parts(ANYBODY, leader, parts[:3], FetchLimits(10_000, 1 << 30))
    assert large.fetched is not None
    read = pa.Table.from_batches(large.fetched.batches)
    assert read["value"].equals(large_share().records["value"])
    assert (large.part.offset, large.next_offset, large.fetched.high_watermark) == (0, 2_000, 2_000)
    assert one.fetched is not None
    assert [batch.to_pylist()[0]["offset"] for batch in one.fetched.batches] == [1]
    assert isinstance(unknown.error, NotFound)
    (beyond,) = await peers.fetch_parts(ANYBODY, leader, parts[3:], LIMITS)
    assert isinstance(beyond.error, OutOfRange)
    assert beyond.error.high_watermark == 2


async def test_a_peer_leaves_cold_partitions_to_the_caller(listening: ListeningBroker, peers: HttpPeers) -> None:
    leader = Leader("other", listening.url)
    await peers.produce(ANYBODY, leader, "web", share(b"one", b"two"), ProduceOptions())
    await listening.broker.local.archive_now()
    await peers.produce(ANYBODY, leader, "web", share(b"three"), ProduceOptions())
    first = FetchPart("web", 0, Position(Anchor.EARLIEST), 1)
    (cold,) = await peers.fetch_parts(ANYBODY, leader, [first], LIMITS)
    assert (cold.cold, cold.part.offset, cold.fetched, cold.error) == (True, 0, None, None)
    (hot,) = await peers.fetch_parts(ANYBODY, leader, [FetchPart("web", 0, 2, 1)], LIMITS)
    assert (hot.cold, hot.next_offset) == (False, 3)


@pytest.mark.parametrize(
    "state",
    [
        b"",
        b"{",
        b'{"partitions": []}',
        b'{"partitions": [{"topic": "web", "partition": 0, "next_offset": null}]}',
        b'{"partitions": [{"topic": "web", "partition": 0, "next_offset": 3}]}',
    ],
)
def test_an_answer_about_something_else_is_refused(state: bytes) -> None:
    body = b"".join(encode_parts([], PART_RECORD_SCHEMA.with_metadata({ARROW_STATE: state})))
    with pytest.raises(Corrupt):
        read_parts([FetchPart("web", 0, 0, 1)], body)
