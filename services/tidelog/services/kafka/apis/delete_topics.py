"""DeleteTopics (20): by name, and since version 6 also by id."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from kio.schema.delete_topics.v5.request import DeleteTopicsRequest as NamedRequest
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest
from kio.schema.delete_topics.v6.response import DeletableTopicResult, DeleteTopicsResponse
from kio.schema.errors import ErrorCode

from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.apis.refusals import refusal_of
from tidelog.services.kafka.apis.topic_lookup import TopicLookup, topic_uuid
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode
from tidelog.storage.errors import TidelogError

_IDS_SINCE = 6
_Named = tuple[str | None, UUID | None]


class DeleteTopicsApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        lookup = TopicLookup(self._broker, call.context)
        results = [await self._result(call, lookup, *named) for named in dict.fromkeys(_named(call))]
        return encode(call, DeleteTopicsResponse(throttle_time=NO_TIME, responses=tuple(results)))

    async def _result(
        self, call: Call, lookup: TopicLookup, name: str | None, topic_id: UUID | None
    ) -> DeletableTopicResult:
        if name is None:
            topic = lookup.by_id(topic_id)
            if topic is None:
                return _failed(None, topic_id, ErrorCode.unknown_topic_id, "no topic has this id")
            name = topic.name
        try:
            topic_id = topic_id or topic_uuid(await lookup.by_name(name))
            await self._broker.delete_topic(call.context, name)
        except TidelogError as error:
            return _failed(name, topic_id, *refusal_of(error))
        return DeletableTopicResult(name=name, topic_id=topic_id, error_code=ErrorCode.none)


def _named(call: Call) -> Sequence[_Named]:
    """The topics of the request: each has a name or an id."""
    if call.version < _IDS_SINCE:
        return [(name, None) for name in decode(call, NamedRequest).topic_names]
    return [(each.name, each.topic_id) for each in decode(call, DeleteTopicsRequest).topics]


def _failed(name: str | None, topic_id: UUID | None, code: ErrorCode, message: str) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message)
