"""Gives records their places in the log: the first half of a produce. `outcomes.py` is the second.

A share is **placed** once its offsets are assigned and it is buffered. The last checks and the append are functions
that do not await, so no other request comes in between (inv. 10). A share whose producer sequence or `expected_offset`
does not fit is not placed. It is `Repeated` if it is in the log already, otherwise `Refused`.

A refusal is decided here and answered later: if it depends on buffered records, it would be wrong if they were lost.
`behind` is the outcome of the batch on which such an answer waits. The next request of the connection does not wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.coordinator.topics.topic import Topic
from tidelog.services.broker.api.produce import ProducerSequence
from tidelog.services.broker.shard.append_buffer import APPEND_OVERHEAD_BYTES, Append
from tidelog.services.broker.shard.idempotence import RememberedBatch
from tidelog.services.broker.shard.partition_state import Outcome, PartitionState
from tidelog.services.broker.shard.shard_leader import ShardLeader
from tidelog.services.broker.shard.shard_set import ShardSet
from tidelog.services.broker.write.routing import Share
from tidelog.storage.errors import Conflict, OffsetConflict, TidelogError
from tidelog.storage.wal.wal_entry import ProducerMark

LOADS_MAX = 32
"""Partitions that one request loads in parallel."""


@dataclass(frozen=True, slots=True)
class Target:
    """A share, its partition and the leader of its shard."""

    share: Share
    leader: ShardLeader
    state: PartitionState


@dataclass(frozen=True, slots=True)
class Placed:
    """A share that is buffered; `outcome` is that of its batch."""

    target: Target
    append: Append
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Repeated:
    """A share that `batch` holds already. `behind`: it is committed once this outcome is known; None: it is now."""

    target: Target
    batch: RememberedBatch
    behind: Outcome | None


@dataclass(frozen=True, slots=True)
class Refused:
    """A share that does not fit. `behind`: the refusal is right if this outcome is a commit; None: it is right now."""

    target: Target
    conflict: Conflict
    behind: Outcome | None


Routed = tuple[Topic, Share]
"""A share and its topic."""


async def locate(shards: ShardSet, wanted: Sequence[Routed | TidelogError]) -> Sequence[Target | TidelogError]:
    """The target of each share, or why it has none. Loads the partitions that are not in memory. An error in `wanted`
    stays as it is."""
    found = [_loaded(shards, one) for one in wanted]
    unknown = [at for at, target in enumerate(found) if target is None]
    for first in range(0, len(unknown), LOADS_MAX):
        some = unknown[first : first + LOADS_MAX]
        loads = await asyncio.gather(*(_load(shards, wanted[at]) for at in some))
        for at, target in zip(some, loads, strict=True):
            found[at] = target
    return [target for target in found if target is not None]


def check_target(shards: ShardSet, target: Target) -> None:
    """Raises `NotLeader`, `LeaderUnknown`, `NotFound` if nothing may be appended any more."""
    shards.check_leading(target.leader)
    target.state.check_exists()


def compare(
    target: Target, producer: ProducerSequence | None, expected_offset: int | None
) -> Repeated | Refused | None:
    """None if the share is to be appended next. Changes nothing."""
    if producer is None and expected_offset is None:
        return None
    state = target.state
    try:
        batch = _remembered(target, producer, expected_offset)
    except Conflict as conflict:
        depends = _depends_on_buffered(state, producer, expected_offset)
        return Refused(target, conflict, state.last_outcome if depends else None)
    return None if batch is None else Repeated(target, batch, state.last_outcome)


def place(target: Target, producer: ProducerSequence | None) -> Placed:
    """Append a share whose room is reserved (`held_bytes`) and that fits (`compare`)."""
    share, state = target.share, target.state
    count = share.records.num_rows
    base_offset = state.assign(count)
    mark = None if producer is None else _mark(state, state.producers.unwrapped(producer), base_offset, count)
    if mark:
        state.producers.remember(mark, share.timestamp_ms_max)
    append = Append(
        state,
        share.records,
        base_offset,
        share.held_bytes + APPEND_OVERHEAD_BYTES,
        share.payload_bytes,
        share.timestamp_ms_max,
        mark,
        share.sent,
    )
    state.last_outcome = target.leader.append(append)
    return Placed(target, append, state.last_outcome)


def held_bytes(share: Share) -> int:
    """The room that `share` needs in the buffer."""
    return share.held_bytes + APPEND_OVERHEAD_BYTES + len(share.sent or b"")


def _loaded(shards: ShardSet, wanted: Routed | TidelogError) -> Target | TidelogError | None:
    """None if the partition is not in memory."""
    if isinstance(wanted, TidelogError):
        return wanted
    topic, share = wanted
    try:
        leader = shards.leading(topic.shards[share.partition])
    except TidelogError as error:
        return error
    state = leader.partitions.loaded(topic.partition(share.partition))
    return None if state is None else Target(share, leader, state)


async def _load(shards: ShardSet, wanted: Routed | TidelogError) -> Target | TidelogError:
    assert not isinstance(wanted, TidelogError)
    topic, share = wanted
    try:
        leader = shards.leading(topic.shards[share.partition])
        return Target(share, leader, await leader.partitions.load(topic, share.partition))
    except TidelogError as error:
        return error


def _remembered(
    target: Target, producer: ProducerSequence | None, expected_offset: int | None
) -> RememberedBatch | None:
    state, share = target.state, target.share
    if producer and (found := state.producers.find(producer, share.records.num_rows)):
        return found
    if expected_offset is not None and expected_offset != state.next_offset:
        raise OffsetConflict(
            f"the next offset of partition {share.partition} of {state.topic!r} is {state.high_watermark}, not "
            f"{expected_offset}",
            next_offset=state.high_watermark,
        )
    return None


def _depends_on_buffered(state: PartitionState, producer: ProducerSequence | None, expected_offset: int | None) -> bool:
    """Whether a refusal would be wrong if the buffered records were lost."""
    if state.high_watermark == state.next_offset:
        return False
    overtaken = expected_offset is not None and expected_offset < state.high_watermark
    return not overtaken or producer is not None


def _mark(state: PartitionState, producer: ProducerSequence, base_offset: int, count: int) -> ProducerMark:
    first = producer.first_sequence
    return ProducerMark(
        state.topic_partition, producer.producer_id, producer.producer_epoch, first, first + count - 1, base_offset
    )
