"""`Admin`: topics, consumer groups, and the state of a broker and its cluster.

with Admin("http://127.0.0.1:8080") as admin:
    admin.create_topic("web", partitions=4, configs={"retention.ms": 86_400_000})
    print(admin.topic("web").records)
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import quote

import msgspec

from tidelog.client.broker_access import Broker, access_of
from tidelog.client.connection import DEFAULT_BROKER, FIRST_CONNECT_TIMEOUT_S, JSON, Connection, Request, decoded
from tidelog.client.costs import ClusterCost, CostDescription
from tidelog.client.group_admin import GroupAdmin
from tidelog.client.request_paths import partition_path, topic_path
from tidelog.storage.errors import Fenced, Invalid, OffsetConflict, Unavailable
from tidelog.storage.runtime import Runtime
from tidelog.wire.cluster import ClusterDescription, ReadyAnswer
from tidelog.wire.topic_log import TopicLogDescription, TopicLogRequest, partition_ranges, whole_log
from tidelog.wire.topics import (
    ListedTopic,
    LogStartAnswer,
    OffsetAnswer,
    ResolvedOffsets,
    TopicDescription,
    TopicPage,
)

T = TypeVar("T")

OFFSET_MAX = 2**63 - 1
PEER_DEADLINE_S = 3.0
WHOLE_LOG = TopicLogRequest()
_WORDS = {"start": "earliest", "beginning": "earliest", "earliest": "earliest", "end": "latest", "latest": "latest"}
_OFFSET = re.compile(r"-?\d{1,19}")


@dataclass(frozen=True)
class Health:
    """`alive`: the process answers. `ready`: it takes requests; otherwise `reason` says why not. Of a ready broker,
    `reason` says which part of its work it cannot do. It serves everything but the `damaged_objects` of its shards."""

    alive: bool
    ready: bool
    reason: str = ""
    damaged_objects: tuple[str, ...] = ()


class Admin(GroupAdmin):
    """Administration over HTTP. Every call can raise `NotFound`, `Invalid` and `Unavailable`. `deadline_s` bounds a
    call with its retries; `connect_timeout_s` bounds the calls until a broker was reached."""

    def __init__(
        self,
        broker: Broker = DEFAULT_BROKER,
        *,
        deadline_s: float = 10.0,
        connect_timeout_s: float = FIRST_CONNECT_TIMEOUT_S,
        runtime: Runtime | None = None,
        beside: Connection | None = None,
    ) -> None:
        self._access = access_of(broker)
        self._connection = Connection(
            broker, deadline_s=deadline_s, connect_timeout_s=connect_timeout_s, runtime=runtime, beside=beside
        )

    def create_topic(
        self, name: str, partitions: int | None = None, configs: Mapping[str, str | int | None] | None = None
    ) -> TopicDescription:
        """Create `name`. Without `partitions` it gets the broker's ``num.partitions``. Raises `AlreadyExists`."""
        wanted: dict[str, object] = {"name": name, "configs": dict(configs or {})}
        if partitions is not None:
            wanted["partitions"] = partitions
        return self._ask(TopicDescription, _json_request("POST", "/v1/topics", wanted, repeatable=False))

    def auto_create_topic(self, name: str) -> None:
        """Let the broker create `name` with ``num.partitions``, as a produce to it would. It sends an append under a
        condition that no log meets. Raises `NotFound` if ``auto.create.topics.enable`` is off."""
        path = f"{partition_path(name, 0)}/records?expected_offset={OFFSET_MAX}"
        with contextlib.suppress(OffsetConflict):
            self._connection.call(_json_request("POST", path, {"records": [{"value": None}]}))

    def topics(self, *, detail: bool = False) -> tuple[ListedTopic, ...]:
        """All topics by name. `detail` adds the offsets of their partitions where the broker can get them, which may
        cost it a request to the store per partition."""
        found: list[ListedTopic] = []
        query: dict[str, str | int] = {"detail": "true"} if detail else {}
        while True:
            page = self._ask(TopicPage, Request("GET", "/v1/topics", query=query))
            found += page.topics
            if page.next is None:
                return tuple(found)
            query["after"] = page.next

    def topic(self, name: str) -> TopicDescription:
        """One topic with the offsets of its partitions."""
        return self._ask(TopicDescription, Request("GET", topic_path(name)))

    def alter_topic(
        self, name: str, *, partitions: int | None = None, configs: Mapping[str, str | int | None] | None = None
    ) -> TopicDescription:
        """Change configs (None restores the default) and add partitions."""
        wanted: dict[str, object] = {"configs": dict(configs or {})}
        if partitions is not None:
            wanted["partitions"] = partitions
        return self._ask(TopicDescription, _json_request("PATCH", topic_path(name), wanted))

    def delete_topic(self, name: str) -> None:
        """Remove a topic and its records."""
        self._connection.call(Request("DELETE", topic_path(name), repeatable=False))

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Delete the records below `before_offset`; -1: all that are committed now. Returns the new log start offset.
        Raises `OutOfRange`."""
        path, wanted = f"{partition_path(topic, partition)}/delete-records", {"before_offset": before_offset}
        request = _json_request("POST", path, wanted, repeatable=before_offset >= 0)
        return self._ask(LogStartAnswer, request).log_start_offset

    def topic_log(self, topic: str, request: TopicLogRequest = WHOLE_LOG) -> TopicLogDescription:
        """The segments of a topic, the spans of partitions in them, and the ends of its partitions, for direct readers
        of the bucket: all pages from `request.after` on. All that it says about a shard is of one moment. Without
        `request.fresh` it is cheaper, and its ends may be older."""
        path = f"{topic_path(topic)}/log"
        return whole_log(
            request, lambda asked: self._ask(TopicLogDescription, Request("GET", path, query=asked.query()))
        )

    def offset(self, topic: str, partition: int, position: str | int, *, fresh: bool = True) -> int:
        """The offset that `position` (see `checked_position`) stands for now. Without `fresh` it may be an older
        one."""
        path = f"{partition_path(topic, partition)}/offset"
        query = {"at": checked_position(position), **_freshness(fresh)}
        return self._ask(OffsetAnswer, Request("GET", path, query=query)).offset

    def offsets(
        self, topic: str, position: str | int, partitions: Collection[int] | None = None, *, fresh: bool = True
    ) -> Mapping[int, int]:
        """The offset that `position` stands for now in each partition (None: of all), by one call; arguments as of
        `offset`."""
        query = {"at": checked_position(position), **_freshness(fresh)}
        if partitions is not None:
            query["partitions"] = partition_ranges(partitions)
        request = Request("GET", f"{topic_path(topic)}/offsets", query=query)
        return self._ask(ResolvedOffsets, request).by_partition()

    def cluster(self) -> ClusterDescription:
        """The broker with its store and shards, and the cluster as this broker sees it."""
        return self._ask(ClusterDescription, Request("GET", "/v1/cluster"))

    def cost(self) -> CostDescription:
        """The requests and bytes that the asked broker has counted since it started."""
        return self._ask(CostDescription, Request("GET", "/v1/cluster/cost"))

    def cluster_cost(self) -> ClusterCost:
        """The numbers of every broker of the cluster. Each one is asked at its advertised address."""
        costs, silent = [self.cost()], []
        for member in self.cluster().cluster.brokers:
            if member.broker == costs[0].broker:
                continue
            try:
                with Admin(self._access.at(member.address), deadline_s=PEER_DEADLINE_S) as peer:
                    costs.append(peer.cost())
            except Unavailable:
                silent.append(member.broker)
        return ClusterCost(tuple(costs), tuple(silent))

    def drain(self, broker: str, *, undo: bool = False) -> None:
        """Move all shards away from the broker with that id until it starts again, or undo that. The shards move one by
        one; `cluster` shows the progress. Raises `NotFound`, and `Invalid` for a broker without a cluster."""
        path = f"/v1/cluster/brokers/{quote(broker, safe='')}/drain"
        request = Request("DELETE", path) if undo else Request("POST", path, headers={"content-type": JSON})
        self._connection.call(request)

    def raise_feature_level(self, level: int) -> None:
        """Let writers use the formats of feature level `level`, for ever. Raises `Invalid` if a live broker does not
        know it."""
        body = [memoryview(msgspec.json.encode({"level": level}))]
        request = Request("PUT", "/v1/cluster/feature-level", headers={"content-type": JSON}, body=body)
        self._connection.call(request)

    def health(self) -> Health:
        """Whether the broker runs and takes requests. It is asked once. This never raises `Unavailable`."""
        try:
            self._connection.call(Request("GET", "/healthz"), deadline_s=0.0)
        except Unavailable as error:
            return Health(alive=False, ready=False, reason=str(error))
        try:
            ready = self._ask(ReadyAnswer, Request("GET", "/readyz"), deadline_s=0.0)
        except (Unavailable, Fenced) as error:
            return Health(alive=True, ready=False, reason=str(error))
        return Health(alive=True, ready=True, reason=ready.reason, damaged_objects=ready.damaged_objects)

    def close(self) -> None:
        """Release the sockets."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _ask(self, shape: type[T], request: Request, deadline_s: float | None = None) -> T:
        return decoded(self._connection.call(request, deadline_s=deadline_s), shape)


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


def _json_request(method: str, path: str, value: Mapping[str, object], *, repeatable: bool = True) -> Request:
    body = [memoryview(msgspec.json.encode(value))]
    return Request(method, path, headers={"content-type": JSON}, body=body, repeatable=repeatable)


def _freshness(fresh: bool) -> Mapping[str, str]:
    return {} if fresh else {"fresh": "false"}
