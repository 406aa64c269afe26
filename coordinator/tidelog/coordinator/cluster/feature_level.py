"""Raises the cluster's feature level: from then on writers use formats that brokers of an older version cannot read.

A broker of an older version that starts later refuses to start, by the identity. One that joins at this moment, before
it is registered, may still start; it then meets objects that it cannot read, and says so (`NewerFormat`). It damages
nothing, because it takes no such object for a damaged one.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tidelog.coordinator.cluster.cluster_keys import BrokerRecord, ClusterIdentity, ClusterKeys
from tidelog.coordinator.cluster.identity import bucket_identity, named, write_bucket_identity, write_store_identity
from tidelog.coordinator.journal import Journal
from tidelog.coordinator.kv.key_value import KeyValueStore
from tidelog.storage.errors import Invalid
from tidelog.storage.formats import FEATURE_LEVEL


def feature_level_of(journal: Journal) -> int:
    """The level of the bucket's cluster; a bucket without an identity gets the highest. Raises `Corrupt`."""
    found = bucket_identity(journal)
    return FEATURE_LEVEL if found is None else found.feature_level


async def raise_feature_level(
    journal: Journal, store: tuple[KeyValueStore, ClusterKeys] | None, level: int, brokers: Iterable[BrokerRecord]
) -> ClusterIdentity:
    """Let writers use feature level `level`, and return the identity. `store`: None for a broker without etcd.
    `brokers` are the live ones. A level that the cluster has is no error. Raises `Invalid` if this program or one of
    `brokers` does not know it, or if the cluster is at a later one."""
    knowing = {record.broker_id: record.feature_level for record in brokers}
    behind = sorted(broker for broker, known in knowing.items() if known < level)
    if level > FEATURE_LEVEL or behind:
        told = f"{', '.join(behind)} does not" if behind else "this broker does not"
        raise Invalid(f"{told} know feature level {level}: install a later version there first", field="level")
    found = bucket_identity(journal)
    if found is None:
        raise Invalid("the bucket has no identity yet: create a topic first", field="level")
    if level < found.feature_level:
        raise Invalid(
            f"{named(found)} is at feature level {found.feature_level}, which is never lowered", field="level"
        )
    raised = await write_bucket_identity(journal, msgspec.structs.replace(found, feature_level=level))
    if store is not None:
        await write_store_identity(*store, raised)
    return raised
