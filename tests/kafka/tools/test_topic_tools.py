"""kafka-topics, kafka-configs, kafka-get-offsets and kafka-delete-records against Tidelog."""

from __future__ import annotations

import json
from pathlib import Path

from tests.kafka.conftest import KafkaServed
from tests.kafka.kio_client import KioClient
from tests.kafka.records_client import produce
from tests.kafka.sent_batches import BEGAN_MS, sent_values
from tests.kafka.tools.tools_jvm import CONFIGS, Tools

TOPICS, OFFSETS = "TopicCommand", "GetOffsetShell"
KEPT = ("--config", "retention.ms=-1")
"""The records that tests send are years old: with the default retention, upkeep deletes them at any moment."""


async def test_kafka_topics_creates_describes_changes_and_deletes(tools: Tools) -> None:
    created = await tools(TOPICS, "--create", "--topic", "events", "--partitions", "2", "--config", "retention.ms=9000")
    assert created.text == "Created topic events."
    assert (await tools(TOPICS, "--list")).text == "events"
    described = await tools(TOPICS, "--describe", "--topic", "events")
    assert "PartitionCount: 2\tReplicationFactor: 1\tConfigs: retention.ms=9000" in described.text
    assert "Partition: 1\tLeader: 0\tReplicas: 0\tIsr: 0" in described.text
    await tools(TOPICS, "--alter", "--topic", "events", "--partitions", "3")
    assert "PartitionCount: 3" in (await tools(TOPICS, "--describe")).text
    assert not (await tools(TOPICS, "--describe", "--unavailable-partitions")).text
    await tools(TOPICS, "--delete", "--topic", "events")
    assert not (await tools(TOPICS, "--list")).text
    refused = await tools(TOPICS, "--describe", "--topic", "events", code=1)
    assert "Topic 'events' does not exist as expected" in refused.text


async def test_kafka_configs_changes_topics_and_tells_the_others(tools: Tools) -> None:
    await tools(TOPICS, "--create", "--topic", "events")
    await tools(CONFIGS, "--alter", "--topic", "events", "--add-config", "cleanup.policy=compact,retention.ms=5000")
    await tools(CONFIGS, "--alter", "--topic", "events", "--delete-config", "retention.ms")
    changed = (await tools(CONFIGS, "--describe", "--topic", "events")).rows
    assert [row[0] for row in changed[1:]] == ["cleanup.policy=compact"]
    everything = (await tools(CONFIGS, "--describe", "--topic", "events", "--all")).text
    assert "compression.zstd.level=3" in everything
    assert "retention.ms=604800000" in everything
    broker = (await tools(CONFIGS, "--describe", "--broker", "0", "--all")).text
    assert "num.partitions=2 sensitive=false" in broker
    for kind in ("groups", "users", "clients", "ips", "client-metrics"):
        assert not (await tools(CONFIGS, "--describe", "--entity-type", kind)).text
    await tools(CONFIGS, "--describe", "--entity-type", "broker-loggers", "--entity-name", "0")
    wrong = await tools(CONFIGS, "--alter", "--topic", "events", "--add-config", "retention.ms=soon", code=1)
    assert "InvalidConfigurationException" in wrong.text
    fixed = await tools(CONFIGS, "--alter", "--broker", "0", "--add-config", "log.retention.ms=1", code=1)
    assert "PolicyViolationException" in fixed.text


async def test_kafka_get_offsets_finds_ends_and_times(tools: Tools, client: KioClient) -> None:
    await tools(TOPICS, "--create", "--topic", "events", "--partitions", "2", *KEPT)
    await produce(client, "events", sent_values(b"a", b"b", b"c"))
    await produce(client, "events", sent_values(b"d"))
    found = {
        time: (await tools(OFFSETS, "--topic", "events", "--time", time)).rows
        for time in ("-1", "-2", "-3", "-4", "-5", str(BEGAN_MS + 1))
    }
    assert found == {
        "-1": [["events:0:4"], ["events:1:0"]],
        "-2": [["events:0:0"], ["events:1:0"]],
        "-3": [["events:0:2"]],
        "-4": [["events:0:0"], ["events:1:0"]],
        "-5": [],
        str(BEGAN_MS + 1): [["events:0:1"]],
    }


async def test_kafka_delete_records_moves_the_beginning(
    tools: Tools, client: KioClient, served: KafkaServed, tmp_path: Path
) -> None:
    await tools(TOPICS, "--create", "--topic", "events", "--partitions", "1", *KEPT)
    await produce(client, "events", sent_values(b"a", b"b", b"c"))
    asked = tmp_path / "offsets.json"
    asked.write_text(json.dumps({"partitions": [{"topic": "events", "partition": 0, "offset": 2}], "version": 1}))
    deleted = await tools("DeleteRecordsCommand", "--offset-json-file", str(asked))
    assert "partition: events-0\tlow_watermark: 2" in deleted.text
    assert (await tools(OFFSETS, "--topic", "events", "--time", "earliest")).rows == [["events:0:2"]]
