"""The cluster as one broker sees it, for `/v1/cluster` and `tidelog cluster info`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tidelog.coordinator.cluster.cluster_keys import ClusterIdentity
from tidelog.coordinator.leadership.decisions import candidates
from tidelog.coordinator.leadership.rendezvous import assign
from tidelog.coordinator.leadership.shard_host import ClusterView
from tidelog.services.broker.api.cluster import BrokerPlace, ClusterStatus, ShardPlace


def zones_of_shards(view: ClusterView) -> Mapping[int, str]:
    """The zone of the leader of each shard that has one. From memory; never blocks."""
    zones = {record.broker_id: record.zone for record in view.brokers()}
    return {shard: zones.get(record.broker_id, "") for shard, record in view.leaders().items()}


def cluster_status(view: ClusterView, identity: ClusterIdentity) -> ClusterStatus:
    """From memory; never blocks."""
    brokers, draining = view.brokers(), view.draining()
    leaders = {shard: record for shard, record in view.leaders().items() if shard < identity.shards}
    led = Counter(record.broker_id for record in leaders.values())
    preferred = assign(
        range(identity.shards),
        candidates(brokers, draining),
        {shard: record.broker_id for shard, record in leaders.items()},
    )
    return ClusterStatus(
        cluster_id=identity.cluster_id,
        name=identity.name,
        coordinator=identity.coordinator,
        trouble=view.health().reason,
        brokers=tuple(
            BrokerPlace(
                broker_id=record.broker_id,
                address=record.address,
                zone=record.zone,
                version=record.version,
                started_at_ms=record.started_at_ms,
                shards=led[record.broker_id],
                draining=record.stopping or record.broker_id in draining,
                feature_level=record.feature_level,
                node_id=record.node_id,
                listeners=record.listeners,
            )
            for record in brokers
        ),
        shards=tuple(
            ShardPlace(
                shard=shard,
                leader=leaders[shard].broker_id if shard in leaders else None,
                epoch=leaders[shard].epoch if shard in leaders else 0,
                preferred=preferred.get(shard),
            )
            for shard in range(identity.shards)
        ),
        feature_level=identity.feature_level,
    )
