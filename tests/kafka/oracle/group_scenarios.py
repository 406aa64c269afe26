"""Groups of both kinds and their offsets."""

from __future__ import annotations

from typing import Any

from tests.kafka.oracle.messages import Each
from tests.kafka.oracle.pair import OFFSET_FETCH, Pair
from tests.kafka.oracle.scenarios import scenario

from tidelog.services.kafka.protocol.api_table import FIND_COORDINATOR

OFFSET_COMMIT, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 8, 11, 12, 13, 14
DESCRIBE_GROUPS, LIST_GROUPS, DELETE_GROUPS, OFFSET_DELETE = 15, 16, 42, 47
CONSUMER_HEARTBEAT, CONSUMER_DESCRIBE = 68, 69
JOINED, LEAVES = 0, -1
FILTERED_SINCE = 4
TOPIC = "of-groups"


@scenario(FIND_COORDINATOR)
async def coordinators(pair: Pair, version: int) -> None:
    await pair.coordinator_ready("some-group")
    for key in ("some-group", ""):
        await pair.ask(FIND_COORDINATOR, version, key=key, key_type=0, coordinator_keys=[key])


async def _commit(pair: Pair, version: int, group: str, topic: str = TOPIC, partition: int = 0, **fields: Any) -> None:
    part = {"partition_index": partition, "committed_offset": 5, "committed_metadata": fields.pop("metadata", "m")}
    topics = [{"name": topic, "partitions": [part]}]
    given = {"group_id": group, "member_id": "", "generation_id": -1, "generation_id_or_member_epoch": -1}
    await pair.ask(OFFSET_COMMIT, version, **(given | {"retention_time_ms": -1, "topics": topics} | fields))


async def _committed(pair: Pair, version: int, group: str, topics: list[dict[str, Any]] | None) -> None:
    if topics is None and version == 1:
        return  # version 1 has no null
    asked = [{"group_id": group, "topics": topics}]
    await pair.ask(OFFSET_FETCH, version, group_id=group, topics=topics, groups=asked)


@scenario(OFFSET_COMMIT)
async def commits_without_members(pair: Pair, version: int) -> None:
    await pair.topic(TOPIC)
    group = f"commits-{version}"
    await pair.coordinator_ready(group)
    await _commit(pair, version, group)
    await _commit(pair, version, group, metadata=None)
    await _commit(pair, version, group, topic="nowhere")
    await _commit(pair, version, group, partition=7)
    await _commit(pair, version, group, metadata="m" * 5000)
    await _commit(pair, version, "")
    await _committed(pair, min(version, 9), group, [{"name": TOPIC, "partition_indexes": [0, 7]}])


@scenario(OFFSET_COMMIT)
async def commits_of_unknown_members(pair: Pair, version: int) -> None:
    await pair.topic(TOPIC)
    await pair.coordinator_ready("strangers")
    await _commit(pair, version, "strangers", member_id="stranger")
    stale = {"generation_id": 3, "generation_id_or_member_epoch": 3}
    await _commit(pair, version, "strangers", member_id="stranger", **stale)
    await _commit(pair, version, "strangers", **stale)


@scenario(OFFSET_FETCH)
async def committed_offsets(pair: Pair, version: int) -> None:
    await pair.topic(TOPIC)
    await pair.coordinator_ready("fetched")
    part = {"partition_index": 0, "committed_offset": 5, "committed_metadata": "m"}
    commit = {"group_id": "fetched", "member_id": "", "topics": [{"name": TOPIC, "partitions": [part]}]}
    await pair.unchecked(OFFSET_COMMIT, 9, generation_id_or_member_epoch=-1, **commit)
    for group in ("fetched", "unknown-group", ""):
        await _committed(pair, version, group, [{"name": TOPIC, "partition_indexes": [0, 1]}])
        await _committed(pair, version, group, [{"name": "nowhere", "partition_indexes": [0]}])
        await _committed(pair, version, group, [])
        await _committed(pair, version, group, None)


async def _join(pair: Pair, version: int, group: str, **fields: Any) -> Each:
    given = {
        "group_id": group,
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"\0\0"}],
    }
    return await pair.ask(JOIN_GROUP, version, **(given | fields))


@scenario(JOIN_GROUP)
async def joins_that_are_refused(pair: Pair, version: int) -> None:
    group = f"joins-{version}"
    await pair.coordinator_ready(group)
    await _join(pair, version, "")
    await _join(pair, version, group, session_timeout=1)
    await _join(pair, version, group, session_timeout=100_000_000)
    await _join(pair, version, group, member_id="stranger")
    await _join(pair, version, group, protocol_type="")
    await _join(pair, version, group, protocols=[])


@scenario(HEARTBEAT)
async def heartbeats_of_strangers(pair: Pair, version: int) -> None:
    for group in ("unknown-group", ""):
        await pair.coordinator_ready("x")
        await pair.ask(HEARTBEAT, version, group_id=group, generation_id=1, member_id="stranger")


@scenario(SYNC_GROUP)
async def syncs_of_strangers(pair: Pair, version: int) -> None:
    await pair.coordinator_ready("x")
    for group in ("unknown-group", ""):
        named = {"protocol_type": "consumer", "protocol_name": "range"}
        await pair.ask(SYNC_GROUP, version, group_id=group, generation_id=1, member_id="stranger", **named)


@scenario(LEAVE_GROUP)
async def leaves_of_strangers(pair: Pair, version: int) -> None:
    await pair.coordinator_ready("x")
    for group in ("unknown-group", ""):
        members = [{"member_id": "stranger"}]
        await pair.ask(LEAVE_GROUP, version, group_id=group, member_id="stranger", members=members)


@scenario(DESCRIBE_GROUPS)
async def descriptions_of_unknown_groups(pair: Pair, version: int) -> None:
    await pair.coordinator_ready("x")
    for operations in (False, True):
        await pair.ask(DESCRIBE_GROUPS, version, groups=["unknown-group", ""], include_authorized_operations=operations)


@scenario(LIST_GROUPS)
async def lists_of_no_groups(pair: Pair, version: int) -> None:
    await pair.coordinator_ready("x")
    if version >= FILTERED_SINCE:  # before, the groups of all scenarios are listed
        await pair.ask(LIST_GROUPS, version, states_filter=["PreparingRebalance"], types_filter=["classic"])
        await pair.ask(LIST_GROUPS, version, states_filter=["Nonsense"], types_filter=["nonsense"])


@scenario(DELETE_GROUPS)
async def deletions_of_unknown_groups(pair: Pair, version: int) -> None:
    await pair.coordinator_ready("x")
    for group in ("unknown-group", ""):
        await pair.ask(DELETE_GROUPS, version, groups_names=[group])


@scenario(OFFSET_DELETE)
async def deletions_of_offsets(pair: Pair, version: int) -> None:
    await pair.coordinator_ready("x")
    topics = [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]
    await pair.ask(OFFSET_DELETE, version, group_id="unknown-group", topics=topics)


async def _beat(pair: Pair, version: int, group: str, member: Any, epoch: Any, **fields: Any) -> Each:
    given = {"group_id": group, "member_id": member, "member_epoch": epoch, "rebalance_timeout": 10_000}
    return await pair.ask(CONSUMER_HEARTBEAT, version, **(given | fields))


@scenario(CONSUMER_HEARTBEAT)
async def a_consumer_joins_and_leaves(pair: Pair, version: int) -> None:
    await pair.topic(TOPIC)
    group, member = f"consumers-{version}", "AAAAAAAAAAAAAAAAAAAAAA"
    await pair.coordinator_ready("x")
    subscribed: dict[str, Any] = {"subscribed_topic_names": [TOPIC], "topic_partitions": []}
    joined = await _beat(pair, version, group, member, JOINED, **subscribed)
    epochs = Each(joined.kafka.member_epoch, joined.tidelog.member_epoch)
    await _beat(pair, version, group, member, epochs)
    await _beat(pair, version, group, member, 77)
    await _beat(pair, version, group, "stranger", epochs)
    await _beat(pair, version, group, member, LEAVES)
    await _beat(pair, version, group, member, LEAVES)


@scenario(CONSUMER_HEARTBEAT)
async def consumers_that_are_refused(pair: Pair, version: int) -> None:
    group = f"refused-{version}"
    await pair.coordinator_ready("x")
    subscribed: dict[str, Any] = {"subscribed_topic_names": [TOPIC], "topic_partitions": []}
    await _beat(pair, version, "", "m", JOINED, **subscribed)
    await _beat(pair, version, group, "m", 3, **subscribed)
    await _beat(pair, version, group, "m", JOINED, topic_partitions=[])
    await _beat(pair, version, group, "m", JOINED, **(subscribed | {"server_assignor": "nonsense"}))
    await _beat(pair, version, group, "m", LEAVES)
    await _beat(pair, version, group, "m", -5, **subscribed)


@scenario(CONSUMER_DESCRIBE)
async def descriptions_of_unknown_consumer_groups(pair: Pair, version: int) -> None:
    await pair.coordinator_ready("x")
    await pair.ask(CONSUMER_DESCRIBE, version, group_ids=["unknown-group"])
