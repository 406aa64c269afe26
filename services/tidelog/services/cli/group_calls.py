"""The calls on groups of the v1 interface that `tidelog group` makes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from tidelog.client.connection import FIRST_CONNECT_TIMEOUT_S, JSON, Connection, Request, decoded
from tidelog.client.request_paths import group_path
from tidelog.services.cli.broker_options import BrokerChoice
from tidelog.wire.groups import GroupDescription, GroupPage, ListedGroup
from tidelog.wire.polls import LagAnswer, SeekAnswer, SeekRequest

T = TypeVar("T")


class GroupCalls:
    """Every call raises `NotFound` for a group that nobody has used, `Invalid` and `Unavailable`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def groups(self) -> tuple[ListedGroup, ...]:
        """All groups by name."""
        found: list[ListedGroup] = []
        query: dict[str, str | int] = {}
        while True:
            page = self._ask(GroupPage, Request("GET", "/v1/groups", query=query))
            found += page.groups
            if page.next is None:
                return tuple(found)
            query["after"] = page.next

    def group(self, name: str) -> GroupDescription:
        """A group and its members."""
        return self._ask(GroupDescription, Request("GET", group_path(name)))

    def lag(self, name: str, *, times: bool = True) -> LagAnswer:
        """How far the group is behind. Without `times` only in records, which is cheaper."""
        query = {} if times else {"times": "false"}
        return self._ask(LagAnswer, Request("GET", group_path(name, "lag"), query=query))

    def seek(self, name: str, wanted: SeekRequest) -> SeekAnswer:
        """Set the committed offsets, or preview that. Raises `GroupNotEmpty`."""
        body = [memoryview(msgspec.json.encode(wanted))]
        request = Request("POST", group_path(name, "seek"), headers={"content-type": JSON}, body=body, repeatable=False)
        return self._ask(SeekAnswer, request)

    def delete(self, name: str) -> None:
        """Remove a group with its offsets. Raises `GroupNotEmpty`."""
        self._connection.call(Request("DELETE", group_path(name), repeatable=False))

    def _ask(self, shape: type[T], request: Request) -> T:
        return decoded(self._connection.call(request), shape)


@contextmanager
def group_calls(broker: BrokerChoice) -> Iterator[GroupCalls]:
    """The calls, over a connection of their own."""
    with Connection(broker.access(), connect_timeout_s=FIRST_CONNECT_TIMEOUT_S) as connection:
        yield GroupCalls(connection)
