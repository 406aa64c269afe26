"""kafka-consumer-groups and kafka-groups against Tidelog."""

from __future__ import annotations

from tests.kafka.kio_client import KioClient
from tests.kafka.records_client import produce
from tests.kafka.sent_batches import BEGAN_MS, sent_values
from tests.kafka.tools.tools_jvm import GROUPS, Tools

GROUP = ("--group", "readers")


async def test_kafka_consumer_groups_resets_describes_and_deletes(tools: Tools, client: KioClient) -> None:
    await tools("TopicCommand", "--create", "--topic", "events", "--partitions", "2")
    await produce(client, "events", sent_values(b"a", b"b", b"c"))
    reset = ("--reset-offsets", "--topic", "events")
    planned = await tools(GROUPS, *GROUP, *reset, "--to-latest", "--dry-run")
    assert ["readers", "events", "0", "3"] in planned.rows
    assert not (await tools(GROUPS, "--list")).text, "a dry run creates no group"
    time = "2023-11-14T22:13:20.001"
    for target, offset in ((("--to-latest",), 3), (("--shift-by", "-2"), 1), (("--to-earliest",), 0)):
        done = await tools(GROUPS, *GROUP, *reset, *target, "--execute")
        assert ["readers", "events", "0", str(offset)] in done.rows
    assert BEGAN_MS == 1_700_000_000_000, "the time below is that of the second record"
    done = await tools(GROUPS, *GROUP, *reset, "--to-datetime", time, "--execute")
    assert ["readers", "events", "0", "1"] in done.rows
    assert (await tools(GROUPS, "--list")).text == "readers"
    assert ["readers", "Empty"] in (await tools(GROUPS, "--list", "--state")).rows
    described = (await tools(GROUPS, "--describe", *GROUP)).rows
    assert ["readers", "events", "0", "1", "3", "2", "-", "-", "-"] in described
    assert (await tools(GROUPS, "--describe", *GROUP, "--state")).rows[-1][-2:] == ["Empty", "0"]
    assert "no active members" in (await tools(GROUPS, "--describe", *GROUP, "--members")).text
    forgotten = await tools(GROUPS, "--delete-offsets", *GROUP, "--topic", "events")
    assert ["events", "1", "Successful"] in forgotten.rows
    await tools(GROUPS, "--delete", *GROUP)
    assert not (await tools(GROUPS, "--list")).text
    missing = await tools(GROUPS, "--describe", *GROUP)
    assert "GroupIdNotFoundException" in missing.text


async def test_kafka_groups_lists_groups_with_their_types(tools: Tools, client: KioClient) -> None:
    await tools("TopicCommand", "--create", "--topic", "events", "--partitions", "1")
    await tools(GROUPS, *GROUP, "--reset-offsets", "--topic", "events", "--to-earliest", "--execute")
    assert (await tools("GroupsCommand", "--list")).rows[1][0] == "readers"
