"""What a broker runs on, as `wiring` puts it together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tidelog.coordinator.catalog import Catalog
from tidelog.coordinator.journal import Journal
from tidelog.services.broker.archiving import Archivist
from tidelog.services.broker.partition_reader import PartitionReader
from tidelog.services.broker.shard_leader import ShardLeader, ShardMeans
from tidelog.services.settings import Settings
from tidelog.storage.object_store import ObjectStore
from tidelog.storage.stores.counting import CountingObjectStore


class Shards(Protocol):
    """Builds what the catalog asks for, once that has been read."""

    def leaders(self) -> dict[int, ShardLeader]:
        """A leader, not opened yet, for each shard there is."""
        ...

    def archivist(self, leaders: dict[int, ShardLeader]) -> Archivist:
        """The archivist of their WALs."""
        ...


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
    shards: Shards
