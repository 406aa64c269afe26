"""What a broker runs on, as `wiring` puts it together."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.coordinator.catalog import Catalog
from tidelog.coordinator.journal import Journal
from tidelog.services.broker.archive_account import ArchiveAccount
from tidelog.services.broker.archiving import Archivist
from tidelog.services.broker.partition_reader import PartitionReader
from tidelog.services.broker.shard_leader import ShardMeans
from tidelog.services.broker.shard_set import ShardSet
from tidelog.services.broker.upkeep_worker import UpkeepWorker
from tidelog.services.settings import Settings
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.stores.counting import CountingObjectStore


@dataclass(frozen=True)
class BrokerParts:
    """What `wiring` builds and a broker runs on."""

    store: ObjectStore
    counting: CountingObjectStore
    settings: Settings
    journal: Journal
    catalog: Catalog
    means: ShardMeans
    reader: PartitionReader
    shards: ShardSet
    archivist: Archivist
    account: ArchiveAccount
    upkeep: UpkeepWorker
