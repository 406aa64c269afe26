"""CreatePartitions (37): adds partitions to topics."""

from __future__ import annotations

from collections import Counter

from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
from kio.schema.create_partitions.v3.response import CreatePartitionsResponse, CreatePartitionsTopicResult
from kio.schema.errors import ErrorCode

from tidelog.services.kafka.apis.immediate import ImmediateApi
from tidelog.services.kafka.apis.refusals import Refused, refusal_of
from tidelog.services.kafka.apis.topic_lookup import TopicLookup
from tidelog.services.kafka.protocol.api import Answer, Call
from tidelog.services.kafka.protocol.messages import NO_TIME, decode, encode
from tidelog.storage.errors import TidelogError


class CreatePartitionsApi(ImmediateApi):
    """See `protocol.api.Api`."""

    async def reply(self, call: Call) -> Answer:
        request = decode(call, CreatePartitionsRequest)
        named = Counter(each.name for each in request.topics)
        wanted = {each.name: each for each in request.topics}
        results = [
            await self._result(call, each, named[name] > 1, request.validate_only) for name, each in wanted.items()
        ]
        return encode(call, CreatePartitionsResponse(throttle_time=NO_TIME, results=tuple(results)))

    async def _result(
        self, call: Call, wanted: CreatePartitionsTopic, is_twice: bool, only_check: bool
    ) -> CreatePartitionsTopicResult:
        code, message = ErrorCode.none, None
        try:
            if is_twice:
                raise Refused(ErrorCode.invalid_request, f"the request names the topic {wanted.name[:300]!r} twice")
            await self._check(call, wanted)
            if not only_check:
                await self._broker.alter_topic(call.context, wanted.name, int(wanted.count), {})
        except TidelogError as error:
            code, message = refusal_of(error)
            if code is ErrorCode.invalid_topic_exception:  # no topic has such a name
                code = ErrorCode.unknown_topic_or_partition
        return CreatePartitionsTopicResult(name=wanted.name, error_code=code, error_message=message)

    async def _check(self, call: Call, wanted: CreatePartitionsTopic) -> None:
        topic = await TopicLookup(self._broker, call.context).by_name(wanted.name)
        if wanted.count <= topic.partition_count:
            text = f"the topic has {topic.partition_count} partitions: ask for more than that, not {wanted.count}"
            raise Refused(ErrorCode.invalid_partitions, text)
        added = wanted.count - topic.partition_count
        if wanted.assignments is not None and len(wanted.assignments) != added:
            text = f"{added} partitions are added, and {len(wanted.assignments)} are assigned to brokers"
            raise Refused(ErrorCode.invalid_replica_assignment, text)
        self._service.topic_limits.check_grown(self._broker.topics(call.context), topic, int(wanted.count))
