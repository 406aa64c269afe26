"""The parts of a broker, built by `runtime.wiring`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidelog.coordinator.journal import Journal
from tidelog.coordinator.topics.catalog import Catalog
from tidelog.services.broker.archive.archive_account import ArchiveAccount
from tidelog.services.broker.archive.archive_loop import ArchiveLoop
from tidelog.services.broker.archive.collect_loop import CollectLoop
from tidelog.services.broker.archive.sweep_loop import SweepLoop
from tidelog.services.broker.archive.upkeep_loop import UpkeepLoop
from tidelog.services.broker.groups.group_stores import GroupStores
from tidelog.services.broker.groups.local_groups import GroupParts
from tidelog.services.broker.peer_secrets import PeerSecrets
from tidelog.services.broker.read.partition_reader import PartitionReader
from tidelog.services.broker.shard.debt_brake import DebtBrake
from tidelog.services.broker.shard.shard_leader import SharedResources
from tidelog.services.broker.shard.shard_set import ShardSet
from tidelog.services.broker.telemetry.damages import Damages
from tidelog.services.settings.settings import Settings
from tidelog.storage.background_loop import BackgroundLoop
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.stores.counting import CountingObjectStore
from tidelog.storage.stores.hedging import HedgingObjectStore


@dataclass(frozen=True)
class BrokerParts:
    store: ObjectStore
    counting: CountingObjectStore
    hedging: HedgingObjectStore | None
    settings: Settings
    journal: Journal
    catalog: Catalog
    resources: SharedResources
    reader: PartitionReader
    shards: ShardSet
    brake: DebtBrake
    archive_loop: ArchiveLoop
    collect_loop: CollectLoop
    damages: Damages
    account: ArchiveAccount
    upkeep: UpkeepLoop
    sweeps: SweepLoop
    peer_secrets: PeerSecrets
    groups: GroupParts
    open_group_stores: Callable[[], GroupStores]
    """The groups of a broker alone; a cluster has its own (`Coordination.group_stores`)."""

    @property
    def loops(self) -> Sequence[BackgroundLoop]:
        """The background loops, in the order in which they are stopped."""
        return (self.archive_loop, self.collect_loop, self.upkeep, self.sweeps)
