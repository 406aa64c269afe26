"""Administration of consumer groups: the part of `Admin` that is about groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from tidelog.client.connection import JSON, Connection, Request, decoded
from tidelog.client.consumed import CommittedPosition, TopicPartition, grouped
from tidelog.client.request_paths import group_path
from tidelog.wire.groups import (
    DeleteOffsets,
    FetchOffsets,
    GroupDescription,
    GroupMemberDescription,
    GroupPage,
    ListedGroup,
    OffsetsAnswer,
)
from tidelog.wire.polls import LagAnswer, SeekAnswer, SeekRequest

T = TypeVar("T")


class GroupAdmin:
    """Calls on groups. Each can raise `NotFound`, `Invalid`, `GroupNotEmpty` and `Unavailable`."""

    _connection: Connection

    def groups(self) -> tuple[ListedGroup, ...]:
        """All groups by name."""
        found: list[ListedGroup] = []
        query: dict[str, str | int] = {}
        while True:
            page = decoded(self._connection.call(Request("GET", "/v1/groups", query=query)), GroupPage)
            found += page.groups
            if page.next is None:
                return tuple(found)
            query["after"] = page.next

    def group(self, name: str) -> GroupDescription:
        """The group with its members and their partitions."""
        return decoded(self._connection.call(Request("GET", group_path(name))), GroupDescription)

    def group_members(self, name: str) -> tuple[GroupMemberDescription, ...]:
        """The members of the group."""
        return self.group(name).members

    def group_offsets(self, name: str) -> Mapping[TopicPartition, CommittedPosition]:
        """All committed offsets of the group."""
        answer = self._post(name, "offsets", FetchOffsets(), OffsetsAnswer)
        return {
            TopicPartition(one.topic, one.partition): CommittedPosition(one.offset, one.metadata)
            for one in answer.offsets
        }

    def group_lag(self, name: str, *, times: bool = True) -> LagAnswer:
        """How far the group is behind in each partition. `times`: also how old the next record is, which may take a
        read for each partition."""
        query: dict[str, str | int] = {} if times else {"times": "false"}
        return decoded(self._connection.call(Request("GET", group_path(name, "lag"), query=query)), LagAnswer)

    def seek_group(
        self,
        name: str,
        to: str,
        *,
        topics: Iterable[str] = (),
        partitions: Iterable[TopicPartition] = (),
        dry_run: bool = False,
    ) -> SeekAnswer:
        """Set the committed offsets of a group without members; see `SeekRequest` for `to`. `dry_run`: only say what
        would change. It is sent once: if the answer is lost, `+N` and `-N` would move the group twice."""
        wanted = SeekRequest(str(to), tuple(topics), grouped(partitions), dry_run)
        return decoded(self._send(name, "seek", wanted, repeatable=dry_run), SeekAnswer)

    def delete_group(self, name: str) -> None:
        """Remove a group without members, with its offsets."""
        self._connection.call(Request("DELETE", group_path(name), repeatable=False))

    def delete_group_offsets(self, name: str, partitions: Iterable[TopicPartition]) -> None:
        """Forget the committed offsets of `partitions`. No member may subscribe to their topics."""
        body = DeleteOffsets(partitions=grouped(TopicPartition(*one) for one in partitions))
        self._send(name, "delete-offsets", body)

    def _post(self, name: str, call: str, body: msgspec.Struct, shape: type[T]) -> T:
        return decoded(self._send(name, call, body), shape)

    def _send(self, name: str, call: str, body: msgspec.Struct, *, repeatable: bool = True) -> Any:
        pieces = [memoryview(msgspec.json.encode(body))]
        return self._connection.call(
            Request("POST", group_path(name, call), headers={"content-type": JSON}, body=pieces, repeatable=repeatable)
        )
