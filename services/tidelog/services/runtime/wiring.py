"""Builds a broker from settings. All its components are put together here.

RetryingObjectStore( HedgingObjectStore( CountingObjectStore( the store that `settings.store` names )))
    Journal, Catalog                 topics
    ShardSet                         a LedShard for each led shard: ShardLeader, Archiver, ShardUpkeep,
                                     ShardPartitions, ShardLog, Wal
    PartitionReader                  HotTail, EntryReader, SegmentReader
    ArchiveLoop                      ArchivePolicy, DebtBrake
    CollectLoop                      TopicRemover; over each shard's Archiver and Collector
    UpkeepLoop                       over each shard's ShardUpkeep; `opening` builds its tasks
    SweepLoop                        over the whole bucket, while this broker leads shard 0
    LocalGroups                      a GroupCoordinator for each led shard (`group_wiring`)
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.coordinator.cluster.identity import standalone_claim
from tidelog.coordinator.journal import Journal
from tidelog.coordinator.topics.catalog import Catalog
from tidelog.coordinator.topics.topic import TopicLimits
from tidelog.services.broker.archive.archive_account import ArchiveAccount
from tidelog.services.broker.archive.archive_loop import ArchiveLoop
from tidelog.services.broker.archive.archive_policy import ArchivePolicy
from tidelog.services.broker.archive.background_threads import BackgroundThreads, processors
from tidelog.services.broker.archive.broker_load import BrokerLoad
from tidelog.services.broker.archive.collect_loop import CollectLoop
from tidelog.services.broker.archive.processor_turns import ProcessorTurns, Work
from tidelog.services.broker.archive.sweep_loop import Turn
from tidelog.services.broker.archive.topic_remover import TopicRemover
from tidelog.services.broker.archive.upkeep_loop import UpkeepLoop
from tidelog.services.broker.broker_parts import BrokerParts
from tidelog.services.broker.local_broker import LocalBroker
from tidelog.services.broker.peer_secrets import PeerSecrets
from tidelog.services.broker.read.entry_reader import EntryReader
from tidelog.services.broker.read.partition_reader import PartitionReader
from tidelog.services.broker.read.segment_pieces import SegmentPieces
from tidelog.services.broker.read.stored_pieces import StoredPieces
from tidelog.services.broker.shard.append_buffer import BufferBudget
from tidelog.services.broker.shard.batch_cutting import FlushPolicy
from tidelog.services.broker.shard.debt_brake import DebtBrake
from tidelog.services.broker.shard.hot_tail import HotTail
from tidelog.services.broker.shard.idempotence import ProducerMemory
from tidelog.services.broker.shard.led_shard import LedShard
from tidelog.services.broker.shard.producer_activity import ProducerActivity
from tidelog.services.broker.shard.shard_leader import ShardLeader, SharedResources
from tidelog.services.broker.shard.shard_partitions import ShardPartitions
from tidelog.services.broker.shard.shard_set import ShardSet
from tidelog.services.broker.shard.shard_upkeep import ShardUpkeep
from tidelog.services.broker.telemetry.damages import Damages
from tidelog.services.broker.telemetry.measurements import Measurements
from tidelog.services.runtime.group_wiring import group_parts, sole_group_stores
from tidelog.services.runtime.opening import build_collector, build_sweeps, build_upkeep, open_named_store
from tidelog.services.settings.settings import Settings
from tidelog.storage.archive.archiver import Archiver, ArchiverSettings
from tidelog.storage.archive.pass_change import ProducerLimits
from tidelog.storage.errors import Invalid
from tidelog.storage.manifests.shard_log import ShardLog
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.runtime import Runtime
from tidelog.storage.segments.segment_reader import SegmentReader
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.hedging import HedgingObjectStore
from tidelog.storage.stores.retrying import RetryingObjectStore
from tidelog.storage.upkeep.upkeep import Upkeep
from tidelog.storage.wal.floor_trust import floor_trust_s
from tidelog.storage.wal.wal import Wal
from tidelog.storage.wal.wal_codec import ParquetWalCodec
from tidelog.storage.wal.wal_index import WalIndex
from tidelog.storage.wal.wal_writer import WalWriter

if TYPE_CHECKING:
    from tidelog.services.broker.cluster.cluster_broker import ClusterBroker

ENCODE_THREADS = 2
RELEASE_SHARE = 0.3
"""A shard that is handed over waits for the commit of its records for this share of ``shutdown.timeout.ms``."""
S3_FLUSH_INTERVAL_MS = 250
"""Limits a busy shard to 4 PUTs a second, because S3 charges for them. On other stores a PUT costs nothing."""
SWEEPING_SHARD = 0
"""The leader of this shard sweeps the bucket. Every cluster has the shard, and a shard has one leader."""
REPLAYED_ENTRIES_PART = 8
REPLAYED_SEGMENTS_PART = 4
REPLAYED_STORED_PART = 16
"""Of `cache.max.bytes`, an eighth caches WAL entries for replays, a quarter segments, and a sixteenth row groups as
they are stored, read ahead. The rest is the hot tail."""


def open_broker(
    settings: Settings, runtime: Runtime, *, store: ObjectStore | None = None
) -> LocalBroker | ClusterBroker:
    """A broker on the store that the settings name, or on `store`. If they name etcd, the broker joins a cluster. It
    takes requests from `start` to `aclose`, which also closes the store. Raises `Invalid` for a wrong store, etcd or
    address."""
    parts = broker_parts(settings, runtime, store or open_named_store(settings, runtime))
    return LocalBroker(parts) if settings.etcd_endpoints is None else _cluster_broker(parts)


def _cluster_broker(parts: BrokerParts) -> ClusterBroker:
    # Imported here, because grpc and aiohttp take a third of a second to load and a broker alone needs neither.
    from tidelog.services.broker.cluster.cluster_broker import ClusterBroker
    from tidelog.services.broker.cluster.membership import Membership
    from tidelog.services.peers.http_peers import HttpPeers
    from tidelog.services.peers.proof import PeerProofs
    from tidelog.services.runtime.opening import open_etcd

    settings, runtime = parts.settings, parts.resources.runtime
    _check_reachable(settings)
    proofs = PeerProofs(parts.peer_secrets, runtime.clock)
    return ClusterBroker(
        parts, Membership(parts, lambda: open_etcd(settings, runtime)), HttpPeers(runtime, settings, proofs)
    )


def _check_reachable(settings: Settings) -> None:
    """Raises `Invalid` if the address that other brokers get would not reach this one."""
    if settings.advertised_address is None and settings.host in ("", "0.0.0.0", "::"):  # noqa: S104  # compared, not bound
        raise Invalid(
            f"the broker listens on {settings.host}, which other brokers cannot call: set advertised.address to an "
            "address at which they reach it, as http://10.0.0.7:8080",
            field="advertised.address",
        )


def broker_parts(settings: Settings, runtime: Runtime, store: ObjectStore) -> BrokerParts:
    """The components of a broker over `store`."""
    counting = CountingObjectStore(store)
    hedging = _hedging(settings, counting)
    retrying = RetryingObjectStore(hedging or counting, runtime)
    resources = _resources(settings, runtime, retrying.url)
    journal = Journal(retrying, runtime)
    catalog = _catalog(settings, journal, runtime)
    turns = ProcessorTurns(processors(), lambda: resources.producers.active)
    archive_threads, upkeep_threads = (BackgroundThreads(turns, work) for work in (Work.ARCHIVE, Work.UPKEEP))
    damages = Damages(runtime.clock)
    load = BrokerLoad(lambda: archive_loop.busy or archive_loop.behind, runtime.clock)
    upkeep = build_upkeep(settings, retrying, runtime, upkeep_threads, load.now)
    factory = ShardFactory(settings, runtime, resources, retrying, catalog, archive_threads, damages, upkeep)
    shards = ShardSet(factory, resources.hot_tail, runtime, drain_s=RELEASE_SHARE * settings.shutdown_timeout_ms / 1000)
    policy = ArchivePolicy(settings.archiver_interval_ms, settings.archiver_min_bytes, settings.archiver_debt_max_bytes)
    brake = DebtBrake(shards.debt_bytes, settings.archiver_debt_max_bytes, runtime.clock, shards.held_logs)
    archive_loop = ArchiveLoop(shards, journal, policy, brake, runtime, archive_threads, damages)
    remover = TopicRemover(retrying, journal, catalog, runtime)
    return BrokerParts(
        store=retrying,
        counting=counting,
        hedging=hedging,
        settings=settings,
        journal=journal,
        catalog=catalog,
        resources=resources,
        reader=_reader(settings, resources, retrying),
        shards=shards,
        brake=brake,
        archive_loop=archive_loop,
        collect_loop=CollectLoop(shards, remover, runtime, damages),
        damages=damages,
        upkeep=UpkeepLoop(shards, journal, runtime, upkeep_threads, lambda: archive_loop.behind, load),
        sweeps=build_sweeps(settings, retrying, runtime, lambda: _sweeping_turn(settings, shards)),
        account=ArchiveAccount(retrying.url, catalog, shards, runtime.clock),
        peer_secrets=PeerSecrets(settings.peer_secret, runtime.clock),
        groups=group_parts(settings, runtime),
        open_group_stores=lambda: sole_group_stores(settings, runtime, retrying, resources.policy.interval_s),
    )


def _hedging(settings: Settings, counting: CountingObjectStore) -> HedgingObjectStore | None:
    """None unless the store is S3: only connections to S3 can hang."""
    if not _is_s3(counting.url) or settings.store_hedge_ms == 0:
        return None
    return HedgingObjectStore(counting, after_s=settings.store_hedge_ms / 1000)


def _is_s3(store_url: str) -> bool:
    return store_url.startswith("s3:")


def _sweeping_turn(settings: Settings, shards: ShardSet) -> Turn | None:
    """The leadership of `SWEEPING_SHARD`. None if another broker leads it, or if a compactor does the sweeps."""
    if not settings.archiver_upkeep or not shards.leads(SWEEPING_SHARD):
        return None
    return shards.led_shard(SWEEPING_SHARD)


def _catalog(settings: Settings, journal: Journal, runtime: Runtime) -> Catalog:
    limits = TopicLimits(settings.topics_max, settings.topic_partitions_max, settings.partitions_max)
    if settings.etcd_endpoints is not None:
        return Catalog(journal, runtime, limits=limits)
    claim = standalone_claim(journal, shards=settings.shards, runtime=runtime)
    return Catalog(journal, runtime, limits=limits, with_new_topic=claim)


@dataclass(frozen=True)
class ShardFactory:
    """Builds the components that lead a shard."""

    settings: Settings
    runtime: Runtime
    resources: SharedResources
    store: ObjectStore
    catalog: Catalog
    archive_threads: BackgroundThreads
    damages: Damages
    upkeep: Upkeep

    def build(self, shard: int) -> LedShard:
        """The leader, archiver and upkeep of a shard, not opened yet."""
        log = ShardLog(self.store, shard, self.runtime)
        leader = self._leader(shard, log)
        return LedShard(leader, self._archiver(leader, log), self._upkeep(leader.partitions))

    def _archiver(self, leader: ShardLeader, log: ShardLog) -> Archiver:
        settings = ArchiverSettings(
            batch_bytes=self.settings.archiver_batch_bytes,
            grace_s=self.settings.delete_grace_ms / 1000,
            producers=ProducerLimits(expiration_ms=self.settings.producer_id_expiration_ms),
        )
        wal, name_of = leader.partitions.wal, self.catalog.name_of
        return Archiver(self.store, wal, log, self.runtime, name_of, settings, self.archive_threads)

    def _upkeep(self, partitions: ShardPartitions) -> ShardUpkeep:
        collector = build_collector(self.settings, self.store, self.runtime, self.catalog)
        work = (self.upkeep, collector) if self.settings.archiver_upkeep else None
        measurements, clock = self.resources.measurements, self.runtime.clock
        return ShardUpkeep(partitions, self.catalog, work, measurements, clock, self.damages)

    def _leader(self, shard: int, log: ShardLog) -> ShardLeader:
        # The WAL reads its floor by a log of its own, so that no commit waits for an append to the manifest.
        wal = Wal(self.store, shard, ParquetWalCodec(), ShardLog(self.store, shard, self.runtime))
        trust_s = floor_trust_s(self.settings.delete_grace_ms / 1000)
        writer = WalWriter(wal, self.runtime, self.runtime.entropy.new_id(), floor_trust_s=trust_s)
        partitions = ShardPartitions(log, wal, self.resources.producer_memory)
        return ShardLeader(writer, partitions, WalIndex(self.store, shard), self.resources)


def _resources(settings: Settings, runtime: Runtime, store_url: str) -> SharedResources:
    cache_bytes = settings.cache_max_bytes
    parts = (REPLAYED_ENTRIES_PART, REPLAYED_SEGMENTS_PART, REPLAYED_STORED_PART)
    replayed_bytes = sum(cache_bytes // part for part in parts)
    return SharedResources(
        runtime=runtime,
        policy=FlushPolicy(_flush_interval_ms(settings, store_url) / 1000, settings.flush_max_bytes),
        budget=BufferBudget(settings.buffer_max_bytes),
        hot_tail=HotTail(cache_bytes - replayed_bytes),
        measurements=Measurements(),
        producers=ProducerActivity(runtime.clock),
        executor=ThreadPoolExecutor(ENCODE_THREADS, thread_name_prefix="encode"),
        producer_memory=ProducerMemory(
            runtime.clock, settings.producer_id_expiration_ms / 1000, settings.producer_ids_max
        ),
    )


def _flush_interval_ms(settings: Settings, store_url: str) -> int:
    if settings.flush_interval_ms is not None:
        return settings.flush_interval_ms
    return S3_FLUSH_INTERVAL_MS if _is_s3(store_url) else 0


def _reader(settings: Settings, resources: SharedResources, store: ObjectStore) -> PartitionReader:
    cold_reads = asyncio.Semaphore(settings.fetch_cold_concurrency)
    replayed = HotTail(settings.cache_max_bytes // REPLAYED_ENTRIES_PART)
    entries = EntryReader(resources.hot_tail, replayed, cold_reads)
    segments, cache_bytes = SegmentReader(store), settings.cache_max_bytes
    pieces = SegmentPieces(segments, cold_reads, cache_bytes // REPLAYED_SEGMENTS_PART)
    stored = StoredPieces(segments, cold_reads, cache_bytes // REPLAYED_STORED_PART)
    return PartitionReader(entries, pieces, stored, resources.measurements)
