"""The state of a consumer instance, and how calls change it. No I/O.

The group's coordinator keeps the state (`kept_instance`), so any broker takes any call and a broker that dies loses
nothing. A state either subscribes, and is then a member of the group, or it has partitions assigned by hand.

`positions`: the next offset to read of each partition. It is unknown for a partition that was assigned and not read
yet. `read`: the partitions that were read since their last commit. `committed_at_ms`: when the instance last committed
by itself. `turn`: how many pages it has read, for a fair order of partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from tidelog.services.consuming.assigned_partitions import Place, places_of
from tidelog.services.http.kafka_rest.rest_errors import Code, RestError
from tidelog.services.http.kafka_rest.rest_media import Format
from tidelog.wire.groups import JOIN_EPOCH, HeartbeatAnswer, PartitionOffset

EXCLUSIVE = "Subscription to topics, partitions and pattern are mutually exclusive"


class Position(msgspec.Struct, frozen=True, array_like=True):
    """The next offset to read of a partition."""

    topic: str
    partition: int
    offset: int


class InstanceConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """As the client chose it. `reset`: where to begin without a committed offset."""

    format: Format = Format.BINARY
    reset: str = "latest"
    auto_commit: bool = True
    fetch_min_bytes: int = 1
    request_timeout_ms: int = 1_000


class UnsentPage(msgspec.Struct, frozen=True, array_like=True):
    """A page that a broker is sending: the state counts it as read, but its client may not have got it. The broker is
    named by its id, the time when it started, and its process. `before`: the positions before the page, and `read`
    before it. `at_ms`: when the page was read, in ms since 1970."""

    page: str
    broker_id: str
    started_at_ms: int
    process: str
    at_ms: int
    before: tuple[Position, ...]
    read: tuple[tuple[str, int], ...]


class Instance(msgspec.Struct, frozen=True, omit_defaults=True):
    """`member_epoch`: `JOIN_EPOCH` before the first read after a subscription. `told`: the group's coordinator knows
    its subscription. `partitions`: those that it may read."""

    config: InstanceConfig
    member_id: str
    member_epoch: int = JOIN_EPOCH
    told: bool = False
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    by_hand: bool = False
    partitions: tuple[tuple[str, int], ...] = ()
    positions: tuple[Position, ...] = ()
    read: tuple[tuple[str, int], ...] = ()
    committed_at_ms: int = 0
    turn: int = 0
    unsent: UnsentPage | None = None

    @property
    def subscribed(self) -> bool:
        return bool(self.topics) or self.topic_pattern is not None

    @property
    def joined(self) -> bool:
        """Whether it is a member of the group, or needs to be none."""
        return self.by_hand or self.member_epoch != JOIN_EPOCH

    @property
    def settled(self) -> bool:
        """Whether a heartbeat is needed only to stay in the group: it has positions for all of its partitions."""
        return (self.by_hand or self.told) and len(self.positions) == len(self.partitions)

    @property
    def known(self) -> dict[Place, int]:
        """The positions by partition."""
        return {(position.topic, position.partition): position.offset for position in self.positions}


@dataclass(frozen=True)
class SendingBroker:
    """This broker, as `UnsentPage` names it."""

    broker_id: str
    started_at_ms: int
    process: str


def positions_of(offsets: Mapping[Place, int]) -> tuple[Position, ...]:
    return tuple(Position(topic, partition, offset) for (topic, partition), offset in sorted(offsets.items()))


def subscribed(state: Instance, topics: tuple[str, ...], pattern: str | None) -> Instance:
    """After a subscription. Partitions of topics that it does not name any more are dropped at once. Raises
    `RestError`."""
    if state.by_hand:
        raise RestError(Code.ILLEGAL_STATE, f"{EXCLUSIVE}. Delete the subscription first, which ends the assignment")
    if state.subscribed and (state.topic_pattern is None) != (pattern is None):
        raise RestError(Code.ALREADY_SUBSCRIBED, f"Already subscribed. {EXCLUSIVE}. Delete the subscription first")
    kept = [one for one in state.partitions if pattern == state.topic_pattern and (pattern or one[0] in topics)]
    return msgspec.structs.replace(held(state, kept), topics=topics, topic_pattern=pattern, told=False)


def unsubscribed(state: Instance) -> Instance:
    """After the subscription or the assignment was deleted."""
    return Instance(state.config, state.member_id)


def assigned(state: Instance, partitions: Iterable[Place]) -> Instance:
    """After an assignment by hand, which replaces the one before. Raises `RestError`."""
    if state.subscribed:
        raise RestError(Code.ILLEGAL_STATE, f"{EXCLUSIVE}. Delete the subscription first")
    return held(msgspec.structs.replace(state, by_hand=True), partitions)


def held(state: Instance, partitions: Iterable[Place]) -> Instance:
    """With these partitions; the positions of others are forgotten."""
    kept = frozenset(partitions)
    return msgspec.structs.replace(
        state,
        partitions=tuple(sorted(kept)),
        positions=tuple(place for place in state.positions if (place.topic, place.partition) in kept),
        read=tuple(partition for partition in state.read if partition in kept),
    )


def heard(state: Instance, answer: HeartbeatAnswer) -> Instance:
    """After an answer of the coordinator."""
    after = held(state, places_of(answer.assignment))
    return msgspec.structs.replace(after, member_epoch=answer.member_epoch, told=True)


def expelled(state: Instance) -> Instance:
    """The group has dropped the member: it joins anew, from the committed offsets."""
    return msgspec.structs.replace(held(state, ()), member_epoch=JOIN_EPOCH)


def begun(state: Instance, offsets: Mapping[Place, int]) -> Instance:
    """With the offsets to begin at, for partitions whose positions are unknown."""
    return msgspec.structs.replace(state, positions=positions_of({**offsets, **state.known}))


def caught_up(state: Instance, committed: Mapping[Place, int]) -> Instance:
    """After the assignment changed: another member may have read and committed a partition in between, so no position
    stays below what is committed."""
    known = {one: max(offset, committed.get(one, 0)) for one, offset in state.known.items()}
    return msgspec.structs.replace(state, positions=positions_of(known))


def sought(state: Instance, offsets: Mapping[Place, int]) -> Instance:
    """After a seek. Raises `RestError` for a partition that is not assigned."""
    for topic, partition in offsets:
        if (topic, partition) not in state.partitions:
            raise RestError(
                Code.ILLEGAL_STATE,
                f"No current assignment for partition {topic}-{partition}. A partition of a subscription is assigned "
                "by the first read",
            )
    sought_to = positions_of({**state.known, **offsets})
    return msgspec.structs.replace(state, positions=sought_to, unsent=None)


def advanced(state: Instance, offsets: Mapping[Place, int]) -> Instance:
    """After records were read up to `offsets`."""
    if not offsets:
        return state
    return msgspec.structs.replace(
        state,
        positions=positions_of({**state.known, **offsets}),
        read=tuple(sorted({*state.read, *offsets})),
        turn=state.turn + 1,
    )


def moved(state: Instance, offsets: Mapping[Place, int]) -> Instance:
    """After reading found no records up to `offsets`."""
    return msgspec.structs.replace(state, positions=positions_of({**state.known, **offsets})) if offsets else state


def forgotten(state: Instance, partitions: Iterable[Place]) -> Instance:
    """Without the positions of `partitions`, which are not in their logs."""
    gone = frozenset(partitions)
    return msgspec.structs.replace(
        state,
        positions=tuple(place for place in state.positions if (place.topic, place.partition) not in gone),
        read=tuple(partition for partition in state.read if partition not in gone),
    )


def sending(state: Instance, page: str, broker: SendingBroker, before: Instance, at_ms: int) -> Instance:
    """`state`, whose last page is to be sent by `broker`. `before`: the state before the page."""
    unsent = UnsentPage(
        page, broker.broker_id, broker.started_at_ms, broker.process, at_ms, before.positions, before.read
    )
    return msgspec.structs.replace(state, unsent=unsent)


def sent(state: Instance, page: str) -> Instance:
    """After `page` was sent. Nothing changes if another one has been read since."""
    if state.unsent is None or state.unsent.page != page:
        return state
    return msgspec.structs.replace(state, unsent=None)


def rewound(state: Instance, page: str | None = None) -> Instance:
    """After `page` (None: any) was not sent: it is read again. Positions that were sought since stay."""
    unsent = state.unsent
    if unsent is None or page not in (None, unsent.page):
        return state
    kept = frozenset(state.partitions)
    before = {(one.topic, one.partition): one.offset for one in unsent.before}
    return msgspec.structs.replace(
        state,
        positions=positions_of({**state.known, **{one: offset for one, offset in before.items() if one in kept}}),
        read=tuple(one for one in unsent.read if one in kept),
        unsent=None,
    )


def committed(state: Instance, offsets: Iterable[PartitionOffset]) -> Instance:
    """After `offsets` were committed. A partition that was read further meanwhile is still to be committed."""
    known = state.known
    done = {
        (one.topic, one.partition) for one in offsets if known.get((one.topic, one.partition), one.offset) == one.offset
    }
    return msgspec.structs.replace(state, read=tuple(one for one in state.read if one not in done))


def to_commit(state: Instance) -> tuple[PartitionOffset, ...]:
    """The positions of the partitions that were read."""
    known = state.known
    return tuple(
        PartitionOffset(topic=topic, partition=partition, offset=known[topic, partition])
        for topic, partition in state.read
    )


def in_turn(partitions: Sequence[Place], turn: int) -> list[Place]:
    """`partitions` from another one on in each `turn`, so that all are served."""
    first = turn % len(partitions) if partitions else 0
    return [*partitions[first:], *partitions[:first]]
