"""`AsyncAdmin`: `Admin` for asyncio.

async with AsyncAdmin("http://127.0.0.1:8080") as admin:
    print((await admin.topic("web")).records)
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from tidelog.client.admin import Admin
from tidelog.client.async_calls import in_thread, parameters_of


class AsyncAdmin:
    """The calls of `Admin` as coroutines. They run in the event loop's threads."""

    @parameters_of(Admin.__init__)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.held = Admin(*args, **kwargs)

    create_topic = in_thread(Admin.create_topic)
    alter_topic = in_thread(Admin.alter_topic)
    delete_topic = in_thread(Admin.delete_topic)
    delete_records = in_thread(Admin.delete_records)
    topics = in_thread(Admin.topics)
    topic = in_thread(Admin.topic)
    topic_log = in_thread(Admin.topic_log)
    offset = in_thread(Admin.offset)
    offsets = in_thread(Admin.offsets)
    cluster = in_thread(Admin.cluster)
    cost = in_thread(Admin.cost)
    cluster_cost = in_thread(Admin.cluster_cost)
    drain = in_thread(Admin.drain)
    raise_feature_level = in_thread(Admin.raise_feature_level)
    health = in_thread(Admin.health)
    groups = in_thread(Admin.groups)
    group = in_thread(Admin.group)
    group_members = in_thread(Admin.group_members)
    group_offsets = in_thread(Admin.group_offsets)
    group_lag = in_thread(Admin.group_lag)
    seek_group = in_thread(Admin.seek_group)
    delete_group = in_thread(Admin.delete_group)
    delete_group_offsets = in_thread(Admin.delete_group_offsets)

    async def close(self) -> None:
        """Release the sockets."""
        self.held.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()
