"""What a broker does for whoever speaks to it, as values and one Protocol: the seam between HTTP and the log.

Everything here is Arrow in and Arrow out; a transport only decodes bodies and encodes answers. Errors are those of
`tidelog.storage.errors`; each method names the ones a caller has to expect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.api.cluster import BrokerStatus, ClusterStatus, Route
from tidelog.services.broker.api.costs import BrokerCosts
from tidelog.services.broker.api.fetch import Fetched, FetchLimits, PartitionLog, Position
from tidelog.services.broker.api.produce import Appended, Draft, ProduceOptions


class Broker(Protocol):
    """One broker's service. Every call may run at the same time as every other.

    In a cluster any broker takes any call and sends it on to the leader where it must. A call on a partition raises
    `LeaderUnknown` or `NotLeader` if none was found within ``forward.timeout.ms``: nothing was taken."""

    @property
    def here(self) -> Broker:
        """The same broker without its peers: what came from another broker is answered by this, and a partition led
        elsewhere refused with `NotLeader` or `LeaderUnknown`, so that nothing is sent on twice."""
        ...

    async def create_topic(self, name: str, partitions: int | None, configs: Mapping[str, str | int | None]) -> Topic:
        """Raises `AlreadyExists`, `Invalid`, `Unavailable`. `partitions` None: the broker's `num.partitions`."""
        ...

    async def alter_topic(self, name: str, partitions: int | None, configs: Mapping[str, str | int | None]) -> Topic:
        """Change configs (None puts a default back) and, where `partitions` is given, add partitions.
        Raises `NotFound`, `Invalid` (as fewer partitions than now)."""
        ...

    async def delete_topic(self, name: str) -> None:
        """Raises `NotFound`."""
        ...

    def topic(self, name: str) -> Topic:
        """As far as is known here: raises `NotFound`, `Invalid` (a name no topic can have). A topic that another broker
        made a moment ago is found by `known_topic`."""
        ...

    async def known_topic(self, name: str) -> Topic:
        """As `topic`; in a cluster the journal is read on before it says `NotFound`. Raises `Unavailable` too."""
        ...

    def topics(self) -> Sequence[Topic]:
        """All topics by name."""
        ...

    async def produce(self, topic: str, draft: Draft, options: ProduceOptions) -> Sequence[Appended]:
        """Append; answers as `options.acks` says. All checks come before anything is taken (inv. 10).
        Raises `NotFound`, `Invalid`, `TooLarge`, `OffsetConflict`, `SequenceConflict`, `ProducerFenced`, `Overloaded`
        (nothing taken), `Fenced`, `Unavailable` (outcome unknown)."""
        ...

    async def resolve(self, topic: str, partition: int, position: Position, *, fresh: bool = True) -> int:
        """The offset of `position` now. TIMESTAMP gives the first record at or after it, else the high watermark.
        Linearizable; not `fresh`: as the leader knows it, which may be older. Raises `NotFound`, `Unavailable`; an
        OFFSET passes through unchecked."""
        ...

    async def fetch(self, topic: str, partition: int, offset: int, limits: FetchLimits) -> Fetched:
        """Committed records from `offset` on (inv. 1). An answer without records is linearizable: at a moment of the
        call the log ended there. Raises `OutOfRange`, `NotFound`, `Unavailable`, `Corrupt`."""
        ...

    async def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Delete what is below `before_offset`; -1: all that is committed now. Returns the log start offset then, which
        is a higher one if the log begins there already. Running again is always right. Raises `OutOfRange` beyond the
        high watermark, `Invalid`, `NotFound`, `Unavailable`, `Corrupt`."""
        ...

    async def partition_log(self, topic: str, partition: int, *, fresh: bool = True) -> PartitionLog:
        """What a direct reader needs, in one consistent answer. Its end is linearizable. Not `fresh`: as the leader
        knows it, without a proof that it still leads, and without a look at the bucket, where another worker may have
        merged segments. Raises `NotFound`, `Unavailable`."""
        ...

    def status(self) -> BrokerStatus:
        """Never blocks, never raises."""
        ...

    def route(self, topic: str, partition: int) -> Route:
        """Where produces and hot reads of a partition go now. Raises `NotFound`, `Invalid`."""
        ...

    async def route_fetch(self, topic: str, partition: int, offset: int) -> Route:
        """As `route`, but local as well where `offset` is cold: segments are read from the bucket by any broker.
        Raises `NotFound`, `Invalid`."""
        ...

    def hears_of_leaders(self) -> bool:
        """Whether this broker would hear of a new leader now: not while it cannot reach etcd."""
        ...

    async def routes_changed(self, timeout_s: float) -> None:
        """Return when some route may have changed, or after `timeout_s`."""
        ...

    def cluster(self) -> ClusterStatus:
        """Never blocks, never raises."""
        ...

    async def costs(self) -> BrokerCosts:
        """What this broker has asked of the store since it started, and what lies there of the shards that it leads.
        Reads the manifests that it does not know yet. Raises `Unavailable`, `Corrupt`."""
        ...

    async def drain(self, broker_id: str, *, undo: bool = False) -> None:
        """Let a broker lead nothing from now on, until it starts again or the drain is undone; returns once that is
        written down, the shards follow. Raises `NotFound`, `Unavailable`, `Invalid` (a broker alone)."""
        ...
