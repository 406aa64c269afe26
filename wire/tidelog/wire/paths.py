"""Paths of calls."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, urlencode


def topic_target(topic: str, call: str, query: Mapping[str, str]) -> str:
    """Path and query, encoded, of a call on a topic."""
    path = f"/v1/topics/{quote(topic, safe='')}/{call}"
    return f"{path}?{urlencode(query)}" if query else path


def partition_target(topic: str, partition: int, call: str, query: Mapping[str, str]) -> str:
    """Path and query, encoded, of a call on a partition."""
    return topic_target(topic, f"partitions/{partition}/{call}", query)


GROUP_CALLS = "/peers/groups/{group}"
"""The route of calls between brokers, which take any request to a group as MessagePack."""


def group_target(group: str) -> str:
    """The encoded path of a call of another broker on `group`. A name may have slashes, which no path segment may
    have, so it is in hexadecimal digits."""
    return GROUP_CALLS.format(group=group.encode().hex())
