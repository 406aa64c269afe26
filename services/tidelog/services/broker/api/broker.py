"""The `Broker` seam: everything that a front door can ask of a broker.

A front door (HTTP, later Kafka's protocol) decodes a request, calls `Broker`, and encodes the answer. Records are Arrow
in and Arrow out. The calls raise the errors of `tidelog.storage.errors`; each method names those a caller must expect.

Every call that a client's request causes takes the request's `RequestContext` first. The calls of `Routing` without one
serve the front door itself.

In a cluster any broker takes any call and forwards it to the leader of the partition's shard. A call on a partition
raises `LeaderUnknown` or `NotLeader` if no leader was found within ``forward.timeout.ms`` or the context's deadline;
then it was not applied. With a context that may not be forwarded, the broker answers itself or raises these at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.api.cluster import BrokerStatus, ClusterStatus, EpochEnd, Route
from tidelog.services.broker.api.costs import BrokerCosts
from tidelog.services.broker.api.fetch import Fetched, FetchedPart, FetchLimits, FetchPart, Position
from tidelog.services.broker.api.groups import Groups
from tidelog.services.broker.api.produce import (
    Acks,
    ActiveProducer,
    Appended,
    Appending,
    Draft,
    PartDraft,
    ProduceOptions,
)
from tidelog.services.broker.api.request_context import RequestContext
from tidelog.services.broker.api.staging import Staging
from tidelog.wire.topic_log import TopicLogDescription, TopicLogRequest

WHOLE_LOG = TopicLogRequest()

TopicConfigs = Mapping[str, str | int | None]
"""Configs by Kafka's names; None puts the default back."""


class TopicCalls(Protocol):
    """Topics: create, change, delete, look up."""

    async def create_topic(
        self, context: RequestContext, /, name: str, partitions: int | None, configs: TopicConfigs
    ) -> Topic:
        """`partitions` None: the broker's `num.partitions`. Raises `AlreadyExists`, `Invalid`, `Unavailable`."""

    async def alter_topic(
        self, context: RequestContext, /, name: str, partitions: int | None, configs: TopicConfigs
    ) -> Topic:
        """Change configs and, where `partitions` is given, add partitions. Raises `NotFound`, `Invalid` (for example
        fewer partitions than now)."""

    async def delete_topic(self, context: RequestContext, /, name: str) -> None:
        """Raises `NotFound`."""

    def topic(self, context: RequestContext, /, name: str) -> Topic:
        """The topic as this broker knows it now. A topic that another broker made a moment ago is found by
        `known_topic`. Raises `NotFound`, `Invalid` (a name that no topic can have)."""

    async def known_topic(self, context: RequestContext, /, name: str) -> Topic:
        """Like `topic`; in a cluster it reads the journal to its end before it raises `NotFound`. Raises
        `Unavailable`."""

    def topics(self, context: RequestContext, /) -> Sequence[Topic]:
        """All topics by name."""


class RecordCalls(Protocol):
    """Records of partitions: append, read, delete."""

    async def produce(
        self, context: RequestContext, /, topic: str, draft: Draft, options: ProduceOptions
    ) -> Sequence[Appended]:
        """Append; returns when `options.acks` says. All checks come before the first append (inv. 10).
        Raises `NotFound`, `Invalid`, `TooLarge`, `OffsetConflict`, `SequenceConflict`, `ProducerFenced`, `Overloaded`
        (not applied), `Fenced`, `Unavailable` (outcome unknown)."""

    async def append_parts(self, context: RequestContext, /, parts: Sequence[PartDraft], acks: Acks) -> Appending:
        """Append many parts, none of which depends on another: one that is refused stops no other. Returns once their
        places in the log are fixed, so a second call that is made then appends behind them. It waits for the brake on
        producers and for partitions that have to be loaded, not for a commit. Creates no topic. Never forwards: a part
        that is led elsewhere has `NotLeader` or `LeaderUnknown`, and was not applied. Raises `Overloaded` while the
        broker starts or stops."""

    async def resolve(
        self, context: RequestContext, /, topic: str, partition: int, position: Position, *, fresh: bool = True
    ) -> int:
        """The offset of `position` now. TIMESTAMP gives the first record at or after it, else the high watermark.
        Linearizable; not `fresh`: as the leader knows it, which may be older. Raises `NotFound`, `Unavailable`; an
        OFFSET passes through unchecked."""

    async def epoch_end(self, context: RequestContext, /, topic: str, partition: int, epoch: int) -> EpochEnd:
        """Where the records of leader epoch `epoch` end (KIP-320): the newest epoch up to it that has records, and the
        first offset behind it; -1 and -1 if it has not begun. Linearizable. Never forwards: raises `NotLeader`,
        `LeaderUnknown`, `NotFound`, `Unavailable`."""

    async def largest_timestamp(self, context: RequestContext, /, topic: str, partition: int) -> int:
        """The offset of the first record that has the largest timestamp (KIP-734), the high watermark if there are no
        records. Linearizable. Never forwards: raises `NotLeader`, `LeaderUnknown`, `NotFound`, `Unavailable`,
        `Corrupt`."""

    async def producers(self, context: RequestContext, /, topic: str, partition: int) -> Sequence[ActiveProducer]:
        """The producers whose sequences the partition remembers, as the leader knows them. Never forwards: raises
        `NotLeader`, `LeaderUnknown`, `NotFound`, `Unavailable`."""

    async def new_producer_id(self, context: RequestContext, /) -> int:
        """An int64 for an idempotent producer of Kafka's protocol, unique in the cluster for ever, also after a crash
        or a loss of etcd. Works while etcd is down. Raises `Unavailable`, `Overloaded` (the broker starts or stops)."""

    async def fetch(
        self, context: RequestContext, /, topic: str, partition: int, offset: int, limits: FetchLimits
    ) -> Fetched:
        """Committed records from `offset` on (inv. 1). An answer without records is linearizable: at a moment of the
        call the log ended there. Raises `OutOfRange`, `NotFound`, `Unavailable`, `Corrupt`."""

    async def fetch_parts(
        self, context: RequestContext, /, parts: Sequence[FetchPart], limits: FetchLimits
    ) -> Sequence[FetchedPart]:
        """Like `fetch`, of many partitions at once; the answers are in the order of `parts`. The limits are for all of
        them together, and so is the wait: it ends when any of them has records or an error. The errors of a partition
        are in its answer. The parts are served in turn from the first one on, so a caller rotates them to be fair."""

    async def delete_records(self, context: RequestContext, /, topic: str, partition: int, before_offset: int) -> int:
        """Delete the records below `before_offset`; -1: all that are committed now. Returns the new log start offset,
        which is higher if the log begins there already. Safe to repeat. Raises `OutOfRange` beyond the high watermark,
        `Invalid`, `NotFound`, `Unavailable`, `Corrupt`."""

    async def topic_log(
        self, context: RequestContext, /, topic: str, request: TopicLogRequest = WHOLE_LOG
    ) -> TopicLogDescription:
        """One page of the segments and ends of partitions, for a direct reader. All that the pages say about a shard is
        one moment, with a linearizable end. Not `fresh`: as the leaders know them, without a proof that they still lead
        and without a look at the bucket, where another worker may have merged segments. Raises `NotFound`, `Invalid`,
        `Unavailable`, and `Conflict` for a page of a version that is gone: begin again."""


class Routing(Protocol):
    """Which broker leads a partition."""

    def route(self, context: RequestContext, /, topic: str, partition: int) -> Route:
        """Where produces and hot reads of a partition go now. Raises `NotFound`, `Invalid`."""

    async def route_fetch(self, context: RequestContext, /, topic: str, partition: int, offset: int) -> Route:
        """Like `route`, but local as well where `offset` is cold: any broker reads segments from the bucket. Raises
        `NotFound`, `Invalid`."""

    def hears_of_leaders(self) -> bool:
        """Whether this broker would learn of a new leader now: not while it cannot reach etcd."""

    async def routes_changed(self, timeout_s: float) -> None:
        """Return when some route may have changed, or after `timeout_s`."""


class Operations(Protocol):
    """The state of the broker and its cluster."""

    def status(self) -> BrokerStatus:
        """Never blocks, never raises."""

    def cluster(self, context: RequestContext, /) -> ClusterStatus:
        """Never blocks, never raises."""

    async def costs(self, context: RequestContext, /) -> BrokerCosts:
        """The requests that this broker has made to the store since it started, and the bytes that the shards it leads
        have there. Reads the manifests that it does not know yet. Raises `Unavailable`, `Corrupt`."""

    async def drain(self, context: RequestContext, /, broker_id: str, *, undo: bool = False) -> None:
        """Let a broker lead no shard from now on, until it starts again or the drain is undone. Returns once that is
        stored; the shards move afterwards. Raises `NotFound`, `Unavailable`, `Invalid` (a broker alone)."""

    async def raise_feature_level(self, context: RequestContext, /, level: int) -> None:
        """Let writers use feature level `level` (ADR 0031), for ever. Raises `Invalid` if a live broker does not know
        it, or if the cluster is at a later one; `Unavailable`."""


class Broker(TopicCalls, RecordCalls, Routing, Operations, Protocol):
    """One broker's service. Every call may run at the same time as every other."""

    @property
    def groups(self) -> Groups:
        """The consumer groups of the cluster."""

    @property
    def staging(self) -> Staging:
        """The objects that sinks stage in the bucket."""
