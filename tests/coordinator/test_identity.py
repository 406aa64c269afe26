"""The owner of a bucket: founding, interrupted and raced; every mismatch is refused with a helpful message."""

import asyncio
from collections.abc import Sequence

import pytest
from tests.coordinator.embedded_kv.embedded import EmbeddedKeyValueStore

from tidelog.coordinator.cluster.cluster_keys import ClusterIdentity, ClusterKeys
from tidelog.coordinator.cluster.identity import (
    WrongCluster,
    bucket_identity,
    check_standalone,
    join_or_found,
    standalone_claim,
    store_identity,
)
from tidelog.coordinator.journal import Journal
from tidelog.coordinator.kv.key_value import Compare, Operation, TransactionResult
from tidelog.coordinator.topics.catalog import Catalog
from tidelog.storage.errors import Unavailable
from tidelog.storage.object_store import Body
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.stores.memory import MemoryObjectStore

KEYS = ClusterKeys("main")


class Steps:
    """Lets `left` writes through, to the bucket and the store together; after that each write fails."""

    def __init__(self, left: int = 1_000) -> None:
        self.left = left

    def take(self) -> None:
        if self.left == 0:
            raise Unavailable("cut off")
        self.left -= 1


class CutBucket(MemoryObjectStore):
    def __init__(self) -> None:
        super().__init__()
        self.steps = Steps()

    async def create(self, key: str, data: Body) -> str:
        self.steps.take()
        return await super().create(key, data)


class CutKeyValueStore(EmbeddedKeyValueStore):
    steps = Steps()

    async def transact(
        self, compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TransactionResult:
        self.steps.take()
        return await super().transact(compares, then, otherwise)


def etcd(seed: int = 0) -> CutKeyValueStore:
    store = CutKeyValueStore(Runtime(entropy=SeededEntropy(100 + seed)))
    store.steps = Steps()
    return store


async def start(
    bucket: MemoryObjectStore, kv: EmbeddedKeyValueStore, name: str = "main", shards: int = 4, seed: int = 1
) -> ClusterIdentity:
    """The first actions of a broker."""
    runtime = Runtime(entropy=SeededEntropy(seed))
    journal = Journal(bucket, runtime)
    await journal.open()
    return await join_or_found(journal, kv, ClusterKeys(name), shards=shards, runtime=runtime)


def alone(journal: Journal) -> Catalog:
    """The catalog of a broker without etcd."""
    return Catalog(journal, Runtime(), with_new_topic=standalone_claim(journal, shards=4, runtime=Runtime()))


async def named(bucket: MemoryObjectStore, kv: EmbeddedKeyValueStore) -> tuple[object, object]:
    """The identities in the bucket and in the store."""
    journal = Journal(bucket, Runtime())
    await journal.open()
    stored = await store_identity(kv, KEYS)
    return bucket_identity(journal), stored


async def test_the_first_broker_founds_and_the_next_ones_join() -> None:
    bucket, kv = CutBucket(), etcd()
    founded = await start(bucket, kv)
    assert (founded.name, founded.coordinator, founded.shards, founded.founded) == ("main", "etcd", 4, True)
    assert await start(bucket, kv, seed=2) == founded
    assert await named(bucket, kv) == (founded, founded)


async def test_brokers_that_found_at_the_same_moment_agree() -> None:
    bucket, kv = CutBucket(), etcd()
    identities = await asyncio.gather(*(start(bucket, kv, seed=seed) for seed in range(1, 9)))
    assert len(set(identities)) == 1
    assert await named(bucket, kv) == (identities[0], identities[0])


@pytest.mark.parametrize("writes", range(3))
async def test_a_founding_cut_off_after_any_step_is_finished_by_the_next_start(writes: int) -> None:
    bucket, kv = CutBucket(), etcd()
    bucket.steps = kv.steps = Steps(writes)
    with pytest.raises(Unavailable):
        await start(bucket, kv)
    bucket.steps = kv.steps = Steps()
    finished = await start(bucket, kv, seed=2)
    assert finished.founded
    assert await named(bucket, kv) == (finished, finished)


async def test_founding_takes_three_writes() -> None:
    bucket, kv = CutBucket(), etcd()
    bucket.steps = kv.steps = Steps(3)
    await start(bucket, kv)
    assert bucket.steps.left == 0


async def test_a_founding_is_not_finished_with_another_store_of_the_same_name() -> None:
    bucket, kv = CutBucket(), etcd()
    bucket.steps = kv.steps = Steps(1)
    with pytest.raises(Unavailable):
        await start(bucket, kv)
    bucket.steps = Steps()
    with pytest.raises(WrongCluster, match="another etcd"):
        await start(bucket, etcd(seed=1))


async def test_more_shards_in_the_settings_grow_the_cluster_and_fewer_do_not_shrink_it() -> None:
    bucket, kv = CutBucket(), etcd()
    await start(bucket, kv, shards=4)
    grown = await start(bucket, kv, shards=8)
    assert grown.shards == 8
    assert await start(bucket, kv, shards=2) == grown
    assert await named(bucket, kv) == (grown, grown)


async def test_growth_that_was_cut_off_between_bucket_and_store_is_finished() -> None:
    bucket, kv = CutBucket(), etcd()
    await start(bucket, kv, shards=4)
    bucket.steps = kv.steps = Steps(1)
    with pytest.raises(Unavailable):
        await start(bucket, kv, shards=8)
    bucket.steps = kv.steps = Steps()
    grown = await start(bucket, kv, shards=4)
    assert grown.shards == 8
    assert await named(bucket, kv) == (grown, grown)


async def test_two_clusters_on_one_bucket_are_refused_by_name() -> None:
    bucket, kv, other_bucket, other_kv = CutBucket(), etcd(), CutBucket(), etcd(1)
    owner = await start(bucket, kv, "first", seed=1)
    other = await start(other_bucket, other_kv, "second", seed=2)
    with pytest.raises(WrongCluster) as raised:
        await start(bucket, other_kv, "second")
    for part in (owner.name, owner.cluster_id, other.name, other.cluster_id):
        assert part in str(raised.value)


async def test_a_second_cluster_name_in_the_same_store_learns_the_buckets_owner() -> None:
    bucket, kv = CutBucket(), etcd()
    owner = await start(bucket, kv, "first")
    with pytest.raises(WrongCluster, match=rf"'first' \({owner.cluster_id}\).*cluster\.name=first"):
        await start(bucket, kv, "second")


async def test_a_new_bucket_under_a_cluster_that_has_one_is_refused() -> None:
    kv = etcd()
    owner = await start(CutBucket(), kv)
    with pytest.raises(WrongCluster, match=rf"etcd belongs to cluster 'main' \({owner.cluster_id}\)"):
        await start(CutBucket(), kv)


async def test_a_wiped_store_is_refused_and_the_cure_is_named() -> None:
    bucket, kv = CutBucket(), etcd()
    await start(bucket, kv)
    await kv.delete(KEYS.identity)
    with pytest.raises(WrongCluster, match=r"wiped.*tidelog cluster recover"):
        await start(bucket, kv)


async def test_a_broker_without_etcd_stays_off_a_clusters_bucket() -> None:
    bucket = CutBucket()
    owner = await start(bucket, etcd())
    journal = Journal(bucket, Runtime())
    await journal.open()
    with pytest.raises(WrongCluster, match=rf"{owner.cluster_id}.*etcd\.endpoints"):
        check_standalone(journal)


async def test_a_cluster_that_founded_itself_after_a_broker_alone_looked_wins() -> None:
    bucket = CutBucket()
    journal = Journal(bucket, Runtime())
    await journal.open()
    check_standalone(journal)
    await start(bucket, etcd())
    with pytest.raises(WrongCluster):
        await alone(journal).create("web", 1, {}, shard_count=4)


async def test_a_bucket_of_a_broker_alone_is_bound_by_recover_and_not_by_a_start() -> None:
    bucket = CutBucket()
    journal = Journal(bucket, Runtime())
    await journal.open()
    await alone(journal).create("web", 1, {}, shard_count=4)
    owner = bucket_identity(journal)
    assert owner is not None
    assert (owner.coordinator, owner.shards, journal.next_number) == ("embedded", 4, 1)
    await alone(journal).create("shop", 1, {}, shard_count=4)
    assert bucket_identity(journal) == owner
    with pytest.raises(WrongCluster, match=rf"{owner.cluster_id}.*tidelog cluster recover"):
        await start(bucket, etcd())


async def test_a_bucket_from_before_identities_continues_alone_and_is_bound_by_recover() -> None:
    bucket = CutBucket()
    journal = Journal(bucket, Runtime())
    await journal.open()
    await Catalog(journal, Runtime()).create("web", 1, {}, shard_count=4)
    check_standalone(journal)
    with pytest.raises(WrongCluster, match="tidelog cluster recover"):
        await start(bucket, etcd())
