"""Paths of calls."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, urlencode


def partition_target(topic: str, partition: int, call: str, query: Mapping[str, str]) -> str:
    """Path and query, encoded, of a call on a partition."""
    path = f"/v1/topics/{quote(topic, safe='')}/partitions/{partition}/{call}"
    return f"{path}?{urlencode(query)}" if query else path
