"""OffsetFetch (9): the committed offsets of a group, or since version 8 of several groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TypeAlias

from kio.schema.errors import ErrorCode
from kio.schema.offset_fetch.v7.request import OffsetFetchRequest as OneGroupRequest
from kio.schema.offset_fetch.v7.response import (
    OffsetFetchResponse as OneGroupResponse,
)
from kio.schema.offset_fetch.v7.response import (
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from kio.schema.offset_fetch.v9.request import OffsetFetchRequest, OffsetFetchRequestGroup
from kio.schema.offset_fetch.v9.response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

from tidelog.services.kafka.apis.groups.group_codes import classic_code, consumer_code
from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode
from tidelog.storage.errors import TidelogError
from tidelog.wire.groups import CommittedOffset, FetchOffsets, TopicPartitions

_GROUPS_SINCE, _MEMBER_EPOCHS_SINCE, _GROUP_CODE_SINCE = 8, 9, 2
_NOTHING = -1
Asked: TypeAlias = "Sequence[TopicPartitions] | None"
"""None: all that the group has."""


class OffsetFetchApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        if call.version >= _GROUPS_SINCE:
            request: OffsetFetchRequest = decode(call, OffsetFetchRequest)
            once = {each.group_id: each for each in request.groups}
            groups = [await self._of_group(call, each) for each in once.values()]
            return encode(call, OffsetFetchResponse(throttle_time=NO_TIME, groups=tuple(groups)))
        one: OneGroupRequest = decode(call, OneGroupRequest)
        asked = None if one.topics is None else [TopicPartitions(t.name, t.partition_indexes) for t in one.topics]
        code, found = await self._found(call, one.group_id, FetchOffsets(partitions=_tuple(asked)))
        return encode(call, _of_one(call, code, _by_topic(asked, found)))

    async def _of_group(self, call: Call, group: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
        asked = None if group.topics is None else [TopicPartitions(t.name, t.partition_indexes) for t in group.topics]
        request = FetchOffsets(
            partitions=_tuple(asked), member_id=group.member_id or "", member_epoch=group.member_epoch
        )
        code, found = await self._found(call, group.group_id, request)
        topics = _by_topic(asked, found) if code is ErrorCode.none else {}
        return OffsetFetchResponseGroup(
            group_id=group.group_id,
            topics=tuple(
                OffsetFetchResponseTopics(
                    name=name, partitions=tuple(_partition(OffsetFetchResponsePartitions, each) for each in of_topic)
                )
                for name, of_topic in topics.items()
            ),
            error_code=code,
        )

    async def _found(
        self, call: Call, group: str, request: FetchOffsets
    ) -> tuple[ErrorCode, Sequence[CommittedOffset]]:
        try:
            return ErrorCode.none, (await self._broker.groups.call(call.context, group, request)).offsets
        except TidelogError as error:
            is_consumer = call.version >= _MEMBER_EPOCHS_SINCE
            return consumer_code(error) if is_consumer else classic_code(error), ()


def _tuple(asked: Asked) -> tuple[TopicPartitions, ...] | None:
    return None if asked is None else tuple(asked)


_Place: TypeAlias = "tuple[int, CommittedOffset | None]"
"""A partition and its committed offset, if there is one."""


def _by_topic(asked: Asked, found: Sequence[CommittedOffset]) -> Mapping[str, Sequence[_Place]]:
    """All partitions that were asked for, also those without an offset."""
    if asked is None:
        ordered = sorted(found, key=lambda each: (each.topic, each.partition))
        return {
            topic: [(each.partition, each) for each in of_topic]
            for topic, of_topic in groupby(ordered, lambda each: each.topic)
        }
    known = {(each.topic, each.partition): each for each in found}
    return {each.topic: [(number, known.get((each.topic, number))) for number in each.partitions] for each in asked}


def _of_one(call: Call, code: ErrorCode, topics: Mapping[str, Sequence[_Place]]) -> OneGroupResponse:
    """Before version 2 each partition has the code of the group."""
    of_partitions = code if call.version < _GROUP_CODE_SINCE else ErrorCode.none
    return OneGroupResponse(
        throttle_time=NO_TIME,
        topics=tuple(
            OffsetFetchResponseTopic(
                name=name,
                partitions=tuple(_partition(OffsetFetchResponsePartition, each, of_partitions) for each in of_topic),
            )
            for name, of_topic in topics.items()
        ),
        error_code=code,
    )


_Schema = type[OffsetFetchResponsePartition] | type[OffsetFetchResponsePartitions]


def _partition(
    schema: _Schema, place: _Place, code: ErrorCode = ErrorCode.none
) -> OffsetFetchResponsePartition | OffsetFetchResponsePartitions:
    partition, found = place
    return schema(
        partition_index=partition,
        committed_offset=found.offset if found else _NOTHING,
        committed_leader_epoch=found.leader_epoch if found else _NOTHING,
        metadata=found.metadata if found else "",
        error_code=code,
    )
