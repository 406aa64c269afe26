"""An etcd that lost all data is restored from the bucket while brokers commit, and no epoch goes back."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from tests.components.etcd_server import EtcdServer
from tests.coordinator.embedded_kv.embedded import EmbeddedKeyValueStore
from tests.coordinator.stepped_clock import turn
from tests.simulation.light_codec import NO_RECORDS, LightWalCodec
from tests.storage.instant_clock import InstantClock

from tidelog.coordinator.cluster.cluster_keys import (
    BrokerRecord,
    ClusterIdentity,
    ClusterKeys,
    LeaderRecord,
    encode_value,
)
from tidelog.coordinator.cluster.identity import (
    WrongCluster,
    bucket_identity,
    ensure_peer_secret,
    join_or_found,
    standalone_claim,
    store_identity,
)
from tidelog.coordinator.etcd.settings import EtcdSettings
from tidelog.coordinator.etcd.store import EtcdKeyValueStore
from tidelog.coordinator.journal import Journal
from tidelog.coordinator.kv.key_value import Compare, KeyValueStore, Operation, TransactionResult
from tidelog.coordinator.recovery.recover import RecoveryPlan, apply_recovery, plan_recovery
from tidelog.coordinator.topics.catalog import Catalog
from tidelog.storage.errors import Corrupt, NotFound, Unavailable
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.manifests.shard_manifest import ManifestChange
from tidelog.storage.manifests.shard_values import ChangeKind
from tidelog.storage.object_store import Body
from tidelog.storage.runtime import Runtime, SeededEntropy
from tidelog.storage.stores.memory import MemoryObjectStore
from tidelog.storage.wal.floor import Floor
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_entry import PreparedEntry
from tidelog.storage.wal.wal_writer import WalWriter

KEYS = ClusterKeys("main")
RUNTIME = Runtime(InstantClock(), SeededEntropy(1))


class CutKeyValueStore(EmbeddedKeyValueStore):
    """Accepts `left` more transactions."""

    left = 1_000

    async def transact(
        self, compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TransactionResult:
        if self.left == 0:
            raise Unavailable("cut off")
        self.left -= 1
        return await super().transact(compares, then, otherwise)


class TurningBucket(MemoryObjectStore):
    """Lets other tasks run at each write, like a request in flight."""

    async def create(self, key: str, data: Body) -> str:
        await turn()
        return await super().create(key, data)


class Cluster:
    """A founded cluster of four shards: the first led since epoch 7 and partly truncated; the second truncated to
    nothing; the third led since epoch 2; the fourth never led."""

    def __init__(self, kv: KeyValueStore) -> None:
        self.bucket = TurningBucket()
        self.journal = Journal(self.bucket, RUNTIME)
        self.kv = kv
        self.leaders: dict[int, WalWriter] = {}

    def wal(self, shard: int) -> Wal:
        return Wal(self.bucket, shard, LightWalCodec(), ShardLog(self.bucket, shard, RUNTIME))

    async def set_up(self) -> None:
        await self.journal.open()
        self.identity = await join_or_found(self.journal, self.kv, KEYS, shards=4, runtime=RUNTIME)
        await Catalog(self.journal, RUNTIME).create("web", 4, {}, shard_count=4)
        for shard, epoch in ((0, 7), (1, 5), (2, 2)):
            await self.lead(shard, epoch)
        await self.truncate(0, 2)
        await self.truncate(1, 4)

    async def lead(self, shard: int, epoch: int) -> None:
        """Claim the shard and commit three entries, not counting the claim."""
        writer = self.leaders[shard] = WalWriter(self.wal(shard), RUNTIME, f"writer-{epoch}")
        await writer.claim(epoch=epoch)
        for _ in range(3):
            await self.commit(shard)

    async def commit(self, shard: int) -> None:
        header = self.leaders[shard].next_header()
        await self.leaders[shard].commit(PreparedEntry(header, LightWalCodec().encode(header, NO_RECORDS)))

    async def truncate(self, shard: int, number: int) -> None:
        wal = self.wal(shard)
        moved = ManifestChange(ChangeKind.ARCHIVE, floor=Floor(number, (await wal.header(number - 1)).epoch))
        await ShardLog(self.bucket, shard, RUNTIME).change([], lambda _: moved)
        await wal.delete_below(number)

    async def plan(self, keys: ClusterKeys = KEYS, kv: KeyValueStore | None = None) -> RecoveryPlan:
        return await plan_recovery(
            self.bucket, self.journal, kv or self.kv, keys, shards=4, runtime=RUNTIME, codec=LightWalCodec()
        )

    async def recover(self, keys: ClusterKeys = KEYS, kv: KeyValueStore | None = None) -> RecoveryPlan:
        plan = await self.plan(keys, kv)
        await apply_recovery(plan, self.bucket, self.journal, kv or self.kv, keys, RUNTIME)
        return plan


async def wipe(kv: KeyValueStore) -> None:
    for item in (await kv.range(KEYS.root)).items:
        await kv.delete(item.key)


async def contents(kv: KeyValueStore) -> dict[str, bytes]:
    return {item.key: item.value for item in (await kv.range(KEYS.root)).items}


async def epochs(kv: KeyValueStore) -> dict[str, bytes]:
    return {item.key.removeprefix(KEYS.epochs): item.value for item in (await kv.range(KEYS.epochs)).items}


@pytest.fixture
async def cut_kv() -> AsyncIterator[CutKeyValueStore]:
    store = CutKeyValueStore(Runtime(entropy=SeededEntropy(2)))
    yield store
    await store.aclose()


@pytest.fixture(params=["embedded", "etcd"])
async def kv(request: pytest.FixtureRequest) -> AsyncIterator[KeyValueStore]:
    store: KeyValueStore
    if request.param == "embedded":
        store = EmbeddedKeyValueStore(Runtime(entropy=SeededEntropy(2)))
    else:
        server: EtcdServer = request.getfixturevalue("etcd")
        store = EtcdKeyValueStore(EtcdSettings((server.url,), timeout_s=10.0), Runtime())
        await wipe(store)
    yield store
    await store.aclose()


@pytest.fixture
async def cluster(kv: KeyValueStore) -> Cluster:
    cluster = Cluster(kv)
    await cluster.set_up()
    return cluster


async def test_all_is_written_again_and_the_brokers_of_the_cluster_start(cluster: Cluster) -> None:
    await wipe(cluster.kv)
    plan = await cluster.recover()
    assert await epochs(cluster.kv) == {"0000": b"7", "0001": b"5", "0002": b"2"}
    assert (await contents(cluster.kv))[KEYS.journal] == b"%d" % cluster.journal.next_number
    assert plan.identity == cluster.identity
    assert await join_or_found(cluster.journal, cluster.kv, KEYS, shards=4, runtime=RUNTIME) == cluster.identity


async def test_a_second_recovery_has_nothing_to_write(cluster: Cluster) -> None:
    await wipe(cluster.kv)
    await cluster.recover()
    before = await contents(cluster.kv)
    assert (await cluster.recover()).writes_nothing
    assert await contents(cluster.kv) == before


async def test_a_leader_key_without_a_lease_is_deleted_unless_its_broker_is_there(cluster: Cluster) -> None:
    kv = cluster.kv
    lease_id = (await kv.grant(60.0)).lease_id
    here = BrokerRecord("here", "h1", "http://h:1", "", "1", 0, eligible=True, stopping=False)
    await kv.put(KEYS.broker("here"), encode_value(here), lease_id=lease_id)
    await kv.put(KEYS.leader(0), encode_value(LeaderRecord("gone", "g1", 7)))
    await kv.put(KEYS.leader(1), encode_value(LeaderRecord("here", "h1", 5)))
    await kv.put(KEYS.leader(2), encode_value(LeaderRecord("gone", "g1", 2)), lease_id=lease_id)
    plan = await cluster.recover()
    assert [(stale.shard, stale.broker_id) for stale in plan.stale_leaders] == [(0, "gone")]
    assert not plan.writes_nothing
    left = {item.key for item in (await kv.range(KEYS.leaders)).items}
    assert left == {KEYS.leader(1), KEYS.leader(2)}
    assert (await cluster.recover()).writes_nothing
    await kv.revoke(lease_id)


async def test_a_leader_key_that_was_rewritten_after_it_was_read_stays(cluster: Cluster) -> None:
    await cluster.kv.put(KEYS.leader(0), encode_value(LeaderRecord("gone", "g1", 7)))
    plan = await cluster.plan()
    anew = encode_value(LeaderRecord("new", "n1", 8))
    await cluster.kv.put(KEYS.leader(0), anew)
    await apply_recovery(plan, cluster.bucket, cluster.journal, cluster.kv, KEYS, RUNTIME)
    assert (await contents(cluster.kv))[KEYS.leader(0)] == anew


async def test_higher_epochs_in_the_store_stay(cluster: Cluster) -> None:
    await cluster.kv.put(KEYS.epoch(0), b"9")
    await cluster.kv.put(KEYS.epoch(3), b"1")
    await cluster.kv.put(KEYS.journal, b"1000")
    await cluster.recover()
    assert await epochs(cluster.kv) == {"0000": b"9", "0001": b"5", "0002": b"2", "0003": b"1"}
    assert (await contents(cluster.kv))[KEYS.journal] == b"1000"


async def test_an_older_state_is_raised_to_the_logs(cluster: Cluster) -> None:
    await cluster.kv.put(KEYS.epoch(0), b"3")
    plan = await cluster.recover()
    assert [epoch.shard for epoch in plan.epochs if epoch.rises] == [0, 1, 2]
    assert (await epochs(cluster.kv))["0000"] == b"7"


@pytest.mark.parametrize("writes", range(5))
async def test_a_recovery_cut_off_anywhere_leaves_no_identity_and_is_finished_by_another(
    cut_kv: CutKeyValueStore, writes: int
) -> None:
    cluster = Cluster(cut_kv)
    await cluster.set_up()
    await wipe(cut_kv)
    cut_kv.left = writes
    with pytest.raises(Unavailable):
        await cluster.recover()
    cut_kv.left = 1_000
    assert await store_identity(cut_kv, KEYS) is None
    await cluster.recover()
    assert await epochs(cut_kv) == {"0000": b"7", "0001": b"5", "0002": b"2"}
    assert await store_identity(cut_kv, KEYS) is not None


async def test_leaders_commit_all_the_while_and_find_their_own_epoch_afterwards(cluster: Cluster) -> None:
    await wipe(cluster.kv)
    stop = asyncio.Event()

    async def commit() -> int:
        commits = 0
        while not stop.is_set():
            await cluster.commit(0)
            await cluster.commit(2)
            commits += 1
        return commits

    commits = asyncio.create_task(commit())
    await cluster.recover()
    stop.set()
    assert await commits > 0
    assert await epochs(cluster.kv) == {"0000": b"7", "0001": b"5", "0002": b"2"}


async def test_an_epoch_claimed_after_its_log_was_read_is_found_by_another_recovery(cluster: Cluster) -> None:
    await wipe(cluster.kv)
    plan = await cluster.plan()
    await cluster.lead(3, 4)
    await apply_recovery(plan, cluster.bucket, cluster.journal, cluster.kv, KEYS, RUNTIME)
    await cluster.recover()
    assert (await epochs(cluster.kv))["0003"] == b"4"


async def test_a_wiped_cluster_gets_a_new_secret_for_its_brokers_and_another_keeps_its_own(cluster: Cluster) -> None:
    first = await ensure_peer_secret(cluster.kv, KEYS, RUNTIME.entropy)
    assert not (await cluster.recover()).peer_secret_missing
    assert await ensure_peer_secret(cluster.kv, KEYS, RUNTIME.entropy) == first
    await wipe(cluster.kv)
    plan = await cluster.recover()
    assert plan.peer_secret_missing
    second = await ensure_peer_secret(cluster.kv, KEYS, RUNTIME.entropy)
    assert second != first
    assert second.secret not in repr(plan)
    assert (await cluster.plan()).writes_nothing


async def test_two_recoveries_at_once_do_no_harm(cluster: Cluster) -> None:
    await wipe(cluster.kv)
    await asyncio.gather(cluster.recover(), cluster.recover())
    assert await epochs(cluster.kv) == {"0000": b"7", "0001": b"5", "0002": b"2"}


async def test_another_clusters_identity_is_never_written_over(cluster: Cluster) -> None:
    other = EmbeddedKeyValueStore(Runtime(entropy=SeededEntropy(3)))
    journal = Journal(MemoryObjectStore(), Runtime())
    foreign = await join_or_found(journal, other, KEYS, shards=1, runtime=Runtime())
    before = await contents(other)
    with pytest.raises(WrongCluster) as raised:
        await cluster.recover(kv=other)
    assert foreign.cluster_id in str(raised.value)
    assert cluster.identity.cluster_id in str(raised.value)
    assert await contents(other) == before


async def test_under_another_name_the_bucket_stays_with_its_owner(cluster: Cluster) -> None:
    with pytest.raises(WrongCluster, match=r"cluster\.name=main"):
        await cluster.recover(ClusterKeys("second"))


async def test_the_bucket_of_a_broker_alone_is_bound_with_the_id_it_has(kv: KeyValueStore) -> None:
    cluster = Cluster(kv)
    await cluster.journal.open()
    await cluster.journal.update(standalone_claim(cluster.journal, shards=2, runtime=RUNTIME))
    alone = bucket_identity(cluster.journal)
    assert alone is not None
    await cluster.lead(0, 3)
    plan = await cluster.recover()
    assert plan.binds
    bound = ClusterIdentity(1, alone.cluster_id, "main", "etcd", 2, True)
    assert bucket_identity(cluster.journal) == bound
    assert await join_or_found(cluster.journal, kv, KEYS, shards=2, runtime=RUNTIME) == bound
    assert await epochs(kv) == {"0000": b"3"}


async def test_a_bucket_from_before_identities_has_as_many_shards_as_it_has_logs(kv: KeyValueStore) -> None:
    cluster = Cluster(kv)
    await cluster.journal.open()
    await cluster.lead(9, 3)
    plan = await cluster.recover()
    assert plan.binds
    assert plan.identity.shards == 10
    assert await epochs(kv) == {"0009": b"3"}


async def test_a_founding_cut_off_with_another_store_is_finished_with_this_one(kv: KeyValueStore) -> None:
    cluster, lost = Cluster(kv), CutKeyValueStore(Runtime(entropy=SeededEntropy(5)))
    await cluster.journal.open()
    lost.left = 0
    with pytest.raises(Unavailable):
        await join_or_found(cluster.journal, lost, KEYS, shards=4, runtime=RUNTIME)
    with pytest.raises(WrongCluster):
        await join_or_found(cluster.journal, kv, KEYS, shards=4, runtime=RUNTIME)
    await cluster.recover()
    assert (await join_or_found(cluster.journal, kv, KEYS, shards=4, runtime=RUNTIME)).founded


async def test_an_empty_bucket_is_nothing_to_recover_from(kv: KeyValueStore) -> None:
    with pytest.raises(NotFound, match="start a broker"):
        await Cluster(kv).recover()


async def test_a_key_that_holds_no_number_is_named(cluster: Cluster) -> None:
    await cluster.kv.put(KEYS.epoch(1), b"seven")
    with pytest.raises(Corrupt, match="seven"):
        await cluster.recover()
