"""ApiVersions, Metadata, CreateTopics and DeleteTopics."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tests.kafka.oracle.pair import Pair
from tests.kafka.oracle.scenarios import scenario

from tidelog.services.kafka.protocol.api_table import API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS, METADATA

IDS_SINCE = 10
DELETED_BY_ID_SINCE = 6
NOWHERE = UUID("00000000-0000-4000-8000-00000000abcd")


@scenario(API_VERSIONS)
async def versions_are_within_kafkas(pair: Pair, version: int) -> None:
    answers = await pair.unchecked(API_VERSIONS, version, client_software_name="oracle", client_software_version="1.0")
    kafka = {each.api_key: each for each in answers.kafka.api_keys}
    for ours in answers.tidelog.api_keys:
        theirs = kafka[ours.api_key]
        if not theirs.min_version <= ours.min_version <= ours.max_version <= theirs.max_version:
            pair.found.append(f"ApiVersions: {ours} is not within {theirs}")


@scenario(METADATA)
async def metadata_of_known_and_unknown(pair: Pair, version: int) -> None:
    await pair.topic("metadata-known", 3)
    for names in (["metadata-known"], ["metadata-unknown"], ["metadata-known", "metadata-unknown"], ["bad name"], [""]):
        asked = [{"name": name, "topic_id": None} for name in names]
        await pair.ask(METADATA, version, topics=asked, allow_auto_topic_creation=False)


@scenario(METADATA)
async def metadata_with_operations(pair: Pair, version: int) -> None:
    await pair.topic("metadata-operations")
    await pair.ask(
        METADATA,
        version,
        topics=[{"name": "metadata-operations", "topic_id": None}],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )


@scenario(METADATA)
async def metadata_of_all_and_none(pair: Pair, version: int) -> None:
    if version:  # an empty list means all topics in version 0
        await pair.ask(METADATA, version, topics=[])
    await pair.unchecked(METADATA, version, topics=None)


@scenario(METADATA)
async def metadata_by_id(pair: Pair, version: int) -> None:
    if version < IDS_SINCE:
        return
    known = await pair.topic("metadata-by-id")
    for topic_id in (known, NOWHERE):
        await pair.ask(METADATA, version, topics=[{"name": None, "topic_id": topic_id}])


def _topic(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": 2, "replication_factor": 1} | fields


def _config(name: str, value: str | None) -> list[dict[str, str | None]]:
    return [{"name": name, "value": value}]


@scenario(CREATE_TOPICS)
async def a_topic_is_created_once(pair: Pair, version: int) -> None:
    for _ in range(2):
        await pair.ask(CREATE_TOPICS, version, topics=[_topic(f"created-{version}")], timeout=10_000)


@scenario(CREATE_TOPICS)
async def creation_of_wrong_topics(pair: Pair, version: int) -> None:
    name = f"wrong-{version}"
    for wrong in (
        _topic("no spaces"),
        _topic(""),
        _topic("."),
        _topic("x" * 250),
        _topic(name, num_partitions=0),
        _topic(name, num_partitions=-2),
        _topic(name, replication_factor=0),
        _topic(name, configs=_config("no.such.config", "1")),
        _topic(name, configs=_config("retention.ms", "soon")),
        _topic(name, configs=_config("cleanup.policy", "shred")),
        _topic(name, configs=_config("retention.ms", None)),
    ):
        await pair.ask(CREATE_TOPICS, version, topics=[wrong], timeout=10_000)


@scenario(CREATE_TOPICS)
async def creation_that_is_only_checked(pair: Pair, version: int) -> None:
    for topic in (_topic(f"checked-{version}"), _topic("bad name")):
        await pair.ask(CREATE_TOPICS, version, topics=[topic], timeout=10_000, validate_only=True)


@scenario(CREATE_TOPICS)
async def creation_of_one_name_twice(pair: Pair, version: int) -> None:
    await pair.ask(CREATE_TOPICS, version, topics=[_topic("double"), _topic("double")], timeout=10_000)


@scenario(DELETE_TOPICS)
async def deletion_by_name(pair: Pair, version: int) -> None:
    name = f"deleted-{version}"
    await pair.topic(name)
    for _ in range(2):
        await pair.ask(
            DELETE_TOPICS, version, topic_names=[name], topics=[{"name": name, "topic_id": None}], timeout=10_000
        )


@scenario(DELETE_TOPICS)
async def deletion_by_id(pair: Pair, version: int) -> None:
    if version < DELETED_BY_ID_SINCE:
        return
    known = await pair.topic("deleted-by-id")
    for topic_id in (known, NOWHERE):
        await pair.ask(DELETE_TOPICS, version, topics=[{"name": None, "topic_id": topic_id}], timeout=10_000)
