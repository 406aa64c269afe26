"""Every bucket that a released feature level wrote is opened, read, proved, written to and merged by this program."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker
from tests.broker.drafts import draft, numbered, values_of
from tests.broker.logs import partition_log
from tests.broker.set_clock import SetClock
from tests.broker.test_repair import check_sound
from tests.formats.expected import (
    ALL,
    LEVELS,
    Expected,
    ExpectedLog,
    ExpectedTopic,
    clock_after,
    expected_of,
    read_log,
    unpacked,
)
from tests.formats.write import format_versions

from tidelog.services.broker.api.produce import Draft, ProduceOptions, ProducerSequence
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.storage.bucket.attest import BucketAttestation, Unproved
from tidelog.storage.bucket.copy_mark import decode_copy_mark
from tidelog.storage.formats import FEATURE_LEVEL
from tidelog.storage.layout import (
    COPY_KEY,
    EMBEDDED_GROUPS,
    group_snapshots_prefix,
    index_prefix,
    lists_prefix,
    manifests_prefix,
    segment_topic_id,
    shard_history_prefix,
)
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.object_store import list_all
from tidelog.storage.runtime import Runtime
from tidelog.storage.stores.local import LocalObjectStore
from tidelog.wire.groups import FetchOffsets

HOUR_S = 3_600.0
ADDED = 20
VALUES = [b"%d" % number for number in range(ADDED)]
PASSES = 17


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def expected(level: int) -> Expected:
    return expected_of(level)


@pytest.fixture
def folder(level: int, tmp_path: Path) -> Path:
    return unpacked(level, tmp_path / "bucket")


async def check_topics(broker: LocalBroker, expected: Expected) -> None:
    """Each topic has its id, its settings and its partitions."""
    assert {topic.name for topic in broker.topics(ANYBODY)} == {topic.name for topic in expected.topics}
    for topic in expected.topics:
        found = broker.topic(ANYBODY, topic.name)
        assert found.topic_id == topic.topic_id
        assert found.partition_count == len(topic.partitions)
        assert topic.configs.items() <= found.config.as_kafka().items()


async def check_logs(broker: LocalBroker, expected: Expected) -> None:
    """Every record, loss and end of every partition is as it was written."""
    for topic in expected.topics:
        for number, log in enumerate(topic.partitions):
            ends = await partition_log(broker, topic.name, number)
            found = (ends.log_start_offset, ends.cold_end, ends.high_watermark)
            assert found == (log.log_start_offset, log.cold_end, log.high_watermark), (topic.name, number)
            read = await read_log(broker, topic.name, number, log.log_start_offset, log.high_watermark)
            assert read == (log.records, list(log.losses)), (topic.name, number)


async def check_groups(broker: LocalBroker, expected: Expected) -> None:
    page = await broker.groups.groups(ANYBODY)
    assert {each.group for each in page.groups} == {each.group for each in expected.offsets}
    for each in expected.offsets:
        answer = await broker.groups.call(ANYBODY, each.group, FetchOffsets())
        (found,) = (one for one in answer.offsets if (one.topic, one.partition) == (each.topic, each.partition))
        assert (found.offset, found.leader_epoch, found.metadata) == (each.offset, each.leader_epoch, each.metadata)


async def check_producers(broker: LocalBroker, expected: Expected) -> None:
    """The last batch of an idempotent producer, sent again, is not appended again."""
    for batch in expected.batches:
        sequence = ProducerSequence(batch.producer_id, batch.producer_epoch, batch.first_sequence)
        options = ProduceOptions(partition=batch.partition, producer=sequence)
        (answer,) = await broker.produce(ANYBODY, batch.topic, numbered(0, batch.records), options)
        assert (answer.duplicate, answer.base_offset) == (True, batch.base_offset)


def added() -> Draft:
    """Records with new keys."""
    return draft(VALUES, keys=[b"added-%b" % value for value in VALUES])


async def grow(broker: LocalBroker, expected: Expected, clock: SetClock) -> None:
    """Append to every partition, archive, compact and merge, and delete what is not needed any more."""
    for number in range(PASSES):
        for topic in expected.topics:
            for partition in range(len(topic.partitions)):
                if number == 0 or topic.name == "levels":
                    await broker.produce(ANYBODY, topic.name, added(), ProduceOptions(partition=partition))
        await broker.archive_now()
        await broker.upkeep_now()
        clock.pass_time(HOUR_S)


async def kept_of(broker: LocalBroker, topic: ExpectedTopic) -> list[set[int]]:
    """The offsets of each partition that no work on the bucket may remove: of a compacted topic, the newest of each
    key."""
    if "compact" not in topic.configs["cleanup.policy"]:
        return [set(log.records) for log in topic.partitions]
    newest: list[dict[bytes, int]] = [{} for _ in topic.partitions]
    for number, log in enumerate(topic.partitions):
        for batch in (await broker.fetch(ANYBODY, topic.name, number, log.log_start_offset, ALL)).batches:
            newest[number].update(zip(batch["key"].to_pylist(), batch["offset"].to_pylist(), strict=True))
    return [set(offsets.values()) for offsets in newest]


async def check_grown(broker: LocalBroker, topic: str, number: int, log: ExpectedLog, kept: set[int]) -> None:
    """Every record that must be there is as it was written, and the new ones follow."""
    read, losses = await read_log(broker, topic, number, log.log_start_offset, log.high_watermark)
    assert losses == list(log.losses)
    assert kept <= read.keys(), (topic, number)
    assert read.items() <= log.records.items(), (topic, number)
    fetched = await broker.fetch(ANYBODY, topic, number, log.high_watermark, ALL)
    assert values_of(fetched)[:ADDED] == VALUES, (topic, number)


async def test_every_record_offset_and_setting_is_read(folder: Path, expected: Expected) -> None:
    async with running_broker(LocalObjectStore(folder), clock=clock_after(expected), archiver_upkeep=False) as broker:
        assert broker.cluster(ANYBODY).feature_level == expected.feature_level
        await check_topics(broker, expected)
        await check_logs(broker, expected)
        await check_groups(broker, expected)
        await check_producers(broker, expected)
    await check_proved(folder, expected)


async def check_proved(folder: Path, expected: Expected) -> None:
    """The bucket verifies, byte by byte, and the heads that its writer noted are in its history."""
    store = LocalObjectStore(folder)
    await check_sound(store, losses=sum(len(log.losses) for topic in expected.topics for log in topic.partitions))
    proved = [head async for head in BucketAttestation(store, Runtime(), expected.heads).heads()]
    assert [answer for answer in proved if isinstance(answer, Unproved)] == []
    places = {(head.topic_id, head.shard) for head in expected.heads}
    assert places <= {(head.topic_id, head.shard) for head in proved}


async def test_it_is_written_to_merged_and_proved_again(folder: Path, expected: Expected) -> None:
    clock = clock_after(expected)
    async with running_broker(LocalObjectStore(folder), clock=clock) as broker:
        kept = [await kept_of(broker, topic) for topic in expected.topics]
        await grow(broker, expected, clock)
        for topic, offsets in zip(expected.topics, kept, strict=True):
            for number, log in enumerate(topic.partitions):
                await check_grown(broker, topic.name, number, log, offsets[number])
        assert {segment.level for segment in (await partition_log(broker, "levels", 0)).segments} == {0, 1, 2}
        await check_groups(broker, expected)
    await check_proved(folder, expected)


async def test_it_has_an_object_of_every_kind(folder: Path) -> None:
    """Otherwise this would prove less than it says."""
    store = LocalObjectStore(folder)
    keys = [info.key async for info in list_all(store, "")]
    for shard in (0, 1):
        log = ShardLog(store, shard, Runtime())
        newest = await log.latest()
        manifest = await log.with_lists(newest, list(newest.topics))
        topics = {topic.name: topic for topic in manifest.topics.values()}
        assert {segment.level for segment in topics["levels"].segments} == {0, 1, 2}
        assert {topic.stored is not None for topic in topics.values()} == {True, False}
        keyed = [state for state in topics["keyed"].all_partitions.values() if state.cleanings]
        assert [0 < state.clean_end < state.cold_end for state in keyed] == [True]
        assert any(segment_topic_id(each.key) for each in manifest.garbage)
        assert manifest.floor.number > 0
        assert any(key.startswith(index_prefix(shard)) for key in keys)
        assert any(key.startswith(lists_prefix(shard)) for key in keys)
    assert any(key.startswith(shard_history_prefix(0)) for key in keys)
    assert any(key.startswith(group_snapshots_prefix(EMBEDDED_GROUPS)) for key in keys)
    assert decode_copy_mark((await store.get(COPY_KEY)).data).whole
    assert not any(key == f"{manifests_prefix(0)}{0:020d}.json" for key in keys), "old versions were collected"


def test_this_level_is_kept_with_the_versions_that_it_writes() -> None:
    """A changed format needs a new feature level (ADR 0031), and a new level a kept bucket: tests/formats/README.md."""
    assert LEVELS[-1:] == [FEATURE_LEVEL]
    assert expected_of(FEATURE_LEVEL).formats == format_versions()
