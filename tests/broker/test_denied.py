"""The store refuses the broker's credentials for a while: the shard waits, says so, and continues by itself."""

import asyncio

import pytest
from tests.anybody import ANYBODY
from tests.broker.brokers import running_broker, until
from tests.broker.drafts import draft, numbered, values_of
from tests.components.minio_admin import MinioAdmin, policy_of
from tests.components.s3_endpoint import S3Bucket
from tests.coordinator.virtual_time import LoopClock, virtually

from tidelog.services.broker.api.fetch import FetchLimits
from tidelog.services.broker.api.produce import Acks, ProduceOptions, ProducerSequence
from tidelog.storage.errors import Corrupt, Denied, TidelogError, Unavailable
from tidelog.storage.object_store import Body
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.stores.s3 import S3ObjectStore

ALL = FetchLimits(1_000_000, 1 << 30)
TO_ZERO = ProduceOptions(partition=0)


class RefusingStore(MemoryObjectStore):
    """While `error` is set, it answers every create under wal/ with it."""

    error: Exception | None = None

    async def create(self, key: str, data: Body) -> str:
        if self.error and key.startswith("wal/"):
            raise self.error
        return await super().create(key, data)


@virtually
async def test_a_passing_refusal_delays_a_produce_and_nothing_else() -> None:
    store = RefusingStore()
    async with running_broker(store, clock=LoopClock(), shards=1) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        await broker.fetch(ANYBODY, "t", 0, 0, ALL)
        store.error = Denied("403 ExpiredToken")
        waiting = asyncio.create_task(broker.produce(ANYBODY, "t", numbered(0, 2), TO_ZERO))
        await until(lambda: not broker.status().ready)
        status = broker.status()
        assert "ExpiredToken" in status.reason
        assert [shard.leading for shard in status.shards] == [True]
        await until(lambda: broker.status().shards[0].denied_s > 5)
        store.error = None
        (answer,) = await waiting
        assert answer.base_offset == 0
        assert broker.status().ready
        assert broker.status().shards[0].denied_s == 0
        assert values_of(await broker.fetch(ANYBODY, "t", 0, 0, ALL)) == [b"0", b"1"]


async def test_a_produce_that_waits_too_long_gets_denied_and_may_be_retried_without_a_duplicate() -> None:
    store = RefusingStore()
    async with running_broker(store, shards=1, commit_timeout_ms=50, shutdown_timeout_ms=50) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        await broker.fetch(ANYBODY, "t", 0, 0, ALL)
        store.error = Denied("403 ExpiredToken")
        options = ProduceOptions(partition=0, producer=ProducerSequence("p", 0, 0))
        for _ in range(2):  # a retry finds the records waiting and waits with them
            with pytest.raises(Denied, match="outcome is unknown"):
                await broker.produce(ANYBODY, "t", numbered(0, 2), options)
        store.error = None
        async with asyncio.timeout(60):
            while True:
                try:
                    (again,) = await broker.produce(ANYBODY, "t", numbered(0, 2), options)
                    break
                except (Denied, Unavailable):
                    continue
        assert (again.base_offset, again.duplicate) == (0, True)
        assert values_of(await broker.fetch(ANYBODY, "t", 0, 0, ALL)) == [b"0", b"1"]


async def test_a_refusal_names_the_partitions_of_a_request_that_are_committed() -> None:
    store = RefusingStore()
    async with running_broker(store, shards=2, commit_timeout_ms=1_000, shutdown_timeout_ms=50) as broker:
        await broker.create_topic(ANYBODY, "t", 2, {})
        await broker.fetch(ANYBODY, "t", 0, 0, ALL)
        await broker.fetch(ANYBODY, "t", 1, 0, ALL)
        refused_shard = broker.topic(ANYBODY, "t").shards[1]
        inner_create = store.create

        async def create(key: str, data: Body) -> str:
            if key.startswith(f"wal/{refused_shard:04d}/"):
                raise Denied("403")
            return await inner_create(key, data)

        store.create = create  # type: ignore[method-assign]
        with pytest.raises(Denied) as raised:
            await broker.produce(ANYBODY, "t", draft([b"a", b"b"], partitions=[0, 1]), ProduceOptions())
        assert raised.value.committed == (0,)


@pytest.mark.parametrize("acks", [Acks.NONE, Acks.LEADER])
async def test_while_commits_are_refused_nothing_is_acknowledged_before_its_commit(acks: Acks) -> None:
    store = RefusingStore()
    async with running_broker(store, shards=1, commit_timeout_ms=300, shutdown_timeout_ms=50) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        await broker.fetch(ANYBODY, "t", 0, 0, ALL)
        store.error = Denied("403 ExpiredToken")
        first = asyncio.create_task(broker.produce(ANYBODY, "t", numbered(0, 1), TO_ZERO))
        await until(lambda: not broker.status().ready)
        with pytest.raises(Denied, match="outcome is unknown"):
            await broker.produce(ANYBODY, "t", numbered(1, 1), ProduceOptions(acks, partition=0))
        waiting = asyncio.create_task(broker.produce(ANYBODY, "t", numbered(2, 1), ProduceOptions(acks, partition=0)))
        await asyncio.sleep(0)
        store.error = None
        await asyncio.gather(first, return_exceptions=True)
        await asyncio.gather(waiting, return_exceptions=True)  # committed in time, or unknown
        await until(lambda: broker.measurements().buffered_bytes == 0)
        assert values_of(await broker.fetch(ANYBODY, "t", 0, 0, ALL)) == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    "error", [Corrupt("wal/0000/x", "torn"), RuntimeError("a defect")], ids=lambda error: type(error).__name__
)
@virtually
async def test_a_broker_alone_leads_again_by_itself_when_the_cause_is_over(error: Exception) -> None:
    store = RefusingStore()
    async with running_broker(store, clock=LoopClock(), shards=1) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        await broker.produce(ANYBODY, "t", numbered(0, 1), TO_ZERO)
        store.error = error
        with pytest.raises(Unavailable):
            await broker.produce(ANYBODY, "t", numbered(1, 1), TO_ZERO)
        store.error = Denied("403 AccessDenied")  # taking the lead again fails, too
        await until(lambda: "AccessDenied" in broker.status().reason)
        with pytest.raises(Denied):
            await broker.produce(ANYBODY, "t", numbered(1, 1), TO_ZERO)
        store.error = None
        await until(lambda: broker.status().ready)
        assert [shard.leading for shard in broker.status().shards] == [True]
        (answer,) = await broker.produce(ANYBODY, "t", numbered(1, 1), TO_ZERO)
        assert answer.base_offset == 1
        assert values_of(await broker.fetch(ANYBODY, "t", 0, 0, ALL)) == [b"0", b"1"]


@virtually
async def test_a_broker_alone_that_stops_gives_up_leading_again() -> None:
    store = RefusingStore()
    async with running_broker(store, clock=LoopClock(), shards=1) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        await broker.fetch(ANYBODY, "t", 0, 0, ALL)
        store.error = RuntimeError("a defect")
        with pytest.raises(TidelogError):
            await broker.produce(ANYBODY, "t", numbered(1, 1), TO_ZERO)
        await broker.aclose()
        entries = len(await store.list("wal/"))
        store.error = None
        assert [shard.leading for shard in broker.status().shards] == [False]
        assert len(await store.list("wal/")) == entries


async def test_a_broker_whose_s3_user_loses_its_permissions_for_a_while_continues_by_itself(
    minio_bucket: S3Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    admin = MinioAdmin(minio_bucket.endpoint)
    everything = policy_of(minio_bucket, ["s3:*"])
    user = admin.user(everything)
    store = S3ObjectStore(minio_bucket.name, "log", user.settings())
    async with running_broker(store, shards=1, flush_interval_ms=0) as broker:
        await broker.create_topic(ANYBODY, "t", 1, {})
        await broker.produce(ANYBODY, "t", numbered(0, 1), TO_ZERO)
        admin.set_policy(user.access_key_id, policy_of(minio_bucket, ["s3:GetObject", "s3:ListBucket"]))
        waiting = asyncio.create_task(broker.produce(ANYBODY, "t", numbered(1, 1), TO_ZERO))
        await until(lambda: not broker.status().ready)
        assert "AccessDenied" in broker.status().reason
        admin.set_policy(user.access_key_id, everything)
        (answer,) = await waiting
        assert answer.base_offset == 1
        assert broker.status().ready
        assert values_of(await broker.fetch(ANYBODY, "t", 0, 0, ALL)) == [b"0", b"1"]
    told = [record.levelname for record in caplog.records if record.name == "tidelog.storage.wal.commit_retries"]
    assert told == ["ERROR", "WARNING"]
