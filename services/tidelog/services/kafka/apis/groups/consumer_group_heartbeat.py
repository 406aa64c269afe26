"""ConsumerGroupHeartbeat (68): joins a group of KIP-848, stays in it, and learns the member's partitions."""

from __future__ import annotations

from collections.abc import Sequence

from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest
from kio.schema.consumer_group_heartbeat.v1.request import TopicPartitions as OwnedPartitions
from kio.schema.consumer_group_heartbeat.v1.response import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
)
from kio.schema.consumer_group_heartbeat.v1.response import TopicPartitions as AssignedPartitions
from kio.schema.errors import ErrorCode

from tidelog.services.kafka.apis.groups.group_codes import consumer_code, duration, milliseconds
from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.apis.topic_lookup import TopicLookup
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode
from tidelog.storage.errors import TidelogError, UnknownGroup
from tidelog.wire.groups import Heartbeat, HeartbeatAnswer, TopicPartitions


class ConsumerGroupHeartbeatApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request: ConsumerGroupHeartbeatRequest = decode(call, ConsumerGroupHeartbeatRequest)
        lookup = TopicLookup(self._broker, call.context)
        try:
            answer = await self._broker.groups.call(
                call.context, request.group_id, _heartbeat(call, request, _owned(request.topic_partitions, lookup))
            )
        except TidelogError as error:
            return encode(call, _refused(error))
        tells = _is_full(request) or answer.member_epoch != request.member_epoch
        return encode(call, _answer(answer, await _assigned(answer.assignment, lookup) if tells else None))


def _heartbeat(
    call: Call, request: ConsumerGroupHeartbeatRequest, owned: tuple[TopicPartitions, ...] | None
) -> Heartbeat:
    rebalance_ms = milliseconds(request.rebalance_timeout)
    return Heartbeat(
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        topics=request.subscribed_topic_names,
        topic_pattern=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=owned,
        rebalance_timeout_ms=rebalance_ms if rebalance_ms >= 0 else None,
        rack=request.rack_id,
        client_id=call.context.client_id,
        client_host=f"/{call.client_host}",
    )


def _owned(given: tuple[OwnedPartitions, ...] | None, lookup: TopicLookup) -> tuple[TopicPartitions, ...] | None:
    """By names. Partitions of deleted topics are left out."""
    if given is None:
        return None
    named = ((lookup.by_id(each.topic_id), each.partitions) for each in given)
    return tuple(TopicPartitions(topic.name, partitions) for topic, partitions in named if topic)


async def _assigned(given: Sequence[TopicPartitions], lookup: TopicLookup) -> Assignment:
    found = await lookup.ids(given)
    return Assignment(
        topic_partitions=tuple(
            AssignedPartitions(topic_id=topic_id, partitions=of.partitions) for topic_id, of in found
        )
    )


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the member tells all of itself, as it does when it joins and after errors: it gets its assignment then.
    Otherwise it gets it when it changed, which gives it another epoch."""
    subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return milliseconds(request.rebalance_timeout) >= 0 and subscribes and request.topic_partitions is not None


def _answer(answer: HeartbeatAnswer, assignment: Assignment | None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        throttle_time=NO_TIME,
        error_code=ErrorCode.none,
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval=duration(answer.heartbeat_interval_ms),
        assignment=assignment if answer.member_epoch >= 0 else None,
    )


def _refused(error: TidelogError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        throttle_time=NO_TIME,
        error_code=ErrorCode.group_id_not_found if isinstance(error, UnknownGroup) else consumer_code(error),
        error_message=str(error),
        member_epoch=0,
        heartbeat_interval=NO_TIME,
    )
