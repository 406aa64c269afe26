"""The APIs of Kafka's protocol that Tidelog serves, with their versions: the one place that says so.

`lowest` to `highest` are served. The floors are those of Kafka 4 (KIP-896); clients in use need each of them. Produce
is advertised from 0 although 0 to 2 are refused, as Kafka does: librdkafka before 2.11.1 otherwise sends the records of
compressed topics uncompressed (KAFKA-18659). Fetch ends at 12: from 13 on clients name topics by id, and those without
such versions are served by names anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PRODUCE = 0
FETCH = 1
METADATA = 3
FIND_COORDINATOR = 10
API_VERSIONS = 18
CREATE_TOPICS = 19
DELETE_TOPICS = 20
NEVER = 1 << 15
"""A `flexible_from` beyond all versions."""


@dataclass(frozen=True)
class ServedApi:
    """`flexible_from`: from this version on the headers and the body have tagged fields (KIP-482). `module` in `apis`
    has the class `implementation`. `is_long_poll`: waits until there are records, so it ends with its connection."""

    key: int
    name: str
    lowest: int
    highest: int
    flexible_from: int
    module: str
    advertised_lowest: int
    is_long_poll: bool

    def serves(self, version: int) -> bool:
        return self.lowest <= version <= self.highest

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible_from

    @property
    def implementation(self) -> str:
        return f"{self.name}Api"


def _api(
    key: int,
    name: str,
    lowest: int,
    highest: int,
    flexible_from: int,
    module: str,
    *,
    advertised_lowest: int | None = None,
    is_long_poll: bool = False,
) -> ServedApi:
    advertised = lowest if advertised_lowest is None else advertised_lowest
    return ServedApi(key, name, lowest, highest, flexible_from, module, advertised, is_long_poll)


_APIS = (
    _api(PRODUCE, "Produce", 3, 11, 9, "produce", advertised_lowest=0),
    _api(FETCH, "Fetch", 4, 12, 12, "fetch", is_long_poll=True),
    _api(2, "ListOffsets", 1, 10, 6, "list_offsets"),
    _api(8, "OffsetCommit", 2, 9, 8, "groups.offset_commit"),
    _api(9, "OffsetFetch", 1, 9, 6, "groups.offset_fetch"),
    _api(11, "JoinGroup", 0, 9, 6, "groups.join_group", is_long_poll=True),
    _api(12, "Heartbeat", 0, 4, 4, "groups.heartbeat"),
    _api(13, "LeaveGroup", 0, 5, 4, "groups.leave_group"),
    _api(14, "SyncGroup", 0, 5, 4, "groups.sync_group", is_long_poll=True),
    _api(15, "DescribeGroups", 0, 6, 5, "groups.describe_groups"),
    _api(16, "ListGroups", 0, 5, 3, "groups.list_groups"),
    _api(42, "DeleteGroups", 0, 2, 2, "groups.delete_groups"),
    _api(47, "OffsetDelete", 0, 0, NEVER, "groups.offset_delete"),
    _api(68, "ConsumerGroupHeartbeat", 0, 1, 0, "groups.consumer_group_heartbeat"),
    _api(69, "ConsumerGroupDescribe", 0, 1, 0, "groups.consumer_group_describe"),
    _api(METADATA, "Metadata", 0, 13, 9, "metadata"),
    _api(FIND_COORDINATOR, "FindCoordinator", 0, 4, 3, "find_coordinator"),
    _api(17, "SaslHandshake", 0, 1, NEVER, "sasl_handshake"),
    _api(API_VERSIONS, "ApiVersions", 0, 4, 3, "api_versions"),
    _api(CREATE_TOPICS, "CreateTopics", 2, 7, 5, "create_topics"),
    _api(DELETE_TOPICS, "DeleteTopics", 1, 6, 4, "delete_topics"),
    _api(21, "DeleteRecords", 0, 2, 2, "delete_records"),
    _api(22, "InitProducerId", 0, 4, 2, "init_producer_id"),
    _api(23, "OffsetForLeaderEpoch", 2, 4, 4, "offset_for_leader_epoch"),
    _api(29, "DescribeAcls", 1, 3, 2, "absent.describe_acls"),
    _api(30, "CreateAcls", 1, 3, 2, "absent.create_acls"),
    _api(31, "DeleteAcls", 1, 3, 2, "absent.delete_acls"),
    _api(32, "DescribeConfigs", 1, 4, 4, "describe_configs"),
    _api(33, "AlterConfigs", 0, 2, 2, "alter_configs"),
    _api(34, "AlterReplicaLogDirs", 1, 2, 2, "cluster.alter_replica_log_dirs"),
    _api(35, "DescribeLogDirs", 1, 4, 2, "cluster.describe_log_dirs"),
    _api(36, "SaslAuthenticate", 0, 2, 2, "sasl_authenticate"),
    _api(37, "CreatePartitions", 0, 3, 2, "create_partitions"),
    _api(43, "ElectLeaders", 0, 2, 2, "cluster.elect_leaders"),
    _api(44, "IncrementalAlterConfigs", 0, 1, 1, "incremental_alter_configs"),
    _api(45, "AlterPartitionReassignments", 0, 1, 0, "cluster.alter_partition_reassignments"),
    _api(46, "ListPartitionReassignments", 0, 0, 0, "cluster.list_partition_reassignments"),
    _api(48, "DescribeClientQuotas", 0, 1, 1, "absent.describe_client_quotas"),
    _api(49, "AlterClientQuotas", 0, 1, 1, "absent.alter_client_quotas"),
    _api(50, "DescribeUserScramCredentials", 0, 0, 0, "absent.describe_user_scram_credentials"),
    _api(51, "AlterUserScramCredentials", 0, 0, 0, "absent.alter_user_scram_credentials"),
    _api(55, "DescribeQuorum", 0, 2, 0, "absent.describe_quorum"),
    _api(57, "UpdateFeatures", 0, 2, 0, "absent.update_features"),
    _api(60, "DescribeCluster", 0, 2, 0, "describe_cluster"),
    _api(61, "DescribeProducers", 0, 0, 0, "cluster.describe_producers"),
    _api(64, "UnregisterBroker", 0, 0, 0, "cluster.unregister_broker"),
    _api(65, "DescribeTransactions", 0, 0, 0, "absent.describe_transactions"),
    _api(66, "ListTransactions", 0, 2, 0, "absent.list_transactions"),
    _api(74, "ListConfigResources", 0, 1, 0, "cluster.list_config_resources"),
    _api(75, "DescribeTopicPartitions", 0, 0, 0, "cluster.describe_topic_partitions"),
)

API_TABLE: Mapping[int, ServedApi] = {api.key: api for api in _APIS}
"""Every served API by its key."""
