"""APIs that Kafka's administrative tools send: replicas, elections, quotas, credentials, transactions, ACLs."""

from __future__ import annotations

from typing import Any

from tests.kafka.oracle.messages import Each
from tests.kafka.oracle.pair import Pair
from tests.kafka.oracle.scenarios import scenario

DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS, ALTER_LOG_DIRS, LOG_DIRS = 29, 30, 31, 34, 35
ELECT_LEADERS, ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS = 43, 45, 46
DESCRIBE_QUOTAS, ALTER_QUOTAS, DESCRIBE_SCRAM, ALTER_SCRAM, QUORUM, FEATURES = 48, 49, 50, 51, 55, 57
DESCRIBE_CLUSTER, PRODUCERS, UNREGISTER, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 60, 61, 64, 65, 66
CONFIG_RESOURCES, TOPIC_PARTITIONS = 74, 75
PREFERRED, UNCLEAN = 0, 1
BROKER = Each(1, 0)
TOPIC = "of-admins"
ASKED = [{"name": TOPIC, "partitions": (0, 7)}, {"name": "nowhere", "partitions": (0,)}]


@scenario(DESCRIBE_CLUSTER)
async def clusters(pair: Pair, version: int) -> None:
    for endpoints in (1, 2, 9):
        await pair.ask(
            DESCRIBE_CLUSTER,
            version,
            endpoint_type=endpoints,
            include_cluster_authorized_operations=endpoints == 1,
            include_fenced_brokers=True,
        )


@scenario(LOG_DIRS)
async def log_dirs(pair: Pair, version: int) -> None:
    await pair.topic(TOPIC, 2)
    for topics in ([{"topic": TOPIC, "partitions": [0, 1, 7]}], [{"topic": "nowhere", "partitions": [0]}], []):
        await pair.ask(LOG_DIRS, version, topics=topics)


@scenario(ALTER_LOG_DIRS)
async def moves_to_another_log_dir(pair: Pair, version: int) -> None:
    await pair.topic(TOPIC, 2)
    moved = [{"path": "/elsewhere", "topics": [{"name": TOPIC, "partitions": [0, 1]}]}]
    await pair.ask(ALTER_LOG_DIRS, version, dirs=moved)


@scenario(ELECT_LEADERS)
async def elections(pair: Pair, version: int) -> None:
    await pair.topic(TOPIC, 2)
    asked = [{"topic": each["name"], "partitions": each["partitions"]} for each in ASKED]
    for election in (PREFERRED, UNCLEAN, 5):
        await pair.ask(ELECT_LEADERS, version, election_type=election, timeout=1_000, topic_partitions=asked)


@scenario(ALTER_REASSIGNMENTS)
async def reassignments(pair: Pair, version: int) -> None:
    await pair.topic(TOPIC, 2)
    for replicas in ([BROKER], [77], None, []):
        topics = [
            {
                "name": each["name"],
                "partitions": [{"partition_index": number, "replicas": replicas} for number in each["partitions"]],
            }
            for each in ASKED
        ]
        await pair.ask(ALTER_REASSIGNMENTS, version, timeout=1_000, topics=topics)


@scenario(LIST_REASSIGNMENTS)
async def no_reassignments(pair: Pair, version: int) -> None:
    await pair.topic(TOPIC, 2)
    named = [{"name": each["name"], "partition_indexes": each["partitions"]} for each in ASKED]
    for topics in (None, named):
        await pair.ask(LIST_REASSIGNMENTS, version, timeout=1_000, topics=topics)


@scenario(TOPIC_PARTITIONS)
async def pages_of_partitions(pair: Pair, version: int) -> None:
    await pair.topic(TOPIC, 2)
    await pair.topic("of-admins-too", 3)
    names = [{"name": name} for name in (TOPIC, "of-admins-too", "nowhere", "bad name")]
    after = {"topic_name": "of-admins-too", "partition_index": 1}
    for limit in (2_000, 3, 2, 0):
        await pair.ask(TOPIC_PARTITIONS, version, topics=names, response_partition_limit=limit, cursor=None)
        await pair.ask(TOPIC_PARTITIONS, version, topics=names, response_partition_limit=limit, cursor=after)


@scenario(PRODUCERS)
async def no_producers(pair: Pair, version: int) -> None:
    await pair.topic(TOPIC, 2)
    asked = [{"name": each["name"], "partition_indexes": each["partitions"]} for each in ASKED]
    await pair.ask(PRODUCERS, version, topics=[*asked, {"name": "bad name", "partition_indexes": [0]}])


@scenario(UNREGISTER)
async def brokers_that_are_not_there(pair: Pair, version: int) -> None:
    for number in (77, -7):
        await pair.ask(UNREGISTER, version, broker_id=number)


@scenario(CONFIG_RESOURCES)
async def resources_with_configs(pair: Pair, version: int) -> None:
    for types in ([4], [8], [16], [32], [4, 8, 16, 32], [77]):
        await pair.ask(CONFIG_RESOURCES, version, resource_types=types)


@scenario(DESCRIBE_QUOTAS)
async def quotas(pair: Pair, version: int) -> None:
    for kind, match in (("user", 0), ("client-id", 1), ("ip", 2), ("nonsense", 0), ("user", 7), ("", 0)):
        name = "anybody" if match == 0 else None
        asked = [{"entity_type": kind, "match_type": match, "match": name}]
        await pair.ask(DESCRIBE_QUOTAS, version, components=asked, strict=True)
    await pair.ask(DESCRIBE_QUOTAS, version, components=[], strict=False)


@scenario(ALTER_QUOTAS)
async def removals_of_quotas(pair: Pair, version: int) -> None:
    entity = [{"entity_type": "user", "entity_name": "anybody"}]
    removal = [{"key": "producer_byte_rate", "value": 0.0, "remove": True}]
    await pair.ask(ALTER_QUOTAS, version, entries=[{"entity": entity, "ops": removal}], validate_only=False)


@scenario(DESCRIBE_SCRAM)
async def credentials(pair: Pair, version: int) -> None:
    for users in (None, [], ["anybody"], ["anybody", "anybody", "other"]):
        await pair.ask(DESCRIBE_SCRAM, version, users=None if users is None else [{"name": user} for user in users])


@scenario(ALTER_SCRAM)
async def deletions_of_credentials(pair: Pair, version: int) -> None:
    await pair.ask(ALTER_SCRAM, version, deletions=[{"name": "anybody", "mechanism": 1}], upsertions=[])


@scenario(QUORUM)
async def quorums(pair: Pair, version: int) -> None:
    asked = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    await pair.ask(QUORUM, version, topics=asked)


@scenario(FEATURES)
async def features_that_do_not_exist(pair: Pair, version: int) -> None:
    for updates in ([], [{"feature": "nonsense", "max_version_level": 1, "upgrade_type": 1}]):
        await pair.ask(FEATURES, version, timeout=1_000, feature_updates=updates, validate_only=False)


@scenario(LIST_TRANSACTIONS)
async def no_transactions(pair: Pair, version: int) -> None:
    for states, pattern in ((["Ongoing", "Nonsense"], None), ([], "[["), ([], "a.*")):
        await pair.ask(LIST_TRANSACTIONS, version, state_filters=states, transactional_id_pattern=pattern)


@scenario(DESCRIBE_TRANSACTIONS)
async def transactions_that_do_not_exist(pair: Pair, version: int) -> None:
    await pair.ask(DESCRIBE_TRANSACTIONS, version, transactional_ids=[""])


@scenario(DESCRIBE_ACLS)
async def acls(pair: Pair, version: int) -> None:
    asked: dict[str, Any] = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    await pair.ask(DESCRIBE_ACLS, version, **asked)


@scenario(CREATE_ACLS)
async def creations_of_acls(pair: Pair, version: int) -> None:
    rule = {"principal": "User:anybody", "host": "*", "operation": 3, "permission_type": 3}
    await pair.ask(
        CREATE_ACLS,
        version,
        creations=[{"resource_type": 2, "resource_name": TOPIC, "resource_pattern_type": 3} | rule],
    )


@scenario(DELETE_ACLS)
async def deletions_of_acls(pair: Pair, version: int) -> None:
    rule = {"principal_filter": "User:anybody", "host_filter": "*", "operation": 3, "permission_type": 3}
    await pair.ask(
        DELETE_ACLS,
        version,
        filters=[{"resource_type_filter": 2, "resource_name_filter": TOPIC, "pattern_type_filter": 3} | rule],
    )
