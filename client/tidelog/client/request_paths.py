"""The paths of calls on topics, partitions and groups."""

from __future__ import annotations

from urllib.parse import quote

from tidelog.storage.errors import Invalid


def topic_path(topic: str) -> str:
    """``/v1/topics/{topic}`` for a name with any characters. The broker checks the name."""
    if not topic:
        raise Invalid("a topic's name is empty", field="topic")
    quoted = quote(topic, safe="")
    return f"/v1/topics/{quoted if quoted.strip('.') else quoted.replace('.', '%2E')}"


def partition_path(topic: str, partition: int) -> str:
    return f"{topic_path(topic)}/partitions/{partition}"


def group_path(group: str, call: str = "") -> str:
    """``/v1/groups/{group}`` and the call below it, for a name with any characters. The broker checks the name."""
    if not group:
        raise Invalid("a group's name is empty", field="group")
    quoted = quote(group, safe="")
    path = f"/v1/groups/{quoted if quoted.strip('.') else quoted.replace('.', '%2E')}"
    return f"{path}/{call}" if call else path
