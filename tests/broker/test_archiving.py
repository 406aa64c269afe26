"""When a WAL is archived, and that it happens by itself."""

from tests.broker.brokers import running_broker, until
from tests.broker.drafts import numbered, offsets_of

from tidelog.services.broker.api import FetchLimits, ProduceOptions
from tidelog.services.broker.archiving import ArchivePolicy
from tidelog.storage.layout import WAL_PREFIX
from tidelog.storage.object_store import ObjectStore, list_all
from tidelog.storage.stores.memory import MemoryObjectStore

POLICY = ArchivePolicy(interval_ms=60_000, bytes_min=1_000, entries_max=10)


def test_an_empty_wal_is_never_due() -> None:
    assert not POLICY.is_due(0, 0, None, 10**13)


def test_a_wal_is_due_by_size_by_age_and_by_its_entries() -> None:
    assert not POLICY.is_due(9, 999, 1_000, 60_999)
    assert POLICY.is_due(1, 1_000, 1_000, 1_000)
    assert POLICY.is_due(1, 1, 1_000, 61_000)
    assert POLICY.is_due(10, 1, 1_000, 1_000)


def test_under_load_a_wal_may_grow_to_a_bound_and_not_in_age() -> None:
    assert not POLICY.is_due(1, 3_999, 1_000, 1_000, busy=True)
    assert POLICY.is_due(1, 4_000, 1_000, 1_000, busy=True)
    assert POLICY.is_due(1, 1, 1_000, 61_000, busy=True)
    assert POLICY.is_due(10, 1, 1_000, 1_000, busy=True)


async def test_archiving_goes_on_by_itself_and_moves_the_floor(store: ObjectStore) -> None:
    async with running_broker(store, shards=1, archiver_interval_ms=0) as broker:
        await broker.create_topic("t", 1, {})
        await broker.produce("t", numbered(0, 50), ProduceOptions())
        await until(lambda: broker.status().shards[0].wal_bytes == 0)
        log = await broker.partition_log("t", 0)
        assert (log.cold_end, log.high_watermark) == (50, 50)
        assert offsets_of(await broker.fetch("t", 0, 0, FetchLimits(100, 1 << 20))) == list(range(50))


async def test_entries_stay_until_their_grace_is_over() -> None:
    store = MemoryObjectStore()
    async with running_broker(store, shards=1) as broker:
        await broker.create_topic("t", 1, {})
        await broker.produce("t", numbered(0, 5), ProduceOptions())
        await broker.archive_now()
        assert broker.status().shards[0].wal_bytes == 0
        entries = [info.key async for info in list_all(store, WAL_PREFIX) if info.key.endswith(".parquet")]
        assert len(entries) == 2
