"""`Admin`: topics, and the state of a broker and its cluster.

with Admin("http://127.0.0.1:8080") as admin:
    admin.create_topic("web", partitions=4, configs={"retention.ms": 86_400_000})
    print(admin.topic("web").records)
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import quote

import msgspec

from tidelog.client.connection import DEFAULT_BROKER, FIRST_CONNECT_TIMEOUT_S, JSON, Answer, Connection, Request
from tidelog.client.costs import ClusterCost, CostDescription
from tidelog.storage.errors import Corrupt, Fenced, Invalid, OffsetConflict, Unavailable
from tidelog.storage.runtime import Runtime
from tidelog.wire.cluster import ClusterDescription, ReadyAnswer
from tidelog.wire.topics import (
    ListedTopic,
    LogStartAnswer,
    OffsetAnswer,
    PartitionLogDescription,
    TopicDescription,
    TopicPage,
)

T = TypeVar("T")

OFFSET_MAX = 2**63 - 1
PEER_DEADLINE_S = 3.0
_WORDS = {"start": "earliest", "beginning": "earliest", "earliest": "earliest", "end": "latest", "latest": "latest"}
_OFFSET = re.compile(r"-?\d{1,19}")


@dataclass(frozen=True)
class Health:
    """`alive`: the process answers. `ready`: it takes requests; otherwise `reason` says why not. It serves everything
    but the `damaged_objects` of its shards."""

    alive: bool
    ready: bool
    reason: str = ""
    damaged_objects: tuple[str, ...] = ()


class Admin:
    """Administration over HTTP. Every call can raise `NotFound`, `Invalid` and `Unavailable`. `deadline_s` bounds a
    call with its retries; `connect_timeout_s` bounds the calls until a broker was reached."""

    def __init__(
        self,
        broker: str = DEFAULT_BROKER,
        *,
        deadline_s: float = 10.0,
        connect_timeout_s: float = FIRST_CONNECT_TIMEOUT_S,
        runtime: Runtime | None = None,
    ) -> None:
        self._connection = Connection(
            broker, deadline_s=deadline_s, connect_timeout_s=connect_timeout_s, runtime=runtime
        )

    def create_topic(
        self, name: str, partitions: int | None = None, configs: Mapping[str, str | int | None] | None = None
    ) -> TopicDescription:
        """Create `name`. Without `partitions` it gets the broker's ``num.partitions``. Raises `AlreadyExists`."""
        wanted: dict[str, object] = {"name": name, "configs": dict(configs or {})}
        if partitions is not None:
            wanted["partitions"] = partitions
        return self._topic_of("POST", "/v1/topics", wanted, repeatable=False)

    def auto_create_topic(self, name: str) -> None:
        """Let the broker create `name` with ``num.partitions``, as a produce to it would. It sends an append under a
        condition that no log meets. Raises `NotFound` if ``auto.create.topics.enable`` is off."""
        body = b'{"records":[{"value":null}]}'
        path = f"{partition_path(name, 0)}/records"
        query = {"expected_offset": OFFSET_MAX}
        request = Request("POST", path, query=query, headers={"content-type": JSON}, body=[memoryview(body)])
        with contextlib.suppress(OffsetConflict):
            self._connection.call(request)

    def topics(self, *, detail: bool = False) -> tuple[ListedTopic, ...]:
        """All topics by name. `detail` adds the offsets of their partitions where the broker can get them, which may
        cost it a request to the store per partition."""
        found: list[ListedTopic] = []
        query: dict[str, str | int] = {"detail": "true"} if detail else {}
        while True:
            page = _decoded(self._connection.call(Request("GET", "/v1/topics", query=query)), TopicPage)
            found += page.topics
            if page.next is None:
                return tuple(found)
            query["after"] = page.next

    def topic(self, name: str) -> TopicDescription:
        """One topic with the offsets of its partitions."""
        return _decoded(self._connection.call(Request("GET", topic_path(name))), TopicDescription)

    def alter_topic(
        self, name: str, *, partitions: int | None = None, configs: Mapping[str, str | int | None] | None = None
    ) -> TopicDescription:
        """Change configs (None restores the default) and add partitions."""
        wanted: dict[str, object] = {"configs": dict(configs or {})}
        if partitions is not None:
            wanted["partitions"] = partitions
        return self._topic_of("PATCH", topic_path(name), wanted, repeatable=True)

    def delete_topic(self, name: str) -> None:
        """Remove a topic and its records."""
        self._connection.call(Request("DELETE", topic_path(name), repeatable=False))

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Delete the records below `before_offset`; -1: all that are committed now. Returns the new log start offset.
        Raises `OutOfRange`."""
        body = [memoryview(msgspec.json.encode({"before_offset": before_offset}))]
        path = f"{partition_path(topic, partition)}/delete-records"
        request = Request("POST", path, headers={"content-type": JSON}, body=body, repeatable=before_offset >= 0)
        return _decoded(self._connection.call(request), LogStartAnswer).log_start_offset

    def partition_log(self, topic: str, partition: int, *, fresh: bool = True) -> PartitionLogDescription:
        """The segments and offsets of a partition in one consistent answer, for direct readers of the bucket. Without
        `fresh` it is cheaper, and its end may be older."""
        path = f"{partition_path(topic, partition)}/log"
        return _decoded(self._connection.call(Request("GET", path, query=_freshness(fresh))), PartitionLogDescription)

    def offset(self, topic: str, partition: int, position: str | int, *, fresh: bool = True) -> int:
        """The offset that `position` (see `checked_position`) stands for now. Without `fresh` it may be an older
        one."""
        path = f"{partition_path(topic, partition)}/offset"
        query = {"at": checked_position(position), **_freshness(fresh)}
        return _decoded(self._connection.call(Request("GET", path, query=query)), OffsetAnswer).offset

    def cluster(self) -> ClusterDescription:
        """The broker with its store and shards, and the cluster as this broker sees it."""
        return _decoded(self._connection.call(Request("GET", "/v1/cluster")), ClusterDescription)

    def cost(self) -> CostDescription:
        """The requests and bytes that the asked broker has counted since it started."""
        return _decoded(self._connection.call(Request("GET", "/v1/cluster/cost")), CostDescription)

    def cluster_cost(self) -> ClusterCost:
        """The numbers of every broker of the cluster. Each one is asked at its advertised address."""
        costs, silent = [self.cost()], []
        for member in self.cluster().cluster.brokers:
            if member.broker == costs[0].broker:
                continue
            try:
                with Admin(member.address, deadline_s=PEER_DEADLINE_S) as peer:
                    costs.append(peer.cost())
            except Unavailable:
                silent.append(member.broker)
        return ClusterCost(tuple(costs), tuple(silent))

    def drain(self, broker: str, *, undo: bool = False) -> None:
        """Move all shards away from the broker with that id until it starts again, or undo that. The shards move one by
        one; `cluster` shows the progress. Raises `NotFound`, and `Invalid` for a broker without a cluster."""
        path = f"/v1/cluster/brokers/{quote(broker, safe='')}/drain"
        self._connection.call(
            Request("DELETE" if undo else "POST", path, headers={} if undo else {"content-type": JSON})
        )

    def health(self) -> Health:
        """Whether the broker runs and takes requests. It is asked once. This never raises `Unavailable`."""
        try:
            self._connection.call(Request("GET", "/healthz"), deadline_s=0.0)
        except Unavailable as error:
            return Health(alive=False, ready=False, reason=str(error))
        try:
            answer = self._connection.call(Request("GET", "/readyz"), deadline_s=0.0)
        except (Unavailable, Fenced) as error:
            return Health(alive=True, ready=False, reason=str(error))
        return Health(alive=True, ready=True, damaged_objects=_decoded(answer, ReadyAnswer).damaged_objects)

    def close(self) -> None:
        """Release the sockets."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _topic_of(self, method: str, path: str, wanted: Mapping[str, object], *, repeatable: bool) -> TopicDescription:
        body = [memoryview(msgspec.json.encode(wanted))]
        request = Request(method, path, headers={"content-type": JSON}, body=body, repeatable=repeatable)
        return _decoded(self._connection.call(request), TopicDescription)


def topic_path(topic: str) -> str:
    """``/v1/topics/{topic}`` for a name with any characters. The broker checks the name."""
    if not topic:
        raise Invalid("a topic's name is empty", field="topic")
    quoted = quote(topic, safe="")
    return f"/v1/topics/{quoted if quoted.strip('.') else quoted.replace('.', '%2E')}"


def partition_path(topic: str, partition: int) -> str:
    return f"{topic_path(topic)}/partitions/{partition}"


def checked_position(text: str | int) -> str:
    """`text` in the form of the interface's ``offset`` parameter. Raises `Invalid`.

    A position is ``start`` (or ``earliest``: the oldest record), ``end`` (or ``latest``: after the newest record), an
    offset ``N``, ``-N`` (N records before the end) or ``@time`` (the first record at or after an ISO 8601 time or ms
    since 1970)."""
    position = str(text).strip()
    if position in _WORDS:
        return _WORDS[position]
    if _OFFSET.fullmatch(position) or (position.startswith("@") and len(position) > 1):
        return position
    raise Invalid(f"{position!r} is no position: use start, end, N, -N or @time", field="offset")


def _freshness(fresh: bool) -> Mapping[str, str]:
    return {} if fresh else {"fresh": "false"}


def _decoded(answer: Answer, shape: type[T]) -> T:
    try:
        return msgspec.json.decode(answer.body, type=shape)
    except msgspec.MsgspecError as error:
        raise Corrupt("the broker's answer", f"is not what docs/http-api.md says ({error})") from error
