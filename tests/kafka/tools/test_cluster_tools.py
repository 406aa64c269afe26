"""Kafka's tools for brokers, replicas and transactions against Tidelog."""

from __future__ import annotations

import json
import re

from tests.kafka.conftest import KafkaServed
from tests.kafka.kio_client import KioClient
from tests.kafka.records_client import produce
from tests.kafka.sent_batches import Producer, records_of, sent
from tests.kafka.tools.tools_jvm import CLUSTER, REASSIGN, Tools

from tidelog.services.kafka.protocol.api_table import API_TABLE

TRANSACTIONS, ELECTION = "TransactionsCommand", "LeaderElectionCommand"
PRODUCER_ID = 4_711


async def test_kafka_cluster_and_broker_api_versions_tell_the_brokers(tools: Tools) -> None:
    assert (await tools(CLUSTER, "cluster-id")).text == "Cluster ID: tidelog"
    host, port = tools.bootstrap.split(":")
    endpoints = (await tools(CLUSTER, "list-endpoints")).rows
    assert endpoints[1] == ["0", host, port, "null", "unfenced", "broker"]
    gone = await tools(CLUSTER, "unregister", "--id", "77", code=1)
    assert "BrokerIdNotRegisteredException" in gone.text
    versions = (await tools("BrokerApiVersionsCommand")).text
    served = {int(key): int(highest) for key, highest in re.findall(r"\((\d+)\): .*\[usable: (\d+)\]", versions)}
    assert served == {api.key: api.highest for api in API_TABLE.values()}
    assert not (await tools("FeatureCommand", "describe")).text


async def test_kafka_log_dirs_tells_the_archived_bytes(tools: Tools, client: KioClient, served: KafkaServed) -> None:
    await tools("TopicCommand", "--create", "--topic", "events", "--partitions", "2")
    await produce(client, "events", sent([*records_of(*(b"%d" % n * 50 for n in range(300)))]))
    await served.broker.archive_now()
    *_, told = (await tools("LogDirsCommand", "--describe", "--topic-list", "events")).text.splitlines()
    (broker,) = json.loads(told)["brokers"]
    (place,) = broker["logDirs"]
    sizes = {each["partition"]: each["size"] for each in place["partitions"]}
    assert (broker["broker"], place["error"], place["logDir"]) == (0, None, "memory:")
    assert sizes["events-0"] > 500
    assert sizes["events-1"] == 0


async def test_replicas_and_leaders_need_no_command(tools: Tools) -> None:
    await tools("TopicCommand", "--create", "--topic", "events", "--partitions", "2")
    assert (await tools(REASSIGN, "--list")).text == "No partition reassignments found."
    assert not (await tools(ELECTION, "--election-type", "preferred", "--all-topic-partitions")).text
    one = ("--topic", "events", "--partition", "0")
    assert (
        "already elected for partitions events-0" in (await tools(ELECTION, "--election-type", "preferred", *one)).text
    )


async def test_kafka_transactions_tells_idempotent_producers_and_no_transactions(
    tools: Tools, client: KioClient
) -> None:
    await tools("TopicCommand", "--create", "--topic", "events", "--partitions", "1")
    for sequence in (0, 2):
        batch = sent(records_of(b"a", b"b"), Producer(PRODUCER_ID, 3, sequence))
        assert (await produce(client, "events", batch)).error_code == 0
    assert len((await tools(TRANSACTIONS, "list")).rows) == 1, "only the head of the table"
    where = ("--topic", "events", "--partition", "0")
    assert (await tools(TRANSACTIONS, "describe-producers", *where)).rows[1][:4] == [str(PRODUCER_ID), "3", "-1", "3"]
    assert len((await tools(TRANSACTIONS, "find-hanging", "--topic", "events")).rows) == 1
    unknown = await tools(TRANSACTIONS, "describe", "--transactional-id", "payments", code=1)
    assert "failed because the ID could not be found" in unknown.text


async def test_what_tidelog_does_not_have_is_refused_as_kafka_refuses_it(tools: Tools) -> None:
    assert "SecurityDisabledException" in (await tools("AclCommand", "--list", code=1)).text
    assert "UnsupportedVersionException" in (await tools("MetadataQuorumCommand", "describe", "--status", code=1)).text
    assert not (await tools("ClientMetricsCommand", "--list")).text
