"""The declared differences from Kafka 4.1. Every other difference fails the suite."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """`pattern` is searched in ``SCENARIO: API vVERSION PATH: Kafka VALUE, Tidelog VALUE``."""

    pattern: str
    reason: str

    def covers(self, line: str) -> bool:
        return re.search(self.pattern, line) is not None


_VALUE = r" (topics\[name=[^\]]*\]|results\[0\])\.configs"

DIFFERENCES = (
    Difference(r" throttle_time: ", "Tidelog does not throttle"),
    Difference(r"(node_id|broker_id|controller_id|leader_id|_nodes\[0\]): Kafka 1,", "ids of brokers"),
    Difference(r"[ .](host|port): ", "addresses of brokers"),
    Difference(r" cluster_id: ", "each cluster has its own id"),
    Difference(r"topic_id: Kafka UUID\(.*, Tidelog UUID\(", "each topic has its own id"),
    Difference(r"(error_message|\.message): Kafka", "Tidelog's messages say what to do"),
    Difference(r"leader_epoch: Kafka \d+, Tidelog \d+$", "an epoch belongs to a shard, which many topics share"),
    Difference(
        r"(refused|sequences): Produce .*\.log_start_offset: Kafka 0, Tidelog -1", "an answer with an error has none"
    ),
    Difference(r"log_append_time: Kafka datetime.*, Tidelog datetime", "each broker has its own clock"),
    Difference(
        r"sequences: .*log_append_time: Kafka datetime.*, Tidelog None",
        "Kafka answers a duplicate with the time of its last record, although the topic has the producers' times",
    ),
    Difference(
        r"small_limits: .*\.records: Kafka \[Record\(offset_delta=0",
        "Tidelog stores records, not the producers' batches: at least one record exceeds a limit, not one batch",
    ),
    Difference(
        r"Metadata v0 topics\[name=metadata-unknown\]", "Tidelog answers with the topic that it has just created"
    ),
    Difference(r"metadata_by_id: .*(brokers.count: Kafka 0|brokers\[0\]|controller_id)", "Kafka names no broker then"),
    Difference(
        r"metadata_by_id: Metadata v1[23] ", "Kafka 4.1 fails with UNKNOWN_SERVER_ERROR for an id that it does not know"
    ),
    Difference(r"coordinators: .*invalid_group_id", "a group has a name: Kafka has a group with the empty name"),
    Difference(r"\[group_id=\]", "the same"),
    Difference(r"(committed_offsets|commits_without_members): .*(invalid_group_id|invalid_request)", "the same"),
    Difference(r"committed_offsets: OffsetFetch v[1-7] topics.*Kafka (5|'m'), Tidelog (-1|'')$", "the same"),
    Difference(
        r"committed_offsets: OffsetFetch v[1-7] topics.*(Tidelog 'absent'|count: Kafka 1, Tidelog 0)$", "the same"
    ),
    Difference(rf"{_VALUE}\[name=[^ ]*: Kafka 'absent'", "Tidelog has configs of its own"),
    Difference(rf"{_VALUE}\.count: Kafka 33, Tidelog 34", "the same"),
    Difference(rf"{_VALUE}\[name=(segment.bytes|file.delete.delay.ms)\].value", "Tidelog's defaults fit the bucket"),
    Difference(
        rf"{_VALUE}\[name=min.insync.replicas\].(config_source|synonyms)",
        "Kafka sets it for the cluster when it is formatted",
    ),
    Difference(
        rf"{_VALUE}\[name=(segment.bytes|file.delete.delay.ms)\].synonyms.*value", "Tidelog's defaults fit the bucket"
    ),
    Difference(r"of_other_resources: .*read_only: Kafka False, Tidelog True", "settings are read when a broker starts"),
    Difference(r"of_other_resources: .*name=node.id\].*value: Kafka '1', Tidelog '0'", "ids of brokers"),
    Difference(r"of_a_topic: IncrementalAlter.*unknown_server_error", "Kafka 4.1 fails for an unknown operation"),
    Difference(r"resource_name: Kafka '1', Tidelog '0'$", "ids of brokers"),
    Difference(r"log_dirs: .*(log_dir|total_bytes|usable_bytes): Kafka", "the store is the directory, without a size"),
    Difference(r"(member_id|leader): Kafka '.+', Tidelog '.+'$", "each broker chooses the ids of members"),
    Difference(r"producer_id: Kafka \d+, Tidelog \d+$", "each cluster gives out its own ids"),
    Difference(r"quorums: ", "there is no quorum of controllers"),
    Difference(r"Heartbeat v. member_epoch: Kafka 1, Tidelog 3$", "a group has one counter for all epochs (ADR 0029)"),
    Difference(
        r"Heartbeat v. heartbeat_interval: ", "with few members heartbeats come often: a handover takes less time"
    ),
    Difference(r"only_checked: CreateTopics v7 .*topic_id", "Kafka tells an id, which the topic would not get"),
    Difference(
        r"unknown_members: OffsetCommit .*error_code: Kafka <ErrorCode.none: 0>, Tidelog <ErrorCode.unknown_member_id",
        "Kafka takes a commit without a generation from any member id, as long as the group is empty",
    ),
)
